// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <tessera/cluster/kmeans.hpp>
#include <tessera/cluster/min_cost_flow.hpp>
#include <tessera/cluster/points.hpp>
#include <tessera/cluster/unit_costs.hpp>
#include <tessera/cluster/unit_placement.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// How `constrained_kmeans` clusters: as `kmeans`, with bounds on the points of each cluster. For clusters as even as can be, `least` is
/// n / k rounded down and `most` is n / k rounded up.
struct constrained_kmeans_options {
  kmeans_options kmeans{};
  std::int64_t least = 0;                                        ///< points that a cluster has at least
  std::int64_t most = std::numeric_limits<std::int64_t>::max();  ///< and at most
  bool exchange = true;                                          ///< whether a run goes on by Hartigan's rule; see below
};

/// Clusters points by k-means with bounds on the clusters' sizes, several times; the run of the least inertia counts.
///
/// `points` (n, d). Each iteration assigns all points at the least sum of squared distances that the bounds allow (`assign_within_bounds`). It
/// begins with the prices of the iteration before. Then centres move to their points' means. The inertia never grows but by rounding. Squared
/// distances are rounded to multiples of a quantum: an assignment is at most n quanta from the best. For k < 2^8 and n <= 2^16 a quantum is at
/// most 2^-44 of the squared diagonal of the box around points and centres. Beyond that, it grows with k and n.
///
/// `units` (n,), or empty: points of one number, any int64, stay together, and a unit counts by its points. Where all units have as many
/// points, an assignment is exactly the best. With units of several sizes that is a hard problem even for given centres. Then the largest are
/// placed first, each where it costs least and fits. Units move and swap until none of that helps, always within bounds.
///
/// Where Lloyd's iterations end, a run goes on with `exchange`, unless there are units. It assigns points by what the inertia would change if
/// each moved alone and centres followed it. If that lowers the inertia by more than a part of `tolerance`, iterations go on from there. Else a
/// half and a quarter of the change in costs are tried. All count as iterations. Source: Hartigan and Wong, "A k-means clustering algorithm",
/// Applied Statistics 28, 1979.
///
/// Ties, clusters that lose all points (only with `least` 0), the end of a run and threads: as `kmeans`.
/// Sources: Bradley, Bennett, Demiriz, "Constrained k-means clustering", Microsoft Research, 2000; use for towers of features: Luo et al.,
/// "Disaggregated multi-tower", MLSys 2024, section 3.3.
/// @throws tessera::error as `kmeans`; shape_mismatch for units. invalid_argument for bounds that n points cannot meet, and naming a unit with
/// more points than `most`. incompatible where no placement of units within bounds is found.
template <coordinate T>
kmeans_result constrained_kmeans(host_exec const& exec, matrix_view<T> points, constrained_kmeans_options const& options,
                                 vector_view<std::int64_t const> units = {});

/// As above, in one run from given `centres` (k, d), finite. The options' clusters, starts and seed are not read.
/// @throws tessera::error as above; shape_mismatch unless points and centres have as many dims.
template <coordinate T>
kmeans_result constrained_kmeans_from(host_exec const& exec, matrix_view<T> points, matrix_view<double const> centres,
                                      constrained_kmeans_options const& options, vector_view<std::int64_t const> units = {});

namespace detail {

void check_constrained(char const* call, std::int64_t n, std::int64_t k, size_bounds bounds, unit_list const& units);

// Assigns units, which label their points.
class bounded_centres {
 public:
  bounded_centres(char const* call, host_exec const& exec, double const* points, std::int64_t d, std::int64_t k, size_bounds bounds,
                  unit_list const& units, double diagonal, bool exchanges);

  void operator()(double const* centres, vector_view<std::int32_t> labels);

  /// Another assignment within bounds, as if each point alone moved and centres followed it. False where that rule is not for these units.
  bool exchange(double const* centres, vector_view<std::int32_t> labels, double strength);

 private:
  void assign_units();
  void fill_empty();

  char const* call_;
  host_exec const& exec_;
  std::int64_t k_;
  size_bounds bounds_;
  bool exchanges_;
  unit_list const& units_;
  unit_costs costs_;
  std::vector<std::int64_t> prices_;       // (k,)
  std::vector<std::int32_t> unit_labels_;  // (m,)
  std::vector<std::int64_t> own_;          // (m,)
  bool many_moved_ = false;
};

}  // namespace detail

template <coordinate T>
kmeans_result constrained_kmeans(host_exec const& exec, matrix_view<T> points, constrained_kmeans_options const& options,
                                 vector_view<std::int64_t const> units) {
  constexpr auto call = "constrained_kmeans";
  auto const n = points.rows(), d = points.columns(), k = options.kmeans.clusters;
  size_bounds const bounds{options.least, options.most};
  detail::check_kmeans(call, n, options.kmeans);
  detail::unit_list const list(call, exec, n, units);
  detail::check_constrained(call, n, k, bounds, list);
  auto const copied = detail::copy_points(call, exec, points);
  auto const diagonal = detail::squared_diagonal(copied.data(), n, nullptr, 0, d);
  return detail::best_of_starts(exec, copied.data(), n, d, options.kmeans, [&] {
    return detail::bounded_centres(call, exec, copied.data(), d, k, bounds, list, diagonal, options.exchange);
  });
}

template <coordinate T>
kmeans_result constrained_kmeans_from(host_exec const& exec, matrix_view<T> points, matrix_view<double const> centres,
                                      constrained_kmeans_options const& options, vector_view<std::int64_t const> units) {
  constexpr auto call = "constrained_kmeans_from";
  auto const n = points.rows(), d = points.columns(), k = centres.rows();
  size_bounds const bounds{options.least, options.most};
  auto const one_start = detail::options_of_start(call, d, centres, options.kmeans);
  detail::check_kmeans(call, n, one_start);
  detail::unit_list const list(call, exec, n, units);
  detail::check_constrained(call, n, k, bounds, list);
  auto const copied = detail::copy_points(call, exec, points);
  auto start = detail::copy_centres("constrained_kmeans_from: centres", exec, centres);
  auto const diagonal = detail::squared_diagonal(copied.data(), n, start.data(), k, d);
  detail::bounded_centres assign(call, exec, copied.data(), d, k, bounds, list, diagonal, options.exchange);
  return detail::lloyd(exec, copied.data(), n, d, std::move(start), one_start,
                       one_start.tolerance * detail::mean_variance(exec, copied.data(), n, d), assign);
}

}  // namespace TESSERA_ABI
}  // namespace tessera

#if !TESSERA_COMPILED
#include <tessera/cluster/constrained_kmeans.ipp>
#endif
