// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-labels: threads
#include "keyed_support.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <tessera/tensor/expand_rows.hpp>

using namespace tensor_tests;

TEST_CASE("each row as often as it is told") {
  for_each_batch([](tessera::host_exec const& exec, auto view, model const& keys, std::mt19937_64& random) {
    auto const repeats = tessera_tests::random_integers<std::int64_t>(random, rows_of(keys), 0, 3);
    model expected;
    model_rows flat;
    auto next = repeats.begin();
    for (auto const& rows : keys) {
      expected.emplace_back();
      for (auto const& row : rows) {
        expected.back().insert(expected.back().end(), static_cast<std::size_t>(*next), row);
        flat.insert(flat.end(), static_cast<std::size_t>(*next), model_row{row.values, {}});
        ++next;
      }
    }
    check_batch(tessera::expand_rows(exec, view, repeats), expected);
    CHECK(model_of(tessera::expand_rows(exec, view.flat(), repeats).view()) == flat);
    check_batch(tessera::expand_rows(exec, view, ids(repeats.size(), 1)), keys);
    check_batch(tessera::expand_rows(exec, view, ids(repeats.size(), 0)), model(keys.size()));
    check_any_type(view, [&](auto in) { return tessera::expand_rows(exec, in, repeats); });
  });
}

TEST_CASE("one row very often") {
  tessera_tests::for_each_host([](tessera::host_exec const& exec, tessera_tests::counting_memory&) {
    auto const rows = tessera::jagged<std::int64_t>::from_rows(exec, {{1}, {2, 3, 4}, {}});
    auto const expanded = tessera::expand_rows(exec, rows.view(), ids{0, 50000, 3});
    tessera::validate(expanded.view(), 150000);
    REQUIRE(expanded.rows() == 50003);
    bool same = expanded.view().length(50002) == 0;
    for (std::int64_t i = 0; i < 150000; ++i) same = same && expanded.view().values[i] == 2 + i % 3;
    CHECK(same);
  });
}

TEST_CASE("the same repeats for every key") {
  tessera_tests::serial_host host;
  auto const batch = tessera::keyed_jagged<>::from_rows(host.exec(), {{"user", {{1, 2}, {}, {4}}}, {"item", {{5}, {6}, {7}}}});
  CHECK(text(tessera::expand_rows(host.exec(), batch, ids{2, 0, 1})) == "{user: [[1, 2], [1, 2], [4]], item: [[5], [5], [7]]}");
  CHECK(text(tessera::expand_rows(host.exec(), batch, ids{2, 0, 1, 1, 0, 0})) == "{user: [[1, 2], [1, 2], [4]], item: [[5]]}");
}

TEST_CASE("repeats that do not fit are refused") {
  tessera_tests::serial_host host;
  auto const batch = named_batch(host.exec());
  auto e = error_of([&] { tessera::expand_rows(host.exec(), batch, ids{1, 1, 1}); });
  CHECK(e.code() == tessera::errc::shape_mismatch);
  CHECK(e.value("key") == "item");
  e = error_of([&] { tessera::expand_rows(host.exec(), batch, ids{1, 1, 1, 1, -1}); });
  CHECK(std::string(e.what()) == "expand_rows: negative repeat (key item, row 1, repeat -1)");
  e = error_of([&] { tessera::expand_rows(host.exec(), batch.view().flat(), ids{1, -2, 1, 1, -1}); });
  CHECK(std::string(e.what()) == "expand_rows: negative repeat (row 1, repeat -2)");
  CHECK(error_of([&] { tessera::expand_rows(host.exec(), batch.view().flat(), ids{1}); }).code() == tessera::errc::shape_mismatch);
  e = error_of([&] { tessera::expand_rows(host.exec(), batch, ids{INT64_MAX, 1, 0, 0, 0}); });
  CHECK(e.code() == tessera::errc::out_of_range);
}
