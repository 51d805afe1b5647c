// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include <tessera/comm/topology.hpp>
#include <tessera/tower/device_sptt_tables.cuh>
#include <tessera/tower/plan_towers.hpp>
#include <tessera/tower/sptt_tables.hpp>

#include "../shard/sharded_tables_device.hpp"
#include "drawn_towers.hpp"
#include "sanitizers.hpp"

/// Towers on devices beside those of the host, of the same ranks. `Ranks` as for sharded tables.
namespace tower_tests {

using namespace shard_tests;

/// A plan of what devices have: tables that are whole, cut by columns, or by rows with partial sums, on some of their tower's ranks.
inline sharding_plan draw_device_plan(source_problem const& problem, tessera::topology const& where, tessera::tower_partition const& towers,
                                      bool by_rows, std::mt19937_64& random) {
  sharding_plan plan;
  for (std::int64_t t = 0; t < static_cast<std::int64_t>(problem.tables.size()); ++t) {
    auto const here = draw_ranks_of_table(problem, t, where, towers, random);
    auto const way = random() % (by_rows ? 3 : 2);
    auto const shards = way == 0   ? tessera::table_wise(problem.tables, t, here[0])
                        : way == 1 ? tessera::column_wise(problem.tables, t, here)
                                   : tessera::row_wise(problem.tables, t, here);
    plan.shards.insert(plan.shards.end(), shards.begin(), shards.end());
    if (by_rows) plan.partial.push_back(t);
  }
  return plan;
}

/// Outputs and rows have the bits of the host's.
template <class Ranks>
void towers_on_devices(std::vector<hosts_and_towers> const& layouts, tessera::exchange_codecs const& codecs = {}) {
  using exec_type = typename Ranks::exec_type;
  using communicator = typename Ranks::communicator;
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  for (auto const& layout : layouts)
    for (bool const by_rows : {false, true}) {
      if (tessera_tests::under_asan && by_rows != ((&layout - layouts.data()) % 2 == 1)) continue;
      CAPTURE(layout.hosts);
      CAPTURE(layout.ranks_of_host);
      CAPTURE(layout.towers);
      CAPTURE(by_rows);
      auto const where = tessera::topology::of_hosts(layout.hosts, layout.ranks_of_host);
      auto const ranks = static_cast<int>(where.ranks());
      auto const hashed = draw_hashed(random, 5);
      auto problem = problem_of_devices(hashed);
      if (by_rows) pool_all(problem);
      for (std::size_t t = 0; t < hashed.size(); ++t)
        if (hashed[t]) problem.tables[t].rows = 100 * ranks;
      bool const weighted = random() % 2 == 0;
      auto const towers = draw_towers(problem, layout.towers, random);
      auto const plan = draw_device_plan(problem, where, towers, by_rows, random);
      auto const of_ranks = random();
      Ranks::run(ranks, [&](host_exec const& host, any_communicator hosts, exec_type const& exec, communicator& comm) {
        std::mt19937_64 own(of_ranks + static_cast<std::uint64_t>(comm.rank()));
        tessera::sptt_options const options{.codecs = codecs};
        tessera::sptt_tables<> here(host, hosts, where, specs_of(problem, hashed), problem.features, plan, towers, {}, options);
        tessera::device_sptt_tables<communicator> there(host, hosts, exec, comm, where, device_specs_of<exec_type>(problem, hashed),
                                                        problem.features, plan, towers, options);
        train_beside(host, here, exec, there, problem, true, weighted, own);
      });
    }
}

/// What one rank's data cannot have is thrown on all, and changes nothing; so is what fails behind the ids.
template <class Ranks>
void towers_on_devices_refuse() {
  using exec_type = typename Ranks::exec_type;
  using communicator = typename Ranks::communicator;
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  hashed_tables const hashed(5, false);
  auto const problem = problem_of_devices(hashed);
  auto const rows = draw_source_rows(random, 8);
  auto wrong = rows;
  wrong[4][5].push_back(source_ids);
  for (auto const& layout : {hosts_and_towers{2, 2, 2}, hosts_and_towers{3, 1, 3}}) {
    auto const where = tessera::topology::of_hosts(layout.hosts, layout.ranks_of_host);
    auto const ranks = static_cast<int>(where.ranks());
    auto const towers = draw_towers(problem, layout.towers, random);
    auto const plan = draw_device_plan(problem, where, towers, false, random);
    Ranks::run(ranks, [&](host_exec const& host, any_communicator hosts, exec_type const& exec, communicator& comm) {
      tessera::device_sptt_tables<communicator> source(host, hosts, exec, comm, where, device_specs_of<exec_type>(problem, hashed),
                                                       problem.features, plan, towers);
      CHECK(source.comm().size() == ranks);
      CHECK(source.places().tables.size() == problem.tables.size());
      CHECK(source.bytes() == source.inside().bytes());
      tessera::device_sptt_saved<communicator> saved;
      source_batch const good(exec, problem, rows, false), bad(exec, problem, wrong, false);
      good.fill_gradients([] { return 1.0F; });
      auto const before = all_rows(exec, problem, source);
      for (int who = 0; who < ranks; ++who) {
        bool const is_it = comm.rank() == who;
        auto const e = tessera_tests::error_of([&] { forward(exec, source, is_it ? bad : good, saved); });
        CHECK(e.code() == (is_it ? tessera::errc::out_of_range : tessera::errc::rank_failed));
        if (is_it) CHECK(e.value("feature") == "4");
        if (is_it) CHECK(e.value("rank") == std::to_string(who));
        auto const of_predict = tessera_tests::error_of([&] { source.predict(exec, is_it ? bad.view() : good.view(), good.out()); });
        CHECK(of_predict.code() == (is_it ? tessera::errc::out_of_range : tessera::errc::rank_failed));
        forward(exec, source, good, saved);
        CHECK(same_bits(all_rows(exec, problem, source), before));
      }
      CHECK(tessera_tests::error_of([&] { source.finish_backward(exec, saved); }).code() == tessera::errc::invalid_argument);
      source.begin(exec, good.view(), saved);
      CHECK(tessera_tests::error_of([&] { source.begin(exec, good.view(), saved); }).code() == tessera::errc::invalid_argument);
      source.finish(exec, saved, good.out());
      // Its tower and its peers throw.
      tessera::vector_view<tessera::matrix_view<float const> const> const blocks(good.gradients());
      auto const e = tessera_tests::error_of([&] {
        source.begin_backward(exec, saved, comm.rank() == 0 ? blocks.slice(0, blocks.size() - 1) : blocks);
        source.finish_backward(exec, saved);
        throw tessera::error(tessera::errc::io_error, "it has neither");
      });
      if (comm.rank() == 0)
        CHECK(e.code() == tessera::errc::shape_mismatch);
      else if (source.ranks().group_of(comm.rank()) == 0 || source.ranks().index_of(comm.rank()) == 0)
        CHECK(e.code() == tessera::errc::rank_failed);
    });
  }
}

}  // namespace tower_tests
