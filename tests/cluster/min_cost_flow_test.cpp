// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-labels: threads
#include <tessera/cluster/min_cost_flow.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "hosts.hpp"
#include "random.hpp"

namespace min_cost_flow_test {

using tessera::size_bounds;

struct problem {
  std::int64_t n = 0, k = 0;
  std::vector<std::int64_t> costs;  // (n, k)
  std::vector<size_bounds> bounds;

  std::int64_t cost(std::int64_t p, std::int64_t c) const { return costs[static_cast<std::size_t>(p * k + c)]; }
};

struct solution {
  tessera::assignment_result result;
  std::vector<std::int32_t> labels;
  std::vector<std::int64_t> prices;
};

solution solve(tessera::host_exec const& exec, problem const& p, solution start = {}) {
  start.labels.resize(static_cast<std::size_t>(p.n), -1);
  start.prices.resize(static_cast<std::size_t>(p.k), 0);
  start.result = tessera::assign_within_bounds(exec, tessera::matrix_view<std::int64_t const>(p.costs.data(), p.n, p.k), p.bounds,
                                               start.prices, start.labels);
  return start;
}

std::vector<std::int64_t> sizes_of(problem const& p, std::vector<std::int32_t> const& labels) {
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(p.k));
  for (auto const label : labels) ++sizes.at(static_cast<std::size_t>(label));
  return sizes;
}

/// All that the contract promises of a solution but the value of the optimum, which its prices prove.
void check_proof(problem const& p, solution const& s) {
  std::int64_t cost = 0;
  for (std::int64_t i = 0; i < p.n; ++i) {
    auto const label = s.labels[static_cast<std::size_t>(i)];
    cost += p.cost(i, label);
    for (std::int64_t c = 0; c < p.k; ++c)
      REQUIRE(p.cost(i, label) + s.prices[static_cast<std::size_t>(label)] <= p.cost(i, c) + s.prices[static_cast<std::size_t>(c)]);
  }
  CHECK(cost == s.result.cost);
  auto const sizes = sizes_of(p, s.labels);
  for (std::size_t c = 0; c < sizes.size(); ++c) {
    REQUIRE(sizes[c] >= p.bounds[c].least);
    REQUIRE(sizes[c] <= p.bounds[c].most);
    if (s.prices[c] > 0) REQUIRE(sizes[c] == std::min(p.bounds[c].most, p.n));
    if (s.prices[c] < 0) REQUIRE(sizes[c] == p.bounds[c].least);
  }
}

/// All assignments, one after the other.
std::int64_t cheapest_of_all(problem const& p) {
  std::vector<std::int32_t> labels(static_cast<std::size_t>(p.n), 0);
  auto best = std::numeric_limits<std::int64_t>::max();
  for (;;) {
    auto const sizes = sizes_of(p, labels);
    bool fits = true;
    for (std::size_t c = 0; c < sizes.size(); ++c) fits = fits && sizes[c] >= p.bounds[c].least && sizes[c] <= p.bounds[c].most;
    if (fits) {
      std::int64_t cost = 0;
      for (std::int64_t i = 0; i < p.n; ++i) cost += p.cost(i, labels[static_cast<std::size_t>(i)]);
      best = std::min(best, cost);
    }
    std::size_t digit = 0;
    while (digit < labels.size() && ++labels[digit] == p.k) labels[digit++] = 0;
    if (digit == labels.size()) return best;
  }
}

