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
inline double distance_stress(host_exec const& exec, matrix_view<double const> positions, matrix_view<double const> distances,
                              matrix_view<double> gradient = {});

/// Finds n points in `dims` dimensions whose Euclidean distances approach `distances`, by Adam on the stress, from several random starts.
///
/// `distances` (n, n): symmetric but for a millionth, finite, not negative; the diagonal is not read. They need not be distances of any
/// points. Positions are as good as floats are, which hold them during a run. Time: n^2 dims a step. The same bits for any number of threads.
/// Source: as `distance_stress`; Kingma and Ba, "Adam: a method for stochastic optimization", ICLR 2015.
/// @throws tessera::error shape_mismatch for a matrix that is not square; invalid_argument naming the option, or the first place that is wrong.
/// Its distance is not finite, negative, above 1e140, or unlike that of the transposed place.
inline distance_embedding embed_distances(host_exec const& exec, matrix_view<double const> distances,
                                          distance_embedding_options const& options);

namespace detail {

inline constexpr std::int64_t rows_per_stress = 16;

inline void check_distances(matrix_view<double const> distances) {
  constexpr auto call = "embed_distances";
  auto const n = distances.rows();
  if (distances.columns() != n)
    throw error(errc::shape_mismatch, std::string(call) + ": the matrix is not square", {{"rows", n}, {"columns", distances.columns()}});
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t j = 0; j < n; ++j) {
      if (i == j) continue;
      auto const distance = distances(i, j);
      if (!(distance >= 0 && distance <= largest_coordinate))
        throw error(errc::invalid_argument, std::string(call) + ": a distance is negative, not finite or too large to square",
                    {{"row", i}, {"column", j}, {"value", distance}});
      if (j < i && std::fabs(distance - distances(j, i)) > 1e-6 * std::max(distance, distances(j, i)))
        throw error(errc::invalid_argument, std::string(call) + ": the matrix is not symmetric",
                    {{"row", i}, {"column", j}, {"value", distance}, {"transposed", distances(j, i)}});
    }
}

inline void check_embedding(distance_embedding_options const& options) {
  auto const check = [](char const* option, std::int64_t value, std::int64_t least) {
    if (value < least)
      throw error(errc::invalid_argument, "embed_distances: an option is too small",
                  {{"option", option}, {"value", value}, {"least", least}});
  };
  check("dims", options.dims, 1);
  check("starts", options.starts, 1);
  check("steps", options.steps, 0);
  check_amount("embed_distances", "learning_rate", options.learning_rate);
}

// Half the stress of row i, as each pair is in two rows, and the gradient of x_i, `dims` numbers unless null.
inline double row_stress(matrix_view<double const> positions, matrix_view<double const> distances, std::int64_t i, double* gradient) {
  auto const d = positions.columns();
  double const* const x = positions.row(i);
  double sum = 0;
  if (gradient != nullptr) std::fill(gradient, gradient + d, 0.0);
  for (std::int64_t j = 0; j < positions.rows(); ++j) {
    if (i == j) continue;
    double const* const y = positions.row(j);
    auto const there = std::sqrt(squared_distance(x, y, d));
    auto const difference = there - (distances(i, j) + distances(j, i)) / 2;
    sum += difference * difference;
    if (gradient == nullptr || there == 0) continue;
    auto const factor = 2 * difference / there;
    for (std::int64_t c = 0; c < d; ++c) gradient[c] += factor * (x[c] - y[c]);
  }
  return sum / 2;
}

// A run of Adam on the stress, on distances whose mean is 1.
class embedding_run {
 public:
  embedding_run(host_exec const& exec, matrix_view<double const> distances, distance_embedding_options const& options, std::int64_t start)
      : exec_(exec),
        distances_(distances),
        options_(options),
        count_(static_cast<std::size_t>(distances.rows() * options.dims)),
        weights_(count_),
        states_(2 * count_),
        positions_(count_),
        gradient_(count_) {
    for (std::size_t i = 0; i < count_; ++i) {
      auto const words = philox(options.seed, static_cast<std::uint64_t>(start), static_cast<std::uint32_t>(cluster_stream::positions),
                                static_cast<std::uint32_t>(i));
      weights_[i] = uniform_symmetric(words[0], 1.0F);
    }
  }

