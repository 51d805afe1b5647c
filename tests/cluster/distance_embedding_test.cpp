// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-labels: threads
// ctest-optimize: -O2
#include <tessera/cluster/distance_embedding.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "cluster_harness.hpp"

namespace distance_embedding_test {

using namespace cluster_tests;
using tessera::distance_stress;
using tessera::embed_distances;
using tessera_tests::serial_host;

/// Distances of points, the diagonal NaN: nobody reads it.
point_set distances_of(point_set const& points) {
  point_set distances(points.n, points.n);
  for (std::int64_t i = 0; i < points.n; ++i)
    for (std::int64_t j = 0; j < points.n; ++j) {
      double sum = 0;
      for (std::int64_t c = 0; c < points.d; ++c) sum += std::pow(points.at(i, c) - points.at(j, c), 2);
      distances.at(i, j) = i == j ? std::nan("") : std::sqrt(sum);
    }
  return distances;
}

TEST_CASE("distance_stress is what it says, and its gradient what differences of it say") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  serial_host host;
  for (std::int64_t const dims : {1, 2, 5}) {
    auto positions = random_points(random, 9, dims, 1);
    // Where two points meet, the stress has no derivative.
    auto const nearest = [&] {
      auto const between = distances_of(positions);
      double least = 1;
      for (std::int64_t i = 0; i < 9; ++i)
        for (std::int64_t j = 0; j < i; ++j) least = std::min(least, static_cast<double>(between.at(i, j)));
      return least;
    };
    while (nearest() < 1e-3) positions = random_points(random, 9, dims, 1);
    auto const wanted = distances_of(random_points(random, 9, 3)), there = distances_of(positions);
    double stress = 0;
    for (std::int64_t i = 0; i < 9; ++i)
      for (std::int64_t j = 0; j < i; ++j) stress += std::pow(there.at(i, j) - wanted.at(i, j), 2);
    point_set gradient(9, dims);
    auto const now = distance_stress(host.exec(), positions.view(), wanted.view(), {gradient.values.data(), 9, dims});
    CHECK(now == doctest::Approx(stress).epsilon(1e-12));
    CHECK(distance_stress(host.exec(), positions.view(), wanted.view()) == now);
    for (std::int64_t i = 0; i < 9; ++i)
      for (std::int64_t c = 0; c < dims; ++c) {
        auto const x = positions.at(i, c), step = 1e-6;
        positions.at(i, c) = x + step;
        auto const above = distance_stress(host.exec(), positions.view(), wanted.view());
        positions.at(i, c) = x - step;
        auto const below = distance_stress(host.exec(), positions.view(), wanted.view());
        positions.at(i, c) = x;
        auto const numeric = (above - below) / (2 * step);
        CHECK(std::fabs(gradient.at(i, c) - numeric) <= 1e-5 * (1 + std::fabs(numeric)));
      }
  }
}

TEST_CASE("distance_stress: points that coincide pull at nobody") {
  serial_host host;
  point_set const positions(2, {1, 1, 1, 1}), wanted(2, {0, 3, 3, 0});
  point_set gradient(2, 2);
  CHECK(distance_stress(host.exec(), positions.view(), wanted.view(), {gradient.values.data(), 2, 2}) == 9);
  CHECK(gradient.values == std::vector<double>(4, 0.0));
}

TEST_CASE("embed_distances recovers known points, of any scale") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  serial_host host;
  for (double const scale : {1.0, 1e-30, 1e30})
    for (std::int64_t const dims : {2, 3}) {
      auto points = random_points(random, 26, dims);
      for (auto& x : points.values) x *= scale;
      auto const wanted = distances_of(points);
      auto const result = embed_distances(host.exec(), wanted.view(), {.dims = dims, .starts = 20, .seed = tessera::random_seed(seed)});
      CHECK(result.relative_stress < 1e-3);
      point_set const found(dims, result.positions);
      REQUIRE(found.n == 26);
      CHECK(result.stress == doctest::Approx(distance_stress(host.exec(), found.view(), wanted.view())).epsilon(1e-6));
      auto const there = distances_of(found);
      for (std::int64_t i = 0; i < 26; ++i)
        for (std::int64_t j = 0; j < i; ++j) CHECK(std::fabs(there.at(i, j) - wanted.at(i, j)) < 0.03 * scale);
      for (std::int64_t c = 0; c < dims; ++c) {
        double sum = 0;
        for (std::int64_t i = 0; i < 26; ++i) sum += found.at(i, c);
        CHECK(std::fabs(sum) < 1e-12 * 26 * scale);
      }
    }
}

