// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-labels: threads
// ctest-optimize: -O2
#include <tessera/tower/tower_partitioner.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include <tessera/tower/tower_baselines.hpp>

#include "hosts.hpp"
#include "random.hpp"
#include "sanitizers.hpp"
#include "temporary_folder.hpp"

namespace tower_partitioner_test {

using tessera::errc;
using tessera::matrix_view;
using tessera::partition_features;
using tessera::random_seed;
using tessera::tower_partition;
using tessera::tower_partitioner_options;
using tessera::tower_sizes;
using tessera::tower_strategy;
using tessera_tests::error_of;
using tessera_tests::serial_host;

struct square {
  std::int64_t size;
  std::vector<double> values;

  explicit square(std::int64_t size, double value = 1) : size(size), values(static_cast<std::size_t>(size * size), value) {}
  double& at(std::int64_t i, std::int64_t j) { return values[static_cast<std::size_t>(i * size + j)]; }
  matrix_view<double const> view() const { return {values.data(), size, size}; }
};

// Features of one block are alike by `inside`, others by `outside`, each give or take `noise`.
square planted(std::mt19937_64& random, std::vector<std::int64_t> const& blocks, double inside, double outside, double noise) {
  std::uniform_real_distribution<double> draw(-noise, noise);
  square all(static_cast<std::int64_t>(blocks.size()));
  for (std::int64_t i = 0; i < all.size; ++i)
    for (std::int64_t j = 0; j < i; ++j)
      all.at(i, j) = all.at(j, i) =
          (blocks[static_cast<std::size_t>(i)] == blocks[static_cast<std::size_t>(j)] ? inside : outside) + draw(random);
  return all;
}

// 1 for the same partition, about 0 for one that chance makes.
double adjusted_rand(std::vector<std::int64_t> const& a, std::vector<std::int64_t> const& b) {
  double together = 0, in_a = 0, in_b = 0, pairs = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    for (std::size_t j = 0; j < i; ++j) {
      pairs += 1;
      in_a += a[i] == a[j];
      in_b += b[i] == b[j];
      together += a[i] == a[j] && b[i] == b[j];
    }
  auto const expected = in_a * in_b / pairs, most = (in_a + in_b) / 2;
  return (together - expected) / (most - expected);
}

std::vector<std::int64_t> shuffled_blocks(std::mt19937_64& random, std::int64_t features, std::int64_t blocks) {
  std::vector<std::int64_t> of;
  for (std::int64_t f = 0; f < features; ++f) of.push_back(f % blocks);
  std::shuffle(of.begin(), of.end(), random);
  return of;
}

TEST_CASE("tower_partitioner: planted blocks are found, by either strategy") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  serial_host host;
  // Three blocks lie in a plane, eight in a space.
  struct shape {
    std::int64_t features, blocks, dims;
  };
  for (auto const shape : {shape{24, 3, 2}, shape{26, 8, 8}, shape{32, 8, 8}}) {
    auto const blocks = shuffled_blocks(random, shape.features, shape.blocks);
    CAPTURE(shape.features);
    tower_partitioner_options options{.embedding = {.dims = shape.dims}};
    auto const alike = planted(random, blocks, 0.75, 0.2, 0.1);
    auto const coherent = partition_features(host.exec(), alike.view(), shape.blocks, options);
    tessera::check_towers(coherent.partition, shape.features);
    CHECK(adjusted_rand(tessera::towers_of_features(coherent.partition, shape.features), blocks) == 1);
    CHECK(coherent.point_rows().rows() == shape.features);
    CHECK(coherent.point_rows().columns() == shape.dims);
    CHECK(coherent.relative_stress > 0);
    CHECK(coherent.relative_stress < 0.5);

    options.strategy = tower_strategy::diverse;
    auto const unlike = planted(random, blocks, 0.2, 0.75, 0.1);
    auto const diverse = partition_features(host.exec(), unlike.view(), shape.blocks, options);
    CHECK(adjusted_rand(tessera::towers_of_features(diverse.partition, shape.features), blocks) == 1);
  }
}

TEST_CASE("tower_partitioner: blocks of other sizes are found where the ratio allows them") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  serial_host host;
  std::vector<std::int64_t> blocks{0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2};
  std::shuffle(blocks.begin(), blocks.end(), random);
  auto const affinity = planted(random, blocks, 0.8, 0.2, 0.05);
  auto const found = [&](double ratio) { return partition_features(host.exec(), affinity.view(), 3, {.ratio = ratio}).partition; };
  CHECK(adjusted_rand(tessera::towers_of_features(found(2), 16), blocks) == 1);
  CHECK(adjusted_rand(tessera::towers_of_features(found(9), 16), blocks) == 1);
  CHECK(tessera::sizes_of(found(1)) == tower_sizes{5, 6});
  CHECK(tessera::sizes_of(found(1.4)) == tower_sizes{5, 6});
}

