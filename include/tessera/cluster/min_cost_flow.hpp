// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include <tessera/cluster/transfer_tree.hpp>
#include <tessera/core/buffer.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// How many points a cluster takes.
struct size_bounds {
  std::int64_t least = 0;
  std::int64_t most = std::numeric_limits<std::int64_t>::max();
};

/// What an assignment cost, and what it took to find it.
struct assignment_result {
  std::int64_t cost = 0;   ///< the sum of the costs of all points
  std::int64_t paths = 0;  ///< shortest paths along which points moved from cluster to cluster
};

/// The largest cost, without its sign, of a point in an assignment of n points to k clusters. @pre n >= 0, k >= 1
constexpr std::int64_t largest_assignment_cost(std::int64_t n, std::int64_t k) noexcept {
  // Prices stay below 8 (k + 1) costs and distances below 18 (k + 1); see assignment_flow. The sum of n costs is an int64.
  return std::min((std::int64_t{1} << 55) / (k + 1), (std::int64_t{1} << 62) / std::max<std::int64_t>(n, 1));
}

/// Assigns each point to a cluster, at the least sum of costs that the bounds on the clusters' sizes allow.
///
/// `costs` (n, k): of each point in each cluster. `bounds` (k,). `labels` (n,) receives the cluster of each point. A label that is in [0, k) on
/// entry is kept where another would be as cheap. Set labels to -1 first where none is known. `prices` (k,): what a cluster's sizes add to its
/// costs; zeros at first. On return they prove the optimum: each point is where cost + price is least. A cluster with a price above 0 has
/// `most` points, or all there are; one with a price below 0 has `least`.
///
/// Prices of an earlier call with other costs make a good start, of whatever costs: few points then have to move. The cost is the optimum
/// from any start. Which of several optima comes out depends on the start, never on the number of threads.
///
/// It finds successive shortest paths in the residual graph of the k clusters, not of the n points. For each pair of clusters a transfer_tree
/// keeps the point that moves at the least cost. Time: n k for the start, and about k^2 + k log n a path. Workspace: about n k / 2 bytes and
/// k^2 / 2 times 8 bytes from `exec`'s memory.
/// Source: Ahuja, Magnanti, Orlin, "Network Flows", 1993, sections 9.7 and 12.4.
/// @throws tessera::error shape_mismatch; invalid_argument naming a cluster whose bounds are wrong, bounds that n points cannot meet, or
/// a point whose cost is beyond `largest_assignment_cost(n, k)`. Labels and prices are then as they were.
inline assignment_result assign_within_bounds(host_exec const& exec, matrix_view<std::int64_t const> costs,
                                              vector_view<size_bounds const> bounds, vector_view<std::int64_t> prices,
                                              vector_view<std::int32_t> labels);

