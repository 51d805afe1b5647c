// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-labels: threads
#include <tessera/tower/tower_kinds.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <tessera/comm/any_communicator.hpp>
#include <tessera/comm/thread_communicator.hpp>
#include <tessera/comm/topology.hpp>
#include <tessera/shard/sharding_plan.hpp>
#include <tessera/tower/plan_towers.hpp>
#include <tessera/tower/sptt_tables.hpp>

#include "../shard/sharded_problem.hpp"

namespace tower_kinds_test {

using namespace shard_tests;
using tessera::tower_kind;
using tessera::tower_table;

namespace {

// Tables of whose kinds some are read as sequences, or by several features; the first of a tower is large.
source_problem draw_problem(std::int64_t towers, std::mt19937_64& random, tessera::tower_partition& partition) {
  auto const draw = [&](std::int64_t least, std::int64_t most) { return std::uniform_int_distribution<std::int64_t>(least, most)(random); };
  source_problem problem;
  partition.towers.assign(static_cast<std::size_t>(towers), {});
  for (std::int64_t t = 0; t < 3 * towers; ++t) {
    tessera::table_options options{.id = tessera::table_id{100 + t}, .init_bound = 0.5F, .seed = tessera::random_seed{4}};
    options.dim = t < towers ? draw(40, 160) : draw(1, 40);
    options.rows = t < towers && draw(0, 1) == 0 ? 4000 : source_ids;
    problem.tables.push_back(options);
    problem.rates.push_back(0.5F);
    for (std::int64_t reader = draw(0, 3) == 0 ? 0 : 1; reader < 2; ++reader) {
      partition.towers[static_cast<std::size_t>(t % towers)].push_back(static_cast<std::int64_t>(problem.features.size()));
      tessera::table_feature feature{.name = std::to_string(problem.features.size()), .table = t};
      feature.sequence = draw(0, 3) == 0;
      feature.pooling = static_cast<tessera::pooling>(draw(0, 2));
      problem.features.push_back(feature);
    }
  }
  return problem;
}

// The bytes of ids, vectors and gradients inside a tower for one table that is cut so.
std::int64_t moved_by(source_problem const& problem, tessera::table_spec const& spec, std::int64_t table,
                      std::vector<tessera::table_shard> const& shards, bool by_rows, std::int64_t ranks, std::int64_t groups,
                      tessera::plan_towers_options const& options, bool partial) {
  std::int64_t bytes = 0;
  auto const readers = std::count_if(problem.features.begin(), problem.features.end(), [&](auto const& f) { return f.table == table; });
  tessera::exchange_shape shape;
  shape.grid.ranks = ranks;
  shape.samples = options.samples;
  shape.sources = groups;
  shape.id_bytes = spec.slots_are_ids ? 4 : 8;
  for (std::size_t f = 0; f < problem.features.size(); ++f) {
    auto const& feature = problem.features[f];
    if (feature.table != table) continue;
    for (auto const& shard : shards)
      shape.features.push_back({.rank = shard.rank,
                                .dim = shard.columns,
                                .ids_a_sample = options.ids_a_sample[f],
                                .row_shards = by_rows ? static_cast<std::int64_t>(shards.size()) : 1,
                                .of_ids = feature.sequence || (by_rows && !partial),
                                .keeps_rows = readers > 1});
  }
  for (auto const& all :
       {tessera::id_exchange_costs(shape), tessera::vector_exchange_costs(shape), tessera::gradient_exchange_costs(shape)})
    for (auto const& of_rank : all) bytes += of_rank.sent.inside_host.bytes;
  return bytes;
}

}  // namespace

TEST_CASE("plan_towers cuts what is larger than a share, in that way of all which moves the fewest bytes, and says so") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  std::int64_t cut = 0;
  for (int round = 0; round < 40; ++round) {
    std::int64_t const hosts = 1 + round % 3, each = 1 + round % 4;
    auto const where = tessera::topology::of_hosts(hosts, each);
    tessera::tower_partition towers;
    auto const problem = draw_problem(hosts, random, towers);
    hashed_tables hashed(problem.tables.size());
    for (std::size_t t = 0; t < hashed.size(); ++t) hashed[t] = random() % 4 == 0;
    auto const specs = specs_of(problem, hashed);
    auto const tables = tessera::options_of(specs);
    tessera::plan_towers_options options{.cuts_tables = true, .samples = static_cast<std::int64_t>(random() % 100)};
    options.by_columns = random() % 4 > 0;
    for (std::size_t f = 0; f < problem.features.size(); ++f) options.ids_a_sample.push_back(static_cast<std::int64_t>(random() % 9));
    auto const made = tessera::choose_tower_plan(specs, problem.features, where, towers, options);
    tessera::check_plan(made.plan, tables, static_cast<int>(where.ranks()));
    CHECK(tessera::plan_towers(specs, problem.features, where, towers, options) == made.plan);
    CHECK(made.tables.size() == specs.size());
    auto const text = tessera::text_of(made.tables, specs);
    CHECK(std::count(text.begin(), text.end(), '\n') == static_cast<std::ptrdiff_t>(specs.size()));
    for (auto const& of : made.tables) {
      CAPTURE(of.table);
      auto const table = static_cast<std::size_t>(of.table);
      std::int64_t in_group = 0;
      for (auto const& other : made.tables)
        if (other.group == of.group) in_group += other.bytes;
      CHECK(of.share == (in_group + each - 1) / each);
      std::int64_t shards = 0;
      for (auto const& shard : made.plan.shards) shards += shard.table == of.table ? 1 : 0;
      CHECK(shards == of.pieces);
      bool const whole = each == 1 || of.bytes <= of.share;
      if (whole) {
        CHECK(of.kind == tower_kind::whole);
        continue;
      }
      ++cut;
      std::vector<int> ranks(static_cast<std::size_t>((of.bytes + of.share - 1) / of.share));
      std::iota(ranks.begin(), ranks.end(), 0);
      CHECK(ranks.size() <= static_cast<std::size_t>(each));
      bool const sums = std::none_of(problem.features.begin(), problem.features.end(), [&](auto const& f) {
        return f.table == of.table && (f.sequence || f.pooling == tessera::pooling::max);
      });
      auto const columns = tessera::column_wise(tables, of.table, ranks), rows = tessera::row_wise(tables, of.table, ranks);
      auto const by_columns = moved_by(problem, specs[table], of.table, columns, false, each, hosts, options, false);
      auto const by_rows = moved_by(problem, specs[table], of.table, rows, true, each, hosts, options, sums);
      bool const can_columns = options.by_columns && columns.size() > 1;
      CHECK(of.moved[1] == (can_columns ? by_columns : tower_table::impossible));
      CHECK(of.moved[2] == by_rows);
      if (of.kind == tower_kind::rows) CHECK((!can_columns || by_rows <= by_columns));
      if (of.kind == tower_kind::columns) CHECK((can_columns && by_columns <= by_rows));
      CHECK(of.kind != tower_kind::whole);
      CHECK(of.partial == (of.kind == tower_kind::rows && sums));
      CHECK(text.find("table " + std::to_string(of.table) + " ") != std::string::npos);
    }
    CHECK(made.plan.partial.size() ==
          static_cast<std::size_t>(std::count_if(made.tables.begin(), made.tables.end(), [](auto const& of) { return of.partial; })));
  }
  CHECK(cut > 0);
}

