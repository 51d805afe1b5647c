// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-weight: 5
#include <tessera/plan/found_plan.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <tessera/comm/thread_communicator.hpp>
#include <tessera/plan/plan_search.hpp>
#include <tessera/plan/roofline_cost.hpp>
#include <tessera/shard/sharded_tables.hpp>
#include <tessera/train/feature_interaction.hpp>

#include "../shard/sharded_problem.hpp"
#include "../train/trained_clicks.hpp"
#include "hosts.hpp"
#include "random.hpp"

namespace executed_plan_test {

namespace {

using namespace shard_tests;

constexpr int ranks = 4;
constexpr std::int64_t limit = 120'000, wide = 0, tall = 1;

// Columns of the wide table must be cut, for a device has no room for all of it. So must the tall table's rows, where it is tall.
std::vector<tessera::table_options> draw_tables(std::mt19937_64& random, bool is_tall) {
  auto const around = [&](std::uint64_t rows) { return static_cast<std::int64_t>(rows + random() % (rows / 4)); };
  std::vector<tessera::table_options> tables;
  for (auto const& [dim, rows] : {std::pair<std::int64_t, std::int64_t>(64, around(500)),
                                  {6, around(is_tall ? 5200 : 50)},
                                  {16, around(400)},
                                  {8, around(700)},
                                  {5, around(300)}})
    tables.push_back({.id = tessera::table_id{20 + static_cast<std::int64_t>(tables.size())},
                      .dim = dim,
                      .rows = rows,
                      .init_bound = 0.3F,
                      .seed = tessera::random_seed{4}});
  return tables;
}

// What a search finds for these tables, on as many devices as ranks. With replicas, bags are so many, and exchanges so
// slow, that the smallest table is best on all devices.
sharding_plan found_for(std::vector<tessera::table_options> const& tables, bool is_tall, bool replicas = false) {
  double const bags = replicas ? 1000 : 80;
  std::vector<tessera::table_profile> profiles;
  for (auto const& table : tables)
    profiles.push_back({.name = std::to_string(profiles.size()),
                        .rows = table.rows,
                        .dim = table.dim,
                        .pooling_factor = replicas ? 1.0 : 2.0,
                        .bags = bags,
                        .distinct_bags = bags});
  tessera::roofline_cost const model({.memory_bytes_per_second = 2e10, .exchange_bytes_per_second = replicas ? 1e8 : 5e9, .bags = bags});
  tessera_tests::serial_host host;
  auto const plan = tessera::plan_search(host.exec(), profiles, model,
                                         {.devices = ranks,
                                          .bytes_per_device = limit,
                                          .counted = tessera::counted_memory::float_weights,
                                          .evaluations = 5000,
                                          .cut_rows = is_tall,
                                          .replicas = replicas})
                        .plan(ranks);
  for (auto const& shard : plan.shards) {
    if (shard.table == wide) CHECK(shard.columns < tables[wide].dim);
    if (shard.table == tall && is_tall) CHECK(shard.rows < tables[tall].rows);
    if (shard.table == tall) CHECK((shard.rank == tessera::table_shard::all_ranks) == replicas);
  }
  CHECK(plan.partial == (is_tall ? std::vector<std::int64_t>{tall} : std::vector<std::int64_t>{}));
  return plan;
}

}  // namespace

TEST_CASE("executed plans: tables cut as a search found give and learn what whole tables in one process do") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  for (auto const& kind : {std::pair(false, false), {true, false}, {false, true}}) {
    auto const is_tall = kind.first, replicas = kind.second;
    CAPTURE(is_tall);
    CAPTURE(replicas);
    source_problem problem;
    problem.tables = draw_tables(random, is_tall);
    problem.rates = {0.5F, 0.25F, 1, 0.125F, 0.5F};
    problem.features = {{.name = "a", .table = wide},
                        {.name = "b", .table = wide, .sequence = true},
                        {.name = "c", .table = wide, .pooling = tessera::pooling::mean},
                        {.name = "d", .table = tall},
                        {.name = "e", .table = tall},
                        {.name = "f", .table = 2, .pooling = tessera::pooling::max},
                        {.name = "g", .table = 3},
                        {.name = "h", .table = 4, .sequence = true}};
    for (auto const& table : problem.tables) problem.ids = std::max(problem.ids, table.rows);
    auto const draw_rows = [&](std::mt19937_64& from, std::size_t samples) {
      source_rows rows(problem.features.size());
      for (std::size_t key = 0; key < rows.size(); ++key)
        while (rows[key].size() < samples)
          rows[key].push_back(tessera_tests::random_integers<std::int64_t>(
              from, from() % 5, 0, problem.tables[static_cast<std::size_t>(problem.features[key].table)].rows - 1));
      return rows;
    };
    // Of at most four ids, partial sums are this near; sums' gradients, and so all rows, have the bits.
    roundings const most{is_tall ? 2.0 * (4 + 1) * 4 : 0, 0};
    auto const specs = specs_of(problem, hashed_tables(problem.tables.size(), false));
    check_as_one_process(problem, specs, found_for(problem.tables, is_tall, replicas), ranks, false,
                         {.out_of_range = tessera::out_of_range_ids::zero}, random, draw_rows, most);
  }
}

