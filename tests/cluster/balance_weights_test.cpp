// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <tessera/cluster/balance_weights.hpp>

#include <tessera/cluster/constrained_kmeans.hpp>

#include <algorithm>
#include <cmath>
#include <vector>

#include "cluster_harness.hpp"

namespace balance_weights_test {

using namespace cluster_tests;
using tessera::balance_weights;
using tessera_tests::serial_host;

double imbalance_of(std::vector<std::int64_t> const& weights, std::vector<std::int32_t> const& labels, std::int64_t k) {
  std::vector<double> sums(static_cast<std::size_t>(k));
  double all = 0;
  for (std::size_t p = 0; p < weights.size(); ++p) {
    sums[static_cast<std::size_t>(labels[p])] += static_cast<double>(weights[p]);
    all += static_cast<double>(weights[p]);
  }
  return *std::max_element(sums.begin(), sums.end()) / (all / static_cast<double>(k)) - 1;
}

TEST_CASE("balance_weights evens out bytes, keeps sizes, and reports what it did") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  serial_host host;
  for (int trial = 0; trial < 10; ++trial) {
    std::int64_t const n = 160, k = 8;
    auto const points = random_points(random, n, 2);
    std::vector<std::int64_t> weights;
    std::lognormal_distribution<double> draw(10, 1);
    for (std::int64_t p = 0; p < n; ++p) weights.push_back(static_cast<std::int64_t>(std::min(draw(random), 1e5)));
    tessera::constrained_kmeans_options options;
    options.kmeans.clusters = k;
    options.least = options.most = n / k;
    auto labels = tessera::constrained_kmeans(host.exec(), points.view(), options).labels;
    auto const before = labels;
    auto const result = balance_weights(host.exec(), points.view(), weights, k, labels, {.tolerance = 0.1});
    CHECK(sizes_of(labels, k) == sizes_of(before, k));
    CHECK(result.imbalance_before == doctest::Approx(imbalance_of(weights, before, k)));
    CHECK(result.imbalance == doctest::Approx(imbalance_of(weights, labels, k)));
    CHECK(result.inertia_before == doctest::Approx(inertia_of(points, before, k)));
    CHECK(result.inertia == doctest::Approx(inertia_of(points, labels, k)));
    CHECK(result.reached == (result.imbalance <= 0.1));
    CHECK(result.imbalance <= std::max(result.imbalance_before, 0.1));
    CHECK((result.imbalance < 0.15));
    auto again = labels;
    CHECK(balance_weights(host.exec(), points.view(), weights, k, again, {.tolerance = 10}).imbalance_before == result.imbalance);
  }
}

TEST_CASE("balance_weights takes the swap that costs least") {
  serial_host host;
  // Clusters about 0 and 10, heavy points in the first; the one at 4 is the cheapest to hand over, for the light one at 6.
  point_set const points(1, {0, 1, 4, 6, 10, 11});
  std::vector<std::int64_t> const weights{3, 3, 3, 1, 1, 1};
  std::vector<std::int32_t> labels{0, 0, 0, 1, 1, 1};
  auto const result = balance_weights(host.exec(), points.view(), weights, 2, labels, {.tolerance = 0.2});
  CHECK(labels == std::vector<std::int32_t>{0, 0, 1, 0, 1, 1});
  CHECK(result.swaps == 1);
  CHECK(result.reached);
  CHECK(result.imbalance_before == 0.5);
  CHECK(result.imbalance == doctest::Approx(1.0 / 6));
}

TEST_CASE("balance_weights lowers the inertia where weights are no worse for it, and stops at the limit of swaps") {
  serial_host host;
  point_set const points(1, {0, 10, 1, 9, 2, 11});
  std::vector<std::int64_t> const weights(6, 1);
  std::vector<std::int32_t> labels{0, 0, 0, 1, 1, 1};  // 10 and 2 are on the wrong side
  auto stopped = labels;
  CHECK(balance_weights(host.exec(), points.view(), weights, 2, stopped, {.swaps = 0}).swaps == 0);
  CHECK(stopped == labels);
  auto const result = balance_weights(host.exec(), points.view(), weights, 2, labels, {});
  CHECK(labels == std::vector<std::int32_t>{0, 1, 0, 1, 0, 1});
  CHECK(result.inertia < result.inertia_before);
}

