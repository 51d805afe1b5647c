// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/cluster/distance_embedding.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

namespace detail {

TESSERA_INLINE void check_distances(matrix_view<double const> distances) {
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

TESSERA_INLINE void check_embedding(distance_embedding_options const& options) {
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

TESSERA_INLINE double row_stress(matrix_view<double const> positions, matrix_view<double const> distances, std::int64_t i,
                                 double* gradient) {
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

TESSERA_INLINE embedding_run::embedding_run(host_exec const& exec, matrix_view<double const> distances,
                                            distance_embedding_options const& options, std::int64_t start)
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

TESSERA_INLINE std::pair<double, std::vector<double>> embedding_run::run() {
  std::pair<double, std::vector<double>> best;
  for (std::int64_t step = 0; step <= options_.steps; ++step) {
    std::copy(weights_.begin(), weights_.end(), positions_.begin());
    auto const stress = distance_stress(exec_, view(positions_), distances_, {gradient_.data(), distances_.rows(), options_.dims});
    if (step == 0 || stress < best.first) best = {stress, positions_};
    if (step < options_.steps) update(step);
  }
  return best;
}

TESSERA_INLINE void embedding_run::update(std::int64_t step) {
  auto const part = static_cast<double>(step) / static_cast<double>(options_.steps);
  adam const optimizer{.learning_rate = options_.learning_rate * static_cast<float>(std::cos(1.5707963267948966 * part))};
  auto const factors = optimizer.begin_row(nullptr, {0, options_.dims, step_count(step + 1)});
  for (std::size_t i = 0; i < count_; ++i)
    optimizer.update(weights_[i], states_.data() + 2 * i, 1, static_cast<float>(gradient_[i]), factors);
}

TESSERA_INLINE void centre_about_origin(std::vector<double>& positions, std::int64_t n, std::int64_t dims) {
  for (std::int64_t c = 0; c < dims; ++c) {
    double mean = 0;
    for (std::int64_t i = 0; i < n; ++i) mean += positions[static_cast<std::size_t>(i * dims + c)];
    mean /= static_cast<double>(n);
    for (std::int64_t i = 0; i < n; ++i) positions[static_cast<std::size_t>(i * dims + c)] -= mean;
  }
}

}  // namespace detail

TESSERA_INLINE double distance_stress(host_exec const& exec, matrix_view<double const> positions, matrix_view<double const> distances,
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

TESSERA_INLINE distance_embedding embed_distances(host_exec const& exec, matrix_view<double const> distances,
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
