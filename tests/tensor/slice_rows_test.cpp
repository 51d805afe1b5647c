// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-labels: threads
#include "keyed_support.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <tessera/tensor/slice_rows.hpp>

using namespace tensor_tests;

TEST_CASE("rows of each key from and to") {
  for_each_batch([](tessera::host_exec const& exec, auto view, model const& keys, std::mt19937_64& random) {
    ids first, count;
    model expected;
    for (auto const& rows : keys) {
      first.push_back(static_cast<std::int64_t>(random() % (rows.size() + 1)));
      count.push_back(static_cast<std::int64_t>(random() % (rows.size() + 1 - static_cast<std::size_t>(first.back()))));
      expected.emplace_back(rows.begin() + first.back(), rows.begin() + first.back() + count.back());
    }
    check_batch(tessera::slice_rows(exec, view, first, count), expected);
    check_batch(tessera::slice_rows(exec, view, 0, 0), model(keys.size()));
    std::size_t least = keys.empty() ? 3 : keys[0].size();
    for (auto const& rows : keys) least = std::min(least, rows.size());
    for (std::size_t from = 0; from <= std::min<std::size_t>(least, 3); ++from) {
      expected.clear();
      for (auto const& rows : keys)
        expected.emplace_back(rows.begin() + static_cast<std::ptrdiff_t>(from), rows.begin() + static_cast<std::ptrdiff_t>(least));
      check_batch(tessera::slice_rows(exec, view, static_cast<std::int64_t>(from), static_cast<std::int64_t>(least - from)), expected);
    }
    check_any_type(view, [&](auto in) { return tessera::slice_rows(exec, in, first, count); });
  });
}

TEST_CASE("names stay, and keys without these rows are named") {
  tessera_tests::serial_host host;
  auto const batch = named_batch(host.exec());
  CHECK(text(tessera::slice_rows(host.exec(), batch, 1, 1)) == "{user: [[]] weights [[]], item: [[7]] weights [[7]]}");
  CHECK(text(tessera::slice_rows(host.exec(), batch, ids{0, 1}, ids{1, 0})) ==
        "{user: [[1, 2, 3]] weights [[1, 2, 3]], item: [] weights []}");
  auto e = error_of([&] { tessera::slice_rows(host.exec(), batch, 1, 2); });
  CHECK(e.code() == tessera::errc::out_of_range);
  CHECK(std::string(e.what()) == "slice_rows: no such rows (key item, first 1, count 2, rows 2)");
  CHECK(error_of([&] { tessera::slice_rows(host.exec(), batch.view(), 1, 2); }).value("key") == "1");
  for (auto const& [first, count] : {std::pair<std::int64_t, std::int64_t>{-1, 1}, {0, -1}, {4, 0}, {INT64_MAX, 1}, {1, INT64_MAX}}) {
    e = error_of([&, f = first, c = count] { tessera::slice_rows(host.exec(), batch.view(), f, c); });
    CHECK(e.code() == tessera::errc::out_of_range);
    CHECK(e.value("key") == "0");
    CHECK(e.value("first") == std::to_string(first));
  }
  e = error_of([&] { tessera::slice_rows(host.exec(), batch.view(), ids{0}, ids{1, 1}); });
  CHECK(e.code() == tessera::errc::shape_mismatch);
}
