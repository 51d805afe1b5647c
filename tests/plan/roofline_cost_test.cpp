// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <tessera/plan/roofline_cost.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "random.hpp"
#include "random_models.hpp"
#include "temporary_folder.hpp"

namespace roofline_cost_test {

using tessera::roofline_cost;
using tessera::table_profile;
using tessera_tests::error_of;

TEST_CASE("roofline_cost: counted bytes, by hand") {
  table_profile table{.rows = 1000, .dim = 8, .pooling_factor = 2, .bags = 100, .distinct_bags = 100, .optimizer = "rowwise_adagrad"};
  table.access[1] = 1;  // 100 distinct rows, each read twice
  CHECK(roofline_cost::moved_bytes(table) == 100 * (3 * 32 + 2 * 4) + 100 * 8 * 8 + 200 * 16);
  // 1 byte takes 1 ms, in memory and in an exchange; a device has 25 of 100 bags.
  roofline_cost const model({.memory_bytes_per_second = 1000, .exchange_bytes_per_second = 1000, .bags = 100});
  auto const costs = tessera::costs_of_devices(model, std::vector<table_profile>{table, table}, std::vector<std::int64_t>{0, 0}, 4);
  CHECK(costs.compute == std::vector<float>{2 * 20000, 0, 0, 0});
  // The device sends 16 columns of 75 bags; the others receive those of 25.
  CHECK(costs.backward == std::vector<float>{4 * 16 * 75, 4 * 16 * 25, 4 * 16 * 25, 4 * 16 * 25});
  CHECK(costs.forward == std::vector<float>{4 * 16 * 75, 40000 + 4 * 16 * 75, 40000 + 4 * 16 * 75, 40000 + 4 * 16 * 75});
}

TEST_CASE("roofline_cost: one device exchanges nothing, and devices are alike") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  roofline_cost const model({.memory_bytes_per_second = 1e11, .exchange_bytes_per_second = 1e10});
  std::vector<table_profile> tables;
  std::vector<std::int64_t> places, renumbered;
  for (int t = 0; t < 10; ++t) {
    tables.push_back(tessera_tests::random_profile(random, 1'000'000, 128));
    places.push_back(std::uniform_int_distribution<std::int64_t>(0, 2)(random));
    renumbered.push_back((places.back() + 1) % 3);
  }
  auto const one = tessera::costs_of_devices(model, tables, std::vector<std::int64_t>(10), 1);
  CHECK(one.backward[0] == 0);
  CHECK(one.forward[0] == 0);
  auto const a = tessera::costs_of_devices(model, tables, places, 3), b = tessera::costs_of_devices(model, tables, renumbered, 3);
  CHECK(tessera::cost_of(a) == doctest::Approx(tessera::cost_of(b)).epsilon(1e-5));
  // However tables are cut and placed, the bound holds.
  auto const bound = tessera::lower_bound_ms(model, tables, 3);
  CHECK(bound > 0);
  for (int repeat = 0; repeat < 100; ++repeat) {
    std::vector<table_profile> shards;
    places.clear();
    for (auto const& table : tables) {
      auto const kind = random() % 3;
      if (kind == 0 && table.dim >= 8) {
        shards.insert(shards.end(), 2, tessera::profile_of_shard(table, table.rows, table.dim / 2));
      } else if (kind == 1 && table.rows > 1) {
        shards.push_back(tessera::profile_of_shard(table, table.rows / 2, table.dim));
        shards.push_back(tessera::profile_of_shard(table, table.rows - table.rows / 2, table.dim));
      } else {
        shards.push_back(table);
      }
    }
    for (std::size_t s = 0; s < shards.size(); ++s) places.push_back(std::uniform_int_distribution<std::int64_t>(0, 2)(random));
    CHECK(static_cast<double>(tessera::cost_of(tessera::costs_of_devices(model, shards, places, 3))) >= bound * (1 - 1e-5));
  }
}

TEST_CASE("roofline_cost: rates that no device has are refused") {
  auto const refused = [](tessera::device_rates const& rates, char const* field) {
    CHECK(error_of([&] { roofline_cost{rates}; }).value("field") == field);
  };
  refused({.memory_bytes_per_second = 0, .exchange_bytes_per_second = 1}, "memory_bytes_per_second");
  refused({.memory_bytes_per_second = 1, .exchange_bytes_per_second = -1}, "exchange_bytes_per_second");
  refused({.memory_bytes_per_second = std::numeric_limits<double>::infinity(), .exchange_bytes_per_second = 1}, "memory_bytes_per_second");
  refused({.memory_bytes_per_second = 1, .exchange_bytes_per_second = 1, .bags = std::numeric_limits<double>::quiet_NaN()}, "bags");
}

}  // namespace roofline_cost_test