/// A flow over all points, edge by edge: source → points → clusters → sink, least sizes as edges of their own that pay `bonus` a unit.
/// Bellman and Ford's algorithm finds each of its shortest paths.
class plain_flow {
 public:
  explicit plain_flow(problem const& p) {
    auto const n = static_cast<int>(p.n), k = static_cast<int>(p.k), source = n + k, sink = source + 1;
    std::int64_t bonus = 1;
    for (auto const cost : p.costs) bonus += 2 * std::abs(cost);
    std::int64_t least = 0;
    for (int i = 0; i < n; ++i) {
      add(source, i, 1, 0);
      for (int c = 0; c < k; ++c) add(i, n + c, 1, p.cost(i, c));
    }
    for (int c = 0; c < k; ++c) {
      auto const& b = p.bounds[static_cast<std::size_t>(c)];
      add(n + c, sink, b.least, -bonus);
      add(n + c, sink, std::min(b.most, p.n) - b.least, 0);
      least += b.least;
    }
    std::int64_t cost = 0;
    for (int i = 0; i < n; ++i) cost += push(source, sink, sink + 1);
    value_ = cost + bonus * least;
  }
  std::int64_t value() const { return value_; }

 private:
  struct edge {
    int from, to;
    std::int64_t room, cost;
  };
  void add(int from, int to, std::int64_t room, std::int64_t cost) {
    edges_.push_back({from, to, room, cost});
    edges_.push_back({to, from, 0, -cost});
  }
  std::int64_t push(int source, int sink, int nodes) {
    auto const far = std::numeric_limits<std::int64_t>::max() / 2;
    std::vector<std::int64_t> distance(static_cast<std::size_t>(nodes), far);
    std::vector<std::size_t> by(static_cast<std::size_t>(nodes));
    distance[static_cast<std::size_t>(source)] = 0;
    for (bool changed = true; changed;) {
      changed = false;
      for (std::size_t e = 0; e < edges_.size(); ++e) {
        auto const& [from, to, room, cost] = edges_[e];
        auto const through = distance[static_cast<std::size_t>(from)] + cost;
        if (room == 0 || distance[static_cast<std::size_t>(from)] == far || through >= distance[static_cast<std::size_t>(to)]) continue;
        distance[static_cast<std::size_t>(to)] = through;
        by[static_cast<std::size_t>(to)] = e;
        changed = true;
      }
    }
    for (int v = sink; v != source; v = edges_[by[static_cast<std::size_t>(v)]].from) {
      --edges_[by[static_cast<std::size_t>(v)]].room;
      ++edges_[by[static_cast<std::size_t>(v)] ^ 1].room;
    }
    return distance[static_cast<std::size_t>(sink)];
  }
  std::vector<edge> edges_;
  std::int64_t value_ = 0;
};

/// Bounds that n points can meet; some are equal, some do not bind.
problem random_problem(std::mt19937_64& random, std::int64_t n, std::int64_t k, std::int64_t most_cost) {
  problem p{n, k, tessera_tests::random_integers<std::int64_t>(random, static_cast<std::size_t>(n * k), -most_cost, most_cost), {}};
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(k));  // of some assignment
  for (std::int64_t i = 0; i < n; ++i) ++sizes[random() % static_cast<std::uint64_t>(k)];
  for (auto const size : sizes) {
    auto const below = static_cast<std::int64_t>(random() % 4), above = static_cast<std::int64_t>(random() % 4);
    p.bounds.push_back({std::max<std::int64_t>(size - below, 0), random() % 8 == 0 ? size_bounds{}.most : size + above});
  }
  return p;
}

TEST_CASE("assign_within_bounds is as cheap as the cheapest of all assignments") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  tessera_tests::serial_host host;
  for (int trial = 0; trial < 300; ++trial) {
    auto const k = 1 + static_cast<std::int64_t>(random() % 4);
    auto const n = static_cast<std::int64_t>(random() % (k == 4 ? 7 : 10));
    auto const p = random_problem(random, n, k, trial % 2 == 0 ? 2 : 1000);  // with many ties, and with few
    auto const s = solve(host.exec(), p);
    check_proof(p, s);
    CHECK(s.result.cost == cheapest_of_all(p));
  }
}

