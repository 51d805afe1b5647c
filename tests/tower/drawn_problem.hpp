// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <tessera/comm/any_communicator.hpp>
#include <tessera/comm/topology.hpp>
#include <tessera/comm/two_hop_communicator.hpp>
#include <tessera/core/optimizers.hpp>
#include <tessera/embed/dense_table.hpp>
#include <tessera/embed/hash_table.hpp>
#include <tessera/shard/sharded_tables.hpp>
#include <tessera/shard/sharding_plan.hpp>
#include <tessera/tower/sptt_tables.hpp>
#include <tessera/tower/tower_partition.hpp>

#include "../shard/sharded_problem.hpp"
#include "drawn_towers.hpp"

/// Drawn tables on drawn hosts, as flat exchanges, two hops and towers have them.
namespace tower_tests {

using namespace shard_tests;

// Where towers lie.
enum class towers_lie { on_several_hosts, on_a_host_each, several_on_a_host };

inline std::int64_t draw_number(std::mt19937_64& random, std::int64_t least, std::int64_t most) {
  return std::uniform_int_distribution<std::int64_t>(least, most)(random);
}

// Of at most 12 ranks.
inline hosts_and_towers draw_layout(towers_lie lie, std::mt19937_64& random) {
  for (;;) {
    auto const hosts = draw_number(random, 1, 6), each = draw_number(random, 1, 4);
    auto const many = draw_number(random, 2, 3);  // hosts a tower, or towers a host
    if (hosts * each > 12) continue;
    if (lie == towers_lie::on_a_host_each) return {hosts, each, hosts};
    if (lie == towers_lie::several_on_a_host && hosts * many <= 6) return {hosts, each, hosts * many};
    if (lie == towers_lie::on_several_hosts && hosts % many == 0) return {hosts, each, hosts / many};
  }
}

// A problem of any tables and features, its towers, and where its shards lie.
struct drawn_problem {
  source_problem problem;
  hashed_tables hashed;
  std::vector<tessera::table_spec> specs;
  tessera::topology where;
  tessera::tower_partition towers;
  sharding_plan plan;

