// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <tessera/core/buffer.hpp>
#include <tessera/core/device.hpp>
#include <tessera/core/scan.cuh>
#include <tessera/core/view.hpp>
#include <tessera/embed/hashed_row.hpp>
#include <tessera/embed/pooling.hpp>
#include <tessera/shard/batch_counts.cuh>
#include <tessera/shard/device_split_ids.hpp>
#include <tessera/shard/row_split.hpp>
#include <tessera/shard/word_copies.cuh>
#include <tessera/tensor/keyed_jagged.hpp>

/// Keys that are cut by rows, on devices: their ids go to ranges of rows, and the sums of these ranges are joined.
namespace tessera {
inline namespace TESSERA_ABI {
namespace detail {

/// Those ids of a key that a range of rows has.
struct range_of_key {
  std::int64_t key = 0;
  row_range rows;
  std::int64_t hashed_rows = 0;  ///< above 0: ids are in the range that has `hashed_row(id, hashed_rows)`; else they are rows
  bool keeps_ids = false;        ///< whether they stay as they are; else they are counted from the range's first row

  TESSERA_HOST_DEVICE bool takes(std::int64_t id) const noexcept {
    auto const row = hashed_rows > 0 ? hashed_row(id, hashed_rows) : id;
    return row >= rows.first && row - rows.first < rows.count;
  }

  friend bool operator==(range_of_key const&, range_of_key const&) = default;
};

/// One range and the ids of its key. `before` (values + 1,) says for each value how many of all ranges' ids go before it.
struct ids_to_split {
  range_of_key range;
  std::int64_t const* values;
  float const* weights;  // nullptr: there are none
  std::int64_t* before;
  std::int64_t* taken;  // of all ranges, one after the other
  float* taken_weights;
};

/// As a part of tiles: 1 for each id that the range takes, else 0.
struct mark_taken {
  ids_to_split const* pieces;

  TESSERA_HOST_DEVICE void operator()(std::int64_t number, std::int64_t within, std::int64_t, std::int64_t count) const {
    auto const& piece = pieces[number];
    for (auto i = within; i < within + count; ++i) piece.before[i] = piece.range.takes(piece.values[i]) ? 1 : 0;
  }
};

/// As a part of tiles: writes the ids that the range takes, in their order.
struct write_taken {
  ids_to_split const* pieces;

  TESSERA_HOST_DEVICE void operator()(std::int64_t number, std::int64_t within, std::int64_t, std::int64_t count) const {
    auto const& piece = pieces[number];
    for (auto i = within; i < within + count; ++i) {
      auto const to = piece.before[i];
      if (piece.before[i + 1] == to) continue;
      piece.taken[to] = piece.range.keeps_ids ? piece.values[i] : piece.values[i] - piece.range.rows.first;
      if (piece.weights != nullptr) piece.taken_weights[to] = piece.weights[i];
    }
  }
};

/// Where the rows of a key begin among the ids that a range takes.
struct rows_to_split {
  std::int64_t const* offsets;  // (rows + 1,), of the key
  std::int64_t const* before;   // as above
  std::int64_t* split;          // (rows + 1,)
};

/// As a part of tiles: one place more than there are rows.
struct write_split_offsets {
  rows_to_split const* pieces;

  TESSERA_HOST_DEVICE void operator()(std::int64_t number, std::int64_t within, std::int64_t, std::int64_t count) const {
    auto const& piece = pieces[number];
    for (auto row = within; row < within + count; ++row) piece.split[row] = piece.before[piece.offsets[row] - piece.offsets[0]];
  }
};

/// Splits the ids of a batch that is counted. It calls `wait()`, and waits for the numbers of ids, where there are any.
template <device_execution Exec, class Wait>
void split_ids_of_ranges(Exec const& exec, keyed_jagged_view<std::int64_t const> batch, batch_counts const& counts,
                         std::vector<range_of_key> const& ranges, Wait const& wait, device_split_ids<Exec>& to) {
  auto const count = static_cast<std::int64_t>(ranges.size());
  std::vector<std::int64_t> first{0};
  to.offsets_at.assign(1, 0);
  for (auto const& range : ranges) {
    first.push_back(first.back() + counts.values(range.key));
    to.offsets_at.push_back(to.offsets_at.back() + batch.rows(range.key) + 1);
  }
  buffer<std::int64_t, Exec> before(exec, first.back() + 1);
  auto const add = [&](auto& pieces) {
    for (std::size_t r = 0; r < ranges.size(); ++r) {
      auto const key = ranges[r].key;
      auto const from = counts.first_value + counts.starts[static_cast<std::size_t>(key)];
      pieces.add(counts.values(key), {ranges[r], batch.values + from, batch.weighted() ? batch.weights + from : nullptr,
                                      before.data() + first[r], to.all_ids.data(), to.all_weights.data()});
    }
  };
  launched_pieces<ids_to_split, mark_taken, 1> marked;
  add(marked);
  marked.launch(exec);
  exec.fill(before.data() + first.back(), 0, sizeof(std::int64_t));
  exclusive_scan(exec, vector_view<std::int64_t const>(before.view()), before.view());

  to.starts.assign(ranges.size() + 1, 0);
  if (first.back() > 0) {
    buffer<std::int64_t, Exec> found(exec, count + 1);
    word_copies copies;
    for (std::int64_t r = 0; r <= count; ++r)
      copies.add<std::int64_t>(before.data() + first[static_cast<std::size_t>(r)], found.data() + r, 1);
    copies.launch(exec);
    wait();
    exec.copy_out(to.starts.data(), found.data(), to.starts.size() * sizeof to.starts[0]);
  }
  to.all_ids.resize(exec, to.starts.back());
  to.all_weights.resize(exec, batch.weighted() ? to.starts.back() : 0);
  to.all_offsets.resize(exec, to.offsets_at.back());
  launched_pieces<ids_to_split, write_taken, 1> taken;
  add(taken);
  taken.launch(exec);
  launched_pieces<rows_to_split, write_split_offsets, 1> rows;
  for (std::size_t r = 0; r < ranges.size(); ++r)
    if (auto const key = ranges[r].key; batch.rows(key) > 0)
      rows.add(batch.rows(key) + 1, {batch.key(key).offsets, before.data() + first[r], to.all_offsets.data() + to.offsets_at[r]});
  rows.launch(exec);
}

/// What the joined sums of a key's rows are multiplied by, for a mean.
struct rows_to_measure {
  std::int64_t const* offsets;
  float* means;
};

/// As a part of tiles.
struct write_means {
  rows_to_measure const* pieces;

  TESSERA_HOST_DEVICE void operator()(std::int64_t number, std::int64_t within, std::int64_t, std::int64_t count) const {
    auto const& piece = pieces[number];
    for (auto row = within; row < within + count; ++row)
      piece.means[row] = pooling_scale(pooling::mean, piece.offsets[row + 1] - piece.offsets[row]);
  }
};
using means_to_write = launched_pieces<rows_to_measure, write_means, 1>;

/// Rows that are multiplied by a number each.
struct rows_to_scale {
  matrix_view<float const> from;
  float* to;  // (rows, columns)
  float const* scales;
};

/// As a part of tiles, whose elements are numbered row by row.
struct write_scaled {
  rows_to_scale const* pieces;

  TESSERA_HOST_DEVICE void operator()(std::int64_t number, std::int64_t within, std::int64_t, std::int64_t count) const {
    auto const& piece = pieces[number];
    auto const columns = piece.from.columns();
    for (auto i = within; i < within + count; ++i) {
      auto const row = i / columns;
      piece.to[i] = piece.from.data()[row * piece.from.stride() + (i - row * columns)] * piece.scales[row];
    }
  }
};
using scaled_rows = launched_pieces<rows_to_scale, write_scaled, 1>;

/// The sums that a range of rows gives for some columns of a key.
struct part_of_sums {
  std::int64_t first_row = 0;  // of the range
  std::int64_t first_column = 0, columns = 0;
  float const* from = nullptr;  // (rows of the key, columns)
};

/// All parts of a key, in the order in which they are added.
struct sums_to_join {
  part_of_sums const* parts;
  std::int64_t count;
  float const* means;  // (rows,), or nullptr
  matrix_view<float> to;
};

/// As a part of tiles, whose elements are numbered row by row.
struct write_joined {
  sums_to_join const* keys;

  TESSERA_HOST_DEVICE void operator()(std::int64_t number, std::int64_t within, std::int64_t, std::int64_t count) const {
    auto const& key = keys[number];
    for (auto i = within; i < within + count; ++i) {
      auto const row = i / key.to.columns(), column = i - row * key.to.columns();
      float sum = 0;
      for (std::int64_t p = 0; p < key.count; ++p) {
        auto const& part = key.parts[p];
        if (auto const c = column - part.first_column; c >= 0 && c < part.columns) sum += part.from[row * part.columns + c];
      }
      key.to.data()[row * key.to.stride() + column] = key.means == nullptr ? sum : sum * key.means[row];
    }
  }
};

/// Joins the sums of all keys in one launch, those of the first rows first, as `join_partial_sums` does on the host.
class device_partial_sums {
 public:
  explicit device_partial_sums(std::size_t keys) : parts_(keys) {}

  /// `rows` rows of a key.
  void add(std::int64_t key, std::int64_t rows, part_of_sums const& part) {
    auto& of = parts_[static_cast<std::size_t>(key)];
    of.rows = rows;
    of.parts.push_back(part);
  }
  /// `means_of(key)`: nullptr where sums stay as they are. `out` (keys,)
  template <device_execution Exec, class MeansOf>
  void join(Exec const& exec, MeansOf const& means_of, vector_view<matrix_view<float> const> out) {
    std::vector<part_of_sums> all;
    for (auto& of : parts_) {
      std::stable_sort(of.parts.begin(), of.parts.end(), [](auto const& a, auto const& b) { return a.first_row < b.first_row; });
      all.insert(all.end(), of.parts.begin(), of.parts.end());
    }
    if (all.empty()) return;
    auto const there = to_device(exec, all);
    auto const* next = there.data();
    launched_pieces<sums_to_join, write_joined, 1> joined;
    for (std::size_t k = 0; k < parts_.size(); ++k) {
      auto const& of = parts_[k];
      if (of.parts.empty()) continue;
      auto const key = static_cast<std::int64_t>(k);
      auto const count = static_cast<std::int64_t>(of.parts.size());
      joined.add(of.rows * out[key].columns(), {std::exchange(next, next + count), count, means_of(key), out[key]});
    }
    joined.launch(exec);
  }

 private:
  struct sums_of_key {
    std::int64_t rows = 0;
    std::vector<part_of_sums> parts;
  };
  std::vector<sums_of_key> parts_;
};

}  // namespace detail
}  // namespace TESSERA_ABI
}  // namespace tessera