namespace detail {

inline void check_size_bounds(char const* call, std::int64_t n, vector_view<size_bounds const> bounds) {
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

inline constexpr std::int64_t points_per_piece = 1024;

inline void check_assignment(host_exec const& exec, matrix_view<std::int64_t const> costs, vector_view<size_bounds const> bounds,
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

// The residual graph. Nodes 0 … k - 1 are the clusters. Node k, the hub, takes in all points: what flows from cluster b to the hub is
// b's size, as far as it is within bounds. The edge a → b moves the point of a that costs least; the edge a → hub lets a be one larger at
// no cost, where its flow is below `most`; the edge hub → b lets b be one smaller, where its flow is above `least`.
//
// The reduced cost of an edge u → v is its cost + price[v] - price[u]. It is never negative: labels are cheapest under prices at the start,
// and flows are at the bound that the sign of the price asks for. So what is wrong at first is only that sizes are not what flows: `excess`.
// Each path takes one unit from a node with excess to one that lacks some; prices of nodes nearer than its end rise so that this stays true.
//
// With costs up to C and first prices in [-2 (k + 1) C, 2 (k + 1) C], the real length of a path is at most 2 k C, so no price rises by
// more than what separates its node from another's price, and 2 k C.
class assignment_flow {
 public:
  assignment_flow(host_exec const& exec, matrix_view<std::int64_t const> costs, vector_view<size_bounds const> bounds,
                  vector_view<std::int64_t> prices, vector_view<std::int32_t> labels)
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

  assignment_result run(vector_view<std::int64_t> prices) {
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

 private:
  static constexpr std::int64_t settled = std::numeric_limits<std::int64_t>::max();
  static constexpr std::int64_t unreached = std::int64_t{1} << 61;  // beyond any distance; an edge that is not there costs twice that

  std::int64_t& price(std::int64_t node) { return price_[static_cast<std::size_t>(node)]; }
  std::int64_t& flow(std::int64_t c) { return flow_[static_cast<std::size_t>(c)]; }
  std::int64_t& excess(std::int64_t node) { return excess_[static_cast<std::size_t>(node)]; }
  std::int64_t& distance(std::int64_t node) { return distance_[static_cast<std::size_t>(node)]; }
  transfer_tree& tree(std::int64_t c) { return trees_[static_cast<std::size_t>(c)]; }
  std::int64_t most(std::int64_t c) const { return std::min(bounds_[c].most, n_); }

  void take_cheapest() {
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

  void fill_trees() {
    buffer<std::int64_t> sizes(exec_, k_);
    std::fill(sizes.begin(), sizes.end(), 0);
    for (std::int64_t p = 0; p < n_; ++p) ++sizes[labels_[p]];
    for (std::int64_t c = 0; c < k_; ++c) tree(c).reserve(exec_, sizes[c]);
    for (std::int64_t p = 0; p < n_; ++p) tree(labels_[p]).add_later(static_cast<std::int64_t>(p));
    exec_.run(k_, [&](std::int64_t c) { tree(c).build(); });
  }

  // A path changes no flow but the hub's, so that clusters end with the sizes that flow.
  void set_flows() {
    std::int64_t sum = 0;
    for (std::int64_t c = 0; c < k_; ++c) {
      auto const size = tree(c).size();
      flow(c) = price(c) > 0 ? most(c) : price(c) < 0 ? bounds_[c].least : std::clamp(size, bounds_[c].least, most(c));
      excess(c) = size - flow(c);
      sum += flow(c);
    }
    excess(k_) = sum - n_;
  }

  std::int64_t total_excess() const {
    std::int64_t sum = 0;
    for (auto const e : excess_) sum += std::max<std::int64_t>(e, 0);
    return sum;
  }

  // Dijkstra's algorithm in a dense graph, from all nodes with excess at once, to the nearest that lacks some. Bounds can be met, so that
  // there is one.
  std::int64_t nearest_sink() {
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

  // Edges from u to the clusters. A settled node is never nearer by way of u.
  void relax(std::int64_t u, std::int64_t const* edges, std::int64_t clusters) {
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
  void reach(std::int64_t u, std::int64_t v, std::int64_t through) {
    if (through >= distance(v)) return;
    distance(v) = open_[static_cast<std::size_t>(v)] = through;
    before_[static_cast<std::size_t>(v)] = u;
  }

  // From the path's end backwards, so that a cluster hands on a point that it had before.
  void push_one(std::int64_t sink) {
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

  void settle_cluster(std::int64_t c, std::int64_t freed, std::int64_t incoming) {
    if (incoming >= 0) labels_[incoming] = static_cast<std::int32_t>(c);
    if (freed >= 0 && incoming >= 0)
      tree(c).replace(freed, incoming);
    else if (freed >= 0)
      tree(c).remove(freed);
    else if (incoming >= 0)
      tree(c).add(exec_, incoming);
  }

  host_exec const& exec_;
  matrix_view<std::int64_t const> costs_;
  vector_view<size_bounds const> bounds_;
  vector_view<std::int32_t> labels_;
  std::int64_t k_, n_;
  std::vector<std::int64_t> price_, flow_, excess_;  // (k + 1,)
  std::vector<std::int64_t> distance_, before_;      // (k + 1,)
  std::vector<std::int64_t> open_;                   // (k + 1,): distances of nodes that are not settled
  std::vector<std::int64_t> hub_edges_;              // (k + 1,)
  std::vector<transfer_tree> trees_;                 // (k,)
};

}  // namespace detail

inline assignment_result assign_within_bounds(host_exec const& exec, matrix_view<std::int64_t const> costs,
                                              vector_view<size_bounds const> bounds, vector_view<std::int64_t> prices,
                                              vector_view<std::int32_t> labels) {
  detail::check_assignment(exec, costs, bounds, prices.size(), labels.size());
  return detail::assignment_flow(exec, costs, bounds, prices, labels).run(prices);
}

}  // namespace TESSERA_ABI
}  // namespace tessera
