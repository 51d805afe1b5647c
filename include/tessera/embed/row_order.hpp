// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
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
  buffer<Index> slots, positions;
  buffer<table_order<Index>> tables;

  std::size_t bytes() const noexcept { return slots.capacity_bytes() + positions.capacity_bytes() + tables.capacity_bytes(); }

  /// `table_of(key)`: whose rows the key's ids name. `slot_at(store, position)`: of the id there, negative where it has no row.
  template <class Store, class TableOf, class SlotAt>
  void sort(host_exec const& exec, vector_view<Store const> stores, keyed_jagged_view<std::int64_t const> batch, TableOf const& table_of,
            SlotAt const& slot_at) {
    auto const n = batch.size();
    slots.resize(exec, n);
    positions.resize(exec, n);
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
    sort_tables(exec, stores);
  }

 private:
  static constexpr std::int64_t values_per_piece = 8192;
  static constexpr std::int64_t large_table = 1 << 17;

  // A large part of all is cut over the threads, the others are sorted one a thread: with scratch for those under way alone.
  template <class Store>
  void sort_tables(host_exec const& exec, vector_view<Store const> stores) {
    auto const n = slots.size(), sorters = std::min<std::int64_t>(exec.threads(), stores.size());
    auto const is_large = [&](std::int64_t t) { return tables[t].count > large_table && tables[t].count * exec.threads() > n; };
    std::int64_t large = 0, small = 0;  // the most values of a table
    for (std::int64_t t = 0; t < stores.size(); ++t) (is_large(t) ? large : small) = std::max(is_large(t) ? large : small, tables[t].count);
    bool const is_shared = sorters * small < n;  // else each table has scratch of its own
    auto const room = std::max(is_shared ? sorters * small : n, large);
    buffer<Index> slot_scratch(exec, room), position_scratch(exec, room);
    auto const sort = [&](std::int64_t t, std::int64_t scratch, auto const& by) {
      auto& order = tables[t];
      auto const bound = static_cast<Index>(stores[t].slot_bound());  // the slot of ids without a row: they come behind all others
      auto *const keys = slots.data() + order.first, *const values = positions.data() + order.first;
      by(keys, values, order.count, radix_bits{0, static_cast<int>(std::bit_width(bound))}, slot_scratch.data() + scratch,
         position_scratch.data() + scratch);
      order.slots = keys;
      order.positions = values;
      order.count = std::lower_bound(keys, keys + order.count, bound) - keys;
    };
    for (std::int64_t t = 0; t < stores.size(); ++t)
      if (is_large(t)) sort(t, 0, [&](auto... arguments) { radix_sort_pieces(exec, arguments...); });
    // One table a chunk, so that a thread sorts what it is to read next; which scratch is free, it looks for.
    buffer<std::uint8_t> taken(exec, sorters);
    std::fill(taken.begin(), taken.end(), std::uint8_t{0});
    exec.run(stores.size(), [&](std::int64_t t) {
      if (tables[t].slots != nullptr) return;  // sorted above
      std::int64_t sorter = 0;
      while (std::atomic_ref(taken.data()[sorter]).exchange(1, std::memory_order_acquire) != 0) sorter = (sorter + 1) % sorters;
      sort(t, is_shared ? sorter * small : tables[t].first, radix_sort_in_place<Index, Index>);
      std::atomic_ref(taken.data()[sorter]).store(0, std::memory_order_release);
    });
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
