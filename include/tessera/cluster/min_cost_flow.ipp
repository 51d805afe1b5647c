// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/cluster/min_cost_flow.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

namespace detail {

TESSERA_INLINE void check_size_bounds(char const* call, std::int64_t n, vector_view<size_bounds const> bounds) {
  std::int64_t least = 0, most = 0;
  for (std::int64_t c = 0; c < bounds.size(); ++c) {
    auto const& b = bounds[c];
    if (b.least < 0 || b.most < b.least)
      throw error(errc::invalid_argument, std::string(call) + ": a cluster's bounds are not 0 <= least <= most",
                  {{"cluster", c}, {"least", b.least}, {"most", b.most}});
    least = std::min(least, n + 1) + std::min(b.least, n + 1);  // beyond n, sums say no more
    most = std::min(most, n) + std::min(b.most, n);
  }
  if (least > n)
    throw error(errc::invalid_argument, std::string(call) + ": the least sizes of all clusters need more points than there are",
                {{"points", n}, {"clusters", bounds.size()}, {"least of cluster 0", bounds[0].least}});
  if (most < n)
    throw error(errc::invalid_argument, std::string(call) + ": the largest sizes of all clusters hold fewer points than there are",
                {{"points", n}, {"clusters", bounds.size()}, {"most of cluster 0", bounds.empty() ? 0 : bounds[0].most}});
}

TESSERA_INLINE void check_assignment(host_exec const& exec, matrix_view<std::int64_t const> costs, vector_view<size_bounds const> bounds,
                                     std::int64_t prices, std::int64_t labels) {
  auto const n = costs.rows(), k = costs.columns();
  if (bounds.size() != k || prices != k || labels != n)
    throw error(errc::shape_mismatch, "assign_within_bounds: bounds, prices or labels do not fit the costs",
                {{"points", n}, {"clusters", k}, {"bounds", bounds.size()}, {"prices", prices}, {"labels", labels}});
  if (k < 1 || k > std::numeric_limits<std::int32_t>::max())
    throw error(errc::invalid_argument, "assign_within_bounds: number of clusters", {{"points", n}, {"clusters", k}});
  check_size_bounds("assign_within_bounds", n, bounds);
  auto const most = largest_assignment_cost(n, k);
  for_each_piece(exec, n, points_per_piece, [&](std::int64_t first, std::int64_t last) {
    for (auto p = first; p < last; ++p) {
      auto const* const row = costs.row(p);
      std::int64_t lowest = 0, highest = 0;
      for (std::int64_t c = 0; c < k; ++c) lowest = std::min(lowest, row[c]), highest = std::max(highest, row[c]);
      if (lowest < -most || highest > most)
        throw error(errc::invalid_argument, "assign_within_bounds: a cost is too large to add up",
                    {{"point", p}, {"cost", highest > most ? highest : lowest}, {"largest", most}});
    }
  });
}

TESSERA_INLINE assignment_flow::assignment_flow(host_exec const& exec, matrix_view<std::int64_t const> costs,
                                                vector_view<size_bounds const> bounds, vector_view<std::int64_t> prices,
                                                vector_view<std::int32_t> labels)
    : exec_(exec), costs_(costs), bounds_(bounds), labels_(labels), k_(costs.columns()), n_(costs.rows()) {
  auto const nodes = static_cast<std::size_t>(k_ + 1);
  price_.assign(nodes, 0);
  auto const most = 2 * (k_ + 1) * largest_assignment_cost(n_, k_);
  for (std::int64_t c = 0; c < k_; ++c) price(c) = std::clamp(prices[c], -most, most);
  flow_.assign(nodes, 0);
  excess_.assign(nodes, 0);
  distance_.resize(nodes);
  open_.resize(nodes);
  before_.resize(nodes);
  hub_edges_.resize(nodes);
}

TESSERA_INLINE assignment_result assignment_flow::run(vector_view<std::int64_t> prices) {
  take_cheapest();
  trees_.reserve(static_cast<std::size_t>(k_));
  for (std::int64_t c = 0; c < k_; ++c) trees_.emplace_back(c, costs_);
  fill_trees();
  set_flows();
  assignment_result result;
  for (auto left = total_excess(); left > 0; --left, ++result.paths) push_one(nearest_sink());
  for (std::int64_t p = 0; p < n_; ++p) result.cost += costs_(p, labels_[p]);
  for (std::int64_t c = 0; c < k_; ++c) prices[c] = price(c) - price(k_);
  return result;
}

TESSERA_INLINE void assignment_flow::take_cheapest() {
  for_each_piece(exec_, n_, points_per_piece, [&](std::int64_t first, std::int64_t last) {
    for (auto p = first; p < last; ++p) {
      auto const* const row = costs_.row(p);
      auto const* const prices = price_.data();
      auto cheapest = row[0] + prices[0];
      for (std::int64_t c = 1; c < k_; ++c) cheapest = std::min(cheapest, row[c] + prices[c]);
      std::int64_t label = labels_[p];
      if (label >= 0 && label < k_ && row[label] + prices[label] == cheapest) continue;
      for (label = 0; row[label] + prices[label] != cheapest;) ++label;
      labels_[p] = static_cast<std::int32_t>(label);
    }
  });
}

TESSERA_INLINE void assignment_flow::fill_trees() {
  buffer<std::int64_t> sizes(exec_, k_);
  std::fill(sizes.begin(), sizes.end(), 0);
  for (std::int64_t p = 0; p < n_; ++p) ++sizes[labels_[p]];
  for (std::int64_t c = 0; c < k_; ++c) tree(c).reserve(exec_, sizes[c]);
  for (std::int64_t p = 0; p < n_; ++p) tree(labels_[p]).add_later(static_cast<std::int64_t>(p));
  exec_.run(k_, [&](std::int64_t c) { tree(c).build(); });
}

TESSERA_INLINE void assignment_flow::set_flows() {
  std::int64_t sum = 0;
  for (std::int64_t c = 0; c < k_; ++c) {
    auto const size = tree(c).size();
    flow(c) = price(c) > 0 ? most(c) : price(c) < 0 ? bounds_[c].least : std::clamp(size, bounds_[c].least, most(c));
    excess(c) = size - flow(c);
    sum += flow(c);
  }
  excess(k_) = sum - n_;
}

TESSERA_INLINE std::int64_t assignment_flow::total_excess() const {
  std::int64_t sum = 0;
  for (auto const e : excess_) sum += std::max<std::int64_t>(e, 0);
  return sum;
}

TESSERA_INLINE std::int64_t assignment_flow::nearest_sink() {
  for (std::int64_t v = 0; v <= k_; ++v) distance(v) = excess(v) > 0 ? 0 : unreached;
  open_ = distance_;
  std::fill(before_.begin(), before_.end(), -1);
  for (;;) {
    auto nearest = open_[0];
    for (auto const d : open_) nearest = std::min(nearest, d);
    auto const u = std::find(open_.begin(), open_.end(), nearest) - open_.begin();
    if (excess(u) < 0) {
      for (std::int64_t v = 0; v <= k_; ++v)
        if (open_[static_cast<std::size_t>(v)] == settled) price(v) += nearest - distance(v);
      return u;
    }
    open_[static_cast<std::size_t>(u)] = settled;
    if (u == k_) {
      for (std::int64_t c = 0; c < k_; ++c) hub_edges_[static_cast<std::size_t>(c)] = flow(c) > bounds_[c].least ? 0 : no_transfer;
      relax(u, hub_edges_.data(), k_);
    } else {
      if (tree(u).size() > 0) relax(u, tree(u).least_costs(), k_);
      if (flow(u) < most(u)) reach(u, k_, distance(u) - price(u) + price(k_));
    }
  }
}

TESSERA_INLINE void assignment_flow::relax(std::int64_t u, std::int64_t const* edges, std::int64_t clusters) {
  auto const base = distance(u) - price(u);
  auto const* const prices = price_.data();
  auto* const distances = distance_.data();
  auto* const opens = open_.data();
  auto* const befores = before_.data();
  for (std::int64_t v = 0; v < clusters; ++v) {
    auto const through = base + edges[v] + prices[v];
    bool const nearer = through < distances[v];
    distances[v] = nearer ? through : distances[v];
    opens[v] = nearer ? through : opens[v];
    befores[v] = nearer ? u : befores[v];
  }
}

TESSERA_INLINE void assignment_flow::reach(std::int64_t u, std::int64_t v, std::int64_t through) {
  if (through >= distance(v)) return;
  distance(v) = open_[static_cast<std::size_t>(v)] = through;
  before_[static_cast<std::size_t>(v)] = u;
}

TESSERA_INLINE void assignment_flow::push_one(std::int64_t sink) {
  ++excess(sink);
  std::int64_t incoming = -1;  // the point that comes to v, if an edge between clusters led there
  auto v = sink;
  std::int64_t freed = -1;  // the place in v of the point that left
  for (;;) {
    auto const u = before_[static_cast<std::size_t>(v)];
    std::int64_t leaving = -1, place = -1;
    if (u >= 0 && u != k_ && v != k_) {
      place = tree(u).cheapest(v);
      leaving = tree(u).point(place);
    }
    if (u == k_) --flow(v);
    if (v == k_ && u >= 0) ++flow(u);
    incoming = leaving;
    if (v != k_) settle_cluster(v, freed, incoming);
    if (u < 0) break;
    v = u;
    freed = place;
  }
  --excess(v);
}

TESSERA_INLINE void assignment_flow::settle_cluster(std::int64_t c, std::int64_t freed, std::int64_t incoming) {
  if (incoming >= 0) labels_[incoming] = static_cast<std::int32_t>(c);
  if (freed >= 0 && incoming >= 0)
    tree(c).replace(freed, incoming);
  else if (freed >= 0)
    tree(c).remove(freed);
  else if (incoming >= 0)
    tree(c).add(exec_, incoming);
}

}  // namespace detail

TESSERA_INLINE assignment_result assign_within_bounds(host_exec const& exec, matrix_view<std::int64_t const> costs,
                                                      vector_view<size_bounds const> bounds, vector_view<std::int64_t> prices,
                                                      vector_view<std::int32_t> labels) {
  detail::check_assignment(exec, costs, bounds, prices.size(), labels.size());
  return detail::assignment_flow(exec, costs, bounds, prices, labels).run(prices);
}

}  // namespace TESSERA_ABI
}  // namespace tessera
