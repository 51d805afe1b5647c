// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/cluster/balance_weights.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

namespace detail {

TESSERA_INLINE void check_balance(std::int64_t n, vector_view<std::int64_t const> weights, std::int64_t k,
                                  vector_view<std::int32_t const> labels, weight_balance_options const& options) {
  constexpr auto call = "balance_weights";
  if (weights.size() != n || labels.size() != n)
    throw error(errc::shape_mismatch, std::string(call) + ": weights or labels do not fit the points",
                {{"points", n}, {"weights", weights.size()}, {"labels", labels.size()}});
  if (k < 1 || !(options.tolerance >= 0) || !std::isfinite(options.tolerance) || options.swaps < 0)
    throw error(errc::invalid_argument, std::string(call) + ": clusters, tolerance or swaps are out of range",
                {{"clusters", k}, {"tolerance", options.tolerance}, {"swaps", options.swaps}});
  auto const most = n > 0 ? (std::int64_t{1} << 53) / n : 0;  // so that sums are exact, as doubles too
  for (std::int64_t p = 0; p < n; ++p) {
    if (weights[p] < 0 || weights[p] > most)
      throw error(errc::invalid_argument, std::string(call) + ": a weight is negative or too large to add up",
                  {{"point", p}, {"weight", weights[p]}, {"largest", most}});
    if (labels[p] < 0 || labels[p] >= k)
      throw error(errc::invalid_argument, std::string(call) + ": a label is no cluster",
                  {{"point", p}, {"label", labels[p]}, {"clusters", k}});
  }
}

TESSERA_INLINE weight_swaps::weight_swaps(matrix_view<std::int64_t const> costs, unit_list const& units, std::vector<std::int64_t> weights,
                                          weight_balance_options const& options, vector_view<std::int32_t> labels)
    : costs_(costs),
      units_(units),
      weights_(std::move(weights)),
      options_(options),
      labels_(labels),
      sums_(static_cast<std::size_t>(costs.columns())) {
  for (std::int64_t u = 0; u < units.count(); ++u) sum(labels[u]) += weight(u);
  mean_ = static_cast<double>(std::accumulate(sums_.begin(), sums_.end(), std::int64_t{0})) / static_cast<double>(sums_.size());
  limit_ = static_cast<std::int64_t>(std::min(mean_ * (1 + options.tolerance), 0x1p53));  // no sum is above that
}

TESSERA_INLINE std::int64_t weight_swaps::run() {
  while (swaps_ < options_.swaps && lower_heaviest()) {
  }
  for (bool improved = true; improved;) {
    improved = false;
    for (std::int64_t u = 0; u < units_.count(); ++u)
      for (auto v = u + 1; v < units_.count() && swaps_ < options_.swaps; ++v)
        if (lowers_cost_alone(u, v)) {
          swap(u, v);
          improved = true;
        }
  }
  return swaps_;
}

TESSERA_INLINE void weight_swaps::swap(std::int64_t u, std::int64_t v) {
  auto const moved = weight(u) - weight(v);
  sum(labels_[u]) -= moved;
  sum(labels_[v]) += moved;
  std::swap(labels_[u], labels_[v]);
  ++swaps_;
}

TESSERA_INLINE bool weight_swaps::lower_heaviest() {
  std::vector<std::int64_t> order(sums_.size());
  std::iota(order.begin(), order.end(), std::int64_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) { return sum(a) > sum(b); });
  for (auto const heavy : order) {
    if (over(sum(heavy)) == 0) return false;
    if (swap_out_of(heavy)) return true;
  }
  return false;
}

TESSERA_INLINE bool weight_swaps::swap_out_of(std::int64_t heavy) {
  std::int64_t best_u = -1, best_v = -1;
  double best_price = 0;
  for (std::int64_t u = 0; u < units_.count(); ++u) {
    if (labels_[u] != heavy) continue;
    for (std::int64_t v = 0; v < units_.count(); ++v) {
      if (weight(v) >= weight(u) || !may_swap(u, v)) continue;
      auto const relieved = relief(u, v);
      if (relieved <= 0) continue;
      auto const cost = static_cast<double>(cost_change(u, v));
      auto const price = cost > 0 ? cost / static_cast<double>(relieved) : cost;
      if (best_u >= 0 && price >= best_price) continue;
      best_u = u, best_v = v, best_price = price;
    }
  }
  if (best_u >= 0) swap(best_u, best_v);
  return best_u >= 0;
}

TESSERA_INLINE std::vector<std::int32_t> labels_of_units(unit_list const& units, vector_view<std::int32_t const> labels) {
  std::vector<std::int32_t> result(static_cast<std::size_t>(units.count()), -1);
  for (std::int64_t p = 0; p < labels.size(); ++p) {
    auto const u = units.unit_of(p);
    auto& label = result[static_cast<std::size_t>(u)];
    if (label >= 0 && label != labels[p])
      throw error(errc::invalid_argument, "balance_weights: a unit's points are in two clusters",
                  {{"unit", units.name(u)}, {"point", p}, {"label", labels[p]}, {"label before", label}});
    label = labels[p];
  }
  return result;
}

TESSERA_INLINE std::vector<double> means_of(host_exec const& exec, double const* points, std::int64_t d,
                                            vector_view<std::int32_t const> labels, std::int64_t k) {
  std::vector<double> means(static_cast<std::size_t>(k * d));
  set_means(exec, points, d, cluster_lists(exec, labels, k), k, means.data());
  return means;
}

TESSERA_INLINE double inertia_of(host_exec const& exec, double const* points, std::int64_t d, vector_view<std::int32_t const> labels,
                                 std::int64_t k) {
  auto const means = means_of(exec, points, d, labels, k);
  return sum_by_pieces(exec, labels.size(), points_per_sum,
                       [&](std::int64_t p) { return squared_distance(points + p * d, means.data() + labels[p] * d, d); });
}

}  // namespace detail

}  // namespace TESSERA_ABI
}  // namespace tessera