TEST_CASE("tower_partitioner: sizes keep the ratio on any affinity, and points do not lie about distances" *
          doctest::skip(tessera_tests::under_sanitizer)) {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  serial_host host;
  for (std::int64_t const features : {1, 2, 5, 9}) {
    auto const affinity = planted(random, std::vector<std::int64_t>(static_cast<std::size_t>(features)), 0.5, 0.5, 0.5);
    for (std::int64_t towers = 1; towers <= features; ++towers)
      for (double const ratio : {1.0, 1.5, 3.0}) {
        CAPTURE(features);
        CAPTURE(towers);
        CAPTURE(ratio);
        tower_partitioner_options options{.ratio = ratio};
        options.embedding.starts = options.kmeans.starts = 2;
        options.embedding.steps = 50;
        auto const result = partition_features(host.exec(), affinity.view(), towers, options);
        tessera::check_towers(result.partition, features);
        CHECK(static_cast<std::int64_t>(result.partition.towers.size()) == towers);
        auto const sizes = tessera::sizes_of(result.partition);
        CHECK((static_cast<double>(sizes.most) <= ratio * static_cast<double>(sizes.least) || sizes.most - sizes.least <= 1));
        CHECK(std::is_sorted(result.partition.towers.begin(), result.partition.towers.end()));
        double stress = 0;
        auto const points = result.point_rows();
        for (std::int64_t i = 0; i < features; ++i)
          for (std::int64_t j = 0; j < i; ++j) {
            double squares = 0;
            for (std::int64_t d = 0; d < result.dims; ++d) squares += std::pow(points(i, d) - points(j, d), 2);
            stress += std::pow(std::sqrt(squares) - (1 - affinity.view()(i, j)), 2);
          }
        CHECK(result.stress == doctest::Approx(stress).epsilon(1e-9));
      }
  }
}

TEST_CASE("tower_partitioner: pre-groups share no tower and get their share") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  serial_host host;
  // Blocks run across the groups.
  auto const blocks = shuffled_blocks(random, 20, 2);
  auto const affinity = planted(random, blocks, 0.8, 0.2, 0.05);
  tower_partitioner_options options{.ratio = 10, .pre_groups = {{19, 17, 18}, {}}};
  for (std::int64_t f = 0; f < 17; ++f) options.pre_groups[1].push_back(f);
  auto const made = partition_features(host.exec(), affinity.view(), 3, options).partition;
  REQUIRE(made.towers.size() == 3);
  CHECK(made.towers[0] == std::vector<std::int64_t>{17, 18, 19});
  auto const block = [&](std::int64_t feature) { return blocks[static_cast<std::size_t>(feature)]; };
  for (auto const t : {std::size_t{1}, std::size_t{2}})
    for (auto const feature : made.towers[t]) CHECK(block(feature) == block(made.towers[t][0]));

  using shares = std::vector<std::int64_t>;
  auto const share = [](std::vector<std::size_t> const& sizes, std::int64_t towers) {
    std::vector<std::vector<std::int64_t>> groups;
    for (auto const size : sizes) groups.emplace_back(size);
    return tessera::detail::towers_of_groups(groups, towers);
  };
  CHECK(share({3, 17}, 2) == shares{1, 1});
  CHECK(share({10, 10}, 3) == shares{2, 1});
  CHECK(share({1, 2, 20}, 6) == shares{1, 1, 4});
  CHECK(share({1, 2, 3}, 6) == shares{1, 2, 3});
}

TEST_CASE("tower_partitioner: what is kept together shares a tower, though its affinities speak against it") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  serial_host host;
  std::vector<std::int64_t> blocks;
  for (std::int64_t f = 0; f < 16; ++f) blocks.push_back(f % 4);
  auto const affinity = planted(random, blocks, 0.8, 0.2, 0.05);
  // Features of four blocks, two of one, and a list of one feature.
  tower_partitioner_options options{.ratio = 2, .kept_together = {{0, 5, 10}, {3, 7}, {9}}};
  auto const made = partition_features(host.exec(), affinity.view(), 4, options);
  auto const tower_of = tessera::towers_of_features(made.partition, 16);
  for (auto const& list : options.kept_together)
    for (auto const f : list) CHECK(tower_of[static_cast<std::size_t>(f)] == tower_of[static_cast<std::size_t>(list[0])]);
  std::size_t least = 16, most = 0;
  for (auto const& tower : made.partition.towers) least = std::min(least, tower.size()), most = std::max(most, tower.size());
  CHECK(most <= 2 * least);
  // What is alone already is together with itself.
  options.kept_together = {{0}, {4}};
  CHECK(partition_features(host.exec(), affinity.view(), 4, options).partition ==
        partition_features(host.exec(), affinity.view(), 4, {.ratio = 2}).partition);
}

