// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <tessera/core/buffer.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>
#include <tessera/embed/pooling.hpp>
#include <tessera/shard/id_message.hpp>
#include <tessera/tensor/jagged.hpp>
#include <tessera/tensor/keyed_jagged.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

namespace detail {

/// Rows [first, first + count) of a table.
struct row_range {
  std::int64_t first = 0, count = 0;

  friend bool operator==(row_range const&, row_range const&) = default;
};

/// Those ids of a key that a range of rows has, in the key's order.
struct ids_of_range {
  id_message_key measured;
  buffer<std::int64_t> ids;        // (n,), counted from the range's first row
  buffer<std::int64_t> positions;  // (n,), among the key's ids
  buffer<std::int64_t> offsets;    // (rows of the key + 1,), or (1,) where each id is a row
  buffer<float> scales;            // (n,), or none

  jagged_view<std::int64_t const> rows() const noexcept { return {ids.data(), offsets.data(), measured.rows}; }
  std::size_t bytes() const noexcept {
    return ids.capacity_bytes() + positions.capacity_bytes() + offsets.capacity_bytes() + scales.capacity_bytes();
  }
};

/// The positions of a part, or nullptr where there is no part.
inline std::int64_t const* positions_of(ids_of_range const* part) noexcept { return part == nullptr ? nullptr : part->positions.data(); }

/// The ids of a key, split. Its memory is kept from batch to batch.
struct split_ids {
  std::vector<ids_of_range> parts;   // of each range
  buffer<std::int64_t> absent;       // positions of ids that no range has
  std::vector<std::int64_t> counts;  // of the ids of each range, and of those absent

  /// Zeros the vectors of ids that no range has. `vectors` (ids of the key, dim).
  void clear_absent(matrix_view<float> vectors) const noexcept {
    for (auto const position : absent) std::fill_n(vectors.row(position), vectors.columns(), 0.0F);
  }
  std::size_t bytes() const noexcept {
    auto sum = absent.capacity_bytes();
    for (auto const& part : parts) sum += part.bytes();
    return sum;
  }
};

/// How the ids of a key go to ranges of its table's rows.
struct split_options {
  bool keeps_rows = true;         ///< whether parts say which row an id is of; else each id is a row
  bool scaled = false;            ///< whether each id brings what multiplies its gradient: its weight times the scale of its bag
  pooling pooled = pooling::sum;  ///< of the bags
};

/// Splits the ids of a key by ranges of rows, which may overlap. A batch is counted, then gets room, then is split: threads may count and
/// split different keys at the same time.
class row_split {
 public:
  /// Whether there is no range: the key is not split.
  bool empty() const noexcept { return ranges_.empty(); }

  /// The number of this range, which is added where it is new.
  std::size_t add(row_range range) {
    auto const found = std::find(ranges_.begin(), ranges_.end(), range);
    auto const number = static_cast<std::size_t>(found - ranges_.begin());
    if (found != ranges_.end()) return number;
    ranges_.push_back(range);
    auto const first = interval_from(range.first), last = interval_from(range.first + range.count);
    for (auto interval = first; interval < last; ++interval) takers_[interval].push_back(number);
    return number;
  }

  /// Counts the ids of each range.
  void count(jagged_view<std::int64_t const> bags, split_ids& to) const {
    to.counts.assign(ranges_.size() + 1, 0);
    for (auto const id : bags.all_values()) {
      auto const& takers = takers_of(id);
      for (auto const r : takers) ++to.counts[r];
      if (takers.empty()) ++to.counts.back();
    }
  }

  /// @pre `count` went before
  void make_room(host_exec const& exec, std::int64_t rows, split_options const& options, split_ids& to) const {
    to.parts.resize(ranges_.size());
    to.absent.resize(exec, to.counts.back());
    for (std::size_t r = 0; r < ranges_.size(); ++r) {
      auto& part = to.parts[r];
      part.ids.resize(exec, to.counts[r]);
      part.positions.resize(exec, to.counts[r]);
      part.offsets.resize(exec, options.keeps_rows ? rows + 1 : 1);
      part.scales.resize(exec, options.scaled ? to.counts[r] : 0);
    }
  }

