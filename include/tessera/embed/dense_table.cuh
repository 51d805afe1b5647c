// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <tessera/core/cuda_execution.cuh>
#include <tessera/core/device.hpp>
#include <tessera/core/four_elements.hpp>
#include <tessera/core/row_formats.hpp>
#include <tessera/core/view.hpp>
#include <tessera/embed/dense_table.hpp>
#include <tessera/embed/row_optimizer.hpp>
#include <tessera/embed/row_store.hpp>

namespace tessera {
inline namespace TESSERA_ABI {
namespace detail {

/// Four columns of an id's initial row. @pre `column` is a multiple of 4
template <class Element>
TESSERA_HOST_DEVICE four_elements<Element> initial_four(table_options const& table, std::int64_t id, std::int64_t column) noexcept {
  auto const words = initial_row_block(table, id, column / 4);
  auto const scale = initial_scale<Element>(table);
  four_elements<Element> four;
  for (int k = 0; k < 4; ++k) four[k] = scale.nearest(uniform_symmetric(words[k], table.init_bound));
  return four;
}

// Four elements of a row a thread: as many as one random block gives.
template <class Element>
struct initialise_elements {
  dense_rows<Element> rows;
  std::int64_t blocks;  // a row

  TESSERA_DEVICE void operator()(std::int64_t i) const {
    auto const id = i / blocks, block = i % blocks;
    auto const count = rows.dim() - 4 * block;
    auto* const row = rows.row(id);
    if (block == 0) initial_scale<Element>(rows.options()).write_to(row);
    write_four(row + 4 * block, initial_four<Element>(rows.options(), id, 4 * block), count, false);
  }
};

struct fill_floats {
  float* values;
  float value;
  TESSERA_DEVICE void operator()(std::int64_t i) const { values[i] = value; }
};

template <class Element>
struct find_in_dense {
  dense_rows<Element> rows;
  std::int64_t const* ids;
  std::int64_t* slots;
  row_status* statuses;

  TESSERA_DEVICE void operator()(std::int64_t i) const {
    bool const held = rows.holds(ids[i]);
    slots[i] = held ? ids[i] : -1;
    if (statuses != nullptr) statuses[i] = held ? row_status::found : row_status::out_of_range;
  }
};

template <device_execution Exec>
struct back_end<dense_table_tag, Exec> {
  template <class Element>
  static void initialise(Exec const& exec, dense_rows<Element> const& rows, row_state_layout layout) {
    auto const count = rows.options().rows, blocks = divide_up(rows.dim(), 4);
    launch_for_each(exec, count * blocks, initialise_elements<Element>{rows, blocks});
    launch_for_each(exec, count * rows.state_width, fill_floats{rows.states, layout.initial});
  }

  template <class Element>
  static void find(Exec const& exec, dense_rows<Element> const& rows, vector_view<std::int64_t const> ids, vector_view<std::int64_t> slots,
                   vector_view<row_status> statuses) {
    launch_for_each(exec, ids.size(), find_in_dense<Element>{rows, ids.data(), slots.data(), statuses.empty() ? nullptr : statuses.data()});
  }
};

}  // namespace detail
}  // namespace TESSERA_ABI
}  // namespace tessera
