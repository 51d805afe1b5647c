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
assignment_result assign_within_bounds(host_exec const& exec, matrix_view<std::int64_t const> costs, vector_view<size_bounds const> bounds,
                                       vector_view<std::int64_t> prices, vector_view<std::int32_t> labels);

namespace detail {

void check_size_bounds(char const* call, std::int64_t n, vector_view<size_bounds const> bounds);

inline constexpr std::int64_t points_per_piece = 1024;

void check_assignment(host_exec const& exec, matrix_view<std::int64_t const> costs, vector_view<size_bounds const> bounds,
                      std::int64_t prices, std::int64_t labels);

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
                  vector_view<std::int64_t> prices, vector_view<std::int32_t> labels);

  assignment_result run(vector_view<std::int64_t> prices);

 private:
  static constexpr std::int64_t settled = std::numeric_limits<std::int64_t>::max();
  static constexpr std::int64_t unreached = std::int64_t{1} << 61;  // beyond any distance; an edge that is not there costs twice that

  std::int64_t& price(std::int64_t node) { return price_[static_cast<std::size_t>(node)]; }
  std::int64_t& flow(std::int64_t c) { return flow_[static_cast<std::size_t>(c)]; }
  std::int64_t& excess(std::int64_t node) { return excess_[static_cast<std::size_t>(node)]; }
  std::int64_t& distance(std::int64_t node) { return distance_[static_cast<std::size_t>(node)]; }
  transfer_tree& tree(std::int64_t c) { return trees_[static_cast<std::size_t>(c)]; }
  std::int64_t most(std::int64_t c) const { return std::min(bounds_[c].most, n_); }

  void take_cheapest();

  void fill_trees();

  // A path changes no flow but the hub's, so that clusters end with the sizes that flow.
  void set_flows();

  std::int64_t total_excess() const;

  // Dijkstra's algorithm in a dense graph, from all nodes with excess at once, to the nearest that lacks some. Bounds can be met, so that
  // there is one.
  std::int64_t nearest_sink();

  // Edges from u to the clusters. A settled node is never nearer by way of u.
  void relax(std::int64_t u, std::int64_t const* edges, std::int64_t clusters);
  void reach(std::int64_t u, std::int64_t v, std::int64_t through);

  // From the path's end backwards, so that a cluster hands on a point that it had before.
  void push_one(std::int64_t sink);

  void settle_cluster(std::int64_t c, std::int64_t freed, std::int64_t incoming);

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

}  // namespace TESSERA_ABI
}  // namespace tessera

#if !TESSERA_COMPILED
#include <tessera/cluster/min_cost_flow.ipp>
#endif
