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
#include <tessera/tensor/keyed_jagged.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

namespace detail {

/// The first value of a batch in its array: a batch may be a part of another.
template <class T>
std::int64_t first_value(keyed_jagged_view<T> batch) noexcept {
  return batch.rows() == 0 ? 0 : batch.flat().offsets[0];
}

/// The positions of a batch that name rows of one table, sorted by slot. Those of one slot are in the order of (source rank, sample, key,
/// position).
template <class Index>
struct table_order {
  std::int64_t first;  // in the arrays of all tables
  std::int64_t count;
  Index const* slots;
  Index const* positions;  // of the batch, from its first value on
};

/// The slots that a batch names.
struct batch_slots {
  keyed_jagged_view<std::int64_t const> batch;
  vector_view<std::int64_t const> table_of_key;         // (keys,); -1: its values are left out
  vector_view<std::int64_t const> bounds;               // (tables,): rows have slots of [0, bound), any other names none
  vector_view<std::int64_t const* const> slots_of_key;  // (keys,): of the value at position p of the batch, counted from its first, [p]
  std::int64_t source_ranks = 1;                        // which have as many keys each, one rank after the other
};

template <class Index>
struct row_sort {
  buffer<Index> slots, positions;
  buffer<table_order<Index>> tables;

  std::size_t bytes() const noexcept { return slots.capacity_bytes() + positions.capacity_bytes() + tables.capacity_bytes(); }

  void sort(host_exec const& exec, batch_slots const& of);

 private:
  // What the keys [first_key, last_key) of one source rank have of a table.
  struct rank_part {
    std::int64_t table, first_key, last_key;
    std::int64_t samples;  // of the key with the most
    std::int64_t first;    // in the arrays of all tables
    std::int64_t count;
  };

  static constexpr std::int64_t values_per_piece = 8192;
  static constexpr std::int64_t large_table = 1 << 17;

  // A large part of all is cut over the threads, the others are sorted one a thread: with scratch for those under way alone.
  void sort_tables(host_exec const& exec, vector_view<std::int64_t const> bounds) {
    auto const n = slots.size(), sorters = std::min<std::int64_t>(exec.threads(), bounds.size());
    auto const is_large = [&](std::int64_t t) { return tables[t].count > large_table && tables[t].count * exec.threads() > n; };
    std::int64_t large = 0, small = 0;  // the most values of a table
    for (std::int64_t t = 0; t < bounds.size(); ++t) (is_large(t) ? large : small) = std::max(is_large(t) ? large : small, tables[t].count);
    bool const is_shared = sorters * small < n;  // else each table has scratch of its own
    auto const room = std::max(is_shared ? sorters * small : n, large);
    buffer<Index> slot_scratch(exec, room), position_scratch(exec, room);
    auto const sort = [&](std::int64_t t, std::int64_t scratch, auto const& by) {
      auto& order = tables[t];
      auto const bound = static_cast<Index>(bounds[t]);  // the slot of ids without a row: they come behind all others
      auto *const keys = slots.data() + order.first, *const values = positions.data() + order.first;
      by(keys, values, order.count, radix_bits{0, static_cast<int>(std::bit_width(bound))}, slot_scratch.data() + scratch,
         position_scratch.data() + scratch);
      order.slots = keys;
      order.positions = values;
      order.count = std::lower_bound(keys, keys + order.count, bound) - keys;
    };
    for (std::int64_t t = 0; t < bounds.size(); ++t)
      if (is_large(t)) sort(t, 0, [&](auto... arguments) { radix_sort_pieces(exec, arguments...); });
    // One table a chunk, so that a thread sorts what it is to read next; which scratch is free, it looks for.
    buffer<std::uint8_t> taken(exec, sorters);
    std::fill(taken.begin(), taken.end(), std::uint8_t{0});
    exec.run(bounds.size(), [&](std::int64_t t) {
      if (tables[t].slots != nullptr) return;  // sorted above
      std::int64_t sorter = 0;
      while (std::atomic_ref(taken.data()[sorter]).exchange(1, std::memory_order_acquire) != 0) sorter = (sorter + 1) % sorters;
      sort(t, is_shared ? sorter * small : tables[t].first, radix_sort_in_place<Index, Index>);
      std::atomic_ref(taken.data()[sorter]).store(0, std::memory_order_release);
    });
  }

