// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-labels: threads
#include "rows_from_suite.hpp"

#include <stdexcept>

using namespace tensor_tests;

TEST_CASE_TEMPLATE("rows_from", Host, TESSERA_TEST_HOSTS) {
  Host host;
  rows_from_suite(rows_on_host{host.exec()});
}

TEST_CASE("rows_from: a source is a lambda, keeps its place from row to row, and may throw") {
  tessera_tests::pool_host<2> host;
  auto const exec = host.exec();
  auto const made = tessera::jagged<std::int64_t>::from_rows(exec, {{1, 2, 3}, {4, 5, 6}});
  auto const in = made.view();
  auto const tails = tessera::rows_from(exec, in, in.rows, [=](auto i) {
    return tessera::value_range<>{in.begin_of(i) + 1, in.length(i) - 1};
  });
  CHECK(text(tails.view()) == "[[2, 3], [5, 6]]");

  std::int64_t const rows = 50'000;
  auto const places = tessera::rows_from(exec, in, rows, [last = std::int64_t{-1}](std::int64_t i) mutable {
    bool const is_next = last < 0 || i == last + 1;
    last = i;
    return tessera::value_range<>{i % 6, is_next ? 1 : 0};
  });
  CHECK(places.size() == rows);
  CHECK(places.view().row(rows - 1)[0] == (rows - 1) % 6 + 1);

  CHECK_THROWS_AS(
      tessera::rows_from(exec, in, 3, [](std::int64_t i) { return i < 2 ? tessera::value_range<>{} : throw std::logic_error("no"); }),
      std::logic_error);
}