  /// `weights`: of the batch's positions, or nullptr. @pre `make_room` went before
  void split(jagged_view<std::int64_t const> bags, float const* weights, split_options const& options, split_ids& to) const {
    std::vector<std::int64_t> next(ranges_.size() + 1, 0);
    for (auto& part : to.parts) part.offsets[0] = 0;
    for (std::int64_t row = 0; row < bags.rows; ++row) {
      auto const scale = pooling_scale(options.pooled, bags.length(row));
      for (auto p = bags.begin_of(row); p < bags.end_of(row); ++p) {
        auto const id = bags.values[p];
        auto const& takers = takers_of(id);
        for (auto const r : takers) {
          auto& part = to.parts[r];
          auto const n = next[r]++;
          part.ids[n] = id - ranges_[r].first;
          part.positions[n] = p - bags.offsets[0];
          if (options.scaled) part.scales[n] = weights == nullptr ? scale : scale * weights[p];
        }
        if (takers.empty()) to.absent[next.back()++] = p - bags.offsets[0];
      }
      if (options.keeps_rows)
        for (std::size_t r = 0; r < ranges_.size(); ++r) to.parts[r].offsets[row + 1] = next[r];
    }
    for (std::size_t r = 0; r < ranges_.size(); ++r) measure(r, bags.rows, options, to.parts[r]);
  }

 private:
  void measure(std::size_t r, std::int64_t rows, split_options const& options, ids_of_range& part) const {
    auto const bound = ranges_[r].count, n = part.ids.size();
    if (options.keeps_rows)
      part.measured = measure_key({part.ids.data(), part.offsets.data(), rows}, bound, options.scaled);
    else
      part.measured = {.rows = n, .values = n, .id_bytes = id_bytes_below(bound), .weighted = options.scaled ? 1 : 0};
  }

  // The number of the interval of rows that begins here, which is made where it is new.
  std::size_t interval_from(std::int64_t row) {
    auto const place = std::lower_bound(bounds_.begin(), bounds_.end(), row) - bounds_.begin();
    auto const before = static_cast<std::size_t>(place);
    if (before == bounds_.size() || bounds_[before] != row) {
      bounds_.insert(bounds_.begin() + place, row);
      takers_.insert(takers_.begin() + place + 1, std::vector<std::size_t>(takers_[before]));
    }
    return before + 1;
  }

  // The ranges that have an id.
  std::vector<std::size_t> const& takers_of(std::int64_t id) const noexcept {
    return takers_[static_cast<std::size_t>(std::upper_bound(bounds_.begin(), bounds_.end(), id) - bounds_.begin())];
  }

  std::vector<row_range> ranges_;
  std::vector<std::int64_t> bounds_;  // where ranges begin and end, ascending
  std::vector<std::vector<std::size_t>> takers_ =
      std::vector<std::vector<std::size_t>>(1);  // of ids below the first bound, then of those from each on
};

/// Splits all keys that `splits` (keys,) has ranges of. `options_of(key)`.
template <class OptionsOf>
void split_keys(host_exec const& exec, keyed_jagged_view<std::int64_t const> batch, std::vector<row_split> const& splits,
                OptionsOf const& options_of, std::vector<split_ids>& to) {
  to.resize(splits.size());
  std::vector<std::size_t> cut;
  for (std::size_t key = 0; key < splits.size(); ++key)
    if (!splits[key].empty()) cut.push_back(key);
  auto const for_each_key = [&](auto const& f) {
    exec.run(static_cast<std::int64_t>(cut.size()), [&](std::int64_t i) {
      auto const key = cut[static_cast<std::size_t>(i)];
      f(key, batch.key(static_cast<std::int64_t>(key)));
    });
  };
  for_each_key([&](std::size_t key, auto const& bags) { splits[key].count(bags, to[key]); });
  for (auto const key : cut) splits[key].make_room(exec, batch.rows(static_cast<std::int64_t>(key)), options_of(key), to[key]);
  for_each_key([&](std::size_t key, auto const& bags) { splits[key].split(bags, batch.weights, options_of(key), to[key]); });
}

/// Vectors to copy: row i to row i, or from or to the rows that a list names, once each. As many as the smaller matrix has.
struct rows_to_copy {
  matrix_view<float const> from;
  matrix_view<float> to;
  std::int64_t const *from_rows = nullptr, *to_rows = nullptr;
};

/// Copies them, each on any thread.
inline void copy_rows(host_exec const& exec, std::vector<rows_to_copy> const& tasks) {
  exec.run(static_cast<std::int64_t>(tasks.size()), [&](std::int64_t number) {
    auto const& task = tasks[static_cast<std::size_t>(number)];
    auto const row_in = [](std::int64_t const* rows, std::int64_t i) { return rows == nullptr ? i : rows[i]; };
    auto const count = std::min(task.from.rows(), task.to.rows());
    for (std::int64_t i = 0; i < count; ++i)
      std::copy_n(task.from.row(row_in(task.from_rows, i)), task.to.columns(), task.to.row(row_in(task.to_rows, i)));
  });
}

}  // namespace detail

}  // namespace TESSERA_ABI
}  // namespace tessera
