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
  auto const here = host.exec();
  for (auto const& layout : layouts(world.size()))
    for (bool const weighted : {false, true}) {
      CAPTURE(layout.towers);
      CAPTURE(weighted);
      auto const drawn = draw_on_hosts(layout, weighted, true, random);
      std::mt19937_64 own(random() + rank);  // other batches on each
      stepped_source flat(here, drawn.flat(here, world)), two_hop(here, drawn.two_hop(here, world));
      stepped_source towered(here, drawn.towered(here, world));
      for (std::uint64_t s = 0; s < 4; ++s) {
        auto const rows = drawn.draw_rows()(own, static_cast<std::size_t>(draw_number(own, 0, 20)));
        auto const step = [&](auto& source) { return source.step(drawn, rows, weighted, seed + 100 * rank + s); };
        auto const expected = step(flat);
        CHECK(same_bits(step(two_hop), expected));
        CHECK(same_bits(step(towered), expected));
      }
      auto const expected = flat.rows(drawn.problem);
      CHECK(same_bits(two_hop.rows(drawn.problem), expected));
      CHECK(same_bits(towered.rows(drawn.problem), expected));
    }
}

}  // namespace mpi_sptt_test
