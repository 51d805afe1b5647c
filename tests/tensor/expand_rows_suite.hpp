// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <tessera/tensor/expand_rows.hpp>

#include "rows_harness.hpp"

namespace expand_rows_tests {

using namespace tensor_tests;

template <class Harness>
void batches(Harness const& harness) {
  auto const& exec = harness.exec;
  for_each_batch_of(harness, [&](auto view, auto host_view, model const& keys, std::mt19937_64& random) {
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
    auto const placed = harness.numbers(repeats), ones = harness.numbers(ids(repeats.size(), 1)),
               zeros = harness.numbers(ids(repeats.size(), 0));
    auto const result = harness.get(tessera::expand_rows(exec, view, placed));
    check_batch(result, expected);
    check_batch(harness.get(tessera::expand_rows(exec, view, placed, {.most_values = result.view().size()})), expected);
    CHECK(model_of(harness.get(tessera::expand_rows(exec, view.flat(), placed)).view()) == flat);
    check_batch(harness.get(tessera::expand_rows(exec, view, ones)), keys);
    check_batch(harness.get(tessera::expand_rows(exec, view, zeros)), model(keys.size()));
    check_bytes(harness, view, host_view, [&](auto in) { return tessera::expand_rows(exec, in, placed); });
  });
}

template <class Harness>
void often(Harness const& harness) {
  auto const rows = rows_in(harness, {{1}, {2, 3, 4}, {}});
  auto const expanded = harness.get(tessera::expand_rows(harness.exec, rows.view(), harness.numbers(ids{0, 50000, 3})));
  tessera::validate(expanded.view(), 150000);
  REQUIRE(expanded.rows() == 50003);
  bool same = expanded.view().length(50002) == 0;
  for (std::int64_t i = 0; i < 150000; ++i) same = same && expanded.view().values[i] == 2 + i % 3;
  CHECK(same);
}

template <class Harness>
void refusals(Harness const& harness) {
  auto const& exec = harness.exec;
  auto const batch = named_batch_in(harness);
  auto const view = batch.view();
  auto const refused = [&](auto const& in, ids const& repeats) {
    auto const placed = harness.numbers(repeats);
    return refusal_of(harness, [&] { return tessera::expand_rows(exec, in, placed); });
  };
  CHECK(refused(batch, ids{1, 1, 1}) ==
        "expand_rows: one repeat a row of all keys, or of each key (rows of all keys 5, key item, rows 2, repeats 3)");
  CHECK(refused(view, ids{1, 1, 1, -7, -1}) == "expand_rows: negative repeat (key 1, row 0, repeat -7)");
  CHECK(refused(view.flat(), ids{1, -2, 1, 1, -1}) == "expand_rows: negative repeat (row 1, repeat -2)");
  CHECK(refused(view.flat(), ids{1}) == "expand_rows: one repeat a row (rows 5, repeats 1)");
  CHECK(refused(view, ids{INT64_MAX, 1, 0, 0, 0}) ==
        "lengths_to_offsets: the sum does not fit into an offset (row 1, length 1, largest offset 9223372036854775807)");
  auto const thrice = harness.numbers(ids{3}), repeats = harness.numbers(ids{2, 0, 0, 1, 0});
  check_outgrown(harness, [&](auto rows) { return tessera::expand_rows(exec, rows, thrice); });
  check_room(harness, "expand_rows", 8, [&](auto room) { return tessera::expand_rows(exec, view, repeats, room); });
  CHECK(waits_of(harness, 1, [&] { tessera::expand_rows(exec, view, repeats); }) == 1);
  CHECK(waits_of(harness, 1, [&] { tessera::expand_rows(exec, view.flat(), repeats, {.most_values = 11}); }) == 1);
}

}  // namespace expand_rows_tests

/// What every execution must show.
template <class Harness>
void expand_rows_suite(Harness const& harness) {
  using namespace expand_rows_tests;
  SUBCASE("each row as often as it is told") { batches(harness); }
  SUBCASE("one row very often") { often(harness); }
  SUBCASE("the same repeats for every key") {
    auto const batch = batch_in(harness, {{"user", {{1, 2}, {}, {4}}}, {"item", {{5}, {6}, {7}}}});
    CHECK(text(harness.get(tessera::expand_rows(harness.exec, batch, harness.numbers(ids{2, 0, 1})))) ==
          "{user: [[1, 2], [1, 2], [4]], item: [[5], [5], [7]]}");
    CHECK(text(harness.get(tessera::expand_rows(harness.exec, batch, harness.numbers(ids{2, 0, 1, 1, 0, 0})))) ==
          "{user: [[1, 2], [1, 2], [4]], item: [[5]]}");
  }
  SUBCASE("repeats that do not fit are refused") { refusals(harness); }
}
