// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include <tessera/cluster/points.hpp>
#include <tessera/cluster/unit_costs.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// How `balance_weights` swaps.
struct weight_balance_options {
  double tolerance = 0.05;  ///< by which the heaviest cluster may exceed the mean, as a part of the mean; finite
  std::int64_t swaps = std::numeric_limits<std::int64_t>::max();  ///< at most
};

/// What `balance_weights` reached. An imbalance is the heaviest cluster's weight over the mean, less 1; 0 where all weights are 0.
struct weight_balance {
  double imbalance_before = 0;
  double imbalance = 0;
  double inertia_before = 0;  ///< of the labels given, about their own means
  double inertia = 0;         ///< of the labels returned, about theirs
  std::int64_t swaps = 0;
  bool reached = false;  ///< whether the imbalance is within the tolerance
};

/// Evens out the clusters' weights, their bytes for example, by swaps of points, so that each cluster keeps its number of points.
///
/// `points` (n, d); `weights` (n,), not negative; `labels` (n,) in [0, clusters), changed in place. `units` (n,), or empty: points of one
/// number stay together and swap with units of as many points; each unit's points have one label.
///
/// While a cluster is above the tolerance, swaps lower what is above it. Each is the one of least inertia for each unit of weight. Then swaps
/// that lower the inertia and leave all weights within tolerance are made, until none is left. That is a search, not the optimum, as weights
/// alone are a hard problem. Costs are squared distances to the means of the labels given. Deterministic. The time of a swap is about n times
/// the size of a cluster, and the end takes n^2 a round.
///
/// @throws tessera::error shape_mismatch; invalid_argument naming the option, or the point whose coordinate, weight, label or unit is wrong.
template <coordinate T>
weight_balance balance_weights(host_exec const& exec, matrix_view<T> points, vector_view<std::int64_t const> weights, std::int64_t clusters,
                               vector_view<std::int32_t> labels, weight_balance_options const& options,
                               vector_view<std::int64_t const> units = {});

namespace detail {

void check_balance(std::int64_t n, vector_view<std::int64_t const> weights, std::int64_t k, vector_view<std::int32_t const> labels,
                   weight_balance_options const& options);

class weight_swaps {
 public:
  weight_swaps(matrix_view<std::int64_t const> costs, unit_list const& units, std::vector<std::int64_t> weights,
               weight_balance_options const& options, vector_view<std::int32_t> labels);

  double imbalance() const {
    auto const heaviest = static_cast<double>(*std::max_element(sums_.begin(), sums_.end()));
    return mean_ > 0 ? heaviest / mean_ - 1 : 0;
  }
  bool reached() const { return *std::max_element(sums_.begin(), sums_.end()) <= limit_; }

  std::int64_t run();

 private:
  std::int64_t weight(std::int64_t u) const { return weights_[static_cast<std::size_t>(u)]; }
  std::int64_t& sum(std::int64_t c) { return sums_[static_cast<std::size_t>(c)]; }
  std::int64_t over(std::int64_t sum) const { return std::max<std::int64_t>(sum - limit_, 0); }
  bool may_swap(std::int64_t u, std::int64_t v) const { return labels_[u] != labels_[v] && units_.size(u) == units_.size(v); }
  // By how much all that is above the limit falls.
  std::int64_t relief(std::int64_t u, std::int64_t v) {
    auto const a = sum(labels_[u]), b = sum(labels_[v]), moved = weight(u) - weight(v);
    return over(a) + over(b) - over(a - moved) - over(b + moved);
  }
  std::int64_t cost_change(std::int64_t u, std::int64_t v) const {
    auto const a = labels_[u], b = labels_[v];
    return costs_(u, b) - costs_(u, a) + costs_(v, a) - costs_(v, b);
  }
  bool lowers_cost_alone(std::int64_t u, std::int64_t v) { return may_swap(u, v) && cost_change(u, v) < 0 && relief(u, v) >= 0; }
  void swap(std::int64_t u, std::int64_t v);

  // One swap that relieves the heaviest cluster for which there is one.
  bool lower_heaviest();
  bool swap_out_of(std::int64_t heavy);

  matrix_view<std::int64_t const> costs_;  // (m, k)
  unit_list const& units_;
  std::vector<std::int64_t> weights_;  // (m,)
  weight_balance_options const& options_;
  vector_view<std::int32_t> labels_;  // (m,)
  std::vector<std::int64_t> sums_;    // (k,): weights
  double mean_ = 0;
  std::int64_t limit_ = 0, swaps_ = 0;
};

// The labels and weights of units, whose points have one label each.
std::vector<std::int32_t> labels_of_units(unit_list const& units, vector_view<std::int32_t const> labels);

std::vector<double> means_of(host_exec const& exec, double const* points, std::int64_t d, vector_view<std::int32_t const> labels,
                             std::int64_t k);
double inertia_of(host_exec const& exec, double const* points, std::int64_t d, vector_view<std::int32_t const> labels, std::int64_t k);

}  // namespace detail

template <coordinate T>
weight_balance balance_weights(host_exec const& exec, matrix_view<T> points, vector_view<std::int64_t const> weights, std::int64_t clusters,
                               vector_view<std::int32_t> labels, weight_balance_options const& options,
                               vector_view<std::int64_t const> units) {
  auto const n = points.rows(), d = points.columns();
  detail::check_balance(n, weights, clusters, labels, options);
  detail::unit_list const list("balance_weights", exec, n, units);
  auto unit_labels = detail::labels_of_units(list, labels);
  auto const copied = detail::copy_points("balance_weights", exec, points);
  weight_balance result;
  if (n == 0) {
    result.reached = true;
    return result;
  }
  auto const means = detail::means_of(exec, copied.data(), d, labels, clusters);
  detail::unit_costs costs(exec, copied.data(), d, clusters, list, detail::squared_diagonal(copied.data(), n, means.data(), clusters, d));
  costs.compute(means.data());
  std::vector<std::int64_t> unit_weights(static_cast<std::size_t>(list.count()));
  for (std::int64_t p = 0; p < n; ++p) unit_weights[static_cast<std::size_t>(list.unit_of(p))] += weights[p];
  detail::weight_swaps swaps(costs.view(), list, std::move(unit_weights), options, unit_labels);
  result.imbalance_before = swaps.imbalance();
  result.inertia_before = detail::inertia_of(exec, copied.data(), d, labels, clusters);
  result.swaps = swaps.run();
  for (std::int64_t p = 0; p < n; ++p) labels[p] = unit_labels[static_cast<std::size_t>(list.unit_of(p))];
  result.imbalance = swaps.imbalance();
  result.reached = swaps.reached();
  result.inertia = detail::inertia_of(exec, copied.data(), d, labels, clusters);
  return result;
}

}  // namespace TESSERA_ABI
}  // namespace tessera

#if !TESSERA_COMPILED
#include <tessera/cluster/balance_weights.ipp>
#endif
