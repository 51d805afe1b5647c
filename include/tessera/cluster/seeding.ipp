// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/cluster/seeding.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

namespace detail {

TESSERA_INLINE kmeans_seeding::kmeans_seeding(host_exec const& exec, double const* points, std::int64_t n, std::int64_t d, std::int64_t k)
    : exec_(exec),
      points_(points),
      n_(n),
      d_(d),
      k_(k),
      draws_(2 + static_cast<std::int64_t>(std::log(static_cast<double>(k)))),
      candidates_(exec, draws_, d),
      nearest_(exec, n),
      sums_(exec, divide_up(n, points_per_sum) * candidates_.room()) {}

TESSERA_INLINE void kmeans_seeding::draw(random_seed seed, std::int64_t start, double* centres) {
  auto const block = [&](std::int64_t i) {
    return philox(seed, static_cast<std::uint64_t>(start), static_cast<std::uint32_t>(cluster_stream::seeding),
                  static_cast<std::uint32_t>(i));
  };
  auto const first = block(0);
  std::copy_n(points_ + static_cast<std::int64_t>(uniform_below(first[0], first[1], static_cast<std::uint64_t>(n_))) * d_, d_, centres);
  for_each_piece(exec_, n_, points_per_sum, [&](std::int64_t p, std::int64_t last) {
    for (; p < last; ++p) nearest_[p] = squared_distance(points_ + p * d_, centres, d_);
  });
  std::vector<std::int64_t> drawn(static_cast<std::size_t>(draws_));
  for (std::int64_t c = 1; c < k_; ++c) {
    auto const total = sum_nearest();
    for (std::int64_t i = 0; i < draws_; ++i) {
      auto const words = block(1 + c * draws_ + i);
      auto const point = total > 0 ? point_at(uniform_double(words) * total)
                                   : static_cast<std::int64_t>(uniform_below(words[0], words[1], static_cast<std::uint64_t>(n_)));
      drawn[static_cast<std::size_t>(i)] = point;
      candidates_.set(i, points_ + point * d_);
    }
    auto const best = drawn[static_cast<std::size_t>(best_candidate())];
    std::copy_n(points_ + best * d_, d_, centres + c * d_);
    for_each_piece(exec_, n_, points_per_sum, [&](std::int64_t p, std::int64_t last) {
      for (; p < last; ++p) nearest_[p] = std::min(nearest_[p], squared_distance(points_ + p * d_, points_ + best * d_, d_));
    });
  }
}

TESSERA_INLINE double kmeans_seeding::sum_nearest() {
  for_each_piece(exec_, n_, points_per_sum, [&](std::int64_t first, std::int64_t last) {
    double sum = 0;
    for (auto p = first; p < last; ++p) sum += nearest_[p];
    sums_[first / points_per_sum] = sum;
  });
  double total = 0;
  for (std::int64_t piece = 0; piece < divide_up(n_, points_per_sum); ++piece) total += sums_[piece];
  return total;
}

TESSERA_INLINE std::int64_t kmeans_seeding::point_at(double at) const {
  std::int64_t last = 0;
  for (std::int64_t piece = 0, first = 0; first < n_; ++piece, first += points_per_sum) {
    if (at >= sums_[piece] && first + points_per_sum < n_) {
      at -= sums_[piece];
      continue;
    }
    for (auto p = first; p < std::min(first + points_per_sum, n_); ++p) {
      if (nearest_[p] == 0) continue;
      last = p;
      if (at < nearest_[p]) return p;
      at -= nearest_[p];
    }
  }
  if (nearest_[last] > 0) return last;
  while (last + 1 < n_ && nearest_[last] == 0) ++last;
  return last;
}

TESSERA_INLINE std::int64_t kmeans_seeding::best_candidate() {
  auto const room = candidates_.room();
  for_each_piece(exec_, n_, points_per_sum, [&](std::int64_t first, std::int64_t end) {
    std::vector<double> distances(static_cast<std::size_t>(room));
    auto* const sums = sums_.data() + first / points_per_sum * room;
    std::fill(sums, sums + room, 0.0);
    for (auto p = first; p < end; ++p) {
      candidates_.squared_distances(points_ + p * d_, distances.data());
      for (std::int64_t i = 0; i < room; ++i) sums[i] += std::min(nearest_[p], distances[static_cast<std::size_t>(i)]);
    }
  });
  for (std::int64_t piece = 1; piece < divide_up(n_, points_per_sum); ++piece)
    for (std::int64_t i = 0; i < room; ++i) sums_[i] += sums_[piece * room + i];
  return std::min_element(sums_.begin(), sums_.begin() + draws_) - sums_.begin();
}

}  // namespace detail

}  // namespace TESSERA_ABI
}  // namespace tessera
