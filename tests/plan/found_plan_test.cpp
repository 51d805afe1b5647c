// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <tessera/plan/found_plan.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <tessera/plan/roofline_cost.hpp>

#include "hosts.hpp"

namespace found_plan_test {

using tessera::table_shard;

namespace {

tessera::found_plan planned(std::vector<table_shard> shards, std::int64_t devices = 2, std::int64_t bytes = std::int64_t{1} << 30,
                            std::int64_t dim = 8) {
  std::vector<tessera::table_profile> const tables{
      {.name = "user", .rows = 100, .dim = dim, .pooling_factor = 1, .bags = 64, .distinct_bags = 64},
      {.name = "item", .rows = 50, .dim = 4, .pooling_factor = 2, .bags = 64, .distinct_bags = 64}};
  return tessera::plan_of_shards(tables, tessera::roofline_cost({.memory_bytes_per_second = 1e10, .exchange_bytes_per_second = 1e9}),
                                 {devices, bytes, tessera::counted_memory::float_weights}, std::move(shards));
}

std::string refused(std::vector<table_shard> shards, std::int64_t devices = 2, std::int64_t bytes = std::int64_t{1} << 30) {
  try {
    planned(std::move(shards), devices, bytes);
  } catch (tessera::error const& e) {
    return e.what();
  }
  return "nothing was thrown";
}

}  // namespace

TEST_CASE("plan_of_shards: what no plan can be is refused by name") {
  table_shard const user{0, 0, 0, 100, 0, 8}, item{1, 1, 0, 50, 0, 4};
  CHECK(planned({user, item}).bytes == std::vector<std::int64_t>{3200, 800});
  CHECK(refused({user}).find("a table is not covered (table 1") != std::string::npos);
  CHECK(refused({user, item}, 1).find("no such rank (table 1, rank 1") != std::string::npos);
  CHECK(refused({user, item, item}).find("two shards overlap (table 1") != std::string::npos);
  // Each device would look up fewer ids of it than the batch has distinct rows.
  auto const everywhere = refused({item, {0, table_shard::all_ranks, 0, 100, 0, 8}});
  CHECK(everywhere.find("costs on all devices are not known") != std::string::npos);
  CHECK(everywhere.find("table user, devices 2") != std::string::npos);
  CHECK(planned({user, {1, table_shard::all_ranks, 0, 50, 0, 4}}).bytes == std::vector<std::int64_t>{4000, 800});
  CHECK(refused({user, {1, table_shard::all_ranks, 0, 25, 0, 4}}).find("a part of a table on all ranks") != std::string::npos);
  CHECK(refused({user, item}, 2, 3199) == "a device would hold more than it may (device 0, bytes 3200, bytes_per_device 3199)");
  CHECK(refused({user, item}, 0).find("devices 0") != std::string::npos);
}

TEST_CASE("found_plan: the plan is for as many ranks as devices, and shards of rows return partial sums") {
  auto const found = planned({{0, 1, 40, 60, 0, 8}, {0, 0, 0, 40, 0, 8}, {1, 0, 0, 50, 0, 4}});
  CHECK(found.plan(2).partial == std::vector<std::int64_t>{0});
  CHECK(found.plan(2).shards.front() == table_shard{0, 0, 0, 40, 0, 8});
  CHECK_THROWS_WITH_AS(found.plan(3), "found_plan: the plan is for another number of ranks (ranks 3, devices 2)", tessera::error);
}

TEST_CASE("found_plan: a rank has one shard of a table, as wide as all that it was given") {
  table_shard const item{1, 1, 0, 50, 0, 4};
  // Columns 0 to 4 and 8 to 16 on rank 1.
  auto const columns = planned({{0, 1, 0, 100, 0, 4}, {0, 0, 0, 100, 4, 4}, {0, 1, 0, 100, 8, 8}, item}, 2, std::int64_t{1} << 30, 16);
  CHECK(columns.shards.size() == 4);
  CHECK(columns.plan(2).shards == std::vector<table_shard>{{0, 1, 0, 100, 0, 12}, {0, 0, 0, 100, 12, 4}, item});
  CHECK(columns.plan(2).partial.empty());
  auto const rows = planned({{0, 0, 0, 10, 0, 8}, {0, 1, 10, 30, 0, 8}, {0, 0, 40, 60, 0, 8}, item});
  CHECK(rows.plan(2).shards == std::vector<table_shard>{{0, 0, 0, 70, 0, 8}, {0, 1, 70, 30, 0, 8}, item});
  CHECK(rows.plan(2).partial == std::vector<std::int64_t>{0});
  // A width that is no multiple of 4 ends the table, whoever comes first.
  table_shard const a{0, 0, 0, 100, 0, 4}, b{0, 1, 0, 100, 4, 4}, c{0, 0, 0, 100, 8, 2};
  auto const ragged = planned({a, b, c, item}, 2, std::int64_t{1} << 30, 10).plan(2);
  CHECK(ragged.shards == std::vector<table_shard>{{0, 1, 0, 100, 0, 4}, {0, 0, 0, 100, 4, 6}, item});
  std::vector<tessera::table_options> const options{{.id = tessera::table_id{0}, .dim = 10, .rows = 100},
                                                    {.id = tessera::table_id{1}, .dim = 4, .rows = 50}};
  CHECK_NOTHROW(tessera::check_plan(ragged, options, 2));
  // All of it on one rank is a whole table.
  auto const whole = planned({{0, 0, 0, 10, 0, 8}, {0, 0, 10, 90, 0, 8}, item});
  CHECK(whole.plan(2).shards == std::vector<table_shard>{{0, 0, 0, 100, 0, 8}, item});
  CHECK(whole.plan(2).partial.empty());
  // Cut both ways, it stays as it is.
  auto const both = planned({{0, 2, 0, 10, 0, 8}, {0, 0, 10, 90, 0, 4}, {0, 1, 10, 90, 4, 4}, item}, 3);
  CHECK(both.plan(3).shards == both.shards);
  CHECK(both.plan(3).partial == std::vector<std::int64_t>{0});
}

TEST_CASE("found_plan: two shards on one rank of a table that is cut both ways are no plan") {
  table_shard const item{1, 1, 0, 50, 0, 4};
  auto const both = planned({{0, 0, 0, 10, 0, 8}, {0, 1, 10, 90, 0, 4}, {0, 0, 10, 90, 4, 4}, item});
  CHECK_THROWS_WITH_AS(
      both.plan(2),
      "found_plan: a rank has two shards of a table that is cut both ways (table user, rank 0, first rows 0 to 10, columns 0 "
      "to 8, second rows 10 to 100, columns 4 to 8)",
      tessera::error);
}

TEST_CASE("plan_searcher: a search of one's own is a function that returns a plan") {
  auto const all_on_one = [](tessera::host_exec const&, tessera::vector_view<tessera::table_profile const> tables, auto const& model) {
    std::vector<std::int64_t> const devices(static_cast<std::size_t>(tables.size()));
    return tessera::plan_of_tables(tables, model, {2, std::int64_t{1} << 30}, devices);
  };
  static_assert(tessera::plan_searcher<decltype(all_on_one), tessera::roofline_cost>);
  static_assert(!tessera::plan_searcher<int, tessera::roofline_cost>);
  std::vector<tessera::table_profile> const tables{{.name = "user", .rows = 100, .dim = 8}};
  tessera_tests::serial_host host;
  CHECK(
      all_on_one(host.exec(), tables, tessera::roofline_cost({.memory_bytes_per_second = 1e10, .exchange_bytes_per_second = 1e9})).shards ==
      std::vector<table_shard>{{0, 0, 0, 100, 0, 8}});
}

}  // namespace found_plan_test
