// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-labels: values
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

TEST_CASE("roofline_cost: bytes inside a host and between hosts travel at the same time, each at its rate") {
  // 3 devices on 2 hosts, of 8, 4 and 2 columns; a device has 10 of 30 bags. 1 byte takes 1 ms between hosts, half of it inside one.
  roofline_cost const model({.memory_bytes_per_second = 1000,
                             .exchange_bytes_per_second = 1000,
                             .bags = 30,
                             .devices_of_host = 2,
                             .host_bytes_per_second = 2000});
  constexpr float column = 4 * 10;
  std::vector<float> const columns{8, 4, 2}, starts{0, 1000, 30};
  std::vector<float> ms(3);
  model.backward_ms(columns, ms);
  // Device 0 sends 8 columns either way, to a host-mate in half the time. Device 1 gets 8 in half the time, and sends 4. Device 2 gets 12.
  CHECK(ms == std::vector<float>{8 * column, 4 * column, 12 * column});
  model.forward_ms(columns, starts, ms);
  // What device 1 sends to device 0 ends half a message after its start, to device 2 a message after it; device 2's ends early.
  CHECK(ms == std::vector<float>{1000 + 4 * column / 2, 4 * column, 1000 + 4 * column - 30});
  // On one host all is inside.
  roofline_cost const one(
      {.memory_bytes_per_second = 1000, .exchange_bytes_per_second = 1, .bags = 30, .devices_of_host = 3, .host_bytes_per_second = 2000});
  one.backward_ms(columns, ms);
  CHECK(ms == std::vector<float>{8 * column, 5 * column, 6 * column});
}

TEST_CASE("roofline_cost: with hosts, no exchange takes longer than where all bytes travel between hosts, and the lower bound holds") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  auto const uniform = [&](double least, double most) { return std::uniform_real_distribution<double>(least, most)(random); };
  for (int repeat = 0; repeat < 200; ++repeat) {
    auto const devices = std::uniform_int_distribution<std::int64_t>(1, 9)(random);
    tessera::device_rates rates{.memory_bytes_per_second = 1e11,
                                .exchange_bytes_per_second = 1e10,
                                .devices_of_host = std::uniform_int_distribution<std::int64_t>(1, 4)(random),
                                .host_bytes_per_second = uniform(1e10, 1e11)};
    std::vector<table_profile> tables;
    std::vector<std::int64_t> places;
    for (int t = 0; t < 12; ++t) {
      tables.push_back(tessera_tests::random_profile(random, 1'000'000, 128));
      places.push_back(std::uniform_int_distribution<std::int64_t>(0, devices - 1)(random));
    }
    auto const costs = tessera::costs_of_devices(roofline_cost(rates), tables, places, devices);
    CHECK(static_cast<double>(tessera::cost_of(costs)) >= tessera::lower_bound_ms(roofline_cost(rates), tables, devices) * (1 - 1e-5));
    // No exchange takes longer than where all bytes travel between hosts, and none is faster than at the inner rate.
    auto slow = rates, fast = rates;
    slow.devices_of_host = fast.devices_of_host = 1;
    fast.exchange_bytes_per_second = rates.host_bytes_per_second;
    auto const most = tessera::costs_of_devices(roofline_cost(slow), tables, places, devices);
    auto const least = tessera::costs_of_devices(roofline_cost(fast), tables, places, devices);
    for (std::size_t d = 0; d < costs.backward.size(); ++d) {
      CHECK(costs.backward[d] <= most.backward[d] * (1 + 1e-5F));
      CHECK(costs.compute[d] == most.compute[d]);
      CHECK(costs.backward[d] * 2 >= least.backward[d] * (1 - 1e-5F));  // two kinds of links are at work
    }
  }
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
  refused({.memory_bytes_per_second = 1, .exchange_bytes_per_second = 1, .devices_of_host = 0}, "devices_of_host");
  refused({.memory_bytes_per_second = 1, .exchange_bytes_per_second = 1, .host_bytes_per_second = -2}, "host_bytes_per_second");
}

}  // namespace roofline_cost_test
