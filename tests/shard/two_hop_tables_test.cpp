// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-labels: threads
// ctest-weight: 2
#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include <random.hpp>

#include <tessera/comm/any_communicator.hpp>
#include <tessera/comm/thread_communicator.hpp>
#include <tessera/comm/topology.hpp>
#include <tessera/comm/two_hop_communicator.hpp>

#include "sharded_problem.hpp"

namespace two_hop_tables_test {

using namespace shard_tests;
using tessera::topology;

TEST_CASE("sharded_tables: over hosts that exchange one message a pair, ranks give and learn what one process does, bit for bit") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::vector<topology> const layouts{topology::of_hosts(2, 2), topology::of_hosts(3, 2), topology::of_hosts(2, 4),
                                      topology::of_host_names(std::vector<std::string>{"a", "b", "a", "c", "a"})};
  for (auto const& hosts : layouts)
    for (auto const cut : {cuts::none, cuts::any}) {
      auto const ranks = static_cast<int>(hosts.ranks());
      CAPTURE(ranks);
      CAPTURE(static_cast<int>(cut));
      std::mt19937_64 random(seed + static_cast<std::uint64_t>(ranks));
      auto const problem = usual_problem();
      hashed_tables hashed(problem.tables.size());
      for (std::size_t t = 0; t < hashed.size(); ++t) hashed[t] = random() % 2 == 0;
      auto const plan = plan_of(problem, hashed, ranks, cut, random);
      auto const specs = specs_of(problem, hashed);
      check_source_as_one_process(problem, specs, ranks, false, tessera::out_of_range_ids::refuse, random, draw_source_rows,
                                  [&](host_exec const& exec, any_communicator const& comm) {
                                    return sharded_tables(exec, tessera::two_hop_communicator<any_communicator>(comm, hosts), specs,
                                                          problem.features, plan);
                                  });
    }
}

}  // namespace two_hop_tables_test
