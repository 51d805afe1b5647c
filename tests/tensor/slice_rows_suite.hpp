// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <tessera/tensor/slice_rows.hpp>

#include "rows_harness.hpp"

namespace slice_rows_tests {

using namespace tensor_tests;

template <class Harness>
void batches(Harness const& harness) {
  auto const& exec = harness.exec;
  for_each_batch_of(harness, [&](auto view, auto host_view, model const& keys, std::mt19937_64& random) {
    ids first, count;
    model expected;
    for (auto const& rows : keys) {
      first.push_back(static_cast<std::int64_t>(random() % (rows.size() + 1)));
      count.push_back(static_cast<std::int64_t>(random() % (rows.size() + 1 - static_cast<std::size_t>(first.back()))));
      expected.emplace_back(rows.begin() + first.back(), rows.begin() + first.back() + count.back());
    }
    auto const result = harness.get(tessera::slice_rows(exec, view, first, count));
    check_batch(result, expected);
    check_batch(harness.get(tessera::slice_rows(exec, view, first, count, {.most_values = result.view().size()})), expected);
    check_batch(harness.get(tessera::slice_rows(exec, view, 0, 0)), model(keys.size()));
    std::size_t least = keys.empty() ? 3 : keys[0].size();
    for (auto const& rows : keys) least = std::min(least, rows.size());
    for (std::size_t from = 0; from <= std::min<std::size_t>(least, 3); ++from) {
      expected.clear();
      for (auto const& rows : keys)
        expected.emplace_back(rows.begin() + static_cast<std::ptrdiff_t>(from), rows.begin() + static_cast<std::ptrdiff_t>(least));
      check_batch(harness.get(tessera::slice_rows(exec, view, static_cast<std::int64_t>(from), static_cast<std::int64_t>(least - from))),
                  expected);
    }
    check_bytes(harness, view, host_view, [&](auto in) { return tessera::slice_rows(exec, in, first, count); });
  });
}

template <class Harness>
void by_hand(Harness const& harness) {
  auto const& exec = harness.exec;
  auto const batch = named_batch_in(harness);
  CHECK(text(harness.get(tessera::slice_rows(exec, batch, 1, 1))) == "{user: [[]] weights [[]], item: [[7]] weights [[7]]}");
  CHECK(text(harness.get(tessera::slice_rows(exec, batch, ids{0, 1}, ids{1, 0}))) ==
        "{user: [[1, 2, 3]] weights [[1, 2, 3]], item: [] weights []}");
  CHECK(refusal_of([&] { tessera::slice_rows(exec, batch, 1, 2); }) == "slice_rows: no such rows (key item, first 1, count 2, rows 2)");
  CHECK(error_of([&] { tessera::slice_rows(exec, batch.view(), 1, 2); }).value("key") == "1");
  for (auto const& range : {std::pair<std::int64_t, std::int64_t>{-1, 1}, {0, -1}, {4, 0}, {INT64_MAX, 1}, {1, INT64_MAX}}) {
    auto const e = error_of([&] { tessera::slice_rows(exec, batch.view(), range.first, range.second); });
    CHECK(e.code() == tessera::errc::out_of_range);
    CHECK(e.value("key") == "0");
    CHECK(e.value("first") == std::to_string(range.first));
  }
  CHECK(error_of([&] { tessera::slice_rows(exec, batch.view(), ids{0}, ids{1, 1}); }).code() == tessera::errc::shape_mismatch);
  check_room(harness, "slice_rows", 6, [&](auto room) { return tessera::slice_rows(exec, batch.view(), 0, 2, room); });
  CHECK(waits_of(harness, 0, [&] { tessera::slice_rows(exec, batch, 0, 2); }) == 0);
  CHECK(waits_of(harness, 1, [&] { tessera::slice_rows(exec, without_room(batch.view()), 0, 2); }) == 1);
  CHECK(waits_of(harness, 0, [&] { tessera::slice_rows(exec, without_room(batch.view()), 0, 2, {.most_values = 6}); }) == 0);
}

}  // namespace slice_rows_tests

/// What every execution must show.
template <class Harness>
void slice_rows_suite(Harness const& harness) {
  using namespace slice_rows_tests;
  SUBCASE("rows of each key from and to") { batches(harness); }
  SUBCASE("names stay, and keys without these rows are named") { by_hand(harness); }
}
