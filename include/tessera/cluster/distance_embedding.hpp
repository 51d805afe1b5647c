// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <tessera/cluster/points.hpp>
#include <tessera/cluster/seeding.hpp>
#include <tessera/core/buffer.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/optimizers.hpp>
#include <tessera/core/philox.hpp>
#include <tessera/core/types.hpp>
#include <tessera/core/view.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// How `embed_distances` searches.
struct distance_embedding_options {
  std::int64_t dims = 2;
  std::int64_t starts = 10;    ///< runs, each from positions of its own; the one of the least stress counts
  std::int64_t steps = 1000;   ///< of Adam, in each run
  float learning_rate = 0.1F;  ///< of the first step, in mean distances; it falls to 0 in a quarter of a cosine wave
  random_seed seed{0};
};

/// Points whose distances approach those that were asked for.
struct distance_embedding {
  std::vector<double> positions;  ///< (n, dims), about the origin
  double stress = 0;              ///< the sum over pairs of squared differences between distance there and distance asked for
  double relative_stress = 0;     ///< the root of `stress` over the sum over pairs of squared distances asked for; 0 where those are all 0
  std::int64_t start = 0;         ///< the run it came from
};

/// The stress of positions: the sum over pairs i > j of (|x_i - x_j| - D(i, j))^2, D(i, j) the mean of `distances`(i, j) and (j, i).
///
/// `positions` (n, dims); `distances` (n, n), whose diagonal is not read. `gradient` (n, dims), or empty: receives the derivatives by
/// the positions; those by a distance of 0 count as 0. The same bits for any number of threads.
/// Source: Luo et al., "Disaggregated multi-tower", MLSys 2024, section 3.3.
/// @throws tessera::error shape_mismatch.
double distance_stress(host_exec const& exec, matrix_view<double const> positions, matrix_view<double const> distances,
                       matrix_view<double> gradient = {});

/// Finds n points in `dims` dimensions whose Euclidean distances approach `distances`, by Adam on the stress, from several random starts.
///
/// `distances` (n, n): symmetric but for a millionth, finite, not negative; the diagonal is not read. They need not be distances of any
/// points. Positions are as good as floats are, which hold them during a run. Time: n^2 dims a step. The same bits for any number of threads.
/// Source: as `distance_stress`; Kingma and Ba, "Adam: a method for stochastic optimization", ICLR 2015.
/// @throws tessera::error shape_mismatch for a matrix that is not square; invalid_argument naming the option, or the first place that is wrong.
/// Its distance is not finite, negative, above 1e140, or unlike that of the transposed place.
distance_embedding embed_distances(host_exec const& exec, matrix_view<double const> distances, distance_embedding_options const& options);

namespace detail {

inline constexpr std::int64_t rows_per_stress = 16;

void check_distances(matrix_view<double const> distances);

void check_embedding(distance_embedding_options const& options);

// Half the stress of row i, as each pair is in two rows, and the gradient of x_i, `dims` numbers unless null.
double row_stress(matrix_view<double const> positions, matrix_view<double const> distances, std::int64_t i, double* gradient);

// A run of Adam on the stress, on distances whose mean is 1.
class embedding_run {
 public:
  embedding_run(host_exec const& exec, matrix_view<double const> distances, distance_embedding_options const& options, std::int64_t start);

  /// The positions of the least stress on the way, and that stress.
  std::pair<double, std::vector<double>> run();

 private:
  matrix_view<double const> view(std::vector<double> const& values) const { return {values.data(), distances_.rows(), options_.dims}; }

  void update(std::int64_t step);

  host_exec const& exec_;
  matrix_view<double const> distances_;
  distance_embedding_options const& options_;
  std::size_t count_;
  std::vector<float> weights_, states_;       // (n, dims), (n, dims, 2)
  std::vector<double> positions_, gradient_;  // (n, dims)
};

void centre_about_origin(std::vector<double>& positions, std::int64_t n, std::int64_t dims);

}  // namespace detail

}  // namespace TESSERA_ABI
}  // namespace tessera

#if !TESSERA_COMPILED
#include <tessera/cluster/distance_embedding.ipp>
#endif
