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
#include <tessera/embed/hashed_row.hpp>
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
  buffer<std::int64_t> ids;        // (n,), counted from the range's first row, or as they are
  buffer<std::int64_t> positions;  // (n,), among the key's ids; of partial sums (rows,), among the key's rows
  buffer<std::int64_t> offsets;    // (rows + 1,), or (1,) where each id is a row
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
  buffer<float> means;               // (rows of the key,): what multiplies each row's joined sum, of partial means; else none

  /// The means, or nullptr where there are none.
  float const* means_or_none() const noexcept { return means.empty() ? nullptr : means.data(); }
  /// Zeros the vectors of ids that no range has. `vectors` (ids of the key, dim).
  void clear_absent(matrix_view<float> vectors) const noexcept {
    for (auto const position : absent) std::fill_n(vectors.row(position), vectors.columns(), 0.0F);
  }
  std::size_t bytes() const noexcept {
    auto sum = absent.capacity_bytes() + means.capacity_bytes();
    for (auto const& part : parts) sum += part.bytes();
    return sum;
  }
};

/// How the ids of a key go to ranges of its table's rows.
struct split_options {
  bool keeps_rows = true;         ///< whether parts have all rows of the key; else each id is a row, or partial sums have no empty rows
  bool scaled = false;            ///< whether each id brings what multiplies it: its weight, times the scale of its bag but of partial sums
  pooling pooled = pooling::sum;  ///< of the bags
  bool partial = false;           ///< whether each part sums its ids of a row
};

/// Splits the ids of a key by ranges of rows, which may overlap. A batch is counted, then gets room, then is split: threads may count and
/// split different keys at the same time.
class row_split {
 public:
  row_split() = default;
  /// Where `hashed_rows` is above 0, ids are in the ranges that have `hashed_row(id, hashed_rows)`; else they are rows. Where `keeps_ids`,
  /// parts get them as they are, and all are below `id_bound`, or it is 0.
  row_split(std::int64_t hashed_rows, bool keeps_ids, std::int64_t id_bound)
      : hashed_rows_(hashed_rows), keeps_ids_(keeps_ids), id_bound_(id_bound) {}

  /// Whether there is no range: the key is not split.
  bool empty() const noexcept { return ranges_.empty(); }

  /// The number of this range, which is added where it is new.
  std::size_t add(row_range range);

  /// Counts the ids of each range.
  void count(jagged_view<std::int64_t const> bags, split_ids& to) const;

  /// @pre `count` went before
  void make_room(host_exec const& exec, std::int64_t rows, split_options const& options, split_ids& to) const;

  /// `weights`: of the batch's positions, or nullptr. @pre `make_room` went before
  void split(jagged_view<std::int64_t const> bags, float const* weights, split_options const& options, split_ids& to) const;

 private:
  void measure(std::size_t r, std::int64_t rows, split_options const& options, ids_of_range& part) const;

  // The number of the interval of rows that begins here, which is made where it is new.
  std::size_t interval_from(std::int64_t row);

  // The ranges that have an id.
  std::vector<std::size_t> const& takers_of(std::int64_t id) const noexcept {
    auto const row = hashed_rows_ > 0 ? hashed_row(id, hashed_rows_) : id;
    return takers_[static_cast<std::size_t>(std::upper_bound(bounds_.begin(), bounds_.end(), row) - bounds_.begin())];
  }

  std::int64_t hashed_rows_ = 0;
  bool keeps_ids_ = false;
  std::int64_t id_bound_ = 0;
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
  float const* scales = nullptr;  // of the rows of `from`, which are multiplied by them; nullptr: they are not
};

/// Copies them, each on any thread.
void copy_rows(host_exec const& exec, std::vector<rows_to_copy> const& tasks);

}  // namespace detail

}  // namespace TESSERA_ABI
}  // namespace tessera

#if !TESSERA_COMPILED
#include <tessera/shard/row_split.ipp>
#endif
