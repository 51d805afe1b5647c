// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include <tessera/tensor/masked_select.hpp>

#include "rows_harness.hpp"

namespace masked_select_tests {

using namespace tensor_tests;
using mask_of_bytes = std::vector<std::uint8_t>;

template <class Harness>
void batches(Harness const& harness) {
  auto const& exec = harness.exec;
  for_each_batch_of(harness, [&](auto view, auto host_view, model const& keys, std::mt19937_64& random) {
    for (int const percent : {0, 50, 97, 100}) {
      mask_of_bytes mask(static_cast<std::size_t>(host_view.size()));
      for (auto& keep : mask)
        keep = static_cast<int>(random() % 100) < percent ? static_cast<std::uint8_t>(1 + random() % 255) : std::uint8_t{0};
      auto expected = keys;
      model_rows flat;
      std::size_t next = 0;
      for (auto& rows : expected)
        for (auto& row : rows) {
          model_row kept;
          for (std::size_t i = 0; i < row.values.size(); ++i) {
            if (mask[next++] == 0) continue;
            kept.values.push_back(row.values[i]);
            if (view.weighted()) kept.weights.push_back(row.weights[i]);
          }
          row = kept;
          flat.push_back({kept.values, {}});
        }
      auto const placed_mask = harness.numbers(mask);
      auto const result = harness.get(tessera::masked_select(exec, view, placed_mask));
      check_batch(result, expected);
      check_batch(harness.get(tessera::masked_select(exec, view, placed_mask, {.most_values = result.view().size()})), expected);
      CHECK(model_of(harness.get(tessera::masked_select(exec, view.flat(), placed_mask)).view()) == flat);
      if (percent == 100) CHECK(expected == keys);
      check_bytes(harness, view, host_view, [&](auto in) { return tessera::masked_select(exec, in, placed_mask); });
    }
  });
}

template <class Harness>
void refusals(Harness const& harness) {
  auto const& exec = harness.exec;
  auto const batch = named_batch_in(harness);
  for (std::size_t const bytes : {0U, 1U, 6U}) {
    auto const mask = harness.numbers(mask_of_bytes(bytes, 1));
    CHECK(refusal_of(harness, [&] { return tessera::masked_select(exec, batch.view(), mask); }) ==
          "masked_select: one byte of mask a value (values 7, mask " + std::to_string(bytes) + ")");
  }
  auto const mask = harness.numbers(mask_of_bytes{0, 1, 1, 0, 0, 1, 2});
  check_room(harness, "masked_select", 4,
             [&](tessera::result_room room) { return tessera::masked_select(exec, batch.view(), mask, room); });
  CHECK(waits_of(harness, 0, [&] {
          tessera::masked_select(exec, batch, mask);
          tessera::masked_select(exec, without_room(batch.view().flat()), mask);
        }) == 0);
}

}  // namespace masked_select_tests

/// What every execution must show.
template <class Harness>
void masked_select_suite(Harness const& harness) {
  using namespace masked_select_tests;
  SUBCASE("values whose mask is not 0, in their rows") { batches(harness); }
  SUBCASE("names stay") {
    auto const batch = named_batch_in(harness);
    CHECK(text(harness.get(tessera::masked_select(harness.exec, batch, harness.numbers(mask_of_bytes{0, 1, 1, 0, 0, 1, 2})))) ==
          "{user: [[2, 3], [], []] weights [[2, 3], [], []], item: [[6], [7]] weights [[6], [7]]}");
  }
  SUBCASE("too short a mask, and too little room") { refusals(harness); }
}
