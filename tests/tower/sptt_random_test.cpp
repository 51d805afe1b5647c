// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-labels: threads
// ctest-weight: 3
#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

#include <hosts.hpp>
#include <random.hpp>

#include <tessera/comm/any_communicator.hpp>
#include <tessera/comm/thread_communicator.hpp>

#include "drawn_problem.hpp"

namespace sptt_random_test {

using namespace tower_tests;

namespace {

// Calls check(drawn, weighted, random) for six of them, two of each way in which towers lie.
template <class Check>
void for_each_drawn(bool partial, Check const& check) {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  for (auto const lie : {towers_lie::on_several_hosts, towers_lie::on_a_host_each, towers_lie::several_on_a_host})
    for (bool const weighted : {false, true}) {
      auto const layout = draw_layout(lie, random);
      CAPTURE(layout.hosts);
      CAPTURE(layout.ranks_of_host);
      CAPTURE(layout.towers);
      CAPTURE(weighted);
      check(draw_on_hosts(layout, weighted, partial, random), weighted, random);
    }
}

}  // namespace

TEST_CASE("sptt_tables on drawn hosts: as sharded_tables, over one hop or two, they give and learn what one process does, bit for bit") {
  for_each_drawn(false, [](drawn_problem const& drawn, bool weighted, std::mt19937_64& random) {
    auto const check = [&](auto const& make) {
      auto same = random;  // the same batches for each source
      check_source_as_one_process(drawn.problem, drawn.specs, drawn.ranks(), weighted, tessera::out_of_range_ids::refuse, same,
                                  drawn.draw_rows(), make);
    };
    check([&](host_exec const& exec, any_communicator comm) { return drawn.flat(exec, std::move(comm)); });
    check([&](host_exec const& exec, any_communicator const& comm) { return drawn.two_hop(exec, comm); });
    check([&](host_exec const& exec, any_communicator comm) { return drawn.towered(exec, std::move(comm)); });
  });
}

TEST_CASE("sptt_tables on drawn hosts: batches with groups give and learn the bits of sharded_tables, over one hop or two") {
  for_each_drawn(true, [](drawn_problem const& drawn, bool weighted, std::mt19937_64& random) {
    auto const ranks = static_cast<std::size_t>(drawn.ranks());
    constexpr int steps = 4;
    std::vector<std::vector<source_rows>> rows(ranks);  // of each step
    for (auto& of_rank : rows)
      for (int step = 0; step < steps; ++step)
        of_rank.push_back(drawn.draw_rows()(random, static_cast<std::size_t>(draw_number(random, 0, 20))));
    auto const seed = random();
    std::vector<tessera_tests::serial_host> hosts(ranks);
    tessera::run_thread_ranks(drawn.ranks(), [&](tessera::thread_communicator& comm) {
      auto const rank = static_cast<std::size_t>(comm.rank());
      check_steps_alike(hosts[rank].exec(), comm, drawn, weighted, rows[rank], seed + 2 * steps * rank);
    });
  });
}

TEST_CASE("sptt_tables: after 100 steps rows have the bits of one process") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  for (auto const& layout : {hosts_and_towers{2, 2, 2}, {4, 1, 2}, {2, 2, 4}}) {
    CAPTURE(layout.hosts);
    CAPTURE(layout.towers);
    auto const drawn = draw_on_hosts(layout, false, false, random);
    check_source_as_one_process(
        drawn.problem, drawn.specs, drawn.ranks(), false, tessera::out_of_range_ids::refuse, random, drawn.draw_rows(),
        [&](host_exec const& exec, any_communicator comm) { return drawn.towered(exec, std::move(comm)); }, {}, 100);
  }
}

}  // namespace sptt_random_test
