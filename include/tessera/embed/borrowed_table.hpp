// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/row_formats.hpp>
#include <tessera/core/view.hpp>
#include <tessera/embed/dense_table.hpp>
#include <tessera/embed/row_optimizer.hpp>
#include <tessera/embed/row_store.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

namespace detail {

/// Rows in memory that somebody else owns.
template <row_element Element>
struct borrowed_memory {
  static constexpr char const *store = "borrowed_table", *locate = "borrowed_table::locate", *find = "borrowed_table::find";
  vector_view<Element> weights;
  vector_view<float> states;

  std::size_t bytes() const noexcept {
    return static_cast<std::size_t>(weights.size()) * sizeof(Element) + static_cast<std::size_t>(states.size()) * sizeof(float);
  }
};

/// Checks the number of elements and the alignment of borrowed memory. @pre the options are checked
template <class T>
void check_borrowed(table_options const& options, char const* what, vector_view<T> memory, std::int64_t expected, std::size_t alignment) {
  if (memory.size() != expected)
    throw error(errc::shape_mismatch, "borrowed_table: memory of another size than the table's",
                {{"table", options.id.value}, {what, memory.size()}, {"expected", expected}});
  if (expected > 0 && memory.data() == nullptr)
    throw error(errc::invalid_argument, "borrowed_table: no memory", {{"table", options.id.value}, {what, "null"}, {"elements", expected}});
  if (auto const past = reinterpret_cast<std::uintptr_t>(memory.data()) % alignment; past != 0)
    throw error(errc::invalid_argument, "borrowed_table: memory that is not aligned",
                {{"table", options.id.value}, {what, "misaligned"}, {"bytes past", past}, {"alignment", alignment}});
}

}  // namespace detail

/// A row for each id of 0 … rows - 1, as `dense_table`. The rows lie in memory that the caller owns, of the execution that will use them: a
/// user's own weights, or a part of an arena. Nothing is allocated or initialised. Steps write to that memory, which keeps the trained rows
/// after the table is destroyed. The table is move-only, as two tables of the same rows would count their steps apart.
///
/// `weights`: (rows, dim), contiguous. A row of `scaled_int8` has row_scale<scaled_int8>::extent(dim) elements, the first four its scale.
/// `states`: (rows, state_layout().width(dim)), as `row_state_layout` orders them. `bytes_for` says how many bytes each needs.
///
/// options.init_bound is not used; the seed is used by steps that round.
/// @pre The memory outlives the table and stays where it is. Rows and states do not overlap. Nobody else writes to the memory during a call
/// on the table.
template <row_element Element = float, execution Exec = host_exec>
class borrowed_table : public detail::rows_by_id<Element, Exec, detail::borrowed_memory<Element>> {
  using base = detail::rows_by_id<Element, Exec, detail::borrowed_memory<Element>>;

 public:
  /// Refers to rows and to states of this optimizer.
  /// @throws tessera::error shape_mismatch for another number of elements than the table has. invalid_argument for a null pointer to some
  /// elements, for memory that its elements or scales are not aligned in, and as `dense_table`.
  template <row_optimizer Optimizer>
  borrowed_table(table_options const& options, Optimizer const& optimizer, vector_view<Element> weights, vector_view<float> states)
      : base(options, row_state_layout::checked(optimizer)) {
    using scale = row_scale<Element>;
    constexpr auto alignment = scale::lead > 0 ? std::max(alignof(float), alignof(Element)) : alignof(Element);
    detail::check_borrowed(options, "weights", weights, options.rows * scale::extent(options.dim), alignment);
    detail::check_borrowed(options, "states", states, options.rows * this->layout_.width(options.dim), alignof(float));
    this->memory_ = {weights, states};
  }
  borrowed_table(borrowed_table&&) noexcept = default;
  borrowed_table& operator=(borrowed_table&&) noexcept = default;
};
static_assert(row_store<borrowed_table<>> && row_store<borrowed_table<scaled_int8>>);

}  // namespace TESSERA_ABI
}  // namespace tessera
