// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-labels: threads
// ctest-optimize: -O2
#include <tessera/cluster/constrained_kmeans.hpp>

#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

#include "cluster_harness.hpp"

namespace constrained_kmeans_test {

using namespace cluster_tests;
using tessera::constrained_kmeans;
using tessera::constrained_kmeans_from;
using tessera::constrained_kmeans_options;
using tessera::kmeans_result;
using tessera_tests::serial_host;

constrained_kmeans_options bounded(std::int64_t k, std::int64_t least, std::int64_t most, std::uint64_t seed = 0) {
  constrained_kmeans_options options;
  options.kmeans.clusters = k;
  options.kmeans.seed = tessera::random_seed(seed);
  options.least = least;
  options.most = most;
  return options;
}

void check_bounds(point_set const& points, kmeans_result const& result, constrained_kmeans_options const& options) {
  for (auto const size : sizes_of(result.labels, options.kmeans.clusters)) {
    CHECK(size >= options.least);
    CHECK(size <= options.most);
  }
  CHECK(result.inertia == doctest::Approx(inertia_of(points, result.labels, options.kmeans.clusters)).epsilon(1e-12));
}

/// The least inertia of all labels within bounds.
double least_inertia(point_set const& points, constrained_kmeans_options const& options, std::vector<std::int64_t> const& units = {}) {
  auto const k = options.kmeans.clusters;
  std::vector<std::int32_t> labels(static_cast<std::size_t>(points.n));
  double best = HUGE_VAL;
  for (;;) {
    auto const sizes = sizes_of(labels, k);
    bool fits = *std::min_element(sizes.begin(), sizes.end()) >= std::max<std::int64_t>(options.least, 1) &&
                *std::max_element(sizes.begin(), sizes.end()) <= options.most;
    for (std::size_t p = 0; p < units.size() && fits; ++p)
      for (std::size_t q = 0; q < p; ++q) fits = fits && (units[p] != units[q] || labels[p] == labels[q]);
    if (fits) best = std::min(best, inertia_of(points, labels, k));
    std::size_t digit = 0;
    while (digit < labels.size() && ++labels[digit] == k) labels[digit++] = 0;
    if (digit == labels.size()) return best;
  }
}

TEST_CASE("constrained_kmeans: small cases of other codes") {
  serial_host host;
  SUBCASE("eight points in two columns, at least 3 in each") {
    point_set const points(2, {0, 0, 1, 2, 1, 4, 1, 0, 4, 2, 4, 4, 4, 0, 4, 4});
    std::vector<double> const centres{0, 0, 4, 4};
    auto const options = bounded(2, 3, 10);
    auto const result = constrained_kmeans_from(host.exec(), points.view(), {centres.data(), 2, 2}, options);
    check_bounds(points, result, options);
  }
  SUBCASE("two columns of three") {
    point_set const points(2, {1, 2, 1, 4, 1, 0, 4, 2, 4, 4, 4, 0});
    auto const result = constrained_kmeans(host.exec(), points.view(), bounded(2, 2, 5));
    std::vector<double> centres = result.centres;
    if (centres[0] > centres[2]) std::rotate(centres.begin(), centres.begin() + 2, centres.end());
    CHECK(centres == std::vector<double>{1, 2, 4, 2});
  }
  SUBCASE("three points that coincide and one apart, at most 2 in each") {
    point_set const points(2, {0, 0, 0, 0, 0, 0, 1, 1});
    CHECK(sizes_of(constrained_kmeans(host.exec(), points.view(), bounded(2, 0, 2)).labels, 2) == std::vector<std::int64_t>{2, 2});
    auto sizes = sizes_of(constrained_kmeans(host.exec(), points.view(), bounded(2, 0, 4)).labels, 2);
    std::sort(sizes.begin(), sizes.end());
    CHECK(sizes == std::vector<std::int64_t>{1, 3});
  }
  SUBCASE("centres that are points stay") {
    point_set const points(2, {0, 0, 0, 1, 0, 1});
    auto const result = constrained_kmeans_from(host.exec(), points.view(), {points.values.data(), 3, 2}, bounded(3, 0, 3));
    CHECK(result.centres == points.values);
  }
  SUBCASE("two of three centres are too far from all points") {
    point_set const points(2, {1.1, 1.1, 0.9, 1.1, 1.1, 0.9, 0.9, 1.1});
    std::vector<double> const centres{1, 1, 5, 5, -5, -5};
    for (std::int64_t const least : {0, 1}) {
      auto const result = constrained_kmeans_from(host.exec(), points.view(), {centres.data(), 3, 2}, bounded(3, least, 4));
      auto const sizes = sizes_of(result.labels, 3);
      CHECK(*std::min_element(sizes.begin(), sizes.end()) > 0);
      for (std::size_t a = 0; a < 3 && least == 0; ++a)
        for (std::size_t b = 0; b < a; ++b)
          CHECK(std::max(std::fabs(result.centres[2 * a] - result.centres[2 * b]),
                         std::fabs(result.centres[2 * a + 1] - result.centres[2 * b + 1])) > 0.1);
    }
  }
}

TEST_CASE("constrained_kmeans: bounds that never bind change nothing") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  serial_host host;
  auto const points = random_points(random, 500, 5);
  auto options = bounded(7, 0, 500, seed);
  options.exchange = false;
  auto const free = tessera::kmeans(host.exec(), points.view(), options.kmeans);
  auto const bound = constrained_kmeans(host.exec(), points.view(), options);
  CHECK(free.labels == bound.labels);
  CHECK(free.inertia == bound.inertia);
}

