// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <tessera/cluster/points.hpp>
#include <tessera/cluster/seeding.hpp>
#include <tessera/core/buffer.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/types.hpp>
#include <tessera/core/view.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// How `kmeans` clusters.
struct kmeans_options {
  std::int64_t clusters = 8;
  std::int64_t starts = 10;       ///< runs, each from centres of its own; the one of the least inertia counts
  std::int64_t iterations = 300;  ///< at most, of each run
  double tolerance = 1e-4;        ///< a run ends once its centres' squared moves sum to this many mean variances of a dim, or less
  random_seed seed{0};
};

/// A clustering of n points into k clusters.
struct kmeans_result {
  std::vector<double> centres;       ///< (k, d): the means of the clusters' points
  std::vector<std::int32_t> labels;  ///< (n,): the cluster of each point, in [0, k)
  double inertia = 0;                ///< the sum of the points' squared distances to the centres of their clusters
  std::int64_t iterations = 0;       ///< that the run took; each assigns all points once
  std::int64_t start = 0;            ///< the run it came from
  bool converged = false;            ///< whether the run ended before its iterations did
};

/// Clusters points by k-means: Lloyd's iterations from centres that k-means++ draws, several times; the run of the least inertia counts.
///
/// `points` (n, d). Each iteration puts each point into the cluster of the nearest centre, then moves centres to their points' means. A
/// point stays where another centre is as near; else the lower number wins. A cluster that loses all points gets the point that is
/// farthest from its centre, so that none is empty, even where points coincide. A run ends when no label changes, or by the options.
/// The same bits for any number of threads. Workspace from `exec`'s memory: a copy of the points as doubles, 12 bytes a point, and what
/// seeding takes, 8 bytes a point. Sources: Lloyd, "Least squares quantization in PCM", 1982; Arthur and Vassilvitskii, "k-means++: the
/// advantages of careful seeding", SODA 2007.
/// @throws tessera::error invalid_argument naming the option, or a number of points below that of clusters. It also names point and dim of
/// the first coordinate that is not finite or has a magnitude above 1e140 / d.
template <coordinate T>
kmeans_result kmeans(host_exec const& exec, matrix_view<T> points, kmeans_options const& options);

/// As above, in one run from given `centres` (k, d), finite. The options' clusters, starts and seed are not read.
/// @throws tessera::error as above; shape_mismatch unless points and centres have as many dims.
template <coordinate T>
kmeans_result kmeans_from(host_exec const& exec, matrix_view<T> points, matrix_view<double const> centres, kmeans_options const& options);

namespace detail {

inline void check_option_at_least(char const* call, char const* option, std::int64_t value, std::int64_t least) {
  if (value < least)
    throw error(errc::invalid_argument, std::string(call) + ": an option is too small",
                {{"option", option}, {"value", value}, {"least", least}});
}

inline void check_kmeans(char const* call, std::int64_t n, kmeans_options const& options) {
  check_option_at_least(call, "clusters", options.clusters, 1);
  check_option_at_least(call, "starts", options.starts, 1);
  check_option_at_least(call, "iterations", options.iterations, 1);
  if (!(options.tolerance >= 0))
    throw error(errc::invalid_argument, std::string(call) + ": the tolerance is below 0", {{"tolerance", options.tolerance}});
  constexpr std::int64_t most = std::numeric_limits<std::int32_t>::max();
  if (n > most) throw error(errc::invalid_argument, std::string(call) + ": too many points", {{"points", n}, {"largest", most}});
  if (n < options.clusters)
    throw error(errc::invalid_argument, std::string(call) + ": fewer points than clusters",
                {{"points", n}, {"clusters", options.clusters}});
}

// The given start's options: as many clusters as centres, one start.
inline kmeans_options options_of_start(char const* call, std::int64_t d, matrix_view<double const> centres, kmeans_options options) {
  if (centres.columns() != d)
    throw error(errc::shape_mismatch, std::string(call) + ": points and centres have other numbers of dims",
                {{"points' dims", d}, {"centres' dims", centres.columns()}});
  options.clusters = centres.rows();
  options.starts = 1;
  return options;
}

// What a run has: centres are the means of their labels' points.
struct lloyd_state {
  std::vector<double> centres;       // (k, d)
  std::vector<std::int32_t> labels;  // (n,)