TEST_CASE("assign_within_bounds is as cheap as a flow over all points") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  tessera_tests::serial_host host;
  for (int trial = 0; trial < 60; ++trial) {
    auto const n = 1 + static_cast<std::int64_t>(random() % 60), k = 1 + static_cast<std::int64_t>(random() % 8);
    auto const p = random_problem(random, n, k, trial % 3 == 0 ? 3 : 1'000'000);
    auto const s = solve(host.exec(), p);
    check_proof(p, s);
    CHECK(s.result.cost == plain_flow(p).value());
  }
}

TEST_CASE("assign_within_bounds: prices prove the optimum of larger problems, from any start") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  tessera_tests::serial_host host;
  for (int trial = 0; trial < 10; ++trial) {
    auto const n = 200 + static_cast<std::int64_t>(random() % 1000), k = 2 + static_cast<std::int64_t>(random() % 40);
    auto p = random_problem(random, n, k, trial % 2 == 0 ? 5 : 1'000'000'000);
    if (trial % 3 == 0) p.bounds.assign(static_cast<std::size_t>(k), {n / k, (n + k - 1) / k});
    auto const cold = solve(host.exec(), p);
    check_proof(p, cold);
    auto const again = solve(host.exec(), p, cold);  // nothing is left to do
    CHECK(again.result.paths == 0);
    CHECK(again.labels == cold.labels);
    CHECK(again.prices == cold.prices);
    solution wild;
    wild.prices = tessera_tests::random_integers<std::int64_t>(
        random, static_cast<std::size_t>(k), std::numeric_limits<std::int64_t>::min(), std::numeric_limits<std::int64_t>::max());
    wild.labels = tessera_tests::random_integers<std::int32_t>(random, static_cast<std::size_t>(n), -3, 50);
    auto const other = solve(host.exec(), p, wild);
    check_proof(p, other);
    CHECK(other.result.cost == cold.result.cost);
    for (auto& cost : p.costs) cost += static_cast<std::int64_t>(random() % 5);  // as in a next iteration
    auto const next = solve(host.exec(), p, cold);
    check_proof(p, next);
    CHECK(next.result.cost == solve(host.exec(), p).result.cost);
  }
}

TEST_CASE("assign_within_bounds: points that are alike, and costs that are all the same") {
  tessera_tests::serial_host host;
  problem p{40, 4, std::vector<std::int64_t>(160, 7), std::vector<size_bounds>(4, {10, 10})};
  auto s = solve(host.exec(), p);
  check_proof(p, s);
  CHECK(s.result.cost == 280);
  for (std::size_t i = 0; i < 160; ++i) p.costs[i] = i % 4 == 0 ? 0 : 100;  // all want cluster 0
  s = solve(host.exec(), p);
  check_proof(p, s);
  CHECK(s.result.cost == 3000);
  p.bounds = {{0, 0}, {0, 40}, {3, 3}, {0, 40}};
  s = solve(host.exec(), p);
  check_proof(p, s);
  CHECK(sizes_of(p, s.labels)[0] == 0);
}

TEST_CASE("assign_within_bounds: one cluster, a cluster a point, no points") {
  tessera_tests::serial_host host;
  problem const one{3, 1, {1, 2, 3}, {{3, 3}}};
  CHECK(solve(host.exec(), one).result.cost == 6);
  problem const each{3, 3, {1, 2, 9, 1, 9, 9, 1, 9, 9}, {{1, 1}, {1, 1}, {1, 1}}};
  auto const s = solve(host.exec(), each);
  CHECK(s.result.cost == 12);
  CHECK(s.labels[0] == 1);
  problem const none{0, 2, {}, {{0, 5}, {0, 0}}};
  CHECK(solve(host.exec(), none).result.cost == 0);
}