TEST_CASE("constrained_kmeans finds blobs of one size, and what it finds is a fixed point") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  serial_host host;
  auto const points = blobs(random, 3, 50, 4);
  auto const options = bounded(3, 50, 50, seed);
  auto const result = constrained_kmeans(host.exec(), points.view(), options);
  check_bounds(points, result, options);
  CHECK(finds_blobs(result.labels, 3));
  auto const again = constrained_kmeans_from(host.exec(), points.view(), {result.centres.data(), 3, 4}, options);
  CHECK(again.labels == result.labels);
  CHECK(again.centres == result.centres);
}

TEST_CASE("constrained_kmeans: many starts find the least inertia of few points") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  serial_host host;
  for (int trial = 0; trial < 10; ++trial) {
    auto const points = random_points(random, 8, 2);
    auto options = bounded(2 + trial % 2, 2, trial % 2 == 0 ? 5 : 3, seed);
    options.kmeans.starts = 60;
    auto const result = constrained_kmeans(host.exec(), points.view(), options);
    check_bounds(points, result, options);
    // Lloyd's iterations end in local optima, which more starts mostly leave.
    CHECK(result.inertia >= least_inertia(points, options) * (1 - 1e-12));
    CHECK(result.inertia <= least_inertia(points, options) * 1.5);
  }
}

TEST_CASE("constrained_kmeans: within bounds, the inertia never grows, more starts are never worse") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  serial_host host;
  auto points = random_points(random, 203, 3, 2);
  for (std::int64_t p = 0; p < 203; p += 5)  // points that coincide
    for (std::int64_t j = 0; j < 3; ++j) points.at(p, j) = 0.25;
  auto options = bounded(10, 20, 21, seed);
  options.kmeans.starts = 1;
  options.kmeans.tolerance = 0;
  double before = HUGE_VAL;
  for (std::int64_t iterations = 1; iterations <= 10; ++iterations) {
    options.kmeans.iterations = iterations;
    auto const result = constrained_kmeans(host.exec(), points.view(), options);
    check_bounds(points, result, options);
    CHECK(result.inertia <= before * (1 + 1e-10));
    before = result.inertia;
  }
  options = bounded(10, 15, 30, seed);
  before = HUGE_VAL;
  for (std::int64_t starts = 1; starts <= 8; starts *= 2) {
    options.kmeans.starts = starts;
    auto const result = constrained_kmeans(host.exec(), points.view(), options);
    check_bounds(points, result, options);
    CHECK(result.inertia <= before);
    before = result.inertia;
  }
}

TEST_CASE("constrained_kmeans: exchange lowers the inertia, within bounds") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  serial_host host;
  double with = 0, without = 0;
  for (int trial = 0; trial < 12; ++trial) {
    auto const points = random_points(random, 150, 4);
    auto options = trial % 2 == 0 ? bounded(15, 10, 10, seed) : bounded(15, 0, 12, seed);
    options.kmeans.starts = 1;
    auto const result = constrained_kmeans(host.exec(), points.view(), options);
    check_bounds(points, result, options);
    options.exchange = false;
    auto const plain = constrained_kmeans(host.exec(), points.view(), options);
    check_bounds(points, plain, options);
    CHECK(result.inertia <= plain.inertia);
    CHECK(result.iterations >= plain.iterations);
    with += result.inertia;
    without += plain.inertia;
  }
  CHECK(with < without);
}

