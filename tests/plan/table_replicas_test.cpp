// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <tessera/plan/table_replicas.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <tessera/comm/any_communicator.hpp>
#include <tessera/comm/counting_communicator.hpp>
#include <tessera/comm/thread_communicator.hpp>
#include <tessera/core/optimizers.hpp>
#include <tessera/embed/dense_table.hpp>
#include <tessera/plan/cost_model.hpp>
#include <tessera/plan/plan_search.hpp>
#include <tessera/plan/roofline_cost.hpp>
#include <tessera/plan/shard_memory.hpp>
#include <tessera/shard/sharded_tables.hpp>
#include <tessera/tensor/keyed_jagged.hpp>

#include "hosts.hpp"
#include "random.hpp"
#include "random_models.hpp"
#include "temporary_folder.hpp"

namespace table_replicas_test {

using tessera::table_profile;
using tessera::table_shard;
using tessera_tests::error_of;

namespace {

constexpr double bags = 512;

// A table of bags of one id each, whose rows are all read `1 << bin` times or so.
table_profile read_often(std::string name, std::int64_t rows, std::int64_t dim, std::size_t bin) {
  table_profile table{.name = std::move(name), .rows = rows, .dim = dim, .pooling_factor = 1, .bags = bags, .distinct_bags = bags};
  table.access[bin] = 1;
  return table;
}

// Exchanges are slow, so that it pays to leave them out.
tessera::roofline_cost const slow_exchange({.memory_bytes_per_second = 1e9, .exchange_bytes_per_second = 1e7, .bags = bags});

std::int64_t on_all(tessera::found_plan const& found) {
  return std::count_if(found.shards.begin(), found.shards.end(), [](auto const& s) { return s.rank == table_shard::all_ranks; });
}

// Six tables that all devices may have, and six that are read too seldom.
std::vector<table_profile> small_and_large() {
  std::vector<table_profile> tables;
  for (int t = 0; t < 6; ++t) tables.push_back(read_often("small" + std::to_string(t), 20, 16, 5));
  for (int t = 0; t < 6; ++t) tables.push_back(read_often("large" + std::to_string(t), 1'000'000, 16, 0));
  return tables;
}

}  // namespace

TEST_CASE("profile_of_replica: a part of the ids, all distinct rows, and a vector for each of both") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  int found = 0;
  for (int i = 0; i < 2000; ++i) {
    auto table = tessera_tests::random_profile(random, 100'000, 64);
    table.bags = std::uniform_real_distribution<double>(0, 50'000)(random);
    table.distinct_bags = table.bags * std::uniform_real_distribution<double>(0, 1)(random);
    if (i % 7 == 0) table.access = {};
    auto const devices = std::uniform_int_distribution<std::int64_t>(2, 16)(random);
    auto const ids = tessera::distinct_ids_of_batch(table), rows = std::min(ids, tessera::distinct_rows_of_batch(table));
    auto const n = static_cast<double>(devices);
    REQUIRE(tessera::may_be_on_all_devices(table, devices) == (ids > 0 && rows * n <= ids));
    if (!(ids > 0) || rows * n > ids) continue;
    ++found;
    auto const replica = tessera::profile_of_replica(table, devices);
    tessera::check_table_profile(replica);
    CHECK(replica.rows == table.rows);
    CHECK(replica.dim == table.dim);
    CHECK(tessera::distinct_ids_of_batch(replica) == doctest::Approx(ids / n));
    CHECK(tessera::distinct_rows_of_batch(replica) == doctest::Approx(rows).epsilon(1e-6));
    CHECK(replica.distinct_bags == doctest::Approx(ids / n + rows));
    // Rows that are read more often in the batch are so in a part of it.
    CHECK(replica.access.back() <= table.access.back() + 1e-9);
  }
  CHECK(found > 100);
}

TEST_CASE("may_be_on_all_devices: hashed tables are left out, and a table on one device is that table") {
  auto table = read_often("t", 20, 8, 5);
  CHECK(tessera::may_be_on_all_devices(table, 16));
  table.hashed = true;
  CHECK_FALSE(tessera::may_be_on_all_devices(table, 16));
  table.hashed = false;
  CHECK(tessera::profile_of_replica(table, 1) == table);
  CHECK(tessera::columns_of_replica(table, 1) == 8);
  table.pooling_factor = 1 << 20;
  table.bags = table.distinct_bags = std::int64_t{1} << 34;
  table.dim = 1 << 14;  // 2^63 bytes of gradients by id on 16 devices
  CHECK_FALSE(tessera::may_be_on_all_devices(table, 16));
  table = read_often("t", 20, 8, 5);
  table.bags = table.distinct_bags = 0;  // nobody reads it
  CHECK_FALSE(tessera::may_be_on_all_devices(table, 4));
  // On one device, that is the same place.
  table = read_often("t", 5000, 8, 0);
  auto const of = [&](std::int64_t device) {
    return tessera::costs_of_devices(slow_exchange, std::vector{table}, std::vector<std::int64_t>{device}, 1);
  };
  CHECK(of(tessera::on_all_devices) == of(0));
}

TEST_CASE("columns_of_replica: ids count without deduplication, as columns do") {
  auto table = read_often("t", 20, 8, 5);
  auto const all = tessera::columns_of_replica(table, 4);
  table.distinct_bags /= 4;
  CHECK(tessera::columns_of_replica(table, 4) == doctest::Approx(all));
}

TEST_CASE("columns_of_replica: what a step of sharded tables sends, where all rows are read evenly") {
  constexpr int ranks = 4;
  constexpr std::int64_t rows = 64, dim = 24, samples = 512, bag = 2;
  std::vector<tessera::sent_counts> sent(ranks);
  std::vector<tessera_tests::serial_host> hosts(ranks);
  tessera::run_thread_ranks(ranks, [&](tessera::thread_communicator& comm) {
    auto const r = static_cast<std::size_t>(comm.rank());
    auto const exec = hosts[r].exec();
    tessera::table_options const table{.id = tessera::table_id{0}, .dim = dim, .rows = rows, .init_bound = 0.1F};
    std::vector<tessera::table_spec> const specs{tessera::spec_of<tessera::dense_table<>>(table, tessera::sgd{.learning_rate = 0.1F})};
    tessera::sharded_tables tables(exec, tessera::any_communicator(tessera::counting_communicator(comm, sent[r])), specs,
                                   {{.name = "a", .table = 0}}, {{{0, table_shard::all_ranks, 0, rows, 0, dim}}});
    std::vector<std::vector<std::int64_t>> lists;
    for (std::int64_t s = 0; s < samples; ++s) lists.push_back({(bag * s) % rows, (bag * s + 1) % rows});
    std::vector<tessera::feature_rows<>> all;
    all.emplace_back("a", std::move(lists));
    auto const ids = tessera::keyed_jagged<>::from_rows(exec, all);
    tessera::batch_view batch;
    batch.dense = {nullptr, samples, 0};
    batch.sparse = ids.view();
    std::vector<float> vectors(static_cast<std::size_t>(samples * dim)), slopes(vectors.size(), 0.01F);
    sent[r].clear();
    tessera::sharded_saved saved;
    tables.begin(exec, batch, saved);
    tables.finish(exec, saved, std::vector<tessera::matrix_view<float>>{{vectors.data(), samples, dim}});
    tables.begin_backward(exec, saved, std::vector<tessera::matrix_view<float const>>{{slopes.data(), samples, dim}});
    tables.finish_backward(exec, saved);
  });
  table_profile profile{.rows = rows, .dim = dim, .pooling_factor = bag, .bags = ranks * samples, .distinct_bags = ranks * samples};
  auto const column = 4.0 * samples * (ranks - 1);  // bytes that a device sends of one
  auto const expected = tessera::columns_of_replica(profile, ranks) * column;
  for (int r = 0; r < ranks; ++r) {
    std::int64_t bytes = 0;
    for (auto const& [operation, to] : sent[static_cast<std::size_t>(r)]) {
      if (operation.find("ids to") != std::string::npos) continue;  // as costs have it
      for (auto const& [rank, count] : to)
        if (rank != r) bytes += count.bytes;
    }
    // A message of sums begins with their number.
    CAPTURE(expected);
    CHECK(static_cast<double>(bytes) >= expected - 0.5);
    CHECK(static_cast<double>(bytes) <= expected + 8 * (ranks - 1) + 0.5);
  }
}

TEST_CASE("costs_of_devices: of a table on all devices, each looks up a part and updates all rows, and gradients alone are exchanged") {
  auto const often = read_often("often", 50, 16, 4), other = read_often("other", 5000, 32, 1);
  auto const costs =
      tessera::costs_of_devices(slow_exchange, std::vector{often, other}, std::vector<std::int64_t>{tessera::on_all_devices, 2}, 3);
  auto const rows = tessera::distinct_rows_of_batch(often), ids = bags / 3;
  // Of each distinct row forward, and twice backward; ids twice; vectors and gradients of ids and of rows. Sgd has no state.
  auto const moved = rows * 3 * 64 + 16 * ids + 8 * 16 * (ids + rows);
  CHECK(static_cast<double>(costs.compute[0]) == doctest::Approx(moved * 1e3 / 1e9));
  CHECK(costs.compute[0] == costs.compute[1]);
  CHECK(costs.compute[2] > costs.compute[0]);
  // Its 50 rows are added up by 3 devices, 17 of them by the first.
  auto const columns = (ids * 16 + 3 * std::min(rows, 17.0) * 18) / bags;
  CHECK(tessera::columns_of_replica(often, 3) == doctest::Approx(columns));
  std::vector<float> backward(3), with(3, static_cast<float>(columns)), forward(3), starts = costs.starts;
  with[2] += 32;
  slow_exchange.backward_ms(with, backward);
  slow_exchange.forward_ms(std::vector<float>{0, 0, 32}, starts, forward);
  for (std::size_t d = 0; d < 3; ++d) {
    CHECK(costs.backward[d] == doctest::Approx(backward[d]));
    CHECK(costs.forward[d] == doctest::Approx(forward[d]));
  }
  auto const refused = error_of([&] {
    auto seldom = read_often("seldom", 5000, 32, 0);
    tessera::costs_of_devices(slow_exchange, std::vector{seldom}, std::vector<std::int64_t>{tessera::on_all_devices}, 3);
  });
  CHECK(refused.code() == tessera::errc::invalid_argument);
  CHECK(refused.value("table") == "seldom");
}

TEST_CASE("plan_search: with replicas, small tables are on all devices where that costs less") {
  tessera_tests::serial_host host;
  auto tables = small_and_large();
  tables[1].hashed = true;
  tessera::plan_search_options options{.devices = 4, .bytes_per_device = std::int64_t{1} << 30, .evaluations = 20'000};
  auto const without = tessera::plan_search(host.exec(), tables, slow_exchange, options);
  CHECK(on_all(without) == 0);
  options.replicas = true;
  auto const found = tessera::plan_search(host.exec(), tables, slow_exchange, options);
  CHECK(found.cost_ms < 0.9F * without.cost_ms);
  CHECK(on_all(found) > 0);
  std::int64_t bytes = 0;
  for (auto const& shard : found.shards)
    if (shard.rank == table_shard::all_ranks) {
      CHECK(shard.table < 6);
      CHECK(shard.table != 1);
      bytes += tessera::memory_of_shard(tessera::profile_of_replica(tables[static_cast<std::size_t>(shard.table)], 4)).total();
    }
  for (std::int64_t d = 0; d < 4; ++d) {
    auto expected = bytes + tessera::received_bytes(tables, 4);
    for (auto const& shard : found.shards)
      if (shard.rank == d) {
        auto const profile = tessera::profile_of_shard(tables[static_cast<std::size_t>(shard.table)], shard.rows, shard.columns);
        expected += tessera::memory_of_shard(profile).total();
      }
    CHECK(found.bytes[static_cast<std::size_t>(d)] == expected);
  }
  CHECK(found.plan(4).shards.size() == found.shards.size());
  std::ostringstream text;
  text << found;
  CHECK(text.str().find(": on all devices") != std::string::npos);
  CHECK(text.str().find("and " + std::to_string(on_all(found)) + " on all devices") != std::string::npos);
  // Judged from the beginning, it costs what the search says.
  CHECK(tessera::plan_of_shards(tables, slow_exchange, found.limits, found.shards).cost_ms == found.cost_ms);
}

TEST_CASE("plan_search: with replicas, the same plan for any number of threads, and more evaluations never cost more") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  std::vector<table_profile> tables;
  while (tables.size() < 5) {
    tables.push_back(tessera_tests::random_profile(random, 3000, 32));
    tables.back().bags = tables.back().distinct_bags = bags;
  }
  tessera::plan_search_options options{
      .devices = 4, .bytes_per_device = std::int64_t{1} << 32, .evaluations = 12'000, .replicas = true, .seed = tessera::random_seed{seed}};
  tessera_tests::serial_host host;
  auto const one = tessera::plan_search(host.exec(), tables, slow_exchange, options);
  tessera_tests::pool_host<3> pool;
  auto const other = tessera::plan_search(pool.exec(), tables, slow_exchange, options);
  CHECK(one.shards == other.shards);
  CHECK(one.cost_ms == other.cost_ms);
  auto before = std::numeric_limits<float>::infinity();
  for (std::int64_t const evaluations : {1, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 16, 20, 24, 30, 200, 1500, 4000, 12'000}) {
    options.evaluations = evaluations;
    auto const found = tessera::plan_search(host.exec(), tables, slow_exchange, options);
    CHECK(found.cost_ms <= before);
    before = found.cost_ms;
  }
  CHECK(before == one.cost_ms);
}

TEST_CASE("plan_search: replicas are left out where they cost more, have no room, or belong to a tower") {
  tessera_tests::serial_host host;
  auto const exec = host.exec();
  // Exchanges cost nothing: a table that is read seldom enough is better updated by one device.
  tessera::roofline_cost const fast({.memory_bytes_per_second = 1e7, .exchange_bytes_per_second = 1e12, .bags = bags});
  std::vector<table_profile> alike(8, read_often("t", 100, 16, 2));
  tessera::plan_search_options options{.devices = 2, .bytes_per_device = std::int64_t{1} << 30, .evaluations = 5000, .replicas = true};
  CHECK(on_all(tessera::plan_search(exec, alike, fast, options)) == 0);
  // Each device has room for one of two tables.
  std::vector<table_profile> two(2, read_often("wide", 50'000, 16, 9));
  options.bytes_per_device = tessera::memory_of_shard(two[0]).total() * 5 / 4 + tessera::received_bytes(two, 2);
  CHECK(on_all(tessera::plan_search(exec, two, slow_exchange, options)) == 0);
  options.bytes_per_device *= 3;
  CHECK(on_all(tessera::plan_search(exec, two, slow_exchange, options)) > 0);
  // A device that has no room for a whole table may have room for its part.
  auto of_long_bags = read_often("long", 20, 4, 12);
  of_long_bags.bags = of_long_bags.distinct_bags = 65536;
  tessera::plan_search_options const narrow{.devices = 4, .bytes_per_device = 3'000'000, .evaluations = 2000, .replicas = true};
  CHECK(on_all(tessera::plan_search(exec, std::vector{of_long_bags}, slow_exchange, narrow)) == 1);
  // NeuroShard's networks know no number of bags.
  std::mt19937_64 random(1);
  auto const networks = tessera_tests::random_published_cost(random, 2, true);
  CHECK(error_of([&] { tessera::plan_search(exec, two, networks, options); }).value("tables") == "2");
  CHECK(error_of([&] {
          tessera::plan_of_tables(two, networks, {2, std::int64_t{1} << 40}, std::vector<std::int64_t>{0, -1});
        }).value("tables") == "1");
  CHECK(error_of([&] {
          tessera::plan_of_tables(two, slow_exchange, {2, 1 << 30}, std::vector<std::int64_t>{0, (std::int64_t{1} << 32) - 1});
        }).value("device") == "4294967295");
  two[0].tower = 0, two[1].tower = 1;
  options.towers = 2;
  CHECK(on_all(tessera::plan_search(exec, two, slow_exchange, options)) == 0);
}

}  // namespace table_replicas_test
