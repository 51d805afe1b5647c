// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-labels: threads
#include <tessera/comm/rank_levels.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include <hosts.hpp>
#include <random.hpp>

#include <tessera/comm/rank_sums.hpp>
#include <tessera/comm/thread_communicator.hpp>

namespace rank_levels_test {

namespace {

using level_values = std::vector<float>;

level_values sum_of(std::vector<level_values> const& all) {
  auto total = all[0];
  for (std::size_t r = 1; r < all.size(); ++r)
    for (std::size_t i = 0; i < total.size(); ++i) total[i] += all[r][i];
  return total;
}

// Domain by domain of a level, its ranks ascending; or, of those, the sums of the domains of the level below.
std::vector<level_values> sums_of_domains(tessera::topology const& ranks, std::int64_t level, std::vector<level_values> const& values) {
  std::vector<level_values> sums;
  for (std::int64_t d = 0; d < ranks.domains(level); ++d) {
    std::vector<level_values> parts;
    if (level == 0) {
      for (auto const r : ranks.ranks_of(level, d)) parts.push_back(values[static_cast<std::size_t>(r)]);
    } else {
      auto const below = sums_of_domains(ranks, level - 1, values);
      for (std::int64_t b = 0; b < ranks.domains(level - 1); ++b)
        if (ranks.domain_of(level, ranks.ranks_of(level - 1, b)[0]) == d) parts.push_back(below[static_cast<std::size_t>(b)]);
    }
    sums.push_back(sum_of(parts));
  }
  return sums;
}

}  // namespace

TEST_CASE("split_by_levels: sums keep to the nesting of the topology, with the same bits on all ranks") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::vector<tessera::topology> const topologies{tessera::topology::flat(3),
                                                  tessera::topology::of_hosts(2, 2),
                                                  tessera::topology::of_hosts(4, 2),
                                                  tessera::topology::of_hosts(2, 1),
                                                  tessera::topology::of_hosts(4, 2).with_groups("rack", 2),
                                                  tessera::topology::of_host_names(std::vector<std::string>{"a", "b", "a", "b", "b", "a"}),
                                                  tessera::topology::of_host_names(std::vector<std::string>{"a", "b", "a"})};  // uneven
  for (auto const& ranks : topologies) {
    auto const count = static_cast<int>(ranks.ranks());
    CAPTURE(count);
    std::mt19937_64 random(seed);
    std::vector<level_values> values;
    for (int r = 0; r < count; ++r) values.push_back(tessera_tests::random_floats(random, 777));
    bool even = true;
    for (std::int64_t l = 0; l < ranks.levels(); ++l) even &= ranks.is_even(l);
    auto const expected = even ? sum_of(sums_of_domains(ranks, ranks.levels() - 1, values)) : sum_of(values);
    std::vector<tessera_tests::serial_host> hosts(static_cast<std::size_t>(count));
    tessera::run_thread_ranks(count, [&](tessera::thread_communicator& comm) {
      auto const exec = hosts[static_cast<std::size_t>(comm.rank())].exec();
      auto levels = tessera::split_by_levels(exec, comm, ranks);
      CHECK(levels.size() == (even ? static_cast<std::size_t>(ranks.levels()) + 1 : 1));
      tessera::rank_sums<tessera::thread_communicator> sums(levels);
      tessera::pending_sum<tessera::thread_communicator> pending;
      auto own = values[static_cast<std::size_t>(comm.rank())];
      sums.all(exec, own, pending);
      CHECK(std::memcmp(own.data(), expected.data(), own.size() * sizeof(float)) == 0);
    });
  }
}

TEST_CASE("detect_topology: the threads of a process run on one host") {
  std::vector<tessera_tests::serial_host> hosts(3);
  tessera::run_thread_ranks(3, [&](tessera::thread_communicator& comm) {
    auto const exec = hosts[static_cast<std::size_t>(comm.rank())].exec();
    CHECK(tessera::detect_topology(exec, comm) == tessera::topology::flat(3));
    CHECK_THROWS_AS(tessera::split_by_levels(exec, comm, tessera::topology::flat(4)), tessera::error);
    tessera::barrier(exec, comm);
  });
}

}  // namespace rank_levels_test
