// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/core/buffer.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/piece_list.hpp>
#include <tessera/core/register_bytes.hpp>
#include <tessera/core/view.hpp>

/// What all clusterings share: points as doubles, their squared distances to centres, the means of clusters.
namespace tessera {
inline namespace TESSERA_ABI {

/// An element of points that are clustered.
template <class T>
concept coordinate = std::is_same_v < std::remove_const_t<T>,
float > || std::is_same_v<std::remove_const_t<T>, double>;

namespace detail {

inline constexpr std::int64_t points_per_sum = 1024;
inline constexpr std::int64_t centres_per_tile = 8;
inline constexpr double largest_coordinate = 1e140;  // beyond, squares of differences may be infinite

// (n, d) without gaps.
template <coordinate T>
buffer<double> copy_points(char const* call, host_exec const& exec, matrix_view<T> points) {
  auto const n = points.rows(), d = points.columns();
  buffer<double> result(exec, n * d);
  for_each_piece(exec, n, points_per_sum, [&](std::int64_t first, std::int64_t last) {
    for (auto p = first; p < last; ++p) {
      for (std::int64_t j = 0; j < d; ++j) {
        auto const x = static_cast<double>(points.row(p)[j]);
        if (!(std::fabs(x) <= largest_coordinate / static_cast<double>(d)))
          throw error(errc::invalid_argument, std::string(call) + ": a coordinate is not finite, or too large to square",
                      {{"point", p}, {"dim", j}, {"value", x}});
        result[p * d + j] = x;
      }
    }
  });
  return result;
}

// As many as a register holds, four at most, since two of them lie in a tile. The vectoriser would turn arrays of sums inside out.
inline constexpr int doubles_bytes = std::min(register_bytes, 32), doubles_count = doubles_bytes / static_cast<int>(sizeof(double));
using doubles [[gnu::vector_size(doubles_bytes)]] = double;
using doubles_in_memory [[gnu::vector_size(doubles_bytes), gnu::aligned(alignof(double)), gnu::may_alias]] = double;

// Centres by tiles of 8: element j of all centres of a tile stand together, so that one point's distances to them are computed as a vector.
class tiled_centres {
 public:
  tiled_centres(host_exec const& exec, std::int64_t centres, std::int64_t d)
      : d_(d), tiles_(divide_up(centres, centres_per_tile)), values_(exec, tiles_ * centres_per_tile * d) {
    std::fill(values_.begin(), values_.end(), 0.0);
  }

  /// Room that the distances of one point need: the number of centres, rounded up.
  std::int64_t room() const noexcept { return tiles_ * centres_per_tile; }
  void set(std::int64_t c, double const* centre) noexcept {
    auto const first = c / centres_per_tile * centres_per_tile * d_ + c % centres_per_tile;
    for (std::int64_t j = 0; j < d_; ++j) values_[first + j * centres_per_tile] = centre[j];
  }
  void set_all(double const* centres, std::int64_t count) noexcept {
    for (std::int64_t c = 0; c < count; ++c) set(c, centres + c * d_);
  }
  /// Squared distances of one point to all centres, into `room()` numbers. Each adds up its dims in order.
  void squared_distances(double const* point, double* out) const noexcept {
    for (std::int64_t c = 0; c < tiles_ * centres_per_tile; c += 2 * doubles_count) {
      auto first = c / centres_per_tile * centres_per_tile * d_ + c % centres_per_tile;
      doubles low{}, high{};
      for (std::int64_t j = 0; j < d_; ++j, first += centres_per_tile) {
        auto const* const centre = values_.data() + first;
        auto const to_low = *reinterpret_cast<doubles_in_memory const*>(centre) - point[j];
        auto const to_high = *reinterpret_cast<doubles_in_memory const*>(centre + doubles_count) - point[j];
        low += to_low * to_low;
        high += to_high * to_high;
      }
      *reinterpret_cast<doubles_in_memory*>(out + c) = low;
      *reinterpret_cast<doubles_in_memory*>(out + c + doubles_count) = high;
    }
  }

 private:
  std::int64_t d_, tiles_;
  buffer<double> values_;
};

inline double squared_distance(double const* a, double const* b, std::int64_t d) noexcept {
  double sum = 0;
  for (std::int64_t j = 0; j < d; ++j) sum += (a[j] - b[j]) * (a[j] - b[j]);
  return sum;
}

// Points in the order of their clusters, each cluster's in their own order: members [first[c], first[c + 1]) are those of cluster c.
struct cluster_lists {
  buffer<std::int64_t> first;
  buffer<std::int32_t> members;

  cluster_lists(host_exec const& exec, vector_view<std::int32_t const> labels, std::int64_t k)
      : first(exec, k + 1), members(exec, labels.size()) {
    std::fill(first.begin(), first.end(), 0);
    for (auto const label : labels) ++first[label + 1];
    for (std::int64_t c = 0; c < k; ++c) first[c + 1] += first[c];
    for (std::int64_t p = 0; p < labels.size(); ++p) members[first[labels[p]]++] = static_cast<std::int32_t>(p);
    for (auto c = k; c > 0; --c) first[c] = first[c - 1];
    first[0] = 0;
  }
  std::int64_t size(std::int64_t c) const { return first[c + 1] - first[c]; }
};

// The means of all clusters that have points; other centres stay. A cluster's points are added in order.
inline void set_means(host_exec const& exec, double const* points, std::int64_t d, cluster_lists const& lists, std::int64_t k,
                      double* centres) {
  exec.run(k, [&](std::int64_t c) {
    auto const size = lists.size(c);
    if (size == 0) return;
    auto* const centre = centres + c * d;
    std::fill(centre, centre + d, 0.0);
    for (auto i = lists.first[c]; i < lists.first[c + 1]; ++i) {
      double const* const point = points + lists.members[i] * d;
      for (std::int64_t j = 0; j < d; ++j) centre[j] += point[j];
    }
    for (std::int64_t j = 0; j < d; ++j) centre[j] /= static_cast<double>(size);
  });
}

// The mean of the dims' variances, by which a tolerance is relative.
inline double mean_variance(host_exec const& exec, double const* points, std::int64_t n, std::int64_t d) {
  if (n == 0 || d == 0) return 0;
  std::vector<double> mean(static_cast<std::size_t>(d));
  for (std::int64_t j = 0; j < d; ++j)
    mean[static_cast<std::size_t>(j)] =
        sum_by_pieces(exec, n, points_per_sum, [&](std::int64_t p) { return points[p * d + j]; }) / static_cast<double>(n);
  return sum_by_pieces(exec, n, points_per_sum, [&](std::int64_t p) { return squared_distance(points + p * d, mean.data(), d); }) /
         static_cast<double>(n * d);
}

}  // namespace detail
}  // namespace TESSERA_ABI
}  // namespace tessera