TEST_CASE("embed_distances: a square, a triangle no plane has, and a line") {
  serial_host host;
  auto const root = std::sqrt(2.0);
  point_set const square(4, {0, 1, root, 1, 1, 0, 1, root, root, 1, 0, 1, 1, root, 1, 0});
  CHECK(embed_distances(host.exec(), square.view(), {}).relative_stress < 1e-4);
  CHECK(embed_distances(host.exec(), square.view(), {.dims = 3}).relative_stress < 1e-4);
  CHECK(embed_distances(host.exec(), square.view(), {.dims = 1}).relative_stress > 0.1);
  // 1 + 1 < 5: the best is a line, each side a third of 3 off.
  point_set const triangle(3, {0, 1, 5, 1, 0, 1, 5, 1, 0});
  auto const flat = embed_distances(host.exec(), triangle.view(), {});
  CHECK(flat.stress == doctest::Approx(3.0).epsilon(1e-3));
}

TEST_CASE("embed_distances: the same bits on any number of threads, more starts are never worse") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  serial_host serial;
  tessera_tests::pool two(2);
  auto const wanted = distances_of(random_points(random, 70, 6));
  double before = HUGE_VAL;
  for (std::int64_t const starts : {1, 3}) {
    tessera::distance_embedding_options const options{.starts = starts, .steps = 60, .seed = tessera::random_seed(seed)};
    auto const a = embed_distances(serial.exec(), wanted.view(), options), b = embed_distances(two.exec(), wanted.view(), options);
    CHECK(a.positions == b.positions);
    CHECK(a.stress == b.stress);
    CHECK(a.stress <= before);
    before = a.stress;
  }
}

TEST_CASE("embed_distances: no points, one point, distances of 0") {
  serial_host host;
  CHECK(embed_distances(host.exec(), {}, {}).positions.empty());
  auto const one = embed_distances(host.exec(), point_set(1, std::vector<double>{0}).view(), {});
  CHECK(one.positions == std::vector<double>{0, 0});
  CHECK(one.stress == 0);
  auto const together = embed_distances(host.exec(), point_set(3, std::vector<double>(9, 0.0)).view(), {});
  CHECK(together.stress < 1e-6);
  CHECK(together.relative_stress == 0);
}

TEST_CASE("embed_distances names what is wrong") {
  serial_host host;
  point_set distances(3, {0, 1, 2, 1, 0, 3, 2, 3, 0});
  auto const says = [&](tessera::distance_embedding_options const& options = {}) {
    return refusal([&] { embed_distances(host.exec(), distances.view(), options); });
  };
  CHECK(says() == "none");
  CHECK(says({.dims = 0}) == "embed_distances: an option is too small (option dims, value 0, least 1)");
  CHECK(says({.starts = 0}) == "embed_distances: an option is too small (option starts, value 0, least 1)");
  CHECK(says({.steps = -1}) == "embed_distances: an option is too small (option steps, value -1, least 0)");
  CHECK(says({.learning_rate = -1}) == "embed_distances: learning_rate needs to be finite and not negative (learning_rate -1)");
  distances.at(2, 1) = 3 * (1 + 1e-7);
  CHECK(says() == "none");
  distances.at(2, 1) = 3.5;
  CHECK(says() == "embed_distances: the matrix is not symmetric (row 2, column 1, value 3.5, transposed 3)");
  distances.at(1, 2) = -3;
  CHECK(says() == "embed_distances: a distance is negative, not finite or too large to square (row 1, column 2, value -3)");
  distances.at(0, 2) = std::nan("");
  CHECK(says() == "embed_distances: a distance is negative, not finite or too large to square (row 0, column 2, value nan)");
  CHECK(refusal([&] {
          embed_distances(host.exec(), {distances.values.data(), 2, 3}, {});
        }) == "embed_distances: the matrix is not square (rows 2, columns 3)");
  CHECK(refusal([&] {
          distance_stress(host.exec(), {distances.values.data(), 2, 2}, distances.view());
        }) == "distance_stress: distances or gradient do not fit the positions (positions 2, rows 3, columns 3, gradients 0)");
}

}  // namespace distance_embedding_test
