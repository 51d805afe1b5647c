// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include <tessera/core/buffer.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/embed/pooled_argmax.hpp>
#include <tessera/embed/row_order.hpp>
#include <tessera/embed/row_store.hpp>
#include <tessera/tensor/keyed_jagged.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

namespace detail {

template <class Store, class Exec>
std::int64_t const* slots_in(keyed_jagged_view<std::int64_t const> batch, buffer<std::int64_t, Exec> const& slots) noexcept {
  if constexpr (!Store::slots_are_ids) return slots.data();
  return batch.size() == 0 ? nullptr : batch.values + first_value(batch);
}
// On a device kernels take the ids where those are slots.
template <class Store, device_execution Exec>
std::int64_t const* slots_in(keyed_jagged_view<std::int64_t const>, buffer<std::int64_t, Exec> const& slots) noexcept {
  return Store::slots_are_ids ? nullptr : slots.data();
}

/// What a prepared backward keeps: `row_order` on the host.
struct row_order_tag {};
template <class Exec>
struct order_of : back_end<row_order_tag, Exec> {};
template <>
struct order_of<host_exec> {
  using type = row_order;
};

}  // namespace detail

/// What a lookup's backward needs of its forward. The caller owns it, and any number of them may be in flight.
/// @pre the memory of `batch` outlives this, and so do the rows: a store evicts no row that a lookup in flight names
/// (table_options::batches_in_flight).
template <execution Exec>
struct basic_lookup_saved {
  keyed_jagged_view<std::int64_t const> batch;
  buffer<std::int64_t, Exec> slots;                  ///< one a value of the batch; unused where slots are ids
  typename detail::order_of<Exec>::type order = {};  ///< made by `prepare_backward` for this batch; else each backward makes its own
  detail::pooled_argmax argmax = {};                 ///< of features that pool by maximum
  std::int64_t source_ranks = 1;                     ///< of which the batch is (`lookup_options`)

  std::size_t bytes() const noexcept { return slots.capacity_bytes() + order.bytes() + argmax.bytes(); }

  /// (values of the batch,): the slot of each, the batch's first value first; on a device nullptr where slots are ids.
  template <row_store Store>
  std::int64_t const* slots_of() const noexcept {
    return detail::slots_in<Store>(batch, slots);
  }

  /// Forgets the batch: `batch` is empty then and `order` not ready. The memory is kept, so another thread may own the batch's.
  void clear() noexcept {
    batch = {};
    order.clear();
    argmax.clear();
    source_ranks = 1;
  }
};
/// What a lookup on the host saves.
using lookup_saved = basic_lookup_saved<host_exec>;

}  // namespace TESSERA_ABI
}  // namespace tessera