  // The positions of one part by (sample, key, position in the bag), with the slot of each, for samples [first, last).
  void collect(rank_part const& part, batch_slots const& of, std::int64_t first, std::int64_t last) noexcept {
    auto const& batch = of.batch;
    auto const base = first_value(batch);
    auto const table = part.table;
    auto to = part.first;
    std::int64_t first_key = part.last_key, last_key = part.first_key;
    for (auto key = part.first_key; key < part.last_key; ++key) {
      if (of.table_of_key[key] != table) continue;
      first_key = std::min(first_key, key);
      last_key = key + 1;
      auto const bags = batch.key(key);  // those of earlier samples come before
      if (bags.rows > 0) to += bags.offsets[std::min(first, bags.rows)] - bags.offsets[0];
    }
    auto const bound = of.bounds[table];
    auto const take = [&](std::int64_t const* all_slots, std::int64_t begin, std::int64_t end) {
      for (auto p = begin; p < end; ++p, ++to) {
        auto const slot = all_slots[p - base];
        slots.data()[to] = static_cast<Index>(static_cast<std::uint64_t>(slot) < static_cast<std::uint64_t>(bound) ? slot : bound);
        positions.data()[to] = static_cast<Index>(p - base);
      }
    };
    if (last_key - first_key == 1) {  // the order that they have
      auto const bags = batch.key(first_key);
      return take(of.slots_of_key[first_key], bags.begin_of(first), bags.end_of(last - 1));
    }
    for (auto sample = first; sample < last; ++sample)
      for (auto key = first_key; key < last_key; ++key) {
        if (of.table_of_key[key] != table || sample >= batch.rows(key)) continue;
        auto const bags = batch.key(key);
        take(of.slots_of_key[key], bags.begin_of(sample), bags.end_of(sample));
      }
  }
};

template <class Index>
void row_sort<Index>::sort(host_exec const& exec, batch_slots const& of) {
  auto const& batch = of.batch;
  auto const n = batch.size(), count = of.bounds.size();
  slots.resize(exec, n);
  positions.resize(exec, n);
  tables.resize(exec, count);
  auto const ranks = batch.keys == 0 ? 1 : of.source_ranks, keys_each = batch.keys / ranks;
  buffer<rank_part> parts(exec, count * ranks);  // those of a table follow each other
  for (std::int64_t i = 0; i < parts.size(); ++i) {
    auto const first_key = i % ranks * keys_each;
    parts[i] = {i / ranks, first_key, first_key + keys_each, 0, 0, 0};
  }
  for (std::int64_t key = 0; key < batch.keys; ++key) {
    if (of.table_of_key[key] < 0) continue;
    auto& part = parts[of.table_of_key[key] * ranks + key / keys_each];
    part.samples = std::max(part.samples, batch.rows(key));
    part.count += batch.key(key).size();
  }
  std::int64_t first = 0;
  for (std::int64_t t = 0; t < count; ++t) {
    tables[t] = {first, 0, nullptr, nullptr};
    for (std::int64_t rank = 0; rank < ranks; ++rank) {
      auto& part = parts[t * ranks + rank];
      part.first = first;
      first += part.count;
    }
    tables[t].count = first - tables[t].first;
  }
  for_each_piece_of(
      exec, parts.size(), [&](std::int64_t i) { return parts[i].samples; },
      [&](std::int64_t i) {
        return std::max<std::int64_t>(1, divide_up(parts[i].samples, divide_up(parts[i].count, values_per_piece) + 1));
      },
      [&](std::int64_t i, std::int64_t first_sample, std::int64_t last_sample) { collect(parts[i], of, first_sample, last_sample); });
  sort_tables(exec, of.bounds);
}

#define TESSERA_INSTANCES_OF_ROW_SORT(how)                                      \
  how void row_sort<std::uint32_t>::sort(host_exec const&, batch_slots const&); \
  how void row_sort<std::uint64_t>::sort(host_exec const&, batch_slots const&);
#if TESSERA_COMPILED
TESSERA_INSTANCES_OF_ROW_SORT(extern template)
#endif

}  // namespace detail

/// The positions of a batch, sorted by the rows that they name. A backward needs this order, which depends on the ids alone, so that it can
/// be made before there are gradients. Its memory is kept from batch to batch. Move-only.
class row_order {
 public:
  /// Whether it holds the order of a batch.
  bool ready() const noexcept { return ready_; }
  /// The number of values of that batch.
  std::int64_t values() const noexcept { return values_; }
  void clear() noexcept { ready_ = false; }
  std::size_t bytes() const noexcept { return narrow_.bytes() + wide_.bytes(); }

  /// @private
  void sort(host_exec const& exec, detail::batch_slots const& of) {
    ready_ = false;
    std::int64_t largest = of.batch.size();
    for (auto const bound : of.bounds) largest = std::max(largest, bound);
    is_wide_ = largest > std::int64_t{std::numeric_limits<std::uint32_t>::max()};
    if (is_wide_)
      wide_.sort(exec, of);
    else
      narrow_.sort(exec, of);
    values_ = of.batch.size();
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

}  // namespace TESSERA_ABI
}  // namespace tessera