TEST_CASE("balance_weights: one weight above the limit, weights of 0, no points, one cluster") {
  serial_host host;
  point_set const points(1, {0, 1, 2, 3});
  std::vector<std::int32_t> labels{0, 0, 1, 1};
  auto result = balance_weights(host.exec(), points.view(), std::vector<std::int64_t>{100, 9, 1, 1}, 2, labels, {});
  CHECK_FALSE(result.reached);
  CHECK(labels[0] != labels[1]);  // as good as can be
  result = balance_weights(host.exec(), points.view(), std::vector<std::int64_t>(4, 0), 2, labels, {});
  CHECK(result.reached);
  CHECK(result.imbalance == 0);
  std::vector<std::int32_t> none;
  CHECK(balance_weights(host.exec(), point_set(0, 1).view(), std::vector<std::int64_t>{}, 2, none, {}).reached);
  labels = {0, 0, 0, 0};
  CHECK(balance_weights(host.exec(), points.view(), std::vector<std::int64_t>{1, 2, 3, 4}, 1, labels, {}).swaps == 0);
}

TEST_CASE("balance_weights: units swap whole, with units of their size") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  serial_host host;
  auto const points = random_points(random, 40, 2);
  std::vector<std::int64_t> units(40), weights(40);
  std::vector<std::int32_t> labels(40);
  for (std::size_t p = 0; p < 40; ++p) {
    units[p] = static_cast<std::int64_t>(p < 20 ? p / 2 : p);
    labels[p] = static_cast<std::int32_t>((p < 20 ? p / 2 : p) % 2);
    weights[p] = static_cast<std::int64_t>(random() % 100 + (labels[p] == 0 ? 100 : 0));
  }
  auto const before = labels;
  auto const result = balance_weights(host.exec(), points.view(), weights, 2, labels, {.tolerance = 0.1}, units);
  CHECK(sizes_of(labels, 2) == sizes_of(before, 2));
  CHECK(result.reached);
  CHECK(result.imbalance == doctest::Approx(imbalance_of(weights, labels, 2)));
  for (std::size_t p = 0; p < 20; p += 2) CHECK(labels[p] == labels[p + 1]);
}

TEST_CASE("balance_weights with a tolerance above all sums reaches it, and makes the swaps that lower the inertia") {
  serial_host host;
  point_set const points(1, {0, 10, 1, 11});
  std::int64_t const most = std::int64_t{1} << 51;
  for (double const tolerance : {1e30, std::numeric_limits<double>::max(), 10.0}) {
    std::vector<std::int64_t> const weights{1, most, most, most};
    std::vector<std::int32_t> labels{0, 0, 1, 1};
    auto const result = balance_weights(host.exec(), points.view(), weights, 2, labels, {.tolerance = tolerance});
    CAPTURE(tolerance);
    CHECK(result.reached);
    CHECK(result.swaps == 1);
    CHECK(labels[0] == labels[2]);
    CHECK(labels[1] == labels[3]);
  }
}

TEST_CASE("balance_weights names what is wrong") {
  serial_host host;
  point_set const points(1, {0, 1, 2, 3});
  auto const says = [&](std::vector<std::int64_t> const& weights, std::vector<std::int32_t> labels,
                        tessera::weight_balance_options options = {}, std::vector<std::int64_t> const& units = {}) {
    return refusal([&] { balance_weights(host.exec(), points.view(), weights, 2, labels, options, units); });
  };
  CHECK(says({1, 1, 1}, {0, 0, 1, 1}) == "balance_weights: weights or labels do not fit the points (points 4, weights 3, labels 4)");
  CHECK(says({1, 1, -1, 1}, {0, 0, 1, 1}) ==
        "balance_weights: a weight is negative or too large to add up (point 2, weight -1, largest 2251799813685248)");
  CHECK(says({1, 1, 1, 1}, {0, 0, 2, 1}) == "balance_weights: a label is no cluster (point 2, label 2, clusters 2)");
  CHECK(says({1, 1, 1, 1}, {0, 0, 1, 1}, {.tolerance = -1}) ==
        "balance_weights: clusters, tolerance or swaps are out of range (clusters 2, tolerance -1, swaps 9223372036854775807)");
  CHECK(says({1, 1, 1, 1}, {0, 0, 1, 1}, {.tolerance = std::numeric_limits<double>::infinity()}) ==
        "balance_weights: clusters, tolerance or swaps are out of range (clusters 2, tolerance inf, swaps 9223372036854775807)");
  CHECK(says({1, 1, 1, 1}, {0, 0, 1, 1}, {.tolerance = std::numeric_limits<double>::quiet_NaN()}).find("tolerance") != std::string::npos);
  CHECK(says({1, 1, 1, 1}, {0, 0, 1, 1}, {}, {5, 6, 6, 7}) ==
        "balance_weights: a unit's points are in two clusters (unit 6, point 2, label 1, label before 0)");
}

}  // namespace balance_weights_test
