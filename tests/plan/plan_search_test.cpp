// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-labels: threads
#include <tessera/plan/plan_search.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include <tessera/plan/exhaustive_search.hpp>
#include <tessera/plan/plan_baselines.hpp>
#include <tessera/plan/published_cost.hpp>
#include <tessera/plan/published_search.hpp>
#include <tessera/plan/roofline_cost.hpp>

#include "hosts.hpp"
#include "random.hpp"
#include "random_models.hpp"
#include "sanitizers.hpp"
#include "temporary_folder.hpp"

namespace plan_search_test {

using tessera::counted_memory;
using tessera::errc;
using tessera::found_plan;
using tessera::greedy_cost;
using tessera::plan_objective;
using tessera::plan_search_options;
using tessera::roofline_cost;
using tessera::table_profile;
using tessera_tests::error_of;

namespace {

roofline_cost const model({.memory_bytes_per_second = 2e10, .exchange_bytes_per_second = 5e9});

template <class M>
found_plan search(std::vector<table_profile> const& tables, M const& by, plan_search_options const& options, int threads = 1) {
  tessera::thread_pool team(threads);
  tessera::system_memory memory;
  return tessera::plan_search(tessera::host_exec(team, memory), tables, by, options);
}

std::vector<table_profile> random_tables(std::mt19937_64& random, std::size_t count, std::int64_t most_rows = 1'000'000) {
  std::vector<table_profile> tables;
  while (tables.size() < count) tables.push_back(tessera_tests::random_profile(random, most_rows, 128));
  return tables;
}

std::int64_t bytes_of(std::vector<table_profile> const& tables, counted_memory counted) {
  std::int64_t bytes = 0;
  for (auto const& table : tables) bytes += tessera::memory_of_shard(table, counted).total();
  return bytes;
}

// plan() checks nothing that plan_of_shards did not; here the properties are looked at from outside.
void check_properties(found_plan const& found, std::vector<table_profile> const& tables) {
  std::vector<double> covered(tables.size());
  std::vector<std::int64_t> bytes(static_cast<std::size_t>(found.limits.devices));
  for (auto const& shard : found.shards) {
    auto const& table = tables.at(static_cast<std::size_t>(shard.table));
    covered[static_cast<std::size_t>(shard.table)] += static_cast<double>(shard.rows) * static_cast<double>(shard.columns);
    CHECK(shard.first_column % 4 == 0);
    bytes.at(static_cast<std::size_t>(shard.rank)) +=
        tessera::memory_of_shard(tessera::profile_of_shard(table, shard.rows, shard.columns), found.limits.counted).total();
  }
  for (std::size_t t = 0; t < tables.size(); ++t)
    CHECK(covered[t] == static_cast<double>(tables[t].rows) * static_cast<double>(tables[t].dim));
  auto const received = tessera::received_bytes(tables, found.limits.devices, found.limits.counted);
  for (std::size_t d = 0; d < bytes.size(); ++d) {
    CHECK(found.bytes[d] == bytes[d] + received);
    CHECK(found.bytes[d] <= found.limits.bytes_per_device);
  }
  auto const plan = found.plan(found.limits.devices);
  std::vector<tessera::table_options> options;
  for (auto const& table : tables) options.push_back({.dim = table.dim, .rows = table.rows});
  for (auto const& one : plan.shards)
    CHECK(std::count_if(plan.shards.begin(), plan.shards.end(),
                        [&](auto const& other) { return other.table == one.table && other.rank == one.rank; }) == 1);
  CHECK_NOTHROW(tessera::check_plan(plan, options, static_cast<int>(found.limits.devices)));
}

}  // namespace

TEST_CASE("plan_search: whole tables are placed as well as any placement of them" * doctest::skip(tessera_tests::under_sanitizer)) {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  int optimal = 0, helped = 0;
  for (int task = 0; task < 20; ++task) {
    auto const devices = std::uniform_int_distribution<std::int64_t>(1, 4)(random);
    auto const tables = random_tables(random, std::uniform_int_distribution<std::size_t>(1, devices == 4 ? 6 : 8)(random));
    auto const limit = std::numeric_limits<std::int64_t>::max() / 2;
    auto const best = tessera::exhaustive_search(tables, model, {.devices = devices, .bytes_per_device = limit, .devices_alike = true});
    auto const found = search(tables, model, {.devices = devices, .bytes_per_device = limit, .evaluations = 20'000, .cut_columns = false});
    check_properties(found, tables);
    CHECK(found.cost_ms >= best.cost_ms * (1 - 1e-5F));
    optimal += found.cost_ms <= best.cost_ms * (1 + 1e-5F);
    auto const cut = search(tables, model, {.devices = devices, .bytes_per_device = limit, .evaluations = 20'000});
    check_properties(cut, tables);
    helped += cut.cost_ms <= best.cost_ms * 1.01F;  // cuts only help, up to what a search of so few evaluations misses
    CHECK(static_cast<double>(cut.cost_ms) >= tessera::lower_bound_ms(model, tables, devices) * (1 - 1e-5));
  }
  CHECK(optimal >= 15);
  CHECK(helped >= 15);
}

TEST_CASE("plan_search: networks whose devices differ are searched as well") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  tessera_tests::serial_host host;
  auto const exec = host.exec();
  auto const counted = counted_memory::float_weights;
  int optimal = 0;
  constexpr int tasks = 8;
  for (int task = 0; task < tasks; ++task) {
    CAPTURE(task);
    auto const networks = tessera_tests::random_published_cost(random, 3, true);
    auto const tables = random_tables(random, 6);
    auto const limit = bytes_of(tables, counted);
    // Infinite where it finds no plan; without steps its tables are whole.
    auto const published_ms = [&](std::int64_t steps) {
      try {
        return tessera::published_search(exec, tables, networks,
                                         {.devices = 3, .bytes_per_device = limit, .counted = counted, .steps = steps})
            .cost_ms;
      } catch (tessera::error const& e) {
        CHECK(e.code() == errc::out_of_memory);
        return std::numeric_limits<float>::infinity();
      }
    };
    plan_search_options options{.devices = 3, .bytes_per_device = limit, .counted = counted, .evaluations = 20'000, .cut_columns = false};
    auto const best = tessera::exhaustive_search(tables, networks, {.devices = 3, .bytes_per_device = limit, .counted = counted});
    auto const found = search(tables, networks, options);
    check_properties(found, tables);
    auto const near = 1e-4F * (1 + std::abs(best.cost_ms));  // random networks have costs of any sign
    CHECK(found.cost_ms >= best.cost_ms - near);
    CHECK(found.cost_ms <= published_ms(0));
    optimal += found.cost_ms <= best.cost_ms + near;
    options.cut_columns = true;
    auto const cut = search(tables, networks, options);
    check_properties(cut, tables);
    CHECK(cut.cost_ms <= published_ms(10));
  }
  CHECK(optimal >= tasks - 3);  // about one task in 150 is missed
}

TEST_CASE("plan_search: no device is over its limit, and each table is covered once, by columns and rows") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  for (int task = 0; task < 12; ++task) {
    auto const tables = random_tables(random, 12, 3'000'000);
    auto const devices = std::uniform_int_distribution<std::int64_t>(2, 6)(random);
    auto const counted = task % 2 == 0 ? counted_memory::float_weights : counted_memory::all;
    // What all need, and a tenth more.
    auto const limit = static_cast<std::int64_t>(1.1 * static_cast<double>(bytes_of(tables, counted)) / static_cast<double>(devices)) +
                       tessera::received_bytes(tables, devices, counted) + (counted == counted_memory::all ? 400'000'000 : 0);
    auto const found =
        search(tables, model, {.devices = devices, .bytes_per_device = limit, .counted = counted, .evaluations = 6000, .cut_rows = true});
    check_properties(found, tables);
    auto const plan = found.plan(devices);
    for (auto const& shard : plan.shards)
      if (shard.rows < tables[static_cast<std::size_t>(shard.table)].rows) CHECK(plan.partial.size() > 0);
  }
}

TEST_CASE("plan_search: a table that is far too large for a device is cut one way at first, and fits") {
  auto const counted = counted_memory::float_weights;
  for (std::int64_t const dim : {4, 8, 16, 128})
    for (std::int64_t const devices : {3, 4, 6, 16}) {
      CAPTURE(dim);
      CAPTURE(devices);
      std::vector<table_profile> const tables{{.name = "large", .rows = 1 << 20, .dim = dim}, {.name = "small", .rows = 4096, .dim = dim}};
      auto const bytes = bytes_of(tables, counted);
      auto const found = search(
          tables, model,
          {.devices = devices, .bytes_per_device = bytes / devices * 5 / 4, .counted = counted, .evaluations = 4000, .cut_rows = true});
      check_properties(found, tables);
    }
}

TEST_CASE("shard_changes: no device gets two shards of a table that is cut both ways") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  using tessera::detail::placed_shard;
  std::vector<table_profile> tables(3, table_profile{.name = "t", .rows = 1 << 14, .dim = 32, .pooling_factor = 1});
  tables[2].dim = 4;  // cut by rows alone
  tessera::detail::shard_kinds const kinds(tables, model, counted_memory::float_weights, true, true);
  tessera::detail::placement<roofline_cost> here(kinds, model, 5, std::int64_t{1} << 40, plan_objective::cost);
  here.set({{kinds.whole(0), 0, 0, 0}, {kinds.whole(1), 1, 0, 0}, {kinds.whole(2), 2, 0, 0}});
  tessera::detail::shard_changes changes(kinds, tessera::random_seed{seed}, 1);
  int both_ways = 0, together = 0;
  for (int i = 0; i < 20'000; ++i) {
    tessera::detail::placement_change change;
    if (!changes.draw(here, change)) continue;
    here.try_change(change);
    here.accept(change);
    for (std::int64_t t = 0; t < 3; ++t) {
      bool by_columns = false, by_rows = false;
      std::vector<int> on(5);
      for (auto const& shard : here.shards()) {
        auto const& kind = kinds[shard.kind];
        if (kind.table != t) continue;
        by_columns |= kind.column_halvings > 0;
        by_rows |= kind.row_halvings > 0;
        ++on[static_cast<std::size_t>(shard.device)];
      }
      auto const most = *std::max_element(on.begin(), on.end());
      if (by_columns && by_rows) {
        ++both_ways;
        REQUIRE(most == 1);
      } else {
        together += most > 1;
      }
    }
  }
  CHECK(both_ways > 0);
  CHECK(together > 0);  // of tables that are cut one way, whose shards on a device are one in a plan
}

TEST_CASE("plan_search: any number of threads finds the same plan, and more evaluations none that costs more") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  for (int task = 0; task < 3; ++task) {
    auto const tables = random_tables(random, 15);
    auto const limit = bytes_of(tables, counted_memory::all);
    plan_search_options options{.devices = 4, .bytes_per_device = limit, .evaluations = 15'000, .seed = tessera::random_seed{seed}};
    auto const one = search(tables, model, options);
    for (int const threads : {2, 4}) {
      auto const other = search(tables, model, options, threads);
      CHECK(one.shards == other.shards);
      CHECK(one.cost_ms == other.cost_ms);
    }
    CHECK(one.evaluations == 15'000);
    CHECK(!one.stopped_by_deadline);
    auto before = std::numeric_limits<float>::infinity();
    for (std::int64_t const evaluations : {1, 7, 100, 900, 1500, 4000, 15'000, 17'777}) {
      options.evaluations = evaluations;
      auto const found = search(tables, model, options);
      CAPTURE(evaluations);
      CHECK(found.cost_ms <= before);
      before = found.cost_ms;
    }
  }
}

TEST_CASE("plan_search: no plan costs more than that of the published search, to the bit" * doctest::skip(tessera_tests::under_sanitizer)) {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  tessera_tests::serial_host host;
  auto const exec = host.exec();
  int searched = 0;
  for (int task = 0; task < 24; ++task) {
    CAPTURE(task);
    auto const devices = std::uniform_int_distribution<std::int64_t>(1, 4)(random);
    auto const networks = tessera_tests::random_published_cost(random, devices, true);
    auto const tables = random_tables(random, std::uniform_int_distribution<std::size_t>(1, 12)(random));
    auto const counted = counted_memory::float_weights;
    auto const limit = static_cast<std::int64_t>(std::uniform_real_distribution<double>(1, 2)(random) *
                                                 static_cast<double>(bytes_of(tables, counted) / devices + 1));
    auto const of = [&](auto const& by) {
      try {
        auto const published =
            tessera::published_search(exec, tables, by, {.devices = devices, .bytes_per_device = limit, .counted = counted});
        auto const found = search(tables, by, {.devices = devices, .bytes_per_device = limit, .counted = counted, .evaluations = 8000});
        CHECK(found.cost_ms <= published.cost_ms);
        ++searched;
      } catch (tessera::error const& e) {
        CHECK(e.code() == errc::out_of_memory);  // it may find no plan, where there is little room
      }
    };
    of(networks);
    of(model);
  }
  CHECK(searched > 0);
}

TEST_CASE("plan_search: a deadline ends it, and the plan says so") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  auto const tables = random_tables(random, 30);
  auto const found = search(
      tables, model,
      {.devices = 8, .bytes_per_device = bytes_of(tables, counted_memory::all), .evaluations = std::int64_t{1} << 40, .deadline_ms = 20});
  CHECK(found.stopped_by_deadline);
  check_properties(found, tables);
}

TEST_CASE("plan_search: what no plan can fit is proven, by table or by all bytes") {
  table_profile table{.name = "wide", .rows = 1'000'000, .dim = 6};
  auto const counted = counted_memory::float_weights;
  auto const of = [&](std::vector<table_profile> const& tables, plan_search_options const& options) {
    return error_of([&] { search(tables, model, options); });
  };
  // Its dim is not halved: rows are the way out.
  auto const narrow = of({table}, {.devices = 4, .bytes_per_device = 12'000'000, .counted = counted});
  CHECK(narrow.code() == errc::out_of_memory);
  CHECK(narrow.value("table") == "wide");
  CHECK(narrow.value("bytes of the smallest shard") == "24000000");
  CHECK(narrow.value("bytes_per_device") == "12000000");
  CHECK(std::string(narrow.what()).find("cut_rows") != std::string::npos);
  auto const found = search({table}, model, {.devices = 4, .bytes_per_device = 12'000'000, .counted = counted, .cut_rows = true});
  check_properties(found, {table});
  CHECK(found.plan(4).partial == std::vector<std::int64_t>{0});
  table.dim = 8;
  auto const all = of({table, table}, {.devices = 2, .bytes_per_device = 31'000'000, .counted = counted});
  CHECK(all.code() == errc::out_of_memory);
  CHECK(all.value("bytes") == "64000000");
  // There is no plan, which the search cannot prove.
  std::vector<table_profile> const three(3, table_profile{.name = "t", .rows = 1'000'000, .dim = 4});
  auto const none = of(three, {.devices = 2, .bytes_per_device = 25'000'000, .counted = counted, .evaluations = 500});
  CHECK(none.code() == errc::out_of_memory);
  CHECK(none.value("evaluations") == "500");
}

TEST_CASE("plan_objective: names are those of the values") {
  CHECK(tessera::name(plan_objective::cost) == "cost");
  CHECK(tessera::name(plan_objective::compute_balance) == "compute_balance");
  CHECK(tessera::name(plan_objective::slowest_stage) == "slowest_stage");
}

TEST_CASE("plan_search: bad options are refused by name") {
  std::vector<table_profile> const tables{{.name = "t", .rows = 100, .dim = 8}};
  auto const refused = [&](plan_search_options const& options, char const* name, std::string const& value) {
    auto const e = error_of([&] { search(tables, model, options); });
    CHECK(e.code() == errc::invalid_argument);
    CHECK(e.value(name) == value);
  };
  refused({.devices = 0, .bytes_per_device = 1}, "devices", "0");
  refused({.devices = 1, .bytes_per_device = 0}, "bytes_per_device", "0");
  refused({.devices = 1, .bytes_per_device = 1, .evaluations = 0}, "evaluations", "0");
  refused({.devices = 1, .bytes_per_device = 1, .deadline_ms = -1}, "deadline_ms", "-1");
  refused({.devices = 1, .bytes_per_device = 1, .objective = static_cast<plan_objective>(7)}, "objective", "7");
  CHECK(error_of([&] {
          tessera::exhaustive_search(std::vector<table_profile>(13, tables[0]), model, {.devices = 1, .bytes_per_device = 1});
        }).value("tables") == "13");
  CHECK(error_of([&] { tessera::exhaustive_search(tables, model, {.devices = 1, .bytes_per_device = 1}); }).code() == errc::out_of_memory);
}

TEST_CASE("plan_baselines: greedy costs and placements, by hand") {
  table_profile table{.name = "t", .rows = 1000, .dim = 8, .pooling_factor = 2.5};
  auto const counted = counted_memory::float_weights;
  CHECK(tessera::greedy_cost_of(table, greedy_cost::size, counted) == 32'000);
  CHECK(tessera::greedy_cost_of(table, greedy_cost::dim, counted) == 8);
  CHECK(tessera::greedy_cost_of(table, greedy_cost::lookup, counted) == 20);
  CHECK(tessera::greedy_cost_of(table, greedy_cost::size_lookup, counted) == 640'000);
  CHECK(tessera::greedy_cost_of(table, greedy_cost::log_rows_lookup, counted) == doctest::Approx(60));
  std::vector<table_profile> tables(5, table);
  tables[1].dim = 16;
  tables[3].dim = 4;
  // 16 goes to device 0; then the last of equal ones first: 4, 2 to device 1, 0 to device 0 as sums are equal, 3 to device 1.
  CHECK(tessera::place_greedily(tables, greedy_cost::dim, {2, 1 << 30, counted}) == std::vector<std::int64_t>{0, 0, 1, 1, 1});
  // Device 0 has no room for more than the first.
  CHECK(tessera::place_greedily(tables, greedy_cost::dim, {3, 64'000, counted}) == std::vector<std::int64_t>{1, 0, 2, 2, 1});
  auto const full = error_of([&] { tessera::place_greedily(tables, greedy_cost::dim, {2, 64'000, counted}); });
  CHECK(full.code() == errc::out_of_memory);
  CHECK(full.value("table") == "t");
  CHECK(error_of([&] { tessera::place_greedily(tables, greedy_cost::dim, {0, 64'000, counted}); }).value("devices") == "0");
  auto const random = tessera::place_randomly(1000, 3, tessera::random_seed{1});
  CHECK(random == tessera::place_randomly(1000, 3, tessera::random_seed{1}));
  for (std::int64_t d = 0; d < 3; ++d) CHECK(std::count(random.begin(), random.end(), d) > 200);
}

TEST_CASE("plan_baselines: the best plans of whole tables bound the greedy ones") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  tessera_tests::serial_host host;
  auto const exec = host.exec();
  for (int task = 0; task < 5; ++task) {
    auto const tables = random_tables(random, 10);
    tessera::device_limits const limits{3, bytes_of(tables, counted_memory::float_weights), counted_memory::float_weights};
    plan_search_options const options{
        .devices = 3, .bytes_per_device = limits.bytes_per_device, .counted = limits.counted, .evaluations = 20'000};
    auto const balanced = tessera::best_whole_tables(exec, tables, model, plan_objective::compute_balance, options);
    auto const cheapest = tessera::best_whole_tables(exec, tables, model, plan_objective::cost, options);
    CHECK(balanced.shards.size() == tables.size());
    auto const balance = [](found_plan const& found) {
      return *std::min_element(found.costs.compute.begin(), found.costs.compute.end()) /
             *std::max_element(found.costs.compute.begin(), found.costs.compute.end());
    };
    CHECK(cheapest.cost_ms <= balanced.cost_ms * 1.02F);
    for (auto const cost :
         {greedy_cost::size, greedy_cost::dim, greedy_cost::lookup, greedy_cost::size_lookup, greedy_cost::log_rows_lookup}) {
      auto const greedy = tessera::plan_of_tables(tables, model, limits, tessera::place_greedily(tables, cost, limits));
      CHECK(cheapest.cost_ms <= greedy.cost_ms * 1.02F);
      CHECK(balance(balanced) >= balance(greedy) * 0.97F);
    }
  }
}

}  // namespace plan_search_test
