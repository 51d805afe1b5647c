// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include <tessera/core/buffer.hpp>
#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/row_formats.hpp>
#include <tessera/core/view.hpp>
#include <tessera/embed/host_rows.hpp>
#include <tessera/embed/row_optimizer.hpp>
#include <tessera/embed/row_store.hpp>
#include <tessera/embed/table_bytes.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// A dense table as kernels see it.
template <row_element Element>
struct dense_rows {
  using element = Element;
  static constexpr bool slots_are_ids = true;

  Element* weights;  ///< (rows, dim), each behind its scale
  float* states;     ///< (rows, state width)
  table_options table;
  std::int64_t state_width;
  step_count step;

  TESSERA_HOST_DEVICE constexpr table_options const& options() const noexcept { return table; }
  TESSERA_HOST_DEVICE constexpr std::int64_t dim() const noexcept { return table.dim; }
  TESSERA_HOST_DEVICE constexpr step_count steps() const noexcept { return step; }
  TESSERA_HOST_DEVICE constexpr bool holds(std::int64_t slot) const noexcept {
    return static_cast<std::uint64_t>(slot) < static_cast<std::uint64_t>(table.rows);
  }
  TESSERA_HOST_DEVICE constexpr std::int64_t id_of(std::int64_t slot) const noexcept { return slot; }
  TESSERA_HOST_DEVICE constexpr Element* row(std::int64_t slot) const noexcept { return detail::row_at(weights, slot, table.dim); }
  TESSERA_HOST_DEVICE constexpr float* state(std::int64_t slot) const noexcept { return states + slot * state_width; }
};

namespace detail {

struct dense_table_tag {};

template <>
struct back_end<dense_table_tag, host_exec> {
  template <class Element>
  static void initialise(host_exec const& exec, dense_rows<Element> const& rows, row_state_layout layout) {
    for_each_piece(exec, rows.options().rows, rows_per_init_piece, [&](std::int64_t first, std::int64_t last) {
      for (auto id = first; id < last; ++id) initialise_row(rows.options(), layout, id, rows.row(id), rows.state(id));
    });
  }

  template <class Element>
  static void find(host_exec const&, dense_rows<Element> const& rows, vector_view<std::int64_t const> ids, vector_view<std::int64_t> slots,
                   vector_view<row_status> statuses) {
    for (std::int64_t i = 0; i < ids.size(); ++i) slots[i] = rows.holds(ids[i]) ? ids[i] : -1;
    for (std::int64_t i = 0; i < statuses.size(); ++i) statuses[i] = slots[i] < 0 ? row_status::out_of_range : row_status::found;
  }
};

/// Rows and states in one buffer each.
template <row_element Element, execution Exec>
struct owned_memory {
  static constexpr char const *store = "dense_table", *locate = "dense_table::locate", *find = "dense_table::find";
  buffer<Element, Exec> weights;
  buffer<float, Exec> states;

  std::size_t bytes() const noexcept { return weights.capacity_bytes() + states.capacity_bytes(); }
};

/// A table with a row for each id. `Memory` owns or borrows `weights` and `states`, and has the names of the `store` and its calls.
template <row_element Element, execution Exec, class Memory>
class rows_by_id {
 public:
  using element = Element;
  using execution_type = Exec;
  static constexpr bool slots_are_ids = true;

  /// What such a table will occupy, before it is built.
  static table_bytes bytes_for(table_options const& options, row_state_layout layout) noexcept {
    auto const rows = static_cast<std::size_t>(options.rows);
    return {.weights = rows * static_cast<std::size_t>(scale::extent(options.dim)) * sizeof(Element),
            .state = rows * static_cast<std::size_t>(layout.width(options.dim)) * sizeof(float)};
  }
  std::size_t bytes() const noexcept { return memory_.bytes(); }

  table_options const& options() const noexcept { return options_; }
  std::int64_t dim() const noexcept { return options_.dim; }
  std::int64_t rows() const noexcept { return options_.rows; }
  std::int64_t slot_bound() const noexcept { return options_.rows; }
  row_state_layout state_layout() const noexcept { return layout_; }
  step_count steps() const noexcept { return steps_; }
  void set_steps(step_count steps) noexcept { steps_ = steps; }

  /// All rows, (rows, dim); `states` are (rows, state width).
  matrix_view<Element> weights() noexcept { return {first_row(memory_.weights.data()), rows(), dim(), scale::extent(dim())}; }
  matrix_view<Element const> weights() const noexcept { return {first_row(memory_.weights.data()), rows(), dim(), scale::extent(dim())}; }
  matrix_view<float> states() noexcept { return {memory_.states.data(), rows(), layout_.width(dim())}; }
  matrix_view<float const> states() const noexcept { return {memory_.states.data(), rows(), layout_.width(dim())}; }

