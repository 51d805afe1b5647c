// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include <tessera/cluster/points.hpp>
#include <tessera/core/buffer.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/philox.hpp>
#include <tessera/core/types.hpp>

namespace tessera {
inline namespace TESSERA_ABI {
namespace detail {

// What random words of a clustering are for: the sub-stream's number.
enum class cluster_stream : std::uint32_t { seeding = 1, positions = 2 };

// Uniform in [0, 1), a multiple of 2^-53.
constexpr double uniform_double(random_block const& block) noexcept {
  return static_cast<double>((std::uint64_t{block[0]} << 32 | block[1]) >> 11) * 0x1p-53;
}

// Starting centres among the points, as k-means++ draws them: each next one with a probability proportional to its squared distance to
// those before. Of 2 + ln k draws the one that lowers the sum of these distances most is taken. Where all points coincide with centres,
// any point is drawn. Source: Arthur and Vassilvitskii, "k-means++: the advantages of careful seeding", SODA 2007, sections 2.2 and 7.
class kmeans_seeding {
 public:
  kmeans_seeding(host_exec const& exec, double const* points, std::int64_t n, std::int64_t d, std::int64_t k);

  /// The centres (k, d) of start number `start`. @pre 1 <= k <= n
  void draw(random_seed seed, std::int64_t start, double* centres);

 private:
  double sum_nearest();

  // The point whose share of the sum holds `at`; rounding never makes it one that coincides with a centre.
  std::int64_t point_at(double at) const;

  std::int64_t best_candidate();

  host_exec const& exec_;
  double const* points_;
  std::int64_t n_, d_, k_, draws_;
  tiled_centres candidates_;
  buffer<double> nearest_;  // (n,): squared distance to the nearest centre so far
  buffer<double> sums_;     // (pieces, room)
};

}  // namespace detail
}  // namespace TESSERA_ABI
}  // namespace tessera

#if !TESSERA_COMPILED
#include <tessera/cluster/seeding.ipp>
#endif
