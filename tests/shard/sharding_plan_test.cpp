// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <tessera/shard/sharding_plan.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include <random.hpp>

namespace sharding_plan_test {

namespace {

std::vector<tessera::table_options> three_tables() {
  std::vector<tessera::table_options> tables(3);
  for (std::size_t t = 0; t < 3; ++t)
    tables[t] = {.id = tessera::table_id{static_cast<std::int64_t>(t) + 10}, .dim = 8, .rows = 100 * (static_cast<std::int64_t>(t) + 1)};
  return tables;
}

std::string refusal(std::function<void()> const& f) {
  try {
    f();
  } catch (tessera::error const& e) {
    return e.what();
  }
  return "none";
}

bool has(std::string const& text, char const* part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("sharding_plan: tables are dealt out by turn, by bytes and by lookups") {
  auto const tables = three_tables();
  auto const ranks_of = [](tessera::sharding_plan const& plan) {
    std::vector<int> ranks;
    for (auto const& s : plan.shards) ranks.push_back(s.rank);
    return ranks;
  };
  auto const turn = tessera::plan_round_robin(tables, 2);
  CHECK(ranks_of(turn) == std::vector<int>{0, 1, 0});
  CHECK(turn.shards[2] == tessera::table_shard{2, 0, 0, 300, 0, 8});
  tessera::check_plan(turn, tables, 2);
  CHECK(ranks_of(tessera::plan_by_bytes(tables, std::vector<std::int64_t>{32, 32, 32}, 2)) == std::vector<int>{1, 1, 0});
  CHECK(ranks_of(tessera::plan_by_bytes(tables, std::vector<std::int64_t>{32, 32, 32}, 2, 9600)) == std::vector<int>{1, 1, 0});
  CHECK(ranks_of(tessera::plan_by_bytes(tables, std::vector<std::int64_t>{400, 100, 32}, 2)) == std::vector<int>{0, 1, 1});
  CHECK(ranks_of(tessera::plan_by_lookups(tables, std::vector<double>{5, 1, 2}, 2)) == std::vector<int>{0, 1, 1});
  CHECK(ranks_of(tessera::plan_round_robin(tables, 5)) == std::vector<int>{0, 1, 2});

  auto const memory = refusal([&] { tessera::plan_by_bytes(tables, std::vector<std::int64_t>{32, 32, 32}, 2, 9599); });
  CHECK(has(memory, "rank 0, bytes 9600, limit_bytes 9599, table 12"));
  CHECK(has(refusal([&] { tessera::plan_by_bytes(tables, std::vector<std::int64_t>{1, 2}, 2); }), "tables 3, numbers 2"));
  CHECK(has(refusal([&] { tessera::plan_by_lookups(tables, std::vector<double>{1, 2, 3, 4}, 2); }), "tables 3, numbers 4"));
  for (auto const& plan : {std::function<void()>([&] { tessera::plan_round_robin(tables, 0); }), std::function<void()>([&] {
                             tessera::plan_by_lookups(tables, std::vector<double>{1, 2, 3}, 0);
                           })})
    CHECK(has(refusal(plan), "ranks 0"));
}

TEST_CASE("sharding_plan: a table is cut by rows as evenly as can be, into no more parts than it has rows") {
  auto tables = three_tables();
  tables[1].rows = 3;
  tessera::sharding_plan plan;
  for (std::int64_t t = 0; t < 3; ++t)
    for (auto const& shard : tessera::row_wise(tables, t, 7)) plan.shards.push_back(shard);
  tessera::check_plan(plan, tables, 7);
  CHECK(plan.shards.size() == 7 + 3 + 7);
  CHECK(plan.shards[0] == tessera::table_shard{0, 0, 0, 15, 0, 8});  // 100 rows: two shards of 15, then five of 14
  CHECK(plan.shards[1] == tessera::table_shard{0, 1, 15, 15, 0, 8});
  CHECK(plan.shards[6] == tessera::table_shard{0, 6, 86, 14, 0, 8});
  CHECK(plan.shards[9] == tessera::table_shard{1, 2, 2, 1, 0, 8});
  CHECK(tessera::row_wise(tables, 2, 1) == std::vector<tessera::table_shard>{tessera::whole_table(tables, 2, 0)});
  CHECK(has(refusal([&] { tessera::row_wise(tables, 0, 0); }), "ranks 0"));
}

TEST_CASE("sharding_plan: kinds of cuts are as even as can be, on the ranks or the host that they are told") {
  auto tables = three_tables();
  tables[1].dim = 18;  // 5 blocks of columns at most, of which the last has 2
  using shards = std::vector<tessera::table_shard>;
  CHECK(tessera::table_wise(tables, 1, 3) == shards{{1, 3, 0, 200, 0, 18}});
  CHECK(tessera::row_wise(tables, 0, {4, 1, 3}) == shards{{0, 4, 0, 34, 0, 8}, {0, 1, 34, 33, 0, 8}, {0, 3, 67, 33, 0, 8}});
  CHECK(tessera::column_wise(tables, 1, {2, 0, 1}) == shards{{1, 2, 0, 200, 0, 8}, {1, 0, 0, 200, 8, 8}, {1, 1, 0, 200, 16, 2}});
  CHECK(tessera::column_wise(tables, 0, {2, 0, 1}) == shards{{0, 2, 0, 100, 0, 4}, {0, 0, 0, 100, 4, 4}});
  shards const two_by_two{{1, 0, 0, 100, 0, 12}, {1, 1, 100, 100, 0, 12}, {1, 2, 0, 100, 12, 6}, {1, 3, 100, 100, 12, 6}};
  CHECK(tessera::grid(tables, 1, {{0, 1}, {2, 3}}) == two_by_two);
  auto const hosts = tessera::topology::of_hosts(2, 2);
  CHECK(tessera::grid_of_hosts(tables, 1, hosts) == two_by_two);
  CHECK(tessera::table_row_wise(tables, 0, hosts, 1) == shards{{0, 2, 0, 50, 0, 8}, {0, 3, 50, 50, 0, 8}});
  CHECK(tessera::table_column_wise(tables, 0, hosts, 1) == shards{{0, 2, 0, 100, 0, 4}, {0, 3, 0, 100, 4, 4}});
  CHECK(tessera::data_parallel(tables, 1) == shards{{1, tessera::table_shard::all_ranks, 0, 200, 0, 18}});
  CHECK(has(refusal([&] { tessera::table_row_wise(tables, 0, hosts, 2); }), "domain 2"));
  CHECK(has(refusal([&] { tessera::grid_of_hosts(tables, 0, tessera::topology(4, {})); }), "name host"));
  CHECK(has(refusal([&] { tessera::row_wise(tables, 2, std::vector<int>{}); }), "ranks 0"));
  CHECK(has(refusal([&] { tessera::column_wise(tables, 2, {}); }), "table 2, ranks 0"));
  CHECK(has(refusal([&] { tessera::grid(tables, 2, {{0}, {}}); }), "table 2, block 1, ranks 0"));
}

TEST_CASE("sharding_plan: kinds cover random tables on any number of ranks") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  for (int round = 0; round < 200; ++round) {
    auto const draw = [&](std::int64_t most) { return 1 + static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(most)); };
    std::vector<tessera::table_options> const tables{{.dim = draw(40), .rows = draw(20)}};
    auto const hosts = draw(4), each = draw(4);
    auto const ranks = static_cast<int>(hosts * each);
    auto const where = tessera::topology::of_hosts(hosts, each);
    auto const host = draw(hosts) - 1;
    std::vector<int> all(static_cast<std::size_t>(ranks));
    std::iota(all.begin(), all.end(), 0);
    std::shuffle(all.begin(), all.end(), random);
    for (auto const& shards :
         {tessera::table_wise(tables, 0, all[0]), tessera::row_wise(tables, 0, all), tessera::column_wise(tables, 0, all),
          tessera::grid_of_hosts(tables, 0, where), tessera::table_row_wise(tables, 0, where, host),
          tessera::table_column_wise(tables, 0, where, host), tessera::data_parallel(tables, 0)}) {
      tessera::check_plan({shards}, tables, ranks);
      std::vector<int> used;
      for (auto const& shard : shards) used.push_back(shard.rank);
      std::sort(used.begin(), used.end());
      CHECK(std::adjacent_find(used.begin(), used.end()) == used.end());
    }
  }
}

TEST_CASE("sharding_plan: what no tables and ranks can have is refused by name") {
  auto const tables = three_tables();
  tessera::sharding_plan const good{
      {{0, 0, 0, 60, 0, 8}, {0, 1, 60, 40, 0, 4}, {0, 0, 60, 40, 4, 4}, {1, 1, 0, 200, 0, 8}, {2, 1, 0, 300, 0, 8}}};
  tessera::check_plan(good, tables, 2);
  auto const change = [&](std::size_t shard, auto const& f) {
    auto plan = good;
    f(plan.shards[shard]);
    return refusal([&] { tessera::check_plan(plan, tables, 2); });
  };
  CHECK(has(change(3, [](auto& s) { s.table = 3; }), "no such table (table 3, rank 1"));
  CHECK(has(change(3, [](auto& s) { s.table = -1; }), "no such table"));
  CHECK(has(change(3, [](auto& s) { s.rank = 2; }), "no such rank (table 1, rank 2"));
  CHECK(has(change(3, [](auto& s) { s.rank = -2; }), "no such rank"));
  CHECK(change(3, [](auto& s) { s.rank = tessera::table_shard::all_ranks; }) == "none");
  CHECK(has(change(0, [](auto& s) { s.rank = tessera::table_shard::all_ranks; }), "a part of a table on all ranks (table 0"));
  CHECK(has(change(0, [](auto& s) { s.rows = 0; }), "an empty shard"));
  CHECK(has(change(0, [](auto& s) { s.columns = 0; }), "an empty shard"));
  CHECK(has(change(0, [](auto& s) { s.first_row = -1; }), "an empty shard"));
  CHECK(has(change(4, [](auto& s) { s.rows = 301; }), "past its table"));
  CHECK(has(change(4, [](auto& s) { s.first_column = 4; }), "past its table"));
  CHECK(has(change(2, [](auto& s) { s.first_column = 5, s.columns = 3; }), "no multiple of 4"));
  CHECK(has(change(0, [](auto& s) { s.rows = 61; }), "two shards overlap (table 0, rank 1"));
  CHECK(has(change(0, [](auto& s) { s.rows = 59; }), "not covered (table 0, id 10, elements 800, covered 792"));
  auto lacking = good;
  lacking.shards.pop_back();
  CHECK(has(refusal([&] { tessera::check_plan(lacking, tables, 2); }), "not covered (table 2"));
}

TEST_CASE("sharding_plan: random cuts are plans; one that lacks a shard or has it twice is none") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  for (int round = 0; round < 50; ++round) {
    std::vector<tessera::table_options> tables(1 + random() % 4);
    tessera::sharding_plan plan;
    for (std::size_t t = 0; t < tables.size(); ++t) {
      tables[t] = {.id = tessera::table_id{static_cast<std::int64_t>(t)},
                   .dim = 1 + static_cast<std::int64_t>(random() % 30),
                   .rows = 1 + static_cast<std::int64_t>(random() % 50)};
      for (std::int64_t row = 0; row < tables[t].rows;) {
        auto const rows = 1 + static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(tables[t].rows - row));
        for (std::int64_t column = 0; column < tables[t].dim;) {
          auto const columns = std::min<std::int64_t>(4 * (1 + static_cast<std::int64_t>(random() % 4)), tables[t].dim - column);
          plan.shards.push_back({static_cast<std::int64_t>(t), static_cast<int>(random() % 3), row, rows, column, columns});
          column += columns;
        }
        row += rows;
      }
    }
    std::shuffle(plan.shards.begin(), plan.shards.end(), random);
    tessera::check_plan(plan, tables, 3);
    auto other = plan;
    other.shards.push_back(plan.shards[random() % plan.shards.size()]);
    CHECK(has(refusal([&] { tessera::check_plan(other, tables, 3); }), "overlap"));
    other = plan;
    other.shards.pop_back();
    CHECK(has(refusal([&] { tessera::check_plan(other, tables, 3); }), "not covered"));
  }
}

}  // namespace sharding_plan_test