  int ranks() const { return static_cast<int>(where.ranks()); }
  auto draw_rows() const {
    return
        [keys = problem.features.size()](std::mt19937_64& random, std::size_t samples) { return draw_rows_of_keys(random, samples, keys); };
  }
  sharded_tables flat(host_exec const& exec, any_communicator comm) const { return {exec, std::move(comm), specs, problem.features, plan}; }
  sharded_tables two_hop(host_exec const& exec, any_communicator const& comm) const {
    return flat(exec, tessera::two_hop_communicator<any_communicator>(comm, where));
  }
  tessera::sptt_tables<> towered(host_exec const& exec, any_communicator comm) const {
    return {exec, std::move(comm), where, specs, problem.features, plan, towers};
  }
};

// Each table is read at least once, and tables enough for the towers.
inline source_problem draw_problem(std::int64_t towers, bool weighted, std::mt19937_64& random) {
  source_problem problem;
  auto const tables = std::max<std::int64_t>(towers, 2) + draw_number(random, 0, 2);
  for (std::int64_t t = 0; t < tables; ++t) {
    problem.tables.push_back({.id = tessera::table_id{50 + t},
                              .dim = draw_number(random, 1, 24),
                              .rows = source_ids,
                              .init_bound = 0.5F,
                              .seed = tessera::random_seed{random()}});
    problem.rates.push_back(std::ldexp(1.0F, -static_cast<int>(draw_number(random, 0, 3))));
  }
  std::vector<std::int64_t> read(static_cast<std::size_t>(tables));
  std::iota(read.begin(), read.end(), std::int64_t{0});
  for (auto more = draw_number(random, 2, 5); more > 0; --more) read.push_back(draw_number(random, 0, tables - 1));
  std::shuffle(read.begin(), read.end(), random);
  for (auto const table : read) {
    tessera::table_feature feature{.name = "f" + std::to_string(problem.features.size()), .table = table};
    feature.sequence = random() % 3 == 0;
    // A maximum is of an unweighted batch.
    constexpr tessera::pooling ways[] = {tessera::pooling::sum, tessera::pooling::mean, tessera::pooling::max};
    feature.pooling = ways[draw_number(random, 0, weighted ? 1 : 2)];
    problem.features.push_back(feature);
  }
  return problem;
}

// Some features of a table go to another tower of its host.
inline void part_tables(tessera::tower_partition& towers, std::int64_t towers_of_host, std::mt19937_64& random) {
  auto const count = static_cast<std::int64_t>(towers.towers.size());
  for (std::int64_t t = 0; t < count; ++t) {
    auto& from = towers.towers[static_cast<std::size_t>(t)];
    auto const host = t / towers_of_host;
    auto const other = host * towers_of_host + draw_number(random, 0, towers_of_host - 1);
    if (other == t || from.size() < 2) continue;
    towers.towers[static_cast<std::size_t>(other)].push_back(from.back());
    from.pop_back();
  }
}

// Each table in one of the ways that its tower's ranks allow, over some of them.
inline sharding_plan draw_plan(drawn_problem const& drawn, bool partial, std::mt19937_64& random) {
  sharding_plan plan;
  auto const& tables = drawn.problem.tables;
  for (std::size_t t = 0; t < tables.size(); ++t) {
    auto const table = static_cast<std::int64_t>(t);
    auto here = draw_ranks_of_table(drawn.problem, table, drawn.where, drawn.towers, random);
    here.resize(static_cast<std::size_t>(draw_number(random, 1, static_cast<std::int64_t>(here.size()))));
    std::vector<std::vector<int>> blocks(std::min<std::size_t>(here.size(), 2));
    for (std::size_t r = 0; r < here.size(); ++r) blocks[r % blocks.size()].push_back(here[r]);
    auto const way = draw_number(random, 0, drawn.hashed[t] ? 3 : 4);  // blocks of hashed tables have the same rows
    auto const shards = way == 0   ? tessera::table_wise(tables, table, here[0])
                        : way == 1 ? tessera::column_wise(tables, table, here)
                        : way == 2 ? tessera::row_wise(tables, table, here)
                        : way == 3 ? tessera::data_parallel(tables, table)
                                   : tessera::grid(tables, table, blocks);
    plan.shards.insert(plan.shards.end(), shards.begin(), shards.end());
    auto const is_sum = [&](auto const& f) { return f.table != table || (!f.sequence && f.pooling != tessera::pooling::max); };
    if (partial && random() % 2 == 0 && std::all_of(drawn.problem.features.begin(), drawn.problem.features.end(), is_sum))
      plan.partial.push_back(table);
  }
  std::shuffle(plan.shards.begin(), plan.shards.end(), random);
  return plan;
}

inline drawn_problem draw_on_hosts(hosts_and_towers const& layout, bool weighted, bool partial, std::mt19937_64& random) {
  drawn_problem drawn{.problem = draw_problem(layout.towers, weighted, random),
                      .hashed = {},
                      .specs = {},
                      .where = tessera::topology::of_hosts(layout.hosts, layout.ranks_of_host),
                      .towers = {},
                      .plan = {}};
  for (std::size_t t = 0; t < drawn.problem.tables.size(); ++t) drawn.hashed.push_back(random() % 3 == 0);
  drawn.specs = specs_of(drawn.problem, drawn.hashed);
  for (std::size_t t = 0; t < drawn.specs.size(); ++t)
    if (!drawn.hashed[t] && random() % 2 == 0)
      drawn.specs[t] = tessera::spec_of<tessera::dense_table<>>(drawn.problem.tables[t], tessera::adam{.learning_rate = 0.1F});
  drawn.towers = draw_towers(drawn.problem, layout.towers, random);
  if (layout.towers > layout.hosts) part_tables(drawn.towers, layout.towers / layout.hosts, random);
  drawn.plan = draw_plan(drawn, partial, random);
  return drawn;
}

// What came out of a batch.
inline std::vector<float> numbers_of(source_batch<host_exec> const& batch) {
  std::vector<float> all;
  for (auto const& block : batch.given())
    for (std::int64_t r = 0; r < block.rows(); ++r) all.insert(all.end(), block.row(r), block.row(r) + block.columns());
  return all;
}

// A source on a rank, step by step, of batches that are the same for all sources of that rank.
template <class Source>
class stepped_source {
 public:
  stepped_source(host_exec const& exec, Source source) : exec_(exec), source_(std::move(source)) {}

  // One step. @return its vectors
  std::vector<float> step(drawn_problem const& drawn, source_rows const& rows, bool weighted, std::uint64_t seed) {
    source_batch const batch(exec_, drawn.problem, rows, true, weighted);
    std::mt19937_64 random(seed);
    std::normal_distribution<float> draw;
    batch.fill_gradients([&] { return draw(random); });
    forward(exec_, source_, batch, saved_);
    if (seed % 2 == 0) {
      backward(exec_, source_, batch, saved_);
    } else {  // the same of gradients that are handed out
      begin_backward(exec_, source_, batch, saved_);
      source_.gradients(exec_, saved_, sum_);
      source_.apply(exec_, sum_);
    }
    return numbers_of(batch);
  }
  std::vector<float> rows(source_problem const& problem) const { return all_rows(exec_, problem, source_); }

 private:
  host_exec exec_;
  Source source_;
  typename Source::saved_type saved_;
  tessera::row_gradients sum_;
};

// Takes a rank's steps by one hop, two hops and towers: all give and learn the same bits. The seed is even on all ranks, or odd on all.
inline void check_steps_alike(host_exec const& here, any_communicator const& comm, drawn_problem const& drawn, bool weighted,
                              std::vector<source_rows> const& rows_of_steps, std::uint64_t seed) {
  stepped_source flat(here, drawn.flat(here, comm)), two_hop(here, drawn.two_hop(here, comm));
  stepped_source towered(here, drawn.towered(here, comm));
  for (auto const& rows : rows_of_steps) {
    auto const step = [&](auto& source) { return source.step(drawn, rows, weighted, seed); };
    auto const expected = step(flat);
    CHECK(same_bits(step(two_hop), expected));
    CHECK(same_bits(step(towered), expected));
    ++seed;
  }
  auto const expected = flat.rows(drawn.problem);
  CHECK(same_bits(two_hop.rows(drawn.problem), expected));
  CHECK(same_bits(towered.rows(drawn.problem), expected));
}

}  // namespace tower_tests
