// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <tessera/plan/measured_cost.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include <tessera/plan/any_cost_model.hpp>
#include <tessera/plan/plan_search.hpp>
#include <tessera/plan/roofline_cost.hpp>

#include "hosts.hpp"
#include "random.hpp"
#include "slowing_clock.hpp"
#include "temporary_folder.hpp"

namespace measured_cost_test {

using tessera::table_profile;

namespace {

table_profile profile_of(std::string name, std::int64_t rows, std::int64_t dim) {
  table_profile table{.name = std::move(name), .rows = rows, .dim = dim, .pooling_factor = 2, .bags = 32, .distinct_bags = 16};
  table.access[1] = 1;
  return table;
}

tessera::roofline_cost const exchange({.memory_bytes_per_second = 1e9, .exchange_bytes_per_second = 1e9, .bags = 32});

}  // namespace

TEST_CASE("measured_cost: each shard's step runs once, and a device's are added up") {
  tessera_tests::serial_host host;
  tessera::compute_bench bench(host.exec(), 1 << 14, 64);
  tessera_tests::slowing_clock clock;
  tessera::measured_cost const cost(host.exec(), clock, bench, exchange, tessera::sgd{}, {}, {.warm_up = 0, .runs = 1});
  static_assert(tessera::cost_model<std::remove_cv_t<decltype(cost)>>);
  auto const a = profile_of("a", 40, 8), b = profile_of("b", 40, 4), like_a = profile_of("another name", 40, 8);
  std::vector<table_profile> const shards{a, b, a, like_a};
  // A run reads the clock three times: its step is what reads two and three take.
  auto const costs = tessera::costs_of_devices(cost, shards, std::vector<std::int64_t>{0, 0, 1, 1}, 2);
  CHECK(cost.measured() == 2);
  CHECK(costs.compute[0] == doctest::Approx((2 + 3) + (5 + 6)));
  CHECK(costs.compute[1] == doctest::Approx((2 + 3) + (2 + 3)));
  auto const copy = cost;
  CHECK(tessera::costs_of_devices(copy, shards, std::vector<std::int64_t>{0, 0, 1, 1}, 2) == costs);
  CHECK(cost.measured() == 2);
  std::vector<float> expected(2), found(2);
  exchange.backward_ms(std::vector<float>{12, 16}, expected);
  CHECK(costs.backward == expected);
  cost.forward_ms(std::vector<float>{12, 16}, costs.starts, found);
  CHECK(costs.forward == found);
}

TEST_CASE("measured_cost: a search runs on this machine's own times, and finds one plan of what it measured") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  tessera_tests::serial_host host;
  tessera::compute_bench bench(host.exec(), 1 << 20, 1 << 10);
  tessera::machine_clock clock;
  tessera::measured_cost const cost(host.exec(), clock, bench, exchange, tessera::sgd{}, tessera::random_seed(seed),
                                    {.warm_up = 1, .runs = 3});
  std::vector<table_profile> tables;
  for (int t = 0; t < 6; ++t)
    tables.push_back(profile_of("t" + std::to_string(t), std::uniform_int_distribution<std::int64_t>(100, 1000)(random), 4 << t % 4));
  tessera::plan_search_options const options{.devices = 2, .bytes_per_device = 1 << 24, .evaluations = 2000};
  auto const found = tessera::plan_search(host.exec(), tables, tessera::any_cost_model(cost), options);
  auto const measured = cost.measured();
  CHECK(measured >= 6);
  CHECK(tessera::plan_search(host.exec(), tables, cost, options).shards == found.shards);
  CHECK(cost.measured() == measured);
  for (auto const ms : found.costs.compute) CHECK(ms > 0);
}

TEST_CASE("measured_cost: shares of bags are measured by whole bags") {
  tessera_tests::serial_host host;
  tessera::compute_bench bench(host.exec(), 1 << 14, 64);
  tessera_tests::slowing_clock clock;
  tessera::measured_cost const cost(host.exec(), clock, bench, exchange, tessera::sgd{}, {}, {.warm_up = 0, .runs = 1});
  auto third = profile_of("third", 40, 8);
  third.bags = third.distinct_bags = 32.0 / 3;
  CHECK(tessera::costs_of_devices(cost, std::vector{third}, std::vector<std::int64_t>{0}, 1).compute[0] == doctest::Approx(2 + 3));
}

TEST_CASE("measured_cost: what cannot be measured is named") {
  tessera_tests::serial_host host;
  tessera::compute_bench bench(host.exec(), 1 << 10, 64);
  tessera_tests::slowing_clock clock;
  tessera::measured_cost const cost(host.exec(), clock, bench, exchange, tessera::sgd{});
  std::vector<table_profile> const large{profile_of("large", 100, 64)};
  auto const refused = tessera_tests::error_of([&] { tessera::costs_of_devices(cost, large, std::vector<std::int64_t>{0}, 1); });
  CHECK(refused.code() == tessera::errc::out_of_memory);
  CHECK(refused.value("bytes") == std::to_string(4 * 100 * 64));
  auto other = profile_of("other", 4, 4);
  other.optimizer = "adam";
  auto const mixed = tessera_tests::error_of([&] { tessera::costs_of_devices(cost, std::vector{other}, std::vector<std::int64_t>{0}, 1); });
  CHECK(mixed.code() == tessera::errc::incompatible);
  CHECK(mixed.value("field") == "optimizer");
  CHECK(mixed.value("expected") == "sgd");
  other.optimizer = "sgd";
  other.row_format = "float16";
  CHECK(tessera_tests::error_of([&] {
          tessera::costs_of_devices(cost, std::vector{other}, std::vector<std::int64_t>{0}, 1);
        }).value("found") == "float16");
  auto const repeat = tessera::repetition{.runs = 0};
  CHECK(tessera_tests::error_of([&] {
          tessera::measured_cost(host.exec(), clock, bench, exchange, tessera::sgd{}, {}, repeat);
        }).value("runs") == "0");
}

}  // namespace measured_cost_test