TEST_CASE("tower_partitioner: weights of towers are evened out, and what is kept together stays so" *
          doctest::skip(tessera_tests::under_sanitizer)) {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  serial_host host;
  auto const affinity = planted(random, shuffled_blocks(random, 24, 3), 0.6, 0.4, 0.2);
  tower_partitioner_options options{.kept_together = {{1, 2}, {3, 4}}};
  auto const uneven = [&](tower_partition const& made) {
    double heaviest = 0, all = 0;
    for (auto const& tower : made.towers) {
      double sum = 0;
      for (auto const f : tower) sum += f % 4 == 0 ? 1000 : 10;
      heaviest = std::max(heaviest, sum);
      all += sum;
    }
    return heaviest / (all / static_cast<double>(made.towers.size())) - 1;
  };
  auto const before = partition_features(host.exec(), affinity.view(), 3, options);
  CHECK(before.imbalance == 0);
  for (std::int64_t f = 0; f < 24; ++f) options.weights.push_back(f % 4 == 0 ? 1000 : 10);
  auto const made = partition_features(host.exec(), affinity.view(), 3, options);
  CHECK(made.imbalance == doctest::Approx(uneven(made.partition)));
  CHECK(made.imbalance <= 0.05);
  for (auto const& tower : made.partition.towers) CHECK(tower.size() == 8);
  auto const tower_of = tessera::towers_of_features(made.partition, 24);
  CHECK(tower_of[1] == tower_of[2]);
  CHECK(tower_of[3] == tower_of[4]);
}

TEST_CASE("tower_partitioner: sizes of a ratio") {
  using sizes = std::vector<tower_sizes>;
  CHECK(tessera::sizes_of_ratio(26, 8, 1) == sizes{{3, 4}});
  CHECK(tessera::sizes_of_ratio(32, 8, 1) == sizes{{4, 4}});
  CHECK(tessera::sizes_of_ratio(16, 3, 2) == sizes{{4, 8}});
  CHECK(tessera::sizes_of_ratio(16, 3, 1.5) == sizes{{4, 6}});
  CHECK(tessera::sizes_of_ratio(5, 1, 3) == sizes{{5, 5}});
  CHECK(tessera::sizes_of_ratio(100, 4, 1.1) == sizes{{24, 26}});
  CHECK(tessera::sizes_of_ratio(100, 10, 2) == sizes{{9, 18}, {8, 16}, {7, 14}, {6, 12}});
  CHECK(tessera::sizes_of_ratio(5, 5, 1e300) == sizes{{1, 1}});
}

TEST_CASE("tower_partitioner: 1, 2 and 4 threads give the same bits, which depend on the seeds") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  auto const affinity = planted(random, shuffled_blocks(random, 40, 5), 0.6, 0.4, 0.3);
  std::vector<tessera::partitioned_features> all;
  tower_partitioner_options options{.ratio = 2};
  options.embedding.steps = 100;
  tessera_tests::for_each_host([&](tessera::host_exec const& exec, auto&) {
    all.push_back(partition_features(exec, affinity.view(), 5, options));
    CHECK(all.back().partition == all.front().partition);
    CHECK(all.back().points == all.front().points);
    CHECK(all.back().inertia == all.front().inertia);
  });
  serial_host host;
  options.embedding.seed = random_seed{9};
  CHECK(partition_features(host.exec(), affinity.view(), 5, options).points != all.front().points);
}

TEST_CASE("tower_partitioner: what cannot be is refused") {
  serial_host host;
  square affinity(4, 0.5);
  auto const refused = [&](std::int64_t towers, tower_partitioner_options const& options, char const* value, std::string const& is) {
    auto const e = error_of([&] { partition_features(host.exec(), affinity.view(), towers, options); });
    CAPTURE(std::string(e.what()));
    CHECK(e.code() == errc::invalid_argument);
    CHECK(e.value(value) == is);
  };
  refused(0, {}, "towers", "0");
  refused(5, {}, "features", "4");
  refused(2, {.ratio = 0.9}, "ratio", "0.9");
  refused(2, {.ratio = std::nan("")}, "ratio", "nan");
  refused(2, {.strategy = static_cast<tower_strategy>(2)}, "strategy", "2");
  refused(2, {.pre_groups = {{0, 1}, {2}, {3}}}, "pre-groups", "3");
  refused(2, {.pre_groups = {{0, 1}, {2}}}, "feature", "3");
  refused(2, {.pre_groups = {{0, 1}, {2, 3, 1}}}, "first pre-group", "0");
  refused(2, {.pre_groups = {{0, 1, 2, 3}, {}}}, "pre-group", "1");
  refused(2, {.pre_groups = {{0, 1, 2, 3, 4}}}, "feature", "4");
  refused(2, {.kept_together = {{0, 1}, {2, 4}}}, "feature", "4");
  refused(2, {.kept_together = {{0, 1}, {2, 1}}}, "list", "1");
  refused(2, {.pre_groups = {{0, 1}, {2, 3}}, .kept_together = {{1, 2}}}, "feature", "2");
  refused(2, {.kept_together = {{0, 1, 2}}}, "points", "3");
  CHECK(error_of([&] { partition_features(host.exec(), affinity.view(), 2, {.weights = {1, 2}}); }).code() == errc::shape_mismatch);
  refused(2, {.embedding = {.dims = 0}}, "option", "dims");
  refused(2, {.kmeans = {.starts = 0}}, "option", "starts");
  affinity.at(1, 2) = std::nan("");
  refused(2, {}, "column", "2");
  affinity.at(1, 2) = 0.6;
  refused(2, {}, "mirrored", "0.5");
}

}  // namespace tower_partitioner_test
