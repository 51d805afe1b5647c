// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <tessera/tensor/truncate_rows.hpp>

#include "rows_harness.hpp"

namespace truncate_rows_tests {

using namespace tensor_tests;
using tessera::kept_values;

inline model_row cut(model_row row, std::int64_t most, kept_values kept) {
  auto const keep = [&](auto& values) {
    auto const surplus = std::max<std::ptrdiff_t>(0, static_cast<std::ptrdiff_t>(values.size()) - most);
    if (kept == kept_values::first) values.erase(values.end() - surplus, values.end());
    if (kept == kept_values::last) values.erase(values.begin(), values.begin() + surplus);
  };
  keep(row.values);
  keep(row.weights);
  return row;
}

template <class Harness>
void batches(Harness const& harness) {
  auto const& exec = harness.exec;
  for_each_batch_of(harness, [&](auto view, auto host_view, model const& keys, std::mt19937_64& random) {
    for (auto const kept : {kept_values::first, kept_values::last}) {
      for (std::int64_t const most : {std::int64_t{0}, std::int64_t{1}, std::int64_t{3}, std::int64_t{10000}, INT64_MAX}) {
        auto expected = keys;
        for (auto& rows : expected)
          for (auto& row : rows) row = cut(row, std::min<std::int64_t>(most, 1 << 20), kept);
        check_batch(harness.get(tessera::truncate_rows(exec, view, most, kept)), expected);
        model_rows flat;
        for (auto const& rows : expected)
          for (auto const& row : rows) flat.push_back({row.values, {}});
        CHECK(model_of(harness.get(tessera::truncate_rows(exec, view.flat(), most, kept)).view()) == flat);
        if (most >= 10000) CHECK(expected == keys);
      }
      auto const own = tessera_tests::random_integers<std::int64_t>(random, keys.size(), 0, 6);
      auto expected = keys;
      for (std::size_t key = 0; key < keys.size(); ++key)
        for (auto& row : expected[key]) row = cut(row, own[key], kept);
      auto const result = harness.get(tessera::truncate_rows(exec, view, own, kept));
      check_batch(result, expected);
      check_batch(harness.get(tessera::truncate_rows(exec, view, own, kept, {.most_values = result.view().size()})), expected);
      check_bytes(harness, view, host_view, [&](auto in) { return tessera::truncate_rows(exec, in, own, kept); });
    }
  });
}

template <class Harness>
void by_hand(Harness const& harness) {
  auto const& exec = harness.exec;
  auto const batch = named_batch_in(harness);
  CHECK(text(harness.get(tessera::truncate_rows(exec, batch, 1, kept_values::last))) ==
        "{user: [[3], [], [4]] weights [[3], [], [4]], item: [[6], [7]] weights [[6], [7]]}");
  CHECK(text(harness.get(tessera::truncate_rows(exec, batch, ids{2, 0}, kept_values::first))) ==
        "{user: [[1, 2], [], [4]] weights [[1, 2], [], [4]], item: [[], []] weights [[], []]}");
  auto const e = error_of([&] { tessera::truncate_rows(exec, batch, -1, kept_values::first); });
  CHECK(e.code() == tessera::errc::invalid_argument);
  CHECK(e.value("most") == "-1");
  CHECK(refusal_of([&] {
          tessera::truncate_rows(exec, batch, ids{2, -3}, kept_values::first);
        }) == "truncate_rows: negative number of values (key item, most -3)");
  CHECK(error_of([&] { tessera::truncate_rows(exec, batch.view().flat(), -1, kept_values::first); }).code() ==
        tessera::errc::invalid_argument);
  CHECK(error_of([&] { tessera::truncate_rows(exec, batch, ids{2}, kept_values::first); }).code() == tessera::errc::shape_mismatch);
  auto const few = [&](auto const& in, tessera::result_room room = {}) {
    return tessera::truncate_rows(exec, in, 2, kept_values::last, room);
  };
  check_room(harness, "truncate_rows", 6, [&](auto room) { return few(batch.view(), room); });
  CHECK(waits_of(harness, 0, [&] { few(batch); }) == 0);
  CHECK(waits_of(harness, 0, [&] { few(batch.view().flat()); }) == 0);
  CHECK(waits_of(harness, 1, [&] { few(without_room(batch.view())); }) == 1);
  CHECK(waits_of(harness, 0, [&] { few(without_room(batch.view()), {.most_values = 10}); }) == 0);
}

template <class Harness>
void decreasing_offsets(Harness const& harness) {
  auto const values = harness.numbers(ids{1, 2, 3}), offsets = harness.numbers(ids{0, 3, 1});
  ids const first_row{0, 2};
  tessera::keyed_jagged_view<std::int64_t const> const view{values.data(), nullptr, offsets.data(), first_row.data(), 1};
  auto const e = refusal(harness, [&] { return tessera::truncate_rows(harness.exec, view, 5, kept_values::first); });
  CHECK(e.code() == tessera::errc::invalid_argument);
  CHECK(e.value("row") == "1");
}

}  // namespace truncate_rows_tests

/// What every execution must show.
template <class Harness>
void truncate_rows_suite(Harness const& harness) {
  using namespace truncate_rows_tests;
  SUBCASE("the first or the last values of every row") { batches(harness); }
  SUBCASE("names stay, and a negative number is refused") { by_hand(harness); }
  SUBCASE("offsets that decrease never reach memory") { decreasing_offsets(harness); }
}
