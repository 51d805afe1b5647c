// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>

#include <tessera/core/buffer.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/radix_sort.hpp>
#include <tessera/core/view.hpp>
#include <tessera/embed/row_store.hpp>
#include <tessera/tensor/keyed_jagged.hpp>

namespace tessera::inline TESSERA_ABI {

namespace detail {

/// Where a batch's values begin in their array: a batch may be a part of another.
template <class T>
std::int64_t first_value(keyed_jagged_view<T> batch) noexcept {
  return batch.rows() == 0 ? 0 : batch.flat().offsets[0];
}

/// The positions of a batch that name rows of one table, sorted by slot; those of one slot by (sample, key, position in the bag).
template <class Index>
struct table_order {
  std::int64_t first;  // in the arrays of all tables
  std::int64_t count;
  Index const* slots;
  Index const* positions;  // of the batch, from its first value on
};

template <class Index>
struct row_sort {
  buffer<Index> slots, positions, slot_scratch, position_scratch;  // a sort leaves its result in either pair
  buffer<table_order<Index>> tables;

  std::size_t bytes() const noexcept {
    return slots.capacity_bytes() + positions.capacity_bytes() + slot_scratch.capacity_bytes() + position_scratch.capacity_bytes() +
           tables.capacity_bytes();
  }

  /// `table_of(key)`: whose rows the key's ids name. `slot_at(store, position)`: of the id there, negative where it has no row.
  template <class Store, class TableOf, class SlotAt>
  void sort(host_exec const& exec, vector_view<Store const> stores, keyed_jagged_view<std::int64_t const> batch, TableOf const& table_of,
            SlotAt const& slot_at) {
    auto const n = batch.size();
    for (auto* b : {&slots, &positions, &slot_scratch, &position_scratch}) b->resize(exec, n);
    tables.resize(exec, stores.size());
    std::int64_t first = 0;
    for (std::int64_t t = 0; t < stores.size(); ++t) {
      tables[t] = {first, 0, nullptr, nullptr};
      for (std::int64_t key = 0; key < batch.keys; ++key)
        if (table_of(key) == t) first += batch.key(key).size();
    }
    exec.run(stores.size(), [&](std::int64_t t) {
      auto& order = tables[t];
      auto* const keys = slots.data() + order.first;
      auto* const values = positions.data() + order.first;
      order.count = collect(t, stores[t], batch, table_of, slot_at, keys, values);
      auto const bits = static_cast<int>(std::bit_width(static_cast<std::uint64_t>(std::max<std::int64_t>(stores[t].slot_bound() - 1, 0))));
      auto const sorted =
          radix_sort_serial(keys, values, order.count, {0, bits}, slot_scratch.data() + order.first, position_scratch.data() + order.first);
      order.slots = sorted.first;
      order.positions = sorted.second;
    });
  }

  // The positions of one table's keys by (sample, key, position in the bag), with the slot of each; how many there are. Ids without a row
  // are left out.
  template <class Store, class TableOf, class SlotAt>
  static std::int64_t collect(std::int64_t table, Store const& store, keyed_jagged_view<std::int64_t const> batch, TableOf const& table_of,
                              SlotAt const& slot_at, Index* to_slots, Index* to_positions) noexcept {
    auto const base = first_value(batch);
    auto* const begin = to_slots;
    std::int64_t first_key = batch.keys, last_key = 0, samples = 0;
    for (std::int64_t key = 0; key < batch.keys; ++key) {
      if (table_of(key) != table) continue;
      first_key = std::min(first_key, key);
      last_key = key + 1;
      samples = std::max(samples, batch.rows(key));
    }
    for (std::int64_t sample = 0; sample < samples; ++sample)
      for (auto key = first_key; key < last_key; ++key) {
        if (table_of(key) != table || sample >= batch.rows(key)) continue;
        auto const bags = batch.key(key);
        for (auto p = bags.begin_of(sample); p < bags.end_of(sample); ++p) {
          auto const slot = slot_at(store, p - base);
          if (slot < 0) continue;
          *to_slots++ = static_cast<Index>(slot);
          *to_positions++ = static_cast<Index>(p - base);
        }
      }
    return to_slots - begin;
  }
};

}  // namespace detail

/// The positions of a batch sorted by the rows they name: what a backward needs of the ids alone, so it may be prepared before there are
/// gradients. Sizes are kept from batch to batch. Move-only.
class row_order {
 public:
  /// Whether it belongs to a batch.
  bool ready() const noexcept { return ready_; }
  /// Values of that batch.
  std::int64_t values() const noexcept { return values_; }
  void clear() noexcept { ready_ = false; }
  std::size_t bytes() const noexcept { return narrow_.bytes() + wide_.bytes(); }

  /// @private Sorts; `table_of(key)`, `slot_at(store, position)` as detail::row_sort has them.
  template <class Store, class TableOf, class SlotAt>
  void sort(host_exec const& exec, vector_view<Store const> tables, keyed_jagged_view<std::int64_t const> batch, TableOf const& table_of,
            SlotAt const& slot_at) {
    ready_ = false;
    std::int64_t largest = batch.size();
    for (auto const& table : tables) largest = std::max(largest, table.slot_bound());
    is_wide_ = largest > std::int64_t{std::numeric_limits<std::uint32_t>::max()};
    if (is_wide_)
      wide_.sort(exec, tables, batch, table_of, slot_at);
    else
      narrow_.sort(exec, tables, batch, table_of, slot_at);
    values_ = batch.size();
    ready_ = true;
  }

  /// @private Calls f(detail::row_sort) with the one in use.
  template <class F>
  void visit(F const& f) const {
    if (is_wide_)
      f(wide_);
    else
      f(narrow_);
  }

 private:
  detail::row_sort<std::uint32_t> narrow_;  // where 32 bits hold all slots and positions
  detail::row_sort<std::uint64_t> wide_;
  std::int64_t values_ = 0;
  bool is_wide_ = false;
  bool ready_ = false;
};

}  // namespace tessera::inline TESSERA_ABI
