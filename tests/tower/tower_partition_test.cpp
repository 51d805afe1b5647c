// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <tessera/tower/tower_baselines.hpp>
#include <tessera/tower/tower_partition.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "random.hpp"
#include "temporary_folder.hpp"

namespace tower_partition_test {

using tessera::errc;
using tessera::random_seed;
using tessera::tower_partition;
using tessera::tower_sizes;
using tessera_tests::error_of;

TEST_CASE("tower_partition: each feature is in one tower, once, and every tower has some") {
  tower_partition const good{{{2, 0}, {3}, {1, 4}}};
  tessera::check_towers(good, 5);
  CHECK(tessera::towers_of_features(good, 5) == std::vector<std::int64_t>{0, 2, 0, 1, 2});
  CHECK(tessera::sizes_of(good) == tower_sizes{1, 2});
  CHECK(tessera::sizes_of({}) == tower_sizes{});

  auto const refused = [](tower_partition const& partition, std::int64_t features, char const* value, std::string const& is) {
    auto const e = error_of([&] { tessera::check_towers(partition, features); });
    CAPTURE(std::string(e.what()));
    CHECK(e.code() == errc::invalid_argument);
    CHECK(e.value(value) == is);
  };
  refused({}, 3, "towers", "0");
  refused({{{0}, {1}, {}}}, 2, "towers", "3");
  refused({{{0}, {}}}, 2, "tower", "1");
  refused({{{0}, {1, 5}}}, 2, "feature", "5");
  refused({{{0}, {-1}}}, 2, "feature", "-1");
  refused({{{0, 2}, {1, 2}}}, 3, "first tower", "0");
  refused({{{0, 0}, {1}}}, 2, "feature", "0");
  refused({{{0, 2}, {3}}}, 4, "feature", "1");
}

TEST_CASE("tower baselines: strided towers are the paper's") {
  CHECK(tessera::strided_towers(26, 8) ==
        tower_partition{{{0, 8, 16, 24}, {1, 9, 17, 25}, {2, 10, 18}, {3, 11, 19}, {4, 12, 20}, {5, 13, 21}, {6, 14, 22}, {7, 15, 23}}});
  CHECK(tessera::strided_towers(2, 1) == tower_partition{{{0, 1}}});
}

TEST_CASE("tower baselines: random towers are even, follow the seed, and put any feature anywhere") {
  std::vector<std::vector<int>> seen(7, std::vector<int>(3));
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    auto const partition = tessera::random_towers(7, 3, random_seed{seed});
    tessera::check_towers(partition, 7);
    CHECK(tessera::sizes_of(partition) == tower_sizes{2, 3});
    CHECK(partition == tessera::random_towers(7, 3, random_seed{seed}));
    auto const of = tessera::towers_of_features(partition, 7);
    for (std::size_t f = 0; f < 7; ++f) ++seen[f][static_cast<std::size_t>(of[f])];
    for (auto const& tower : partition.towers) CHECK(std::is_sorted(tower.begin(), tower.end()));
  }
  for (auto const& towers : seen)
    for (auto const count : towers) CHECK(count > 20);
}

// Affinities of features in blocks, f in block f % blocks, with random noise of that size.
std::vector<double> planted(std::mt19937_64& random, std::int64_t features, std::int64_t blocks, double noise) {
  std::uniform_real_distribution<double> draw(-noise, noise);
  std::vector<double> values(static_cast<std::size_t>(features * features), 1.0);
  for (std::int64_t i = 0; i < features; ++i)
    for (std::int64_t j = 0; j < i; ++j)
      values[static_cast<std::size_t>(i * features + j)] = values[static_cast<std::size_t>(j * features + i)] =
          (i % blocks == j % blocks ? 0.8 : 0.2) + draw(random);
  return values;
}

TEST_CASE("tower baselines: greedy towers find planted blocks, and stay in their bounds on any affinity") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  auto const blocks = planted(random, 24, 6, 0.15);
  CHECK(tessera::greedy_towers({blocks.data(), 24, 24}, 6) == tessera::strided_towers(24, 6));
  for (std::int64_t const features : {1, 2, 5, 11}) {
    auto const noise = planted(random, features, features, 0.2);
    for (std::int64_t towers = 1; towers <= features; ++towers)
      for (std::int64_t const more : {0, 1, 20}) {
        CAPTURE(features);
        CAPTURE(towers);
        auto const least_most = (features + towers - 1) / towers;
        auto const partition = tessera::greedy_towers({noise.data(), features, features}, towers, more == 0 ? 0 : least_most + more);
        tessera::check_towers(partition, features);
        CHECK(static_cast<std::int64_t>(partition.towers.size()) == towers);
        CHECK(tessera::sizes_of(partition).most <= least_most + more);
      }
  }
}

TEST_CASE("tower baselines: what cannot be is refused") {
  auto const refused = [](auto const& call, char const* value, std::string const& is) {
    auto const e = error_of(call);
    CAPTURE(std::string(e.what()));
    CHECK(e.code() == errc::invalid_argument);
    CHECK(e.value(value) == is);
  };
  refused([] { tessera::strided_towers(3, 0); }, "towers", "0");
  refused([] { tessera::strided_towers(3, 4); }, "towers", "4");
  refused([] { tessera::random_towers(0, 1, {}); }, "features", "0");
  std::vector<double> values(9, 0.5);
  tessera::matrix_view<double const> const affinity(values.data(), 3, 3);
  refused([&] { tessera::greedy_towers(affinity, 4); }, "towers", "4");
  refused([&] { tessera::greedy_towers(affinity, 2, 1); }, "most", "1");
  refused([&] { tessera::greedy_towers(affinity, 2, -1); }, "most", "-1");
  values[5] = std::nan("");
  refused([&] { tessera::greedy_towers(affinity, 2); }, "column", "2");
  values[5] = 0.25;
  refused([&] { tessera::greedy_towers(affinity, 2); }, "mirrored", "0.5");
  values[5] = -0.5;
  refused([&] { tessera::greedy_towers(affinity, 2); }, "row", "1");
  values[5] = std::numeric_limits<double>::infinity();
  refused([&] { tessera::greedy_towers(affinity, 2); }, "value", "inf");
  values[5] = 0.5;
  values[4] = 7;  // the diagonal is not read
  tessera::check_affinity(affinity);
  CHECK(error_of([&] { tessera::check_affinity({values.data(), 3, 2, 3}); }).code() == errc::shape_mismatch);
}

}  // namespace tower_partition_test
