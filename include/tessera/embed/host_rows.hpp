// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include <tessera/core/buffer.hpp>
#include <tessera/core/config.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/row_formats.hpp>
#include <tessera/core/types.hpp>
#include <tessera/core/view.hpp>
#include <tessera/embed/row_store.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// The rows of 2^bits slots, one after the other, and their states.
struct row_slab {
  static constexpr int bits = 10;
  static constexpr std::int64_t rows = std::int64_t{1} << bits;

  void* first_row;
  float* first_state;
};

/// Where the row and the state of a slot lie, for any type of element: in one array each, or in slabs.
struct row_places {
  void* rows = nullptr;             ///< of slot 0, with its scale where it has one; unused where there are slabs
  float* states = nullptr;          ///< likewise
  row_slab const* slabs = nullptr;  ///< slot s: place s mod 2^bits of slab s / 2^bits
  std::int64_t row_bytes = 0;       ///< from one row to the next
  std::int64_t state_width = 0;     ///< floats from one state to the next
  std::int64_t dim = 0;

  void* row(std::int64_t slot) const noexcept {
    if (slabs == nullptr) return static_cast<char*>(rows) + slot * row_bytes;
    return static_cast<char*>(slabs[slot >> row_slab::bits].first_row) + (slot & (row_slab::rows - 1)) * row_bytes;
  }
  float* state(std::int64_t slot) const noexcept {
    if (slabs == nullptr) return states + slot * state_width;
    return slabs[slot >> row_slab::bits].first_state + (slot & (row_slab::rows - 1)) * state_width;
  }
};

/// A table as kernels of the host see it: plain data, without the policies that decide which id has a row. It is valid until the store is
/// moved, or a row enters or leaves it.
template <row_element Element>
struct host_rows {
  using element = Element;

  row_places places;
  std::int64_t slot_bound = 0;        ///< every slot lies in [0, slot_bound)
  std::int64_t const* ids = nullptr;  ///< of each slot, where slots are not ids
  bool slots_are_ids = true;          ///< then an id that is no slot can never have a row; else it has not got one yet
  table_options table;
  step_count step;

  table_options const& options() const noexcept { return table; }
  std::int64_t dim() const noexcept { return places.dim; }
  step_count steps() const noexcept { return step; }
  bool holds(std::int64_t slot) const noexcept { return static_cast<std::uint64_t>(slot) < static_cast<std::uint64_t>(slot_bound); }
  std::int64_t id_of(std::int64_t slot) const noexcept { return slots_are_ids ? slot : ids[slot]; }
  /// The row of a slot, (dim,), which `row_scale` reads and writes; `state` is (state width,). @pre holds(slot)
  Element* row(std::int64_t slot) const noexcept(!checks_indices) {
    return static_cast<Element*>(places.row(checked_slot(slot))) + row_scale<Element>::lead;
  }
  float* state(std::int64_t slot) const noexcept(!checks_indices) { return places.state(checked_slot(slot)); }

 private:
  std::int64_t checked_slot(std::int64_t slot) const noexcept(!checks_indices) {
    if constexpr (checks_indices) detail::check_slot("host_rows", table, slot, slot_bound);
    return slot;
  }
};

namespace detail {

/// The `host_rows()` of each table of a call. A buffer is uninitialised storage, which plain data may be copied to.
template <class Store>
auto rows_of_tables(host_exec const& exec, vector_view<Store> tables) {
  using rows_type = decltype(tables[0].host_rows());
  static_assert(std::is_trivially_copyable_v<rows_type>);
  buffer<rows_type> rows(exec, tables.size());
  for (std::int64_t t = 0; t < tables.size(); ++t) rows[t] = tables[t].host_rows();
  return rows;
}

template <class Element>
buffer<row_places> places_of(host_exec const& exec, vector_view<host_rows<Element> const> tables) {
  buffer<row_places> places(exec, tables.size());
  for (std::int64_t t = 0; t < tables.size(); ++t) places[t] = tables[t].places;
  return places;
}

}  // namespace detail

}  // namespace TESSERA_ABI
}  // namespace tessera