  Element* row(std::int64_t slot) noexcept(!checks_indices) { return row_at(memory_.weights.data(), checked_slot(slot), dim()); }
  Element const* row(std::int64_t slot) const noexcept(!checks_indices) {
    return row_at(memory_.weights.data(), checked_slot(slot), dim());
  }
  float* state(std::int64_t slot) noexcept(!checks_indices) {
    return memory_.states.data() + checked_slot(slot) * layout_.width(options_.dim);
  }
  float const* state(std::int64_t slot) const noexcept(!checks_indices) {
    return memory_.states.data() + checked_slot(slot) * layout_.width(options_.dim);
  }

  template <class F>
  void for_each_row(F const& f) const {
    for (std::int64_t id = 0; id < rows(); ++id) f(id, id);
  }

  bool holds(std::int64_t id) const noexcept { return static_cast<std::uint64_t>(id) < static_cast<std::uint64_t>(options_.rows); }

  void locate(Exec const& exec, vector_view<std::int64_t const> ids, vector_view<std::int64_t> slots,
              vector_view<row_status> statuses = {}) const {
    check_locate_shapes(Memory::locate, ids.size(), slots.size(), statuses.size());
    back_end<dense_table_tag, Exec>::find(exec, device_rows(), ids, slots, statuses);
  }
  void find(Exec const& exec, vector_view<std::int64_t const> ids, vector_view<std::int64_t> slots) const {
    check_locate_shapes(Memory::find, ids.size(), slots.size(), 0);
    back_end<dense_table_tag, Exec>::find(exec, device_rows(), ids, slots, {});
  }

  /// The view for kernels. They write rows through it also where the table is const.
  tessera::host_rows<Element> host_rows() const noexcept requires(!device_execution<Exec>) {
    auto const rows = device_rows();
    auto const row_bytes = scale::extent(dim()) * static_cast<std::int64_t>(sizeof(Element));
    return {{rows.weights, rows.states, nullptr, row_bytes, rows.state_width, dim()}, options_.rows, nullptr, true, options_, steps_};
  }
  dense_rows<Element> device_rows() const noexcept {
    return {const_cast<Element*>(memory_.weights.data()), const_cast<float*>(memory_.states.data()), options_, layout_.width(options_.dim),
            steps_};
  }

 protected:
  using scale = row_scale<Element>;

  /// Sets the options; the derived class brings the memory.
  rows_by_id(table_options const& options, row_state_layout layout) : options_(options), layout_(layout) {
    check_table_options(Memory::store, options, layout_);
  }

  table_options options_;
  row_state_layout layout_;
  step_count steps_{};
  Memory memory_;

 private:
  std::int64_t checked_slot(std::int64_t slot) const noexcept(!checks_indices) {
    if constexpr (checks_indices) check_slot(Memory::store, options_, slot, rows());
    return slot;
  }

  // Null where there are none.
  template <class E>
  E* first_row(E* memory) const noexcept {
    return memory == nullptr ? nullptr : row_at(memory, 0, dim());
  }
};

}  // namespace detail

/// A row for each id of 0 … rows - 1, in one array (rows, dim), with gaps for the scales of `scaled_int8`. Optimizer states, always float,
/// are in another array. Move-only.
///
/// On a device the rows lie in the memory of its execution. That memory is on the device, or is pinned memory of the host, which the device
/// reads over the bus.
/// `weights`, `states`, `row` and `state` then point into that memory.
template <row_element Element = float, execution Exec = host_exec>
class dense_table : public detail::rows_by_id<Element, Exec, detail::owned_memory<Element, Exec>> {
  using base = detail::rows_by_id<Element, Exec, detail::owned_memory<Element, Exec>>;

 public:
  /// Allocates and initialises all rows, with state for this optimizer. @throws tessera::error invalid_argument, out_of_memory.
  template <row_optimizer Optimizer>
  dense_table(Exec const& exec, table_options const& options, Optimizer const& optimizer)
      : dense_table(exec, options, row_state_layout::checked(optimizer)) {}
  /// As above, with state of this layout.
  dense_table(Exec const& exec, table_options const& options, row_state_layout layout) : base(options, layout) {
    this->memory_.weights.resize(exec, options.rows * row_scale<Element>::extent(options.dim));
    this->memory_.states.resize(exec, options.rows * this->layout_.width(options.dim));
    detail::back_end<detail::dense_table_tag, Exec>::initialise(exec, this->device_rows(), this->layout_);
  }
};
static_assert(row_store<dense_table<>> && row_store<dense_table<float16>> && row_store<dense_table<scaled_int8>>);

}  // namespace TESSERA_ABI
}  // namespace tessera