TEST_CASE("constrained_kmeans: the same bits on any number of threads") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  serial_host serial;
  tessera_tests::pool two(2);
  auto const points = random_points(random, 2500, 6);
  auto options = bounded(12, 208, 209, seed);
  options.kmeans.starts = 2;
  options.kmeans.iterations = 6;
  std::vector<std::int64_t> pairs(2500);
  for (std::size_t p = 0; p < pairs.size(); ++p) pairs[p] = static_cast<std::int64_t>(p / 2);
  for (bool const with_units : {false, true}) {
    if (with_units) options.least = 206, options.most = 210;
    auto const units = with_units ? tessera::vector_view<std::int64_t const>(pairs) : tessera::vector_view<std::int64_t const>();
    auto const a = constrained_kmeans(serial.exec(), points.view(), options, units);
    auto const b = constrained_kmeans(two.exec(), points.view(), options, units);
    CHECK(a.labels == b.labels);
    CHECK(a.centres == b.centres);
    CHECK(a.inertia == b.inertia);
  }
}

TEST_CASE("constrained_kmeans: one cluster, a cluster a point, all points the same, large and small coordinates") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  serial_host host;
  auto points = random_points(random, 24, 3);
  check_bounds(points, constrained_kmeans(host.exec(), points.view(), bounded(1, 0, 24)), bounded(1, 0, 24));
  auto const each = constrained_kmeans(host.exec(), points.view(), bounded(24, 1, 1));
  CHECK(each.inertia == 0);
  CHECK(sizes_of(each.labels, 24) == std::vector<std::int64_t>(24, 1));
  for (double const factor : {1e100, 1e-100, 1e-170}) {
    auto scaled = points;
    for (auto& x : scaled.values) x *= factor;
    auto const result = constrained_kmeans(host.exec(), scaled.view(), bounded(4, 6, 6));
    CHECK(sizes_of(result.labels, 4) == std::vector<std::int64_t>(4, 6));
  }
  std::fill(points.values.begin(), points.values.end(), 0.1);
  auto const same = constrained_kmeans(host.exec(), points.view(), bounded(5, 4, 5));
  check_bounds(points, same, bounded(5, 4, 5));
  CHECK(same.inertia < 1e-25);
}

void check_together(std::vector<std::int32_t> const& labels, std::vector<std::int64_t> const& units) {
  std::map<std::int64_t, std::int32_t> label_of;
  for (std::size_t p = 0; p < units.size(); ++p) CHECK(label_of.try_emplace(units[p], labels[p]).first->second == labels[p]);
}

TEST_CASE("constrained_kmeans: units stay together and count by their points") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  serial_host host;
  for (int trial = 0; trial < 20; ++trial) {
    CAPTURE(trial);
    auto const points = random_points(random, 120, 3);
    std::vector<std::int64_t> units(120);  // of 1 to 5 points, in any order
    std::int64_t name = -7;
    for (std::size_t p = 0; p < units.size(); ++name)
      for (auto left = 1 + random() % 5; left > 0 && p < units.size(); --left) units[p++] = name * 1'000'000'007;
    std::shuffle(units.begin(), units.end(), random);
    auto const options = bounded(6, 18, 22, seed + static_cast<std::uint64_t>(trial));
    auto const result = constrained_kmeans(host.exec(), points.view(), options, units);
    check_bounds(points, result, options);
    check_together(result.labels, units);
  }
}

TEST_CASE("constrained_kmeans: units of one size are assigned exactly") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  serial_host host;
  // Pairs of points about a mean: the costs of pairs and those of their means differ by what is the same in all clusters.
  auto const means = random_points(random, 60, 4);
  point_set points(120, 4);
  std::vector<std::int64_t> units(120);
  std::normal_distribution<double> draw;
  for (std::int64_t p = 0; p < 60; ++p) {
    units[static_cast<std::size_t>(p)] = units[static_cast<std::size_t>(119 - p)] = p;
    for (std::int64_t j = 0; j < 4; ++j) {
      auto const away = draw(random);
      points.at(p, j) = means.at(p, j) + away;
      points.at(119 - p, j) = means.at(p, j) - away;
    }
  }
  auto pairs_options = bounded(5, 23, 25), means_options = bounded(5, 12, 12);
  means_options.exchange = false;  // which units do not
  pairs_options.kmeans.tolerance = means_options.kmeans.tolerance = 0;
  auto const of_pairs = constrained_kmeans_from(host.exec(), points.view(), {means.values.data(), 5, 4}, pairs_options, units);
  auto const of_means = constrained_kmeans_from(host.exec(), means.view(), {means.values.data(), 5, 4}, means_options);
  check_together(of_pairs.labels, units);
  CHECK(std::vector<std::int32_t>(of_pairs.labels.begin(), of_pairs.labels.begin() + 60) == of_means.labels);
}

