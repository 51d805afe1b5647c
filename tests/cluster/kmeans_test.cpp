// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-labels: threads
// ctest-optimize: -O2
#include <tessera/cluster/kmeans.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <vector>

#include "cluster_harness.hpp"

namespace kmeans_test {

using namespace cluster_tests;
using tessera::kmeans;
using tessera::kmeans_from;
using tessera::kmeans_options;
using tessera::kmeans_result;
using tessera_tests::serial_host;

/// Lloyd's iterations as the definition has them; no cluster may lose all points.
std::vector<std::int32_t> plain_lloyd(point_set const& points, std::vector<double> centres, std::int64_t k, std::int64_t iterations) {
  std::vector<std::int32_t> labels(static_cast<std::size_t>(points.n));
  for (std::int64_t i = 0; i < iterations; ++i) {
    for (std::int64_t p = 0; p < points.n; ++p) {
      double nearest = 1e300;
      for (std::int64_t c = 0; c < k; ++c) {
        double distance = 0;
        for (std::int64_t j = 0; j < points.d; ++j)
          distance += std::pow(points.at(p, j) - centres[static_cast<std::size_t>(c * points.d + j)], 2);
        if (distance < nearest) nearest = distance, labels[static_cast<std::size_t>(p)] = static_cast<std::int32_t>(c);
      }
    }
    auto const sizes = sizes_of(labels, k);
    std::fill(centres.begin(), centres.end(), 0);
    for (std::int64_t p = 0; p < points.n; ++p) {
      auto const c = labels[static_cast<std::size_t>(p)];
      for (std::int64_t j = 0; j < points.d; ++j)
        centres[static_cast<std::size_t>(c * points.d + j)] += points.at(p, j) / static_cast<double>(sizes[static_cast<std::size_t>(c)]);
    }
  }
  return labels;
}

void check_consistent(point_set const& points, kmeans_result const& result, std::int64_t k) {
  CHECK(result.inertia == doctest::Approx(inertia_of(points, result.labels, k)).epsilon(1e-12));
  auto const sizes = sizes_of(result.labels, k);
  CHECK(*std::min_element(sizes.begin(), sizes.end()) > 0);
  CHECK(result.centres.size() == static_cast<std::size_t>(k * points.d));
}

TEST_CASE("kmeans_from does what Lloyd's iterations do, also of points in rows with gaps") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  serial_host host;
  for (int trial = 0; trial < 20; ++trial) {
    auto const k = 1 + static_cast<std::int64_t>(random() % 4), d = 1 + static_cast<std::int64_t>(random() % 20);
    auto const points = random_points(random, 200, d, trial % 3);
    std::vector<double> centres;
    for (std::int64_t c = 0; c < k; ++c)
      for (std::int64_t j = 0; j < d; ++j) centres.push_back(points.at(c, j));
    auto const result = kmeans_from(host.exec(), points.view(), {centres.data(), k, d}, {.tolerance = 0});
    REQUIRE(result.converged);
    check_consistent(points, result, k);
    CHECK(result.labels == plain_lloyd(points, centres, k, result.iterations));
  }
}

TEST_CASE("kmeans finds blobs, of doubles and of floats") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  serial_host host;
  auto const points = blobs(random, 5, 40, 3);
  kmeans_options const options{.clusters = 5, .seed = tessera::random_seed(seed)};
  auto const result = kmeans(host.exec(), points.view(), options);
  check_consistent(points, result, 5);
  CHECK(finds_blobs(result.labels, 5));
  std::vector<float> const floats(points.values.begin(), points.values.end());
  CHECK(finds_blobs(kmeans(host.exec(), tessera::matrix_view<float const>(floats.data(), points.n, points.d), options).labels, 5));
}

TEST_CASE("kmeans: the same bits on any number of threads, and from the same seed alone") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  auto const points = random_points(random, 5000, 7);
  serial_host serial;
  tessera_tests::pool two(2);
  kmeans_options options{.clusters = 11, .starts = 2, .iterations = 8, .seed = tessera::random_seed(seed)};
  auto const before = points.values;
  auto const a = kmeans(serial.exec(), points.view(), options), b = kmeans(two.exec(), points.view(), options);
  CHECK(points.values == before);
  CHECK(a.labels == b.labels);
  CHECK(a.centres == b.centres);
  CHECK(a.inertia == b.inertia);
  CHECK(a.start == b.start);
  options.seed.value += 1;
  CHECK(kmeans(serial.exec(), points.view(), options).centres != a.centres);
}

TEST_CASE("kmeans: more starts are never worse, and the inertia never grows with iterations") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  serial_host host;
  auto const points = random_points(random, 300, 4);
  double before = HUGE_VAL;
  for (std::int64_t starts = 1; starts <= 8; starts *= 2) {
    auto const result = kmeans(host.exec(), points.view(), {.clusters = 9, .starts = starts, .seed = tessera::random_seed(seed)});
    CHECK(result.inertia <= before);
    CHECK(result.start < starts);
    before = result.inertia;
  }
  before = HUGE_VAL;
  for (std::int64_t iterations = 1; iterations <= 12; ++iterations) {
    auto const result = kmeans(host.exec(), points.view(),
                               {.clusters = 9, .starts = 1, .iterations = iterations, .tolerance = 0, .seed = tessera::random_seed(seed)});
    CHECK(result.inertia <= before * (1 + 1e-12));
    CHECK(result.iterations <= iterations);
    before = result.inertia;
  }
}