  /// The positions of the least stress on the way, and that stress.
  std::pair<double, std::vector<double>> run() {
    std::pair<double, std::vector<double>> best;
    for (std::int64_t step = 0; step <= options_.steps; ++step) {
      std::copy(weights_.begin(), weights_.end(), positions_.begin());
      auto const stress = distance_stress(exec_, view(positions_), distances_, {gradient_.data(), distances_.rows(), options_.dims});
      if (step == 0 || stress < best.first) best = {stress, positions_};
      if (step < options_.steps) update(step);
    }
    return best;
  }

 private:
  matrix_view<double const> view(std::vector<double> const& values) const { return {values.data(), distances_.rows(), options_.dims}; }

  void update(std::int64_t step) {
    auto const part = static_cast<double>(step) / static_cast<double>(options_.steps);
    adam const optimizer{.learning_rate = options_.learning_rate * static_cast<float>(std::cos(1.5707963267948966 * part))};
    auto const factors = optimizer.begin_row(nullptr, {0, options_.dims, step_count(step + 1)});
    for (std::size_t i = 0; i < count_; ++i)
      optimizer.update(weights_[i], states_.data() + 2 * i, 1, static_cast<float>(gradient_[i]), factors);
  }

  host_exec const& exec_;
  matrix_view<double const> distances_;
  distance_embedding_options const& options_;
  std::size_t count_;
  std::vector<float> weights_, states_;       // (n, dims), (n, dims, 2)
  std::vector<double> positions_, gradient_;  // (n, dims)
};

inline void centre_about_origin(std::vector<double>& positions, std::int64_t n, std::int64_t dims) {
  for (std::int64_t c = 0; c < dims; ++c) {
    double mean = 0;
    for (std::int64_t i = 0; i < n; ++i) mean += positions[static_cast<std::size_t>(i * dims + c)];
    mean /= static_cast<double>(n);
    for (std::int64_t i = 0; i < n; ++i) positions[static_cast<std::size_t>(i * dims + c)] -= mean;
  }
}

}  // namespace detail

inline double distance_stress(host_exec const& exec, matrix_view<double const> positions, matrix_view<double const> distances,
                              matrix_view<double> gradient) {
  auto const n = positions.rows();
  bool const wants_gradient = gradient.data() != nullptr;
  if (distances.rows() != n || distances.columns() != n ||
      (wants_gradient && (gradient.rows() != n || gradient.columns() != positions.columns())))
    throw error(errc::shape_mismatch, "distance_stress: distances or gradient do not fit the positions",
                {{"positions", n}, {"rows", distances.rows()}, {"columns", distances.columns()}, {"gradients", gradient.rows()}});
  buffer<double> sums(exec, n);
  for_each_piece(exec, n, detail::rows_per_stress, [&](std::int64_t i, std::int64_t last) {
    for (; i < last; ++i) sums[i] = detail::row_stress(positions, distances, i, wants_gradient ? gradient.row(i) : nullptr);
  });
  double sum = 0;
  for (auto const s : sums) sum += s;
  return sum;
}

inline distance_embedding embed_distances(host_exec const& exec, matrix_view<double const> distances,
                                          distance_embedding_options const& options) {
  detail::check_embedding(options);
  detail::check_distances(distances);
  auto const n = distances.rows();
  auto const pairs = static_cast<double>(n) * static_cast<double>(n - 1) / 2;
  double largest = 0;
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t j = 0; j < i; ++j) largest = std::max(largest, distances(i, j));
  double mean = 0;  // over the largest
  for (std::int64_t i = 0; i < n && largest > 0; ++i)
    for (std::int64_t j = 0; j < i; ++j) mean += distances(i, j) / largest / pairs;
  auto const mean_distance = largest > 0 ? mean * largest : 1;
  std::vector<double> scaled(static_cast<std::size_t>(n * n));
  double squares = 0;
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t j = 0; j < n; ++j) {
      if (i == j) continue;
      auto const distance = distances(i, j) / mean_distance;
      scaled[static_cast<std::size_t>(i * n + j)] = distance;
      squares += distance * distance / 2;
    }
  distance_embedding result;
  for (std::int64_t start = 0; start < options.starts && n > 0; ++start) {
    auto run = detail::embedding_run(exec, {scaled.data(), n, n}, options, start).run();
    if (start > 0 && run.first >= result.stress) continue;
    result.stress = run.first;
    result.positions = std::move(run.second);
    result.start = start;
  }
  result.relative_stress = squares > 0 ? std::sqrt(result.stress / squares) : 0;
  result.stress *= mean_distance * mean_distance;
  detail::centre_about_origin(result.positions, n, options.dims);
  for (auto& x : result.positions) x *= mean_distance;
  return result;
}

}  // namespace TESSERA_ABI
}  // namespace tessera
