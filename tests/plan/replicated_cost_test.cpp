// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <tessera/plan/replicated_cost.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <tessera/plan/found_plan.hpp>
#include <tessera/plan/plan_search.hpp>
#include <tessera/plan/roofline_cost.hpp>
#include <tessera/plan/table_ids.hpp>

#include "hosts.hpp"
#include "random.hpp"
#include "random_models.hpp"
#include "temporary_folder.hpp"

namespace replicated_cost_test {

using tessera::table_profile;
using tessera::table_shard;

namespace {

// 512 bags of one id each.
table_profile profile_of(std::string name, std::int64_t rows, std::int64_t dim, std::size_t bin) {
  table_profile table{.name = std::move(name), .rows = rows, .dim = dim, .pooling_factor = 1, .bags = 512, .distinct_bags = 512};
  table.access[bin] = 1;
  return table;
}

// Exchanges are slow, so that it pays to leave them out.
tessera::roofline_cost const model({.memory_bytes_per_second = 1e9, .exchange_bytes_per_second = 1e7, .bags = 512});

}  // namespace

TEST_CASE("profile_of_replica: a share of a batch reads about as many rows as it says") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  constexpr std::int64_t bags = 4096;
  for (std::size_t const bin : {0, 1, 3, 6})
    for (std::int64_t const devices : {2, 8}) {
      CAPTURE(bin);
      CAPTURE(devices);
      auto table = profile_of("t", 1'000'000, 8, bin);
      table.bags = table.distinct_bags = bags;
      auto const all = tessera::draw_table_ids(table, bags, tessera::random_seed(seed));
      double distinct = 0;
      for (std::int64_t d = 0; d < devices; ++d) {
        std::set<std::int64_t> rows;
        for (auto i = d * bags / devices; i < (d + 1) * bags / devices; ++i) rows.insert(all.ids[static_cast<std::size_t>(i)]);
        distinct += static_cast<double>(rows.size()) / static_cast<double>(devices);
      }
      auto const share = tessera::profile_of_replica(table, devices);
      tessera::check_table_profile(share);
      CHECK(share.bags == bags / devices);
      CHECK(share.rows == table.rows);
      CHECK(tessera::distinct_rows_of_batch(share) == doctest::Approx(distinct).epsilon(0.25));
    }
  auto const table = profile_of("t", 100, 8, 2);
  CHECK(tessera::profile_of_replica(table, 1) == table);
}

TEST_CASE("replicated_cost: the costs of tables on all devices, from the beginning and beside others") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  auto const by = tessera_tests::random_published_cost(random, 3, true);
  auto const a = profile_of("a", 500, 8, 0), b = profile_of("b", 50, 16, 3), c = profile_of("c", 5000, 32, 1);
  // A device sends a third of b's ids, and gets the sums of its rows.
  auto const rows = tessera::distinct_rows_of_batch(b);
  CHECK(tessera::columns_of_replica(b, 3) == doctest::Approx(16 * (512.0 / 3 + rows) / 512));
  CHECK(tessera::columns_of_replica(b, 1) == 16);
  auto const whole = tessera::costs_of_devices(by, std::vector{a, b, c}, std::vector<std::int64_t>{0, tessera::on_all_devices, 2}, 3);
  tessera::replicated_cost const beside(by, std::vector{b}, 3);
  auto const others = tessera::costs_of_devices(beside, std::vector{a, c}, std::vector<std::int64_t>{0, 2}, 3);
  for (std::size_t d = 0; d < 3; ++d) {
    CHECK(whole.compute[d] == doctest::Approx(others.compute[d]).epsilon(1e-4));
    CHECK(whole.backward[d] == doctest::Approx(others.backward[d]).epsilon(1e-4));
    CHECK(whole.forward[d] == doctest::Approx(others.forward[d]).epsilon(1e-4));
  }
  auto const refused = tessera_tests::error_of([&] { tessera::replicated_cost(by, std::vector{b}, 2); });
  CHECK(refused.value("devices of the model") == "3");
}

TEST_CASE("plan_search: with replicas, small tables lie on all devices where that costs less") {
  tessera_tests::serial_host host;
  std::vector<table_profile> tables;
  for (int t = 0; t < 6; ++t) tables.push_back(profile_of("small" + std::to_string(t), 20, 16, 5));
  for (int t = 0; t < 6; ++t) tables.push_back(profile_of("large" + std::to_string(t), 1'000'000, 16, 0));
  tables[1].hashed = true;
  tessera::plan_search_options options{.devices = 4, .bytes_per_device = std::int64_t{1} << 30, .evaluations = 20'000};
  auto const without = tessera::plan_search(host.exec(), tables, model, options);
  options.replicas = true;
  auto const found = tessera::plan_search(host.exec(), tables, model, options);
  CHECK(found.cost_ms < 0.8F * without.cost_ms);
  CHECK(found.evaluations <= options.evaluations);
  std::set<std::int64_t> everywhere;
  for (auto const& shard : found.shards)
    if (shard.rank == table_shard::all_ranks) everywhere.insert(shard.table);
  CHECK(everywhere == std::set<std::int64_t>{0, 2, 3, 4, 5});
  // All devices take their bytes, and the plan is one that sharded tables execute.
  auto const bytes = tessera::memory_of_shard(tessera::profile_of_replica(tables[0], 4)).total();
  for (auto const held : found.bytes) CHECK(held >= 5 * bytes);
  auto const plan = found.plan(4);
  CHECK(std::count_if(plan.shards.begin(), plan.shards.end(), [](auto const& s) { return s.rank == table_shard::all_ranks; }) == 5);
  std::ostringstream text;
  text << found;
  CHECK(text.str().find("table small0: on all devices") != std::string::npos);
  CHECK(text.str().find("and 5 tables of all") != std::string::npos);
  CHECK(tessera::plan_search(host.exec(), tables, model, options).shards == found.shards);
}

TEST_CASE("plan_search: replicas are left out where they cost more, or have no room") {
  tessera_tests::serial_host host;
  std::vector<table_profile> tables;
  for (int t = 0; t < 5; ++t) tables.push_back(profile_of("large" + std::to_string(t), 1'000'000, 16, 0));
  tessera::plan_search_options options{.devices = 4, .bytes_per_device = std::int64_t{1} << 30, .evaluations = 5000};
  auto const without = tessera::plan_search(host.exec(), tables, model, options);
  options.replicas = true;
  auto const found = tessera::plan_search(host.exec(), tables, model, options);
  CHECK(found.cost_ms <= 1.001F * without.cost_ms);
  for (auto const& shard : found.shards) CHECK(shard.rank != table_shard::all_ranks);
  // A table that would pay on all devices, each of which has room for one of two.
  std::vector<table_profile> const two{profile_of("a", 50'000, 16, 9), profile_of("b", 50'000, 16, 9)};
  options.devices = 2;
  options.bytes_per_device = 50'000 * 16 * 4 + 100'000;
  auto const tight = tessera::plan_search(host.exec(), two, model, options);
  for (auto const& shard : tight.shards) CHECK(shard.rank != table_shard::all_ranks);
  options.bytes_per_device = 1000;
  CHECK(tessera_tests::error_of([&] { tessera::plan_search(host.exec(), two, model, options); }).code() == tessera::errc::out_of_memory);
  options.towers = 2;
  CHECK(tessera_tests::error_of([&] { tessera::plan_search(host.exec(), two, model, options); }).value("towers") == "2");
}

}  // namespace replicated_cost_test