TEST_CASE("kmeans: a cluster without points gets the farthest, so that none is empty") {
  serial_host host;
  // The second and third centre are too far from all points.
  point_set const near(2, {1.1, 1.1, 0.9, 1.1, 1.1, 0.9, 0.9, 1.1});
  std::vector<double> const centres{1, 1, 5, 5, -5, -5};
  auto const result = kmeans_from(host.exec(), near.view(), {centres.data(), 3, 2}, {});
  check_consistent(near, result, 3);
  for (std::size_t a = 0; a < 3; ++a)
    for (std::size_t b = 0; b < a; ++b)
      CHECK(std::max(std::fabs(result.centres[2 * a] - result.centres[2 * b]),
                     std::fabs(result.centres[2 * a + 1] - result.centres[2 * b + 1])) > 0.1);
  // Points that are all the same: still each cluster has one.
  point_set const same(1, {3, 3, 3, 3, 3});
  auto const split = kmeans(host.exec(), same.view(), {.clusters = 3});
  check_consistent(same, split, 3);
  CHECK(split.inertia == 0);
  CHECK(split.converged);
  CHECK(split.centres == std::vector<double>{3, 3, 3});
}

TEST_CASE("kmeans: centres that are right stay, among points that coincide too") {
  serial_host host;
  point_set const points(2, {0, 0, 0, 1, 0, 1});
  auto const two = kmeans_from(host.exec(), points.view(), {points.values.data(), 2, 2}, {});
  CHECK(two.centres == std::vector<double>{0, 0, 0, 1});
  CHECK(two.labels == std::vector<std::int32_t>{0, 1, 1});
  auto const three = kmeans_from(host.exec(), points.view(), {points.values.data(), 3, 2}, {});
  CHECK(three.centres == points.values);
  CHECK(sizes_of(three.labels, 3) == std::vector<std::int64_t>{1, 1, 1});
  point_set const tie(1, {-1, 0, 1});
  std::vector<double> const centres{-1, 1};
  CHECK(kmeans_from(host.exec(), tie.view(), {centres.data(), 2, 1}, {.iterations = 1}).labels == std::vector<std::int32_t>{0, 0, 1});
}

TEST_CASE("kmeans: one cluster, a cluster a point, points without dims") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  serial_host host;
  auto const points = random_points(random, 30, 3);
  auto const one = kmeans(host.exec(), points.view(), {.clusters = 1});
  check_consistent(points, one, 1);
  auto const each = kmeans(host.exec(), points.view(), {.clusters = 30});
  CHECK(each.inertia == 0);
  CHECK(std::set<std::int32_t>(each.labels.begin(), each.labels.end()).size() == 30);
  CHECK(kmeans(host.exec(), tessera::matrix_view<double const>(nullptr, 4, 0), {.clusters = 2}).inertia == 0);
}

TEST_CASE("kmeans names what is wrong") {
  serial_host host;
  point_set points(2, {0, 0, 1, 1, 2, 2});
  auto const says = [&](kmeans_options const& options) { return refusal([&] { kmeans(host.exec(), points.view(), options); }); };
  CHECK(says({.clusters = 4}) == "kmeans: fewer points than clusters (points 3, clusters 4)");
  CHECK(says({.clusters = 0}) == "kmeans: an option is too small (option clusters, value 0, least 1)");
  CHECK(says({.clusters = 2, .starts = 0}) == "kmeans: an option is too small (option starts, value 0, least 1)");
  CHECK(says({.clusters = 2, .iterations = 0}) == "kmeans: an option is too small (option iterations, value 0, least 1)");
  CHECK(says({.clusters = 2, .tolerance = std::nan("")}).find("kmeans: the tolerance is below 0") == 0);
  std::vector<double> centres{0, 0, std::nan(""), 1};
  CHECK(refusal([&] {
          kmeans_from(host.exec(), points.view(), {centres.data(), 2, 2}, {});
        }).find("centres: a coordinate is not finite") != std::string::npos);
  CHECK(refusal([&] {
          kmeans_from(host.exec(), points.view(), {centres.data(), 4, 1}, {});
        }) == "kmeans_from: points and centres have other numbers of dims (points' dims 2, centres' dims 1)");
  points.at(2, 1) = std::nan("");
  CHECK(says({.clusters = 2}) == "kmeans: a coordinate is not finite, or too large to square (point 2, dim 1, value nan)");
  points.at(1, 0) = -std::numeric_limits<double>::infinity();
  CHECK(says({.clusters = 2}) == "kmeans: a coordinate is not finite, or too large to square (point 1, dim 0, value -inf)");
}

}  // namespace kmeans_test