TEST_CASE("assign_within_bounds: costs as large as are allowed do not overflow") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  tessera_tests::serial_host host;
  for (int trial = 0; trial < 20; ++trial) {
    auto const n = 1 + static_cast<std::int64_t>(random() % 100), k = 1 + static_cast<std::int64_t>(random() % 12);
    auto p = random_problem(random, n, k, 1);
    auto const most = tessera::largest_assignment_cost(n, k);
    for (auto& cost : p.costs) cost = cost * most + (cost == 0 ? static_cast<std::int64_t>(random() % 100) : 0);
    check_proof(p, solve(host.exec(), p));
    solution wild;
    for (std::int64_t c = 0; c < k; ++c)
      wild.prices.push_back(random() % 2 == 0 ? std::numeric_limits<std::int64_t>::min() : std::numeric_limits<std::int64_t>::max());
    check_proof(p, solve(host.exec(), p, wild));
  }
}

TEST_CASE("assign_within_bounds: the same on any number of threads") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  auto const p = random_problem(random, 3000, 17, 10);
  tessera_tests::serial_host serial;
  tessera_tests::pool two(2);
  auto const a = solve(serial.exec(), p), b = solve(two.exec(), p);
  CHECK(a.labels == b.labels);
  CHECK(a.prices == b.prices);
  CHECK(a.result.paths == b.result.paths);
}

template <class F>
std::string refusal(F const& f) {
  try {
    f();
  } catch (tessera::error const& e) {
    return e.what();
  }
  return "none";
}

TEST_CASE("assign_within_bounds names what is wrong, and changes nothing then") {
  tessera_tests::serial_host host;
  auto const says = [&](std::int64_t n, std::int64_t k, std::vector<size_bounds> bounds, std::int64_t cost = 1) {
    problem p{n, k, std::vector<std::int64_t>(static_cast<std::size_t>(n * k), 1), std::move(bounds)};
    if (!p.costs.empty()) p.costs.back() = cost;
    std::vector<std::int32_t> labels(static_cast<std::size_t>(n), 5);
    std::vector<std::int64_t> prices(static_cast<std::size_t>(k), 7);
    auto const text = refusal([&] {
      tessera::assign_within_bounds(host.exec(), tessera::matrix_view<std::int64_t const>(p.costs.data(), n, k), p.bounds, prices, labels);
    });
    CHECK(std::count(labels.begin(), labels.end(), 5) == n);
    CHECK(std::count(prices.begin(), prices.end(), 7) == k);
    return text;
  };
  CHECK(
      says(4, 2, {{3, 4}, {2, 4}}) ==
      "assign_within_bounds: the least sizes of all clusters need more points than there are (points 4, clusters 2, least of cluster 0 3)");
  CHECK(says(9, 2, {{3, 4}, {2, 4}}) ==
        "assign_within_bounds: the largest sizes of all clusters hold fewer points than there are (points 9, clusters 2, most of cluster 0 "
        "4)");
  CHECK(says(4, 2, {{0, 4}, {3, 2}}) == "assign_within_bounds: a cluster's bounds are not 0 <= least <= most (cluster 1, least 3, most 2)");
  CHECK(says(4, 2, {{-1, 4}, {0, 2}}) ==
        "assign_within_bounds: a cluster's bounds are not 0 <= least <= most (cluster 0, least -1, most 4)");
  CHECK(says(4, 0, {}) == "assign_within_bounds: number of clusters (points 4, clusters 0)");
  CHECK(says(4, 2, {{0, 4}}) ==
        "assign_within_bounds: bounds, prices or labels do not fit the costs (points 4, clusters 2, bounds 1, prices 2, labels 4)");
  CHECK(says(2, 2, {{0, 4}, {0, 4}}, std::int64_t{1} << 60) ==
        "assign_within_bounds: a cost is too large to add up (point 1, cost 1152921504606846976, largest 12009599006321322)");
  CHECK(says(2, 2, {{0, 4}, {0, 4}}, std::numeric_limits<std::int64_t>::min()).find("point 1, cost -9223372036854775808") !=
        std::string::npos);
}

}  // namespace min_cost_flow_test
