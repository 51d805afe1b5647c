// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include <tessera/core/buffer.hpp>
#include <tessera/core/cuda_execution.cuh>
#include <tessera/core/device.hpp>
#include <tessera/core/radix_sort.cuh>
#include <tessera/core/row_formats.hpp>
#include <tessera/embed/pooled_lookup.cuh>
#include <tessera/embed/row_transfer.hpp>

namespace tessera {
inline namespace TESSERA_ABI {
namespace detail {

// One element of a row or of its state a thread.
template <class Rows>
struct read_elements {
  Rows rows;
  std::int64_t const* ids;
  std::int64_t const* slots;
  matrix_view<float> weights, states;
  float initial_state;
  row_status* statuses;  // or nullptr
  row_status absent;

  TESSERA_DEVICE void operator()(std::int64_t i) const {
    auto const columns = weights.columns() + states.columns();
    auto const number = i / columns, column = i % columns;
    auto const slot = slots[number];
    bool const held = rows.holds(slot);
    if (column == 0 && statuses != nullptr) statuses[number] = held ? row_status::found : absent;
    if (column < weights.columns()) {
      using element = typename Rows::element;
      float* const to = weights.data() + number * weights.stride() + column;
      if (held)
        *to = row_scale<element>::of(rows.row(slot)).value(rows.row(slot)[column]);
      else
        *to = initial_scale<element>(rows.options())
                  .value(initial_four<element>(rows.options(), ids[number], column / 4 * 4)[static_cast<int>(column % 4)]);
    } else {
      auto const c = column - weights.columns();
      states.data()[number * states.stride() + c] = held ? rows.state(slot)[c] : initial_state;
    }
  }
};

// Pairs sorted by slot: of those of one slot the last is written, by a group of threads.
template <class Rows>
struct write_rows_kernel {
  static constexpr int threads = 256, lanes = 32;
  static constexpr std::int64_t shared_bytes = threads * sizeof(std::uint32_t);
  Rows rows;
  std::int64_t const* slots;    // sorted
  std::int64_t const* numbers;  // which row to write there
  std::int64_t count;
  matrix_view<float const> weights, states;

  template <class Block>
  TESSERA_DEVICE void operator()(Block& block) const {
    for_each_unit(block, count, threads / lanes, block.thread() / lanes, [&](std::int64_t at) {
      auto const slot = slots[at];
      if (rows.holds(slot) && (at + 1 >= count || slots[at + 1] != slot)) write(block, slot, numbers[at], block.thread() % lanes);
    });
  }

  template <class Block>
  TESSERA_DEVICE void write(Block& block, std::int64_t slot, std::int64_t number, int lane) const {
    using scale_type = row_scale<typename Rows::element>;
    auto const* const from = weights.data() + number * weights.stride();
    std::uint32_t largest = 0;
    if constexpr (scale_type::lead > 0) {
      for (std::int64_t c = lane; c < weights.columns(); c += lanes)
        largest = magnitude_of(from[c]) > largest ? magnitude_of(from[c]) : largest;
      largest = largest_of_group(block, block.template shared<std::uint32_t>() + block.thread() / lanes * lanes, largest, lanes, lane);
    }
    auto const scale = scale_type::covering(largest);
    auto* const row = rows.row(slot);
    if (lane == 0) scale.write_to(row);
    for (std::int64_t c = lane; c < weights.columns(); c += lanes) row[c] = scale.nearest(from[c]);
    for (std::int64_t c = lane; c < states.columns(); c += lanes) rows.state(slot)[c] = states.data()[number * states.stride() + c];
  }
};

struct number_from_zero {
  std::int64_t* numbers;
  TESSERA_DEVICE void operator()(std::int64_t i) const { numbers[i] = i; }
};

template <device_execution Exec>
struct back_end<row_transfer_tag, Exec> {
  template <class Store>
  static void read(Exec const& exec, Store const& store, vector_view<std::int64_t const> ids, matrix_view<float> weights,
                   matrix_view<float> states, vector_view<row_status> statuses) {
    constexpr auto absent = Store::slots_are_ids ? row_status::out_of_range : row_status::not_admitted;
    buffer<std::int64_t, Exec> slots(exec, ids.size());
    store.find(exec, ids, slots.view());
    auto rows = store.device_rows();
    launch_for_each(exec, ids.size() * (weights.columns() + states.columns()),
                    read_elements<decltype(rows)>{rows, ids.data(), slots.data(), weights, states, store.state_layout().initial,
                                                  statuses.empty() ? nullptr : statuses.data(), absent});
  }

  template <class Store>
  static void write(Exec const& exec, Store& store, vector_view<std::int64_t const> ids, matrix_view<float const> weights,
                    matrix_view<float const> states, vector_view<row_status> statuses) {
    buffer<std::int64_t, Exec> slots(exec, ids.size()), numbers(exec, ids.size());
    if constexpr (requires { store.insert(exec, ids, slots.view(), statuses); })
      store.insert(exec, ids, slots.view(), statuses);
    else
      store.locate(exec, ids, slots.view(), statuses);
    launch_for_each(exec, ids.size(), number_from_zero{numbers.data()});
    radix_sort_pairs(exec, slots, numbers);
    auto rows = store.device_rows();
    using kernel = write_rows_kernel<decltype(rows)>;
    if (ids.empty()) return;
    exec.launch({.blocks = blocks_for(ids.size(), kernel::threads / kernel::lanes), .shared_bytes = kernel::shared_bytes},
                kernel{rows, slots.data(), numbers.data(), ids.size(), weights, states});
  }
};

}  // namespace detail
}  // namespace TESSERA_ABI
}  // namespace tessera
