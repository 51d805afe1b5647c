// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include <tessera/core/buffer.hpp>
#include <tessera/core/call_list.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>
#include <tessera/embed/deduplicated_lookup.hpp>
#include <tessera/embed/lookup_saved.hpp>
#include <tessera/embed/row_order.hpp>
#include <tessera/embed/row_store.hpp>
#include <tessera/tensor/expand.hpp>
#include <tessera/tensor/inverse_keyed_jagged.hpp>
#include <tessera/tensor/keyed_jagged.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

namespace detail {

// What differs where the host does not see offsets.
struct expanded_saved_tag {};

template <>
struct back_end<expanded_saved_tag, host_exec> {
  static std::int64_t first_value(host_exec const&, keyed_jagged_view<std::int64_t const> batch) { return detail::first_value(batch); }
  static void copy(host_exec const& exec, vector_view<std::int64_t const> from, std::int64_t* to) {
    for_each_piece(exec, from.size(), 1 << 14,
                   [&](std::int64_t first, std::int64_t last) { std::copy_n(from.data() + first, last - first, to + first); });
  }
  static void subtract(host_exec const& exec, vector_view<std::int64_t const> from, std::int64_t number, std::int64_t* to) {
    for_each_piece(exec, from.size(), 1 << 14, [&](std::int64_t first, std::int64_t last) {
      for (auto i = first; i < last; ++i) to[i] = from[i] - number;
    });
  }
};

/// The rows of a batch with slots for values. A batch that is part of another has no slots before its first value, so its offsets are
/// counted from there.
template <class Exec>
class slot_rows {
 public:
  slot_rows(Exec const& exec, keyed_jagged_view<std::int64_t const> batch, std::int64_t const* slots)
      : slot_rows(exec, batch, slots, back_end<expanded_saved_tag, Exec>::first_value(exec, batch)) {}
  keyed_jagged_view<std::int64_t const> view() const noexcept { return view_; }

 private:
  slot_rows(Exec const& exec, keyed_jagged_view<std::int64_t const> batch, std::int64_t const* slots, std::int64_t first_value)
      : first_row_(exec, first_value == 0 ? 0 : batch.keys + 1), view_(batch.with_values(slots)) {
    if (first_value == 0) return;
    offsets_.resize(exec, batch.rows() + 1);
    back_end<expanded_saved_tag, Exec>::subtract(exec, {batch.flat().offsets, batch.rows() + 1}, first_value, offsets_.data());
    for (std::int64_t key = 0; key <= batch.keys; ++key) first_row_[key] = batch.first_row[key] - batch.first_row[0];
    view_.offsets = offsets_.data();
    view_.first_row = first_row_.view().data();
    if (view_.room >= 0) view_.room -= first_value;
  }

  buffer<std::int64_t, Exec> offsets_;
  call_list<std::int64_t, Exec> first_row_;
  keyed_jagged_view<std::int64_t const> view_;
};

/// What a lookup of the expanded batch would have saved, made from the lookup of an IKJT. Handed to an ordinary backward with gradients of
/// expanded rows, it sums a row's gradients in the order of samples and positions. Move-only.
/// @pre the IKJT, `saved` and the tables' rows stay as the lookup left them
/// @post that backward gives the bits of training without deduplication
template <execution Exec>
class expanded_saved {
 public:
  /// `saved`: of a lookup of `batch.distinct`. On a device it waits for the number of values, and for hashed tables once more.
  /// @throws tessera::error as `expand`.
  template <row_stores Tables>
  static expanded_saved of(Exec const& exec, Tables const&, inverse_keyed_jagged_view<std::int64_t const> batch,
                           basic_lookup_saved<Exec> const& saved) {
    return of(exec, batch, element_in<Tables const>::slots_are_ids ? nullptr : saved.slots.data(), saved.source_ranks);
  }
  /// `slots`: of the values of `batch.distinct`, its first value first; nullptr where the slots are the ids.
  static expanded_saved of(Exec const& exec, inverse_keyed_jagged_view<std::int64_t const> batch, std::int64_t const* slots,
                           std::int64_t source_ranks = 1) {
    expanded_saved result;
    result.saved_.source_ranks = source_ranks;
    result.ids_ = expand(exec, batch);
    result.saved_.batch = std::as_const(result.ids_).view();
    if (slots == nullptr) return result;
    slot_rows<Exec> const rows(exec, batch.distinct, slots);
    auto const expanded = expand(exec, inverse_keyed_jagged_view<std::int64_t const>{rows.view(), batch.groups, batch.samples},
                                 result_room{.most_values = result.ids_.room()});
    result.saved_.slots.resize(exec, expanded.room());
    back_end<expanded_saved_tag, Exec>::copy(exec, {expanded.view().values, expanded.room()}, result.saved_.slots.data());
    return result;
  }

  basic_lookup_saved<Exec>& get() noexcept { return saved_; }

 private:
  keyed_jagged<std::int64_t, std::int64_t, Exec> ids_;
  basic_lookup_saved<Exec> saved_;
};

}  // namespace detail
}  // namespace TESSERA_ABI
}  // namespace tessera
