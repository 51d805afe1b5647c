// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/core/buffer.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/row_formats.hpp>
#include <tessera/embed/host_rows.hpp>
#include <tessera/embed/row_optimizer.hpp>
#include <tessera/embed/row_store.hpp>
#include <tessera/embed/table_bytes.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// Rows and their optimizer states by slot, uninitialised, in slabs that never move. Move-only.
template <row_element Element>
class row_slabs {
 public:
  /// Slabs without room yet.
  row_slabs(std::int64_t dim, row_state_layout layout) noexcept
      : dim_(dim), extent_(row_scale<Element>::extent(dim)), width_(layout.width(dim)), layout_(layout) {}

  std::int64_t dim() const noexcept { return dim_; }
  /// The optimizer state of each row.
  row_state_layout layout() const noexcept { return layout_; }

  Element* row(std::int64_t slot) noexcept { return static_cast<Element*>(places().row(slot)) + row_scale<Element>::lead; }
  Element const* row(std::int64_t slot) const noexcept {
    return static_cast<Element const*>(places().row(slot)) + row_scale<Element>::lead;
  }
  float* state(std::int64_t slot) noexcept { return places().state(slot); }
  float const* state(std::int64_t slot) const noexcept { return places().state(slot); }

  /// The view for kernels, which write through it also where the slabs are const. It is valid until more room is made.
  row_places places() const noexcept {
    return {nullptr, nullptr, slabs_.data(), extent_ * static_cast<std::int64_t>(sizeof(Element)), width_, dim_};
  }

  /// Makes room for the slots below `slots`.
  void reserve(host_exec const& exec, std::int64_t slots) {
    auto const missing = divide_up(slots, row_slab::rows) - static_cast<std::int64_t>(slabs_.size());
    if (missing <= 0) return;
    auto const needed = slabs_.size() + static_cast<std::size_t>(missing);
    if (needed > slabs_.capacity()) slabs_.reserve(std::max(needed, 2 * slabs_.size() + 16));  // so that the push_back below cannot throw
    auto const rows = missing * row_slab::rows;
    auto& memory = memories_.emplace_back(slab_memory{buffer<Element>(exec, rows * extent_), buffer<float>(exec, rows * width_)});
    for (std::int64_t row = 0; row < rows; row += row_slab::rows)
      slabs_.push_back({memory.weights.data() + row * extent_, memory.states.data() + row * width_});
  }

  /// As above. Where there is too little room, it makes half as much again, but not more than for `most` slots. What grows row by row so
  /// comes to have large pages.
  void grow(host_exec const& exec, std::int64_t slots, std::int64_t most) {
    auto const room = static_cast<std::int64_t>(slabs_.size()) * row_slab::rows;
    if (slots > room) reserve(exec, std::max(slots, std::min(room + room / 2, most)));
  }

  std::size_t bytes() const noexcept {
    std::size_t sum = 0;
    for (auto const& s : memories_) sum += s.weights.capacity_bytes() + s.states.capacity_bytes();
    return sum;
  }
  /// What options.rows rows will occupy.
  static table_bytes bytes_for(table_options const& options, row_state_layout layout) noexcept {
    auto const slots = static_cast<std::size_t>(divide_up(options.rows, row_slab::rows) * row_slab::rows);
    return {.weights = slots * static_cast<std::size_t>(row_scale<Element>::extent(options.dim)) * sizeof(Element),
            .state = slots * static_cast<std::size_t>(layout.width(options.dim)) * sizeof(float)};
  }

 private:
  struct slab_memory {
    buffer<Element> weights;
    buffer<float> states;
  };

  std::int64_t dim_, extent_, width_;  // extent: elements from one row to the next
  row_state_layout layout_;
  std::vector<row_slab> slabs_;
  std::vector<slab_memory> memories_;  // of the slabs: one for all that a call made room for, as large memory has large pages
};

}  // namespace TESSERA_ABI
}  // namespace tessera
