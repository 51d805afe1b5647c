// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-weight: 3
#include "measure_compute_device.hpp"

#include <algorithm>
#include <random>

#include <tessera/plan/cost_samples_file.hpp>
#include <tessera/plan/measure_combination.hpp>
#include <tessera/plan/measured_cost.hpp>
#include <tessera/plan/roofline_cost.hpp>

#include "emulated_verbs.hpp"
#include "learned_cost_support.hpp"
#include "random.hpp"
#include "temporary_folder.hpp"

namespace measure_compute_device_test {

TEST_CASE("compute_bench on an emulated device: steps are timed apart and change no weight") {
  tessera_tests::emulated_device device;
  measure_compute_device::measures_steps(device.exec());
}

TEST_CASE("compute_bench on an emulated device: each read of the clock awaits the device") {
  tessera_tests::emulated_device device;
  auto const exec = device.exec();
  std::vector<std::int64_t> const ids{0, 3, 1}, lengths{2, 1};
  std::vector<tessera::measured_table> const tables{{4, 8, ids, lengths}};
  tessera::compute_bench bench(exec, 1 << 12, 1 << 10);
  tessera_tests::slowing_clock clock;
  auto const waits = device.waits;
  bench.measure(exec, clock, tables, tessera::sgd{}, {.warm_up = 2, .runs = 3});
  CHECK(device.waits - waits >= clock.reads);
}

TEST_CASE("compute_bench on an emulated device: a flush writes each line") {
  tessera_tests::emulated_device device;
  measure_compute_device::touches_each_line(device.exec());
}

TEST_CASE("compute_bench on an emulated device: bad input is named") {
  tessera_tests::emulated_device device;
  measure_compute_device::names_bad_input(device.exec());
}

TEST_CASE("measure_combination on an emulated device: a collection is resumed") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  auto pool = learned_cost_support::random_pool(random, 3);
  for (auto& table : pool) {
    table.rows = std::min<std::int64_t>(table.rows, 200);
    table.bags = table.distinct_bags = 16;
    table.pooling_factor = std::min(table.pooling_factor, 2.0);
  }
  tessera_tests::emulated_device device;
  auto const exec = device.exec();
  tessera::combination_options const options{
      .most_tables = 2, .dims = {4, 8}, .batches = {8}, .limit_bytes = 1 << 13, .seed = tessera::random_seed(seed)};
  tessera::compute_bench bench(exec, 1 << 14, 1 << 10);
  tessera::pool_ids ids(pool, tessera::random_seed(seed));
  tessera_tests::slowing_clock clock;
  tessera_tests::temporary_folder const folder;
  int measured = 0;
  auto const collect = [&](std::int64_t count) {
    return tessera::collect_compute_samples(
        folder.file("samples.csv"), "device", count, [&](std::int64_t number) { return tessera::draw_combination(pool, options, number); },
        [&](tessera::table_combination const& combination) {
          ++measured;
          return tessera::measure_combination(exec, clock, bench, ids, combination, tessera::rowwise_adagrad{}, {.warm_up = 0, .runs = 1});
        });
  };
  auto const first = collect(2), all = collect(4);
  CHECK(measured == 4);
  REQUIRE(all.size() == 4);
  CHECK(all[1].times == first[1].times);
  for (auto const& sample : all) CHECK(sample.times.step_ms > 0);
}

TEST_CASE("measured_cost on an emulated device: the sum of steps that the device runs") {
  tessera_tests::emulated_device device;
  auto const exec = device.exec();
  tessera::compute_bench bench(exec, 1 << 14, 1 << 10);
  tessera_tests::slowing_clock clock;
  tessera::measured_cost const cost(exec, clock, bench, tessera::roofline_cost({1e9, 1e9, 16}), tessera::sgd{}, {},
                                    {.warm_up = 0, .runs = 1});
  tessera::table_profile table{.name = "t", .rows = 50, .dim = 8, .pooling_factor = 1, .bags = 16, .distinct_bags = 16};
  table.access[0] = 1;
  auto const launches = device.launches;
  auto const costs = tessera::costs_of_devices(cost, std::vector{table, table}, std::vector<std::int64_t>{0, 0}, 1);
  CHECK(device.launches > launches);
  CHECK(costs.compute[0] == doctest::Approx(2 * (2 + 3)));
}

}  // namespace measure_compute_device_test
