// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>
#include <utility>

#include <tessera/core/buffer.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/piece_list.hpp>
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
    buffer<std::int64_t> samples(exec, stores.size());  // of the key with the most
    for (std::int64_t t = 0; t < stores.size(); ++t) {
      tables[t] = {0, 0, nullptr, nullptr};
      samples[t] = 0;
    }
    for (std::int64_t key = 0; key < batch.keys; ++key) {
      auto const t = table_of(key);
      samples[t] = std::max(samples[t], batch.rows(key));
      tables[t].count += batch.key(key).size();
    }
    for (std::int64_t t = 1; t < stores.size(); ++t) tables[t].first = tables[t - 1].first + tables[t - 1].count;
    for_each_piece_of(
        exec, stores.size(), [&](std::int64_t t) { return samples[t]; },
        [&](std::int64_t t) { return std::max<std::int64_t>(1, divide_up(samples[t], divide_up(tables[t].count, values_per_piece) + 1)); },
        [&](std::int64_t t, std::int64_t first_sample, std::int64_t last_sample) {
          collect(t, stores[t], batch, table_of, slot_at, first_sample, last_sample);
        });
    // A large part of all is cut over the threads, the others are sorted one a thread.
    auto const is_large = [&](std::int64_t t) { return tables[t].count > large_table && tables[t].count * exec.threads() > n; };
    for (std::int64_t t = 0; t < stores.size(); ++t)
      if (is_large(t)) {
        auto const& order = tables[t];
        radix_sort_pairs(exec, slots.view().slice(order.first, order.count), positions.view().slice(order.first, order.count),
                         sorted_bits(stores[t]));
        finish(stores[t], tables[t], {slots.data() + order.first, positions.data() + order.first});
      }
    exec.run(stores.size(), [&](std::int64_t t) {
      auto& order = tables[t];
      if (order.slots != nullptr) return;  // sorted above
      finish(stores[t], order,
             radix_sort_serial(slots.data() + order.first, positions.data() + order.first, order.count, sorted_bits(stores[t]),
                               slot_scratch.data() + order.first, position_scratch.data() + order.first));
    });
  }

 private:
  static constexpr std::int64_t values_per_piece = 8192;
  static constexpr std::int64_t large_table = 1 << 17;

  // Ids without a row sort behind all others: their slot is the bound.
  template <class Store>
  static radix_bits sorted_bits(Store const& store) noexcept {
    return {0, static_cast<int>(std::bit_width(static_cast<std::uint64_t>(store.slot_bound())))};
  }
  template <class Store>
  static void finish(Store const& store, table_order<Index>& order, std::pair<Index*, Index*> sorted) noexcept {
    order.slots = sorted.first;
    order.positions = sorted.second;
    order.count = std::lower_bound(order.slots, order.slots + order.count, static_cast<Index>(store.slot_bound())) - order.slots;
  }

  // The positions of one table's keys by (sample, key, position in the bag), with the slot of each, for samples [first, last).
  template <class Store, class TableOf, class SlotAt>
  void collect(std::int64_t table, Store const& store, keyed_jagged_view<std::int64_t const> batch, TableOf const& table_of,
               SlotAt const& slot_at, std::int64_t first, std::int64_t last) noexcept {
    auto const base = first_value(batch);
    auto to = tables[table].first;
    std::int64_t first_key = batch.keys, last_key = 0;
    for (std::int64_t key = 0; key < batch.keys; ++key) {
      if (table_of(key) != table) continue;
      first_key = std::min(first_key, key);
      last_key = key + 1;
      auto const bags = batch.key(key);  // those of earlier samples come before
      if (bags.rows > 0) to += bags.offsets[std::min(first, bags.rows)] - bags.offsets[0];
    }
    auto const bound = store.slot_bound();
    auto const take = [&](std::int64_t begin, std::int64_t end) {
      for (auto p = begin; p < end; ++p, ++to) {
        auto const slot = slot_at(store, p - base);
        slots.data()[to] = static_cast<Index>(slot < 0 ? bound : slot);
        positions.data()[to] = static_cast<Index>(p - base);
      }
    };
    if (last_key - first_key == 1) {  // the order that they have
      auto const bags = batch.key(first_key);
      return take(bags.begin_of(first), bags.end_of(last - 1));
    }
    for (auto sample = first; sample < last; ++sample)
      for (auto key = first_key; key < last_key; ++key) {
        if (table_of(key) != table || sample >= batch.rows(key)) continue;
        auto const bags = batch.key(key);
        take(bags.begin_of(sample), bags.end_of(sample));
      }
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

  /// @private The first table whose part differs, -1 where none does.
  std::int64_t first_difference(row_order const& other) const {
    std::int64_t found = -1;
    visit([&](auto const& mine) { other.visit([&](auto const& theirs) { found = first_difference(mine, theirs); }); });
    return found;
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
  template <class Index, class OtherIndex>
  static std::int64_t first_difference(detail::row_sort<Index> const& mine, detail::row_sort<OtherIndex> const& theirs) {
    auto const tables = std::min(mine.tables.size(), theirs.tables.size());
    for (std::int64_t t = 0; t < tables; ++t) {
      auto const& a = mine.tables[t];
      auto const& b = theirs.tables[t];
      if (a.count != b.count || !std::equal(a.slots, a.slots + a.count, b.slots) ||
          !std::equal(a.positions, a.positions + a.count, b.positions))
        return t;
    }
    return mine.tables.size() == theirs.tables.size() ? -1 : tables;
  }

  detail::row_sort<std::uint32_t> narrow_;  // where 32 bits hold all slots and positions
  detail::row_sort<std::uint64_t> wide_;
  std::int64_t values_ = 0;
  bool is_wide_ = false;
  bool ready_ = false;
};

}  // namespace tessera::inline TESSERA_ABI
