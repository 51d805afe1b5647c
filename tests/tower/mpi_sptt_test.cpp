// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-target: tessera::mpi
// ctest-ranks: 4 8
#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include <tessera/comm/any_communicator.hpp>
#include <tessera/comm/mpi_communicator.hpp>
#include <tessera/comm/topology.hpp>

#include <hosts.hpp>
#include "../comm/mpi_world.hpp"
#include "drawn_problem.hpp"

namespace mpi_sptt_test {

using namespace tower_tests;

namespace {

// Hosts of two ranks: towers of two hosts each, one a host, two a host; as far as so many ranks have them.
std::vector<hosts_and_towers> layouts(std::int64_t ranks) {
  auto const hosts = ranks / 2;
  return {{hosts, 2, hosts / 2}, {hosts, 2, hosts}, {hosts, 2, 2 * hosts}};
}

}  // namespace

TEST_CASE("sptt_tables of processes: steps give and learn the bits of sharded_tables, over one hop or two") {
  auto const seed = tessera_tests::common_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);  // the same problem on all ranks
  tessera::mpi_communicator const world(tessera_tests::world());
  auto const rank = static_cast<std::uint64_t>(world.rank());
  tessera_tests::serial_host host;
  for (auto const& layout : layouts(world.size()))
    for (bool const weighted : {false, true}) {
      CAPTURE(layout.towers);
      CAPTURE(weighted);
      auto const drawn = draw_on_hosts(layout, weighted, true, random);
      std::mt19937_64 own(random() + rank);  // other batches on each
      std::vector<source_rows> rows;
      for (int step = 0; step < 4; ++step) rows.push_back(drawn.draw_rows()(own, static_cast<std::size_t>(draw_number(own, 0, 20))));
      check_steps_alike(host.exec(), world, drawn, weighted, rows, seed + 100 * rank);
    }
}

}  // namespace mpi_sptt_test