  void set_centres(host_exec const& exec, double const* points, std::int64_t d, std::int64_t k) {
    set_means(exec, points, d, cluster_lists(exec, labels, k), k, centres.data());
  }
  double inertia(host_exec const& exec, double const* points, std::int64_t d) const {
    auto const* const at = centres.data();
    auto const* const label = labels.data();
    return sum_by_pieces(exec, static_cast<std::int64_t>(labels.size()), points_per_sum,
                         [&](std::int64_t p) { return squared_distance(points + p * d, at + label[p] * d, d); });
  }
};

// One run. `assign(centres, labels)` puts all points into clusters, and says nothing of means; labels are -1 at first. Where it has
// `exchange(centres, labels, strength)`, which moves points by another rule, that is tried once nothing else moves, weaker each time; the
// run goes on from labels whose inertia is less by a part of `tolerance`.
template <class Assign>
kmeans_result lloyd(host_exec const& exec, double const* points, std::int64_t n, std::int64_t d, std::vector<double> centres,
                    kmeans_options const& options, double least_move, Assign& assign) {
  auto const k = options.clusters;
  lloyd_state now{std::move(centres), std::vector<std::int32_t>(static_cast<std::size_t>(n), -1)}, before;
  kmeans_result result;
  auto const is_over = [&] { return result.iterations == options.iterations; };
  auto const exchange = [&]([[maybe_unused]] double strength) {
    if constexpr (requires { assign.exchange(now.centres.data(), vector_view<std::int32_t>(now.labels), strength); }) {
      auto other = now;
      if (!assign.exchange(now.centres.data(), vector_view<std::int32_t>(other.labels), strength)) return false;
      ++result.iterations;
      other.set_centres(exec, points, d, k);
      auto const inertia = other.inertia(exec, points, d);
      if (!(inertia < result.inertia * (1 - options.tolerance))) return false;
      result.inertia = inertia;
      now = std::move(other);
      return true;
    } else {
      return false;
    }
  };
  while (!result.converged && !is_over()) {
    for (bool moved = true; moved && !is_over();) {
      before = now;
      assign(now.centres.data(), vector_view<std::int32_t>(now.labels));
      ++result.iterations;
      if (now.labels == before.labels) break;  // centres are their means already
      now.set_centres(exec, points, d, k);
      moved = squared_distance(before.centres.data(), now.centres.data(), k * d) > least_move;
      result.converged = !moved;
    }
    result.converged = result.converged || now.labels == before.labels;
    result.inertia = now.inertia(exec, points, d);
    for (double strength = 1; result.converged && strength > 0.2 && !is_over(); strength /= 2) result.converged = !exchange(strength);
  }
  result.centres = std::move(now.centres);
  result.labels = std::move(now.labels);
  return result;
}

// All runs, `make_assign()` once for each; the best of them.
template <class MakeAssign>
kmeans_result best_of_starts(host_exec const& exec, double const* points, std::int64_t n, std::int64_t d, kmeans_options const& options,
                             MakeAssign const& make_assign) {
  auto const least_move = options.tolerance * mean_variance(exec, points, n, d);
  kmeans_seeding seeding(exec, points, n, d, options.clusters);
  kmeans_result best;
  for (std::int64_t start = 0; start < options.starts; ++start) {
    std::vector<double> centres(static_cast<std::size_t>(options.clusters * d));
    seeding.draw(options.seed, start, centres.data());
    auto assign = make_assign();
    auto run = lloyd(exec, points, n, d, std::move(centres), options, least_move, assign);
    run.start = start;
    if (start == 0 || run.inertia < best.inertia) best = std::move(run);
  }
  return best;
}

// Gives each empty cluster the item that costs most where it is. `own` (m,): what an item costs; `sizes` (m,) its points, or empty for 1
// each. No other cluster gets fewer than `least` points, nor one more than `most`, nor none.
template <class Cost>
void fill_empty_clusters(vector_view<std::int32_t> labels, vector_view<std::int64_t const> sizes, std::int64_t k, std::int64_t least,
                         std::int64_t most, Cost* own) {
  std::vector<std::int64_t> filled(static_cast<std::size_t>(k));
  auto const size = [&](std::int64_t i) { return sizes.empty() ? 1 : sizes[i]; };
  for (std::int64_t i = 0; i < labels.size(); ++i) filled[static_cast<std::size_t>(labels[i])] += size(i);
  for (std::int64_t c = 0; c < k; ++c) {
    if (filled[static_cast<std::size_t>(c)] > 0) continue;
    std::int64_t farthest = -1;
    for (std::int64_t i = 0; i < labels.size(); ++i) {
      bool const may_leave = filled[static_cast<std::size_t>(labels[i])] - size(i) >= std::max<std::int64_t>(least, 1) && size(i) <= most;
      if (may_leave && (farthest < 0 || own[i] > own[farthest])) farthest = i;
    }
    if (farthest < 0) continue;
    filled[static_cast<std::size_t>(labels[farthest])] -= size(farthest);
    filled[static_cast<std::size_t>(c)] += size(farthest);
    labels[farthest] = static_cast<std::int32_t>(c);
    own[farthest] = 0;
  }
}

class nearest_centres {
 public:
  nearest_centres(host_exec const& exec, double const* points, std::int64_t n, std::int64_t d, std::int64_t k)
      : exec_(exec), points_(points), d_(d), k_(k), centres_(exec, k, d), own_(exec, n) {}

