// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include <tessera/core/cuda_execution.cuh>
#include <tessera/core/device.hpp>
#include <tessera/core/four_elements.hpp>
#include <tessera/core/multiply_add.hpp>
#include <tessera/core/row_formats.hpp>
#include <tessera/embed/row_update.hpp>

/// The update of one row on a device, by a group of threads.
namespace tessera {
inline namespace TESSERA_ABI {
namespace detail {

/// A table as kernels see it, and what they do to its rows: an optimizer, or the place of the sums.
template <class Rows, class Action>
struct table_and_action {
  Rows rows;
  Action action;
  std::int64_t first_slot;  // among those of all tables
  bool rows_by_four;
};

/// The shared memory of a group that updates rows, in floats: a row's sum, and sixteen running sums of squares or a magnitude a thread.
TESSERA_HOST_DEVICE constexpr std::int64_t update_floats(std::int64_t width) noexcept { return width + 32; }

/// Adds in the order of `sum_of_squares`: sixteen running sums, shared among the lanes, and one of the remainder.
template <class Block>
TESSERA_DEVICE float sum_of_squares_by_group(Block& block, float* sum, std::int64_t width, std::int64_t dim, int lanes, int lane) {
  float* const running = sum + width;
  block.sync_group(lanes);
  auto const whole = dim / 16 * 16;
  for (int k = lane; k < 16; k += lanes) {
    float square = 0;
    for (std::int64_t i = k; i < whole; i += 16) square = multiply_add(sum[i], sum[i], square);
    running[k] = square;
  }
  block.sync_group(lanes);
  float rest = 0;
  for (auto i = whole; i < dim; ++i) rest = multiply_add(sum[i], sum[i], rest);
  return join_lanes(running) + rest;
}

/// Updates a row by its summed gradient, with a group of `lanes` threads, of which this is number `lane`. `sum` is update_floats(width) of
/// shared memory, in which this thread has written its columns.
template <class Block, class Rows, class Optimizer>
TESSERA_DEVICE void update_row_by_group(Block& block, table_and_action<Rows, Optimizer> const& table, std::int64_t slot, float* sum,
                                        std::int64_t width, int lanes, int lane) {
  using element = typename Rows::element;
  constexpr bool rounded = !std::is_same_v<element, float>, shares_scale = row_scale<element>::lead > 0;
  constexpr int row_state = Optimizer::row_state;
  auto const& optimizer = table.action;
  auto const dim = table.rows.dim();
  element* const row = table.rows.row(slot);
  auto const old_scale = row_scale<element>::of(row);
  float* const state = table.rows.state(slot);

  if constexpr (changes_gradients<Optimizer>) {  // in braces for nvcc's front end
    for (std::int64_t column = 4 * lane; column < dim; column += 4 * lanes) {
      auto const weights = read_four(row + column, dim - column, table.rows_by_four);
      auto gradient = read_four(sum + column, 4, true);
      for (int c = 0; c < 4; ++c) gradient[c] = optimizer.gradient_of(gradient[c], old_scale.value(weights[c]));
      write_four(sum + column, gradient, 4, true);
    }
  }

  float own_state[static_cast<unsigned>(row_state > 0 ? row_state : 1)] = {};
  for (int i = 0; i < row_state; ++i) own_state[i] = state[i];
  float squares = __builtin_nanf("");  // a policy that reads what it did not ask for shall see that
  if constexpr (uses_sum_of_squares<Optimizer>)
    squares = sum_of_squares_by_group(block, sum, width, dim, lanes, lane);
  else if constexpr (row_state > 0)
    block.sync_group(lanes);
  auto const factor = optimizer.begin_row(own_state, row_gradient{squares, dim, table.rows.steps()});
  if (lane == 0)
    for (int i = 0; i < row_state; ++i) state[i] = own_state[i];

  auto const store = [&](row_scale<element> const& scale, std::int64_t column, four_elements<float> const& weights) {
    random_block words{};
    if constexpr (rounded) words = rounding_block(table.rows.options(), table.rows.steps(), table.rows.id_of(slot), column / 4);
    four_elements<element> stored;
    for (int c = 0; c < 4; ++c) stored[c] = scale.stochastic(weights[c], words[c]);
    write_four(row + column, stored, dim - column, table.rows_by_four);
  };
  float* const elements = state + row_state;
  std::uint32_t largest = 0;
  if constexpr (shares_scale) block.sync_group(lanes);  // all have squared the sums that weights take the place of
  for (std::int64_t column = 4 * lane; column < dim; column += 4 * lanes) {
    auto const count = dim - column;
    auto const gradient = read_four(sum + column, 4, true);
    auto const stored = read_four(row + column, count, table.rows_by_four);
    four_elements<float> weights{};
    for (int c = 0; c < 4; ++c) {
      if (c >= count) continue;
      weights[c] = old_scale.value(stored[c]);
      optimizer.update(weights[c], elements + (Optimizer::element_state > 0 ? column + c : 0), dim, gradient[c], factor);
      if constexpr (shares_scale) largest = magnitude_of(weights[c]) > largest ? magnitude_of(weights[c]) : largest;
    }
    if constexpr (shares_scale)
      write_four(sum + column, weights, 4, true);  // until all know the row's scale
    else
      store(old_scale, column, weights);
  }
  if constexpr (shares_scale) {
    auto const scale =
        row_scale<element>::covering(largest_of_group(block, reinterpret_cast<std::uint32_t*>(sum + width), largest, lanes, lane));
    if (lane == 0) scale.write_to(row);
    for (std::int64_t column = 4 * lane; column < dim; column += 4 * lanes) store(scale, column, read_four(sum + column, 4, true));
  }
  block.sync_group(lanes);  // before the next row takes the shared memory
}

}  // namespace detail
}  // namespace TESSERA_ABI
}  // namespace tessera
