// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include <tessera/core/buffer.hpp>
#include <tessera/core/cuda_execution.cuh>
#include <tessera/core/device.hpp>
#include <tessera/core/four_elements.hpp>
#include <tessera/core/radix_sort.cuh>
#include <tessera/core/scan.cuh>
#include <tessera/core/view.hpp>
#include <tessera/embed/bag_units.cuh>
#include <tessera/embed/lookup_saved.hpp>
#include <tessera/embed/pooling.hpp>
#include <tessera/embed/prepare_backward.hpp>
#include <tessera/embed/row_store.hpp>

/// The values of a batch in the order of the rows that they name, on a device. All tables are sorted at once, by the number of a slot over
/// all tables. Tables with few columns come first, so that the rows of tables that are updated alike follow each other.
namespace tessera {
inline namespace TESSERA_ABI {

namespace detail {

/// Tables that a launch updates, in the order in which their slots are numbered.
struct table_slots {
  std::int64_t table;       // of the call
  std::int64_t first_slot;  // among those of all tables
  int lanes;                // threads a row of it
};

template <class Store>
std::vector<table_slots> number_slots(vector_view<Store const> tables) {
  std::vector<table_slots> result;
  for (std::int64_t t = 0; t < tables.size(); ++t) result.push_back({t, 0, lanes_for(tables[t].dim())});
  std::stable_sort(result.begin(), result.end(), [](auto const& a, auto const& b) { return a.lanes < b.lanes; });
  std::int64_t first = 0;
  for (auto& slots : result) {
    slots.first_slot = first;
    first += tables[slots.table].slot_bound();
  }
  return result;
}

/// What the sort needs of a key.
template <class Rows>
struct sorted_key {
  Rows rows;
  std::int64_t first_row;    // of the key, in the batch
  std::int64_t bags;         // of the key
  std::int64_t first_slot;   // of its table
  std::int64_t first_block;  // of threads
  // Its rank's keys of its table: table_keys[first_table_key, last_table_key), ascending, this one among them.
  std::int64_t first_table_key;
  std::int64_t last_table_key;
};

// Which of all slots each value names, with what finds its gradient: the value's bag, or its position. A group of threads a bag. Values of a
// source rank's keys of one table stand in the order of (sample, key, position), among the places that they have in the batch. Those of the
// next rank lie behind.
template <class Index, class Rows>
struct collect_rows_kernel {
  static constexpr int threads = 256, lanes = 8;
  sorted_key<Rows> const* keys;
  std::int64_t const* table_keys;    // numbers of keys
  std::int64_t const* first_blocks;  // (key_count + 1,)
  std::int64_t key_count;
  batch_on_device batch;
  std::int64_t const* slots;  // or nullptr: the ids
  std::int64_t absent;        // the slot of values without a row: past all others
  bool by_bag;
  std::int64_t count;  // of values there is room for
  Index* sorted_slots;
  Index* sources;

  template <class Block>
  TESSERA_DEVICE void operator()(Block& block) const {
    for_each_unit(block, first_blocks[key_count], 1, 0, [&](std::int64_t b) {
      auto const& key = keys[range_of(first_blocks, key_count, b)];
      auto const bag = (b - key.first_block) * (threads / lanes) + block.thread() / lanes;
      if (bag < key.bags) collect(key, bag, block.thread() % lanes);
    });
  }

  TESSERA_DEVICE void collect(sorted_key<Rows> const& key, std::int64_t bag, int lane) const {
    auto const base = batch.first_value();
    auto const row = key.first_row + bag;
    auto const begin = batch.begin_of(row), end = batch.end_of(row);
    bool const alone = key.last_table_key - key.first_table_key == 1;
    auto const rank = alone ? 0 : rank_in_table(key, bag);
    for (auto p = begin + lane; p < end; p += lanes) {
      auto const slot = slots == nullptr ? batch.values[p] : slots[p - base];
      auto const to = alone ? p - base : place_of(key, rank + (p - begin)) - base;
      if (to < 0 || to >= count) continue;  // offsets that are none
      sorted_slots[to] = static_cast<Index>(key.rows.holds(slot) ? key.first_slot + slot : absent);
      sources[to] = static_cast<Index>(by_bag ? row : p - base);
    }
  }

  // How many values of the rank and the table come before the first of this bag.
  TESSERA_DEVICE std::int64_t rank_in_table(sorted_key<Rows> const& key, std::int64_t bag) const {
    std::int64_t rank = 0;
    for (auto m = key.first_table_key; m < key.last_table_key; ++m) {
      auto const& other = keys[table_keys[m]];
      auto const before = bag + (other.first_row < key.first_row ? 1 : 0);  // its bags that come before
      rank += batch.offsets[other.first_row + (before < other.bags ? before : other.bags)] - batch.offsets[other.first_row];
    }
    return rank;
  }
  // The place in the batch that value number `rank` of them takes.
  TESSERA_DEVICE std::int64_t place_of(sorted_key<Rows> const& key, std::int64_t rank) const {
    for (auto m = key.first_table_key;; ++m) {
      auto const& other = keys[table_keys[m]];
      auto const first = batch.offsets[other.first_row], values = batch.offsets[other.first_row + other.bags] - first;
      if (rank < values || m + 1 == key.last_table_key) return first + rank;
      rank -= values;
    }
  }
};

// 1 where a segment of one slot begins, and once behind the last, so that the sum before each is the segment's number.
template <class Index>
struct mark_segments {
  Index const* slots;
  std::int64_t count, absent;
  Index* marks;  // (count + 1,)

  TESSERA_DEVICE void operator()(std::int64_t i) const {
    bool const behind = i == count || static_cast<std::int64_t>(slots[i]) >= absent;
    marks[i] = static_cast<Index>(behind ? 0 : i == 0 || slots[i] != slots[i - 1]);
  }
};

template <class Index>
struct list_segments {
  Index const* slots;
  std::int64_t count, absent;
  Index const* numbers;  // (count + 1,): marks summed
  Index* starts;         // (count + 1,) at most: of each segment, then where the last ends
  std::int64_t* segment_count;

  TESSERA_DEVICE void operator()(std::int64_t i) const {
    bool const behind = i == count || static_cast<std::int64_t>(slots[i]) >= absent;
    if (!behind) {
      if (i == 0 || slots[i] != slots[i - 1]) starts[numbers[i]] = static_cast<Index>(i);
    } else if (i == 0 || static_cast<std::int64_t>(slots[i - 1]) < absent) {
      starts[numbers[i]] = static_cast<Index>(i);
      *segment_count = static_cast<std::int64_t>(numbers[i]);
    }
  }
};

// The first segment of tables whose slots begin at `first_slots[i]`.
template <class Index>
struct find_first_segments {
  Index const* slots;
  Index const* starts;
  std::int64_t const* segment_count;
  std::int64_t const* first_slots;
  std::int64_t* first_segments;

  TESSERA_DEVICE void operator()(std::int64_t i) const {
    first_segments[i] = count_first(
        *segment_count, [&](std::int64_t segment) { return static_cast<std::int64_t>(slots[starts[segment]]) < first_slots[i]; });
  }
};

/// The segments as kernels see them. Segment r is values [starts[r], starts[r + 1]) of `slots`, all the same, and of `sources`.
template <class Index>
struct segments_on_device {
  Index const* slots;
  Index const* sources;
  Index const* starts;
  std::int64_t const* first_segments;  // of each launch's tables, then how many there are
};

template <class Index, class Exec>
class sorted_segments {
 public:
  /// `count`: an upper bound of the number of values.
  template <class Store, class TableOf>
  void sort(Exec const& exec, vector_view<Store const> tables, keyed_jagged_view<std::int64_t const> batch, std::int64_t const* slots,
            TableOf const& table_of, std::int64_t source_ranks, bool by_bag, std::int64_t count, std::vector<table_slots> const& numbered,
            std::vector<std::int64_t> const& first_slots) {
    auto const absent = first_slots.back();
    for (auto* values : {&slots_[0], &slots_[1], &sources_[0], &sources_[1]}) values->resize(exec, count + 1);
    exec.fill(slots_[0].data(), 0xFF, static_cast<std::size_t>(count) * sizeof(Index));  // values that the batch turns out not to have
    collect(exec, tables, batch, slots, table_of, source_ranks, by_bag, count, numbered, absent);
    auto const part = [count](buffer<Index, Exec>& values) { return values.view().slice(0, count); };
    auto const [sorted_slots, sorted_sources] =
        radix_sort_pairs(exec, part(slots_[0]), part(sources_[0]), part(slots_[1]), part(sources_[1]),
                         {0, static_cast<int>(std::bit_width(static_cast<std::uint64_t>(absent)))});
    auto& numbers = slots_[sorted_slots.data() == slots_[0].data() ? 1 : 0];  // what the sort no longer needs
    auto& starts = sources_[sorted_sources.data() == sources_[0].data() ? 1 : 0];
    first_segments_.resize(exec, static_cast<std::int64_t>(first_slots.size()));
    view_ = {sorted_slots.data(), sorted_sources.data(), starts.data(), first_segments_.data()};
    buffer<std::int64_t, Exec> segment_count(exec, 1);
    launch_for_each(exec, count + 1, mark_segments<Index>{view_.slots, count, absent, numbers.data()});
    exclusive_scan(exec, numbers.view(), numbers.view());
    launch_for_each(exec, count + 1, list_segments<Index>{view_.slots, count, absent, numbers.data(), starts.data(), segment_count.data()});
    auto const first_slots_on_device = to_device(exec, first_slots);
    launch_for_each(
        exec, first_slots_on_device.size(),
        find_first_segments<Index>{view_.slots, view_.starts, segment_count.data(), first_slots_on_device.data(), first_segments_.data()});
  }

  segments_on_device<Index> view() const noexcept { return view_; }
  std::size_t bytes() const noexcept {
    return slots_[0].capacity_bytes() + slots_[1].capacity_bytes() + sources_[0].capacity_bytes() + sources_[1].capacity_bytes() +
           first_segments_.capacity_bytes();
  }

 private:
  template <class Store, class TableOf>
  void collect(Exec const& exec, vector_view<Store const> tables, keyed_jagged_view<std::int64_t const> batch, std::int64_t const* slots,
               TableOf const& table_of, std::int64_t source_ranks, bool by_bag, std::int64_t count,
               std::vector<table_slots> const& numbered, std::int64_t absent) {
    using rows_type = decltype(tables[0].device_rows());
    constexpr std::int64_t bags_per_block = collect_rows_kernel<Index, rows_type>::threads / collect_rows_kernel<Index, rows_type>::lanes;
    if (batch.keys == 0) return;
    auto const keys_each = batch.keys / source_ranks;
    auto const part_of = [&](std::int64_t key) { return static_cast<std::size_t>(key / keys_each * tables.size() + table_of(key)); };
    std::vector<std::vector<std::int64_t>> keys_of(static_cast<std::size_t>(source_ranks * tables.size()));  // those with rows
    std::vector<std::int64_t> first_slot(static_cast<std::size_t>(tables.size())), first_table_key(keys_of.size()), table_keys;
    for (auto const& n : numbered) first_slot[static_cast<std::size_t>(n.table)] = n.first_slot;
    std::vector<std::int64_t> keys;
    for (std::int64_t key = 0; key < batch.keys; ++key) {
      if (batch.rows(key) == 0) continue;
      keys_of[part_of(key)].push_back(static_cast<std::int64_t>(keys.size()));
      keys.push_back(key);
    }
    if (keys.empty()) return;
    for (std::size_t p = 0; p < keys_of.size(); ++p) {
      first_table_key[p] = static_cast<std::int64_t>(table_keys.size());
      table_keys.insert(table_keys.end(), keys_of[p].begin(), keys_of[p].end());
    }
    std::vector<sorted_key<rows_type>> parts;
    std::vector<std::int64_t> first_blocks{0};
    for (auto const key : keys) {
      auto const p = part_of(key);
      parts.push_back({tables[table_of(key)].device_rows(), batch.first_row[key] - batch.first_row[0], batch.rows(key),
                       first_slot[static_cast<std::size_t>(table_of(key))], first_blocks.back(), first_table_key[p],
                       first_table_key[p] + static_cast<std::int64_t>(keys_of[p].size())});
      first_blocks.push_back(first_blocks.back() + divide_up(batch.rows(key), bags_per_block));
    }
    auto const device_parts = to_device(exec, parts);
    auto const table_keys_on_device = to_device(exec, table_keys);
    auto const blocks_on_device = to_device(exec, first_blocks);
    exec.launch({.blocks = blocks_for(first_blocks.back(), 1)},
                collect_rows_kernel<Index, rows_type>{device_parts.data(), table_keys_on_device.data(), blocks_on_device.data(),
                                                      device_parts.size(), batch_on_device(batch), slots, absent, by_bag, count,
                                                      slots_[0].data(), sources_[0].data()});
  }

  buffer<Index, Exec> slots_[2], sources_[2];  // the sorted ones, and what the sort needed, which holds the segments after
  buffer<std::int64_t, Exec> first_segments_;
  segments_on_device<Index> view_{};
};

}  // namespace detail

/// `row_order` on a device. Its memory is kept from batch to batch. Move-only.
template <device_execution Exec>
class device_row_order {
 public:
  /// Whether it holds the order of a batch.
  bool ready() const noexcept { return ready_; }
  /// An upper bound of the number of values of that batch.
  std::int64_t values() const noexcept { return values_; }
  /// The number of rows (bags) of that batch.
  std::int64_t rows() const noexcept { return rows_; }
  void clear() noexcept { ready_ = false; }
  std::size_t bytes() const noexcept { return narrow_.bytes() + wide_.bytes(); }

  /// @private The tables in the order of their slots' numbers. `first_slots` are those of the tables with 1, 2, … 32 lanes, then the number
  /// of all.
  std::vector<detail::table_slots> const& tables() const noexcept { return tables_; }
  static constexpr int launches = 6;
  /// @private See `tables`.
  std::vector<std::int64_t> const& first_slots() const noexcept { return first_slots_; }
  /// @private Whether sources are bags, else positions.
  bool by_bag() const noexcept { return by_bag_; }

  /// @private
  template <class Store, class TableOf>
  void sort(Exec const& exec, vector_view<Store const> tables, keyed_jagged_view<std::int64_t const> batch, std::int64_t const* slots,
            TableOf const& table_of, std::int64_t source_ranks, bool by_bag) {
    ready_ = false;
    tables_ = detail::number_slots(tables);
    first_slots_.assign(launches + 1, 0);
    for (auto const& n : tables_) {
      auto const launch = static_cast<std::size_t>(std::countr_zero(static_cast<unsigned>(n.lanes)));
      first_slots_[launch + 1] += tables[n.table].slot_bound();
    }
    for (std::size_t i = 1; i < first_slots_.size(); ++i) first_slots_[i] += first_slots_[i - 1];
    by_bag_ = by_bag;
    rows_ = batch.rows();
    values_ = detail::value_bound(exec, batch.flat());
    // All ones stand for what is not there: they have to lie past the slot of values without a row.
    constexpr std::int64_t most = std::numeric_limits<std::uint32_t>::max();
    is_wide_ = std::max(values_, first_slots_.back() + 1) >= most;
    if (is_wide_)
      wide_.sort(exec, tables, batch, slots, table_of, source_ranks, by_bag, values_, tables_, first_slots_);
    else
      narrow_.sort(exec, tables, batch, slots, table_of, source_ranks, by_bag, values_, tables_, first_slots_);
    ready_ = true;
  }

  /// @private Calls f(detail::segments_on_device) with the segments in use.
  template <class F>
  void visit(F const& f) const {
    if (is_wide_)
      f(wide_.view());
    else
      f(narrow_.view());
  }

 private:
  detail::sorted_segments<std::uint32_t, Exec> narrow_;  // where 32 bits hold all slots and positions
  detail::sorted_segments<std::uint64_t, Exec> wide_;
  std::vector<detail::table_slots> tables_;
  std::vector<std::int64_t> first_slots_;
  std::int64_t rows_ = 0, values_ = 0;
  bool is_wide_ = false, by_bag_ = false, ready_ = false;
};

namespace detail {

template <device_execution Exec>
struct order_of<Exec> {
  using type = device_row_order<Exec>;
};

/// Whether a backward finds the gradient of each value by its bag, which needs an unweighted batch without sequences; else by its position.
template <class Feature>
bool finds_by_bag(vector_view<Feature const> features, keyed_jagged_view<std::int64_t const> batch) {
  return !batch.weighted() && std::none_of(features.begin(), features.end(), [](auto const& feature) { return is_sequence(feature); });
}

/// Sorts the values of a batch by the rows that a forward has found for them.
template <device_execution Exec, class Store, class Feature>
void sort_rows(Exec const& exec, vector_view<Store const> tables, vector_view<Feature const> features,
               basic_lookup_saved<Exec> const& saved, device_row_order<Exec>& order) {
  order.sort(
      exec, tables, saved.batch, saved.template slots_of<Store>(), [&](std::int64_t key) { return table_of(features[key]); },
      saved.source_ranks, finds_by_bag(features, saved.batch));
}

template <device_execution Exec>
struct back_end<sort_rows_tag, Exec> {
  template <class Store, class Feature>
  static void run(Exec const& exec, vector_view<Store const> tables, vector_view<Feature const> features,
                  basic_lookup_saved<Exec> const& saved, device_row_order<Exec>& order) {
    sort_rows(exec, tables, features, saved, order);
  }
};

}  // namespace detail

}  // namespace TESSERA_ABI
}  // namespace tessera
