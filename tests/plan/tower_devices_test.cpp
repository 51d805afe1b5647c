// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <tessera/plan/tower_devices.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include <tessera/comm/topology.hpp>
#include <tessera/plan/plan_search.hpp>
#include <tessera/plan/roofline_cost.hpp>
#include <tessera/tower/plan_towers.hpp>

#include "hosts.hpp"
#include "random.hpp"
#include "random_models.hpp"
#include "temporary_folder.hpp"

namespace tower_devices_test {

using tessera::device_range;
using tessera::errc;
using tessera::plan_search_options;
using tessera::table_profile;
using tessera_tests::error_of;

namespace {

tessera::roofline_cost const model({.memory_bytes_per_second = 2e10, .exchange_bytes_per_second = 5e9});
constexpr std::int64_t no_limit = std::numeric_limits<std::int64_t>::max() / 2;

tessera::found_plan search(std::vector<table_profile> const& tables, plan_search_options const& options) {
  tessera_tests::serial_host host;
  return tessera::plan_search(host.exec(), tables, model, options);
}

// Tables of random towers, one in four of none.
std::vector<table_profile> random_tables(std::mt19937_64& random, std::size_t count, std::int64_t towers) {
  std::vector<table_profile> tables;
  while (tables.size() < count) {
    tables.push_back(tessera_tests::random_profile(random, 100'000, 64));
    tables.back().tower = std::uniform_int_distribution<std::int64_t>(0, 3)(random) == 0
                              ? -1
                              : std::uniform_int_distribution<std::int64_t>(0, towers - 1)(random);
  }
  return tables;
}

// The least cost of all placements of whole tables that keep towers together.
float least_cost(std::vector<table_profile> const& tables, std::vector<device_range> const& ranges, std::int64_t devices) {
  std::vector<std::int64_t> place;
  for (auto const& range : ranges) place.push_back(range.first);
  auto best = std::numeric_limits<float>::infinity();
  for (;;) {
    best = std::min(best, tessera::cost_of(tessera::costs_of_devices(model, tables, place, devices)));
    std::size_t t = 0;
    for (; t < place.size(); ++t) {
      if (ranges[t].has(++place[t])) break;
      place[t] = ranges[t].first;
    }
    if (t == place.size()) return best;
  }
}

}  // namespace

TEST_CASE("tower_devices: hosts make towers, alone, together, or several each") {
  using ranges = std::vector<device_range>;
  CHECK(tessera::devices_of_towers(4, 2, 2) == ranges{{0, 2}, {2, 2}});
  CHECK(tessera::devices_of_towers(8, 2, 2) == ranges{{0, 4}, {4, 4}});
  CHECK(tessera::devices_of_towers(4, 2, 4) == ranges{{0, 2}, {0, 2}, {2, 2}, {2, 2}});
  CHECK(tessera::devices_of_towers(3, 1, 3) == ranges{{0, 1}, {1, 1}, {2, 1}});
  CHECK(tessera::devices_of_towers(6, 6, 1) == ranges{{0, 6}});
}

TEST_CASE("tower_devices: towers have the ranks that an exchange of towers gives them") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  for (int i = 0; i < 50; ++i) {
    auto const below = [&](int most) { return std::uniform_int_distribution<int>(1, most)(random); };
    auto const groups = below(4), of_group = below(3), of_host = below(3), of_tower = of_group == 1 ? below(3) : 1;
    auto const hosts = groups * of_group, towers = groups * of_tower;
    tessera::tower_ranks const ranks(tessera::topology::of_hosts(hosts, of_host), towers);
    auto const devices = tessera::devices_of_towers(hosts * of_host, of_host, towers);
    for (std::int64_t tower = 0; tower < towers; ++tower)
      for (std::int64_t rank = 0; rank < hosts * of_host; ++rank)
        CHECK(devices[static_cast<std::size_t>(tower)].has(rank) == (ranks.group_of(rank) == ranks.group_of_tower(tower)));
  }
}

TEST_CASE("tower_devices: a search keeps tables on their tower's devices, and finds the best plan of few whole tables") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  int optimal = 0;
  for (int task = 0; task < 10; ++task) {
    auto const tables = random_tables(random, 6, 2);
    auto const ranges = tessera::devices_of_tables(tables, 4, 2, 2);
    plan_search_options options{.devices = 4, .bytes_per_device = no_limit, .evaluations = 20'000, .cut_columns = false};
    auto const anywhere = search(tables, options);
    options.towers = 2;
    options.devices_of_host = 2;
    auto const found = search(tables, options);
    auto const best = least_cost(tables, ranges, 4);
    CHECK(found.cost_ms >= best * (1 - 1e-5F));
    CHECK(found.cost_ms >= anywhere.cost_ms * 0.98F);
    optimal += found.cost_ms <= best * (1 + 1e-5F);
    options.cut_columns = options.cut_rows = true;
    for (auto const& plan : {found, search(tables, options)})
      for (auto const& shard : plan.shards) CHECK(ranges[static_cast<std::size_t>(shard.table)].has(shard.rank));
  }
  CHECK(optimal >= 7);
}

TEST_CASE("tower_devices: an exchange of towers takes the plan, many devices and several towers a host included") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  struct layout {
    int hosts, of_host;
    std::int64_t towers;
  };
  for (auto const& [hosts, of_host, towers] : {layout{4, 2, 2}, layout{2, 2, 4}, layout{2, 20, 2}, layout{3, 1, 3}}) {
    auto tables = random_tables(random, 12, towers);
    for (std::size_t t = 0; t < tables.size(); ++t)  // each tower has a table
      if (tables[t].tower < 0 || t < 4) tables[t].tower = static_cast<std::int64_t>(t) % towers;
    auto const found = search(
        tables,
        {.devices = hosts * of_host, .bytes_per_device = no_limit, .evaluations = 3000, .towers = towers, .devices_of_host = of_host});
    tessera::tower_partition partition;
    partition.towers.resize(static_cast<std::size_t>(towers));
    std::vector<tessera::table_spec> specs(tables.size());
    std::vector<tessera::table_feature> features(tables.size());
    for (std::size_t t = 0; t < tables.size(); ++t) {
      auto const number = static_cast<std::int64_t>(t);
      specs[t].table.id = tessera::table_id{number};
      specs[t].table.dim = tables[t].dim;
      specs[t].table.rows = tables[t].rows;
      features[t].table = number;
      partition.towers[static_cast<std::size_t>(tables[t].tower)].push_back(number);
    }
    tessera::tower_ranks const ranks(tessera::topology::of_hosts(hosts, of_host), towers);
    for (std::int64_t group = 0; group < ranks.groups(); ++group)
      CHECK_NOTHROW(tessera::detail::part_of_group(specs, features, found.plan(hosts * of_host), partition, ranks, group));
  }
}

TEST_CASE("tower_devices: what cannot be is refused by name") {
  std::vector<table_profile> tables(3, {.name = "t", .rows = 1000, .dim = 8});
  tables[2].tower = 1;
  auto const refused = [&](plan_search_options const& options, errc code, char const* name, char const* value) {
    auto const e = error_of([&] { search(tables, options); });
    CHECK(e.code() == code);
    CHECK(e.value(name) == value);
  };
  auto const alone = tessera::counted_memory::float_weights;
  refused({.devices = 4, .bytes_per_device = 1 << 20, .towers = -1}, errc::invalid_argument, "towers", "-1");
  refused({.devices = 4, .bytes_per_device = 1 << 20, .towers = 3}, errc::invalid_argument, "hosts", "4");
  refused({.devices = 4, .bytes_per_device = 1 << 20, .towers = 2, .devices_of_host = 3}, errc::invalid_argument, "devices_of_host", "3");
  refused({.devices = 4, .bytes_per_device = 1 << 20, .towers = 2, .devices_of_host = 0}, errc::invalid_argument, "devices_of_host", "0");
  refused({.devices = 4, .bytes_per_device = 1 << 20, .towers = 1}, errc::out_of_range, "tower", "1");
  // Three tables of 32,000 bytes fit onto two devices, but not on the second one alone.
  for (auto& table : tables) table.tower = 1;
  refused({.devices = 2, .bytes_per_device = 64'000, .counted = alone, .towers = 2}, errc::out_of_memory, "tower", "1");
  // Two towers share a host, which has no room for the tables of both.
  tables[0].tower = 0;
  refused({.devices = 4, .bytes_per_device = 40'000, .counted = alone, .towers = 4, .devices_of_host = 2}, errc::out_of_memory,
          "first device", "0");
  tables[0].tower = 2;
  CHECK_NOTHROW(search(tables, {.devices = 4, .bytes_per_device = 40'000, .counted = alone, .towers = 4, .devices_of_host = 2}));
}

}  // namespace tower_devices_test