TEST_CASE("plan_towers: by hand") {
  source_problem problem;
  problem.tables = {{.id = tessera::table_id{7}, .dim = 64, .rows = 1000}, {.id = tessera::table_id{8}, .dim = 4, .rows = 10}};
  problem.rates = {1, 1};
  problem.features = {{.name = "a", .table = 0}, {.name = "b", .table = 1}};
  auto const specs = specs_of(problem, {false, false});
  auto const where = tessera::topology::of_hosts(1, 2);
  tessera::tower_partition const towers{{{0, 1}}};
  // An id a sample: by rows it travels once. Vectors are as many.
  auto const one = tessera::choose_tower_plan(specs, problem.features, where, towers, {.cuts_tables = true, .samples = 64});
  CHECK(one.tables[0].kind == tower_kind::rows);
  CHECK(one.tables[0].partial);
  CHECK(tessera::text_of(one.tables, specs)
            .find("table 0 (id 7), ranks of group 0: 256000 bytes, share 128080: by rows over 2 ranks with "
                  "partial sums, moves ") == 0);
  // Eight ids, of which each shard of rows has some of nearly every sample: twice the vectors.
  auto const eight =
      tessera::choose_tower_plan(specs, problem.features, where, towers, {.cuts_tables = true, .samples = 64, .ids_a_sample = {8, 1}});
  CHECK(eight.tables[0].kind == tower_kind::columns);
  CHECK(eight.tables[1].kind == tower_kind::whole);
  auto const without = tessera::choose_tower_plan(specs, problem.features, where, towers,
                                                  {.cuts_tables = true, .samples = 64, .ids_a_sample = {8, 1}, .by_columns = false});
  CHECK(without.tables[0].kind == tower_kind::rows);
  CHECK(tessera::plan_towers(specs, problem.features, where, towers).shards.size() == 2);

  auto const refused = [&](tessera::plan_towers_options const& options) {
    return tessera_tests::error_of([&] { tessera::plan_towers(specs, problem.features, where, towers, options); });
  };
  CHECK(refused({.limit_bytes = 128'000, .cuts_tables = true}).code() == tessera::errc::out_of_memory);
  CHECK(refused({.limit_bytes = 128'000, .cuts_tables = true}).value("limit_bytes") == "128000");
  CHECK(refused({.limit_bytes = 200'000}).value("table") == "7");
  CHECK(refused({.limit_bytes = 200'000}).value("bytes") == "256000");
  tessera::plan_towers(specs, problem.features, where, towers, {.limit_bytes = 200'000, .cuts_tables = true});
  CHECK(refused({.limit_bytes = -1}).value("limit_bytes") == "-1");
  CHECK(refused({.samples = -1}).value("samples") == "-1");
  CHECK(refused({.ids_a_sample = {1}}).value("numbers") == "1");
}

TEST_CASE("sptt_tables with cut tables give and learn the bits of sharded_tables of the same plan") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  for (auto const& [hosts_count, each] : {std::pair<std::int64_t, std::int64_t>{1, 3}, {2, 2}, {2, 3}, {3, 2}})
    for (bool const by_columns : {false, true}) {
      auto const where = tessera::topology::of_hosts(hosts_count, each);
      auto const ranks = static_cast<int>(where.ranks());
      CAPTURE(ranks);
      tessera::tower_partition towers;
      auto const problem = draw_problem(hosts_count, random, towers);
      hashed_tables hashed(problem.tables.size());
      for (std::size_t t = 0; t < hashed.size(); ++t) hashed[t] = random() % 4 == 0;
      auto const specs = specs_of(problem, hashed);
      auto const plan = tessera::plan_towers(specs, problem.features, where, towers, {.cuts_tables = true, .by_columns = by_columns});
      source_rows rows(problem.features.size(), std::vector<std::vector<std::int64_t>>(static_cast<std::size_t>(10 * ranks)));
      for (auto& key : rows)
        for (auto& row : key) row = tessera_tests::random_integers<std::int64_t>(random, random() % 5, 0, source_ids - 1);
      std::vector<tessera_tests::serial_host> hosts(static_cast<std::size_t>(ranks));
      tessera::run_thread_ranks(ranks, [&](tessera::thread_communicator& comm) {
        auto const here = hosts[static_cast<std::size_t>(comm.rank())].exec();
        sharded_tables flat(here, comm, specs, problem.features, plan);
        tessera::sptt_tables<> towered(here, comm, where, specs, problem.features, plan, towers);
        tessera::sharded_saved of_flat;
        tessera::sptt_saved<tessera::pass_through> of_towers;
        auto const part = part_of(rows, comm.rank() * std::int64_t{10}, comm.rank() * std::int64_t{10} + 10);
        std::mt19937_64 own(static_cast<std::uint64_t>(comm.rank()));
        std::normal_distribution<float> draw;
        for (int step = 0; step < 3; ++step) {
          source_batch const one(here, problem, part, false), other(here, problem, part, false);
          auto const copied = own;
          one.fill_gradients([&] { return draw(own); });
          own = copied;
          draw.reset();
          other.fill_gradients([&] { return draw(own); });
          draw.reset();
          forward(here, flat, one, of_flat);
          forward(here, towered, other, of_towers);
          for (std::size_t key = 0; key < one.given().size(); ++key)
            for (std::int64_t r = 0; r < one.given()[key].rows(); ++r)
              CHECK(std::equal(one.given()[key].row(r), one.given()[key].row(r) + one.given()[key].columns(), other.given()[key].row(r)));
          backward(here, flat, one, of_flat);
          backward(here, towered, other, of_towers);
        }
        CHECK(same_bits(all_rows(here, problem, flat), all_rows(here, problem, towered)));
      });
    }
}

}  // namespace tower_kinds_test
