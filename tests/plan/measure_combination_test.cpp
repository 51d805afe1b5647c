// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-weight: 2
#include <doctest/doctest.h>

#include <random>
#include <string>
#include <vector>

#include <tessera/embed/row_optimizer.hpp>
#include <tessera/plan/cost_samples_file.hpp>
#include <tessera/plan/measure_combination.hpp>

#include "hosts.hpp"
#include "learned_cost_support.hpp"
#include "random.hpp"
#include "slowing_clock.hpp"
#include "temporary_folder.hpp"

namespace measure_combination_test {

using tessera::pool_ids;
using tessera::random_seed;
using tessera::table_combination;

TEST_CASE("pool_ids: each table's ids are drawn once a size of batch, with the share of distinct bags, and shards have their profiles") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  auto pool = learned_cost_support::random_pool(random, 4);
  pool[2].distinct_bags = 1024;  // of 4096
  pool_ids ids(pool, random_seed(seed));
  auto const* const first = &ids.of(1, 512);
  CHECK(first == &ids.of(1, 512));
  CHECK(first->ids.lengths.size() == 512);
  CHECK(ids.of(1, 256).ids.lengths.size() == 256);
  CHECK(ids.of(2, 512).ids.lengths.size() == 128);
  pool_ids again(pool, random_seed(seed));
  CHECK(again.of(2, 512).ids.ids == ids.of(2, 512).ids.ids);
  auto const shards = ids.shards_of({{{1, 4}, {2, 64}}, 512});
  REQUIRE(shards.size() == 2);
  CHECK(shards[0].dim == 4);
  CHECK(shards[0].rows == pool[1].rows);
  CHECK(shards[0].access == first->profile.access);
  CHECK(shards[1].dim == 64);
  CHECK(shards[1].bags == 128);
  for (auto const& shard : shards) tessera::check_table_profile(shard);
}

TEST_CASE("measure_combination: drawn combinations run through a bench into a file of samples") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  tessera_tests::serial_host host;
  auto pool = learned_cost_support::random_pool(random, 4);
  for (auto& table : pool) table.rows = std::min<std::int64_t>(table.rows, 2000), table.bags = table.distinct_bags = 64;
  tessera::combination_options const options{
      .most_tables = 3, .dims = {4, 8}, .batches = {32, 64}, .limit_bytes = 1 << 20, .state_floats_per_row = 1, .seed = random_seed(seed)};
  tessera::compute_bench bench(host.exec(), 1 << 20, 1 << 10);
  pool_ids ids(pool, random_seed(seed));
  tessera_tests::slowing_clock clock;
  tessera_tests::temporary_folder const folder;
  auto const samples = tessera::collect_compute_samples(
      folder.file("samples.csv"), "test", 21, [&](std::int64_t number) { return tessera::draw_combination(pool, options, number); },
      [&](table_combination const& combination) {
        return tessera::measure_combination(host.exec(), clock, bench, ids, combination, tessera::rowwise_adagrad{},
                                            {.warm_up = 1, .runs = 1});
      });
  REQUIRE(samples.size() == 22);
  for (std::size_t s = 0; s < samples.size(); ++s) {
    // Six reads a sample, of which the last three count: reads 5 and 6 of a sample end its forward and its backward.
    auto const before = static_cast<double>(6 * s);
    CHECK(samples[s].times.forward_ms == doctest::Approx(before + 5));
    CHECK(samples[s].times.backward_ms == doctest::Approx(before + 6));
    CHECK(samples[s].times.step_ms == doctest::Approx(2 * before + 11));
  }
}

}  // namespace measure_combination_test