TEST_CASE("executed plans: a model over tables cut as a search found trains as over whole tables, bit for bit where columns are cut") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  std::vector<tessera::table_feature> const features{
      {.name = "a", .table = wide}, {.name = "b", .table = wide, .pooling = tessera::pooling::mean},
      {.name = "c", .table = tall}, {.name = "d", .table = 2, .pooling = tessera::pooling::mean},
      {.name = "e", .table = 3},    {.name = "f", .table = 4}};
  using train_tests::chunk;
  tessera::trainer_options const fixed_sums{.chunk_samples = chunk};
  auto const learn = [&](host_exec const& exec, auto source, tessera::trainer_options const& options, auto const& data, auto const& part) {
    return train_tests::learn<tessera::dot_products>(exec, std::move(source), options, data, part, train_tests::way::steps);
  };
  for (bool const is_tall : {false, true}) {
    CAPTURE(is_tall);
    auto const tables = draw_tables(random, is_tall);
    std::vector<tessera::table_spec> specs;
    for (auto const& table : tables)
      specs.push_back(tessera::spec_of<tessera::dense_table<>>(table, tessera::adagrad{.learning_rate = 0.1F, .initial_state = 0.01F}));
    std::vector<std::int64_t> rows;
    for (auto const& feature : features) rows.push_back(tables[static_cast<std::size_t>(feature.table)].rows);
    train_tests::click_data const data(random, 4, features, rows);

    tessera_tests::serial_host host;
    tessera::table_list list;
    for (auto const& spec : specs) spec.add(host.exec(), spec.table, list);
    auto const alone = learn(host.exec(), tessera::local_tables(std::move(list), features), fixed_sums, data,
                             [](std::int64_t samples) { return std::pair<std::int64_t, std::int64_t>(0, samples); });
    auto const plan = found_for(tables, is_tall);
    std::vector<train_tests::learned> of_rank(ranks);
    std::vector<tessera_tests::serial_host> hosts(ranks);
    tessera::run_thread_ranks(ranks, [&](tessera::thread_communicator& comm) {
      auto const r = static_cast<std::size_t>(comm.rank());
      auto options = fixed_sums;
      options.comm = comm;
      // Whole chunks a rank.
      auto const bound = [&](std::int64_t samples, int rank) { return rank == ranks ? samples : samples / chunk * rank / ranks * chunk; };
      of_rank[r] = learn(hosts[r].exec(), sharded_tables(hosts[r].exec(), comm, specs, features, plan), options, data,
                         [&](std::int64_t samples) { return std::pair(bound(samples, comm.rank()), bound(samples, comm.rank() + 1)); });
    });
    CHECK(alone.losses.front() != alone.losses.back());
    for (auto const& one : of_rank) {
      CHECK(train_tests::same(one, of_rank[0]));
      if (!is_tall) {
        CHECK(train_tests::same(one, alone));
        continue;
      }
      REQUIRE(one.losses.size() == alone.losses.size());
      REQUIRE(one.values.size() == alone.values.size());
      double of_losses = 0, of_values = 0;
      for (std::size_t i = 0; i < one.losses.size(); ++i) of_losses = std::max(of_losses, std::abs(one.losses[i] - alone.losses[i]));
      for (std::size_t i = 0; i < one.values.size(); ++i)
        of_values = std::max(of_values, std::abs(static_cast<double>(one.values[i] - alone.values[i])));
      // Partial sums are rounded otherwise. Where that puts a hidden unit on the other side of 0, Adam moves its weights by a part of a step.
      CHECK(of_losses <= 1e-3);
      CHECK(of_values <= 2e-2);
    }
  }
}

}  // namespace executed_plan_test