TEST_CASE("constrained_kmeans: few units, against all placements") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  serial_host host;
  std::vector<std::int64_t> const units{1, 1, 1, 2, 2, 3, 4, 5};
  for (int trial = 0; trial < 10; ++trial) {
    auto const points = random_points(random, 8, 2);
    auto options = bounded(2, 4, 4, seed);
    options.kmeans.starts = 30;
    auto const result = constrained_kmeans(host.exec(), points.view(), options, units);
    check_bounds(points, result, options);
    check_together(result.labels, units);
    CHECK(result.inertia >= least_inertia(points, options, units) * (1 - 1e-12));
    CHECK(result.inertia <= least_inertia(points, options, units) * 1.5);
  }
}

TEST_CASE("constrained_kmeans: units that only fit in one way are placed") {
  serial_host host;
  // Two clusters of 9: {5, 4} and {3, 3, 3}. The nearest clusters of the largest two are not those.
  std::vector<std::int64_t> units;
  std::vector<double> values;
  std::int64_t name = 0;
  for (std::int64_t const size : {5, 4, 3, 3, 3}) {
    for (std::int64_t i = 0; i < size; ++i) {
      units.push_back(name);
      values.push_back(name % 2 == 0 ? 0 : 10);
    }
    ++name;
  }
  point_set const points(1, values);
  auto const options = bounded(2, 9, 9);
  auto const result = constrained_kmeans(host.exec(), points.view(), options, units);
  check_bounds(points, result, options);
  check_together(result.labels, units);
}

TEST_CASE("constrained_kmeans names what is wrong") {
  serial_host host;
  point_set points(1, {0, 1, 2, 3, 4, 5});
  auto const says = [&](constrained_kmeans_options const& options, std::vector<std::int64_t> const& units = {}) {
    return refusal([&] { constrained_kmeans(host.exec(), points.view(), options, units); });
  };
  CHECK(says(bounded(2, 4, 6)) ==
        "constrained_kmeans: so many clusters of the least size need more points than there are (points 6, clusters 2, least 4)");
  CHECK(says(bounded(2, 0, 2)) ==
        "constrained_kmeans: so many clusters of the largest size hold fewer points than there are (points 6, clusters 2, most 2)");
  CHECK(says(bounded(2, 3, 2)) == "constrained_kmeans: bounds are not 0 <= least <= most (least 3, most 2)");
  CHECK(says(bounded(2, -1, 2)) == "constrained_kmeans: bounds are not 0 <= least <= most (least -1, most 2)");
  CHECK(says(bounded(7, 0, 6)) == "constrained_kmeans: fewer points than clusters (points 6, clusters 7)");
  CHECK(says(bounded(2, 0, 3), {1, 1}) == "constrained_kmeans: each point needs a unit (points 6, units of points 2)");
  CHECK(says(bounded(2, 0, 3), {9, 8, 8, 8, 8, 9}) ==
        "constrained_kmeans: a unit has more points than a cluster may (unit 8, points 4, most 3)");
  CHECK(says(bounded(2, 3, 3), {1, 1, 2, 2, 3, 3}) ==
        "constrained_kmeans: no placement of the units within the bounds was found (units 3, largest unit 2, least 3, most 3)");
  CHECK(says(bounded(2, 3, 3), {1, 1, 2, 2, 3, 4}) == "none");
  CHECK(says(bounded(3, 2, 2), {1, 1, 2, 2, 3, 3}) == "none");
  CHECK(says(bounded(3, 2, 3), {1, 1, 1, 2, 2, 2}) ==
        "constrained_kmeans: no placement of the units within the bounds was found (units 2, largest unit 3, least 2, most 3)");
  points.at(4, 0) = std::nan("");
  CHECK(says(bounded(2, 3, 3)) == "constrained_kmeans: a coordinate is not finite, or too large to square (point 4, dim 0, value nan)");
}

}  // namespace constrained_kmeans_test
