// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include <tessera/core/buffer.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>

namespace tessera {
inline namespace TESSERA_ABI {
namespace detail {

/// More than any cost of moving a point.
inline constexpr std::int64_t no_transfer = std::int64_t{1} << 62;

/// The points of one cluster, each in a place, and for every cluster the least cost of moving one of them there.
///
/// A heap for each pair of clusters would hold n k entries of a cost and a point. This is one tree a cluster instead, of rows with a number for
/// each cluster. A row holds the least costs of 8 points, and above that, of 8 rows. So it takes a seventh of the costs' memory, and what
/// changes is 8 rows a level, read and compared as vectors.
class transfer_tree {
 public:
  /// No points yet. `costs` (n, k): of every point in every cluster; they outlive it.
  transfer_tree(std::int64_t cluster, matrix_view<std::int64_t const> costs) noexcept : cluster_(cluster), costs_(costs) {}

  std::int64_t size() const noexcept { return size_; }
  std::int64_t point(std::int64_t place) const noexcept(!checks_indices) { return points_[place]; }

  /// Makes room for the points that `add_later` brings.
  void reserve(host_exec const& exec, std::int64_t points) {
    points_.resize(exec, points);
    auto rows = points;
    do {
      rows = divide_up(rows, fan);
      levels_.emplace_back(exec, rows * costs_.columns());
    } while (rows > 1);
  }
  /// Adds a point for which there is room; `build` comes after the last.
  void add_later(std::int64_t point) noexcept(!checks_indices) { points_[size_++] = static_cast<std::int32_t>(point); }
  void build() {
    for (std::int64_t level = 0; level < levels(); ++level)
      for (std::int64_t row = 0; row < rows_of(level); ++row) refresh(level, row);
  }

  void add(host_exec const& exec, std::int64_t point) {
    grow(exec, points_, size_ + 1);
    points_[size_++] = static_cast<std::int32_t>(point);
    for (std::int64_t level = 0, rows = size_; level == 0 || rows > 1; ++level) {
      rows = divide_up(rows, fan);
      if (level == levels()) levels_.emplace_back(exec, 0);
      grow(exec, levels_[static_cast<std::size_t>(level)], rows * costs_.columns());
    }
    refresh_above(size_ - 1);
  }
  void replace(std::int64_t place, std::int64_t point) {
    points_[place] = static_cast<std::int32_t>(point);
    refresh_above(place);
  }
  /// The last point takes the place of the one that leaves.
  void remove(std::int64_t place) {
    points_[place] = points_[--size_];
    if (place < size_) refresh_above(place);
    if (size_ > 0) refresh_above(size_ - 1);
  }

  /// (k,): the least cost of moving a point to each cluster. @pre size() > 0
  std::int64_t const* least_costs() const noexcept {
    std::int64_t level = 0;
    while (rows_of(level) > 1) ++level;
    return row(level, 0);
  }
  /// The place of a point that moves to that cluster at the least cost. @pre size() > 0
  std::int64_t cheapest(std::int64_t to) const noexcept(!checks_indices) {
    std::int64_t level = 0, at = 0;
    while (rows_of(level) > 1) ++level;
    auto const least = row(level, 0)[to];
    for (; level > 0; --level)
      for (at *= fan; row(level - 1, at)[to] != least;) ++at;
    for (at *= fan; cost(points_[at], to) != least;) ++at;
    return at;
  }

 private:
  static constexpr std::int64_t fan = 8;

  std::int64_t levels() const noexcept { return static_cast<std::int64_t>(levels_.size()); }
  std::int64_t rows_of(std::int64_t level) const noexcept {
    auto rows = divide_up(size_, fan);
    for (; level > 0; --level) rows = divide_up(rows, fan);
    return rows;
  }
  std::int64_t const* row(std::int64_t level, std::int64_t r) const noexcept {
    return levels_[static_cast<std::size_t>(level)].data() + r * costs_.columns();
  }
  std::int64_t cost(std::int64_t p, std::int64_t to) const { return costs_.row(p)[to] - costs_.row(p)[cluster_]; }

  void refresh_above(std::int64_t place) {
    auto rows = size_;
    for (std::int64_t level = 0; level == 0 || rows > 1; ++level) {
      place /= fan;
      rows = divide_up(rows, fan);
      refresh(level, place);
    }
  }

  void refresh(std::int64_t level, std::int64_t r) {
    auto const k = costs_.columns();
    auto* __restrict const least = levels_[static_cast<std::size_t>(level)].data() + r * k;
    auto const first = r * fan, below = level == 0 ? size_ : rows_of(level - 1), last = std::min(first + fan, below);
    std::fill(least, least + k, no_transfer);
    for (auto i = first; i < last; ++i) {
      if (level == 0) {
        std::int64_t const* const costs = costs_.row(points_[i]);
        auto const now = costs[cluster_];
        for (std::int64_t c = 0; c < k; ++c) least[c] = std::min(least[c], costs[c] - now);
      } else {
        std::int64_t const* const costs = row(level - 1, i);
        for (std::int64_t c = 0; c < k; ++c) least[c] = std::min(least[c], costs[c]);
      }
    }
  }

  std::int64_t cluster_;
  matrix_view<std::int64_t const> costs_;
  std::int64_t size_ = 0;
  buffer<std::int32_t> points_;
  std::vector<buffer<std::int64_t>> levels_;  // (rows, k) each, the last of one row
};

}  // namespace detail
}  // namespace TESSERA_ABI
}  // namespace tessera