  void operator()(double const* centres, vector_view<std::int32_t> labels) {
    centres_.set_all(centres, k_);
    for_each_piece(exec_, labels.size(), points_per_sum, [&](std::int64_t p, std::int64_t last) {
      std::vector<double> distances(static_cast<std::size_t>(centres_.room()));
      for (; p < last; ++p) {
        centres_.squared_distances(points_ + p * d_, distances.data());
        auto const nearest = std::min_element(distances.begin(), distances.begin() + k_) - distances.begin();
        own_[p] = distances[static_cast<std::size_t>(nearest)];
        if (labels[p] < 0 || distances[static_cast<std::size_t>(labels[p])] > own_[p]) labels[p] = static_cast<std::int32_t>(nearest);
      }
    });
    fill_empty_clusters(labels, {}, k_, 0, labels.size(), own_.data());
  }

 private:
  host_exec const& exec_;
  double const* points_;
  std::int64_t d_, k_;
  tiled_centres centres_;
  buffer<double> own_;  // (n,): squared distance of each point to its centre
};

inline std::vector<double> copy_centres(char const* call, host_exec const& exec, matrix_view<double const> centres) {
  auto const copied = copy_points(call, exec, centres);
  return {copied.begin(), copied.end()};
}

}  // namespace detail

template <coordinate T>
kmeans_result kmeans(host_exec const& exec, matrix_view<T> points, kmeans_options const& options) {
  auto const n = points.rows(), d = points.columns();
  detail::check_kmeans("kmeans", n, options);
  auto const copied = detail::copy_points("kmeans", exec, points);
  return detail::best_of_starts(exec, copied.data(), n, d, options,
                                [&] { return detail::nearest_centres(exec, copied.data(), n, d, options.clusters); });
}

template <coordinate T>
kmeans_result kmeans_from(host_exec const& exec, matrix_view<T> points, matrix_view<double const> centres, kmeans_options const& options) {
  auto const n = points.rows(), d = points.columns();
  auto const one_start = detail::options_of_start("kmeans_from", d, centres, options);
  detail::check_kmeans("kmeans_from", n, one_start);
  auto const copied = detail::copy_points("kmeans_from", exec, points);
  detail::nearest_centres assign(exec, copied.data(), n, d, one_start.clusters);
  return detail::lloyd(exec, copied.data(), n, d, detail::copy_centres("kmeans_from: centres", exec, centres), one_start,
                       options.tolerance * detail::mean_variance(exec, copied.data(), n, d), assign);
}

}  // namespace TESSERA_ABI
}  // namespace tessera
