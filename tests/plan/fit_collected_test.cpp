// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-labels: values
// ctest-optimize: -O2
// ctest-weight: 2
#include <doctest/doctest.h>

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include <tessera/nn/gemm_eigen.hpp>
#include <tessera/plan/cost_model.hpp>
#include <tessera/plan/fit_collected_file.hpp>

#include "hosts.hpp"
#include "learned_cost_support.hpp"
#include "random.hpp"

namespace fit_collected_test {

using namespace learned_cost_support;
using tessera::compute_sample;
using tessera::exchange_sample;

TEST_CASE("fit_collected: a model of a machine from its samples, which says what a plan costs") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  tessera_tests::serial_host host;
  auto const pool = random_pool(random, 20);
  tessera::pool_ids ids(pool, tessera::random_seed(seed));
  tessera::combination_options const drawn{.most_tables = 5, .batches = {512}, .seed = tessera::random_seed(seed)};
  std::vector<compute_sample> steps;
  for (std::int64_t s = 0; s < 1000; ++s) {
    auto combination = tessera::draw_combination(pool, drawn, s);
    auto const cost = planted_cost(ids.shards_of(combination));
    steps.push_back({s, false, std::move(combination), {cost / 3, cost * 2 / 3, cost}});
  }
  auto repeat = steps[0];
  repeat.is_repeat = true;
  repeat.times.step_ms = 1e6;  // not to be learned from
  steps.push_back(repeat);
  std::vector<exchange_sample> exchanges;
  for (auto const& one : planted_exchanges(random, 300, {2, 4})) {
    std::vector<double> backward;
    for (std::size_t d = 0; d < one.cost_ms.size(); ++d) backward.push_back(1 + static_cast<double>(one.exchange.dims[d]) / 100);
    exchanges.push_back({static_cast<std::int64_t>(exchanges.size()), false, one.exchange, {one.cost_ms, backward}});
  }
  tessera::collected_fit_options options;
  options.compute.hidden_of_rows = {32}, options.compute.representation = 8, options.compute.hidden_of_head = {16};
  options.exchange.hidden_of_rows = {16}, options.exchange.representation = 8, options.exchange.hidden_of_head = {16};
  options.compute.fit = {.epochs = 60, .batch_samples = 32, .learning_rate = 0.01F, .last_learning_rate = 0.001F, .starts = 2};
  options.exchange.fit = {.epochs = 40, .batch_samples = 16, .learning_rate = 0.01F, .last_learning_rate = 0.001F, .starts = 2};
  auto const fitted = tessera::fit_collected(host.exec(), tessera::eigen_gemm{}, tessera::describe_machine(host.exec()), "sgd", steps, ids,
                                             exchanges, options);
  CHECK(fitted.compute.size() == 2);
  CHECK(fitted.forward.size() == 2);
  CHECK(fitted.backward.size() == 2);
  CHECK(fitted.cost.batch_samples == 8192);
  CHECK(fitted.cost.optimizer == "sgd");

  // Four shards on two devices: what was planted is predicted, roughly.
  auto const shards = ids.shards_of({{{0, 16}, {1, 16}, {2, 16}, {3, 16}}, 512});
  std::vector<std::int64_t> const device{0, 1, 1, 0};
  auto const costs = tessera::costs_of_devices(fitted.cost, shards, device, 2);
  double mean = 0;
  for (std::size_t s = 0; s < 1000; ++s) mean += steps[s].times.step_ms / 1000;
  CHECK(std::fabs(static_cast<double>(costs.compute[0]) - planted_cost({shards[0], shards[3]})) < 0.5 * mean);
  CHECK(std::fabs(static_cast<double>(costs.compute[1]) - planted_cost({shards[1], shards[2]})) < 0.5 * mean);
  CHECK(costs.backward[0] == doctest::Approx(1.32).epsilon(0.5));
  CHECK(costs.starts[0] >= 0);
  // Nothing on a device costs nothing.
  std::vector<std::int64_t> const one_device(4);
  CHECK(tessera::costs_of_devices(fitted.cost, shards, one_device, 2).compute[1] == 0);

  steps[3].combination.tables[0].table = 20;
  CHECK_THROWS_WITH_AS(tessera::samples_of_steps(steps, ids),
                       "samples_of_steps: a table that is not in the pool (sample 3, table 20, tables 20)", tessera::error);
  CHECK_THROWS_AS(tessera::fit_collected(host.exec(), tessera::eigen_gemm{}, {}, "sgd", steps, ids, {}, options), tessera::error);
}

TEST_CASE("machine_samples: what plans took is added, a step a device and an exchange each way") {
  std::vector<tessera::table_profile> tables(2);
  tables[0].rows = 10, tables[0].dim = 8, tables[0].bags = tables[0].distinct_bags = 64;
  tables[1].rows = 20, tables[1].dim = 4, tables[1].bags = tables[1].distinct_bags = 64;
  tessera::plan_sample of;
  of.shards = {{0, 1, 0, 10, 0, 4}, {0, 0, 0, 10, 4, 4}, {1, 1, 0, 20, 0, 4}};
  of.batch_samples = 64;
  of.measured = {{1, 2, 3}, {4, 5, 6}};
  tessera::machine_samples samples;
  samples.steps.push_back({{}, 9});
  std::vector<tessera::plan_sample> const plans{of};
  samples.add(plans, tables);
  REQUIRE(samples.steps.size() == 3);
  CHECK(samples.steps[0].cost_ms == 9);
  CHECK(samples.steps[1].cost_ms == 1);
  CHECK(samples.steps[1].shards.size() == 1);
  CHECK(samples.steps[2].cost_ms == 4);
  CHECK(samples.steps[2].shards.size() == 2);
  REQUIRE(samples.forward.size() == 1);
  CHECK(samples.forward[0].cost_ms == std::vector<double>{3, 6});
  CHECK(samples.forward[0].exchange.dims == std::vector<std::int64_t>{4, 8});
  CHECK(samples.forward[0].exchange.start_ms == std::vector<double>{0, 6});
  CHECK(samples.backward[0].cost_ms == std::vector<double>{2, 5});
  tables.pop_back();
  CHECK_THROWS_WITH_AS(samples.add(plans, tables), doctest::Contains("table 1"), tessera::error);
  CHECK(samples.steps.size() == 3);
  CHECK(samples.forward.size() == 1);
  samples.forward.clear();
  tessera_tests::serial_host host;
  CHECK_THROWS_WITH_AS(tessera::fit_machine(host.exec(), tessera::eigen_gemm{}, {}, "sgd", samples),
                       doctest::Contains("(forward 0, backward 1)"), tessera::error);
}

}  // namespace fit_collected_test
