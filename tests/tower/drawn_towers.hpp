// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include <tessera/comm/topology.hpp>
#include <tessera/tower/tower_partition.hpp>
#include <tessera/tower/tower_ranks.hpp>

#include "../embed/embedding_source_suite.hpp"

/// Towers of a `source_problem`.
namespace tower_tests {

using embed_tests::source_problem;

struct hosts_and_towers {
  std::int64_t hosts, ranks_of_host, towers;
};

// Towers of whole tables; each has a table.
inline tessera::tower_partition draw_towers(source_problem const& problem, std::int64_t towers, std::mt19937_64& random) {
  std::vector<std::int64_t> of_table;
  for (std::size_t t = 0; t < problem.tables.size(); ++t)
    of_table.push_back(static_cast<std::int64_t>(t) < towers ? static_cast<std::int64_t>(t)
                                                             : static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(towers)));
  std::shuffle(of_table.begin(), of_table.end(), random);
  tessera::tower_partition partition;
  partition.towers.resize(static_cast<std::size_t>(towers));
  for (std::size_t f = 0; f < problem.features.size(); ++f)
    partition.towers[static_cast<std::size_t>(of_table[static_cast<std::size_t>(problem.features[f].table)])].push_back(
        static_cast<std::int64_t>(f));
  for (auto& tower : partition.towers) std::shuffle(tower.begin(), tower.end(), random);
  return partition;
}

// The ranks of the tower that reads a table, in any order.
inline std::vector<int> draw_ranks_of_table(source_problem const& problem, std::int64_t table, tessera::topology const& where,
                                            tessera::tower_partition const& towers, std::mt19937_64& random) {
  tessera::tower_ranks const ranks(where, static_cast<std::int64_t>(towers.towers.size()));
  auto const tower_of = tessera::towers_of_features(towers, static_cast<std::int64_t>(problem.features.size()));
  std::int64_t tower = 0;
  for (std::size_t f = 0; f < problem.features.size(); ++f)
    if (problem.features[f].table == table) tower = tower_of[f];
  std::vector<int> here;
  for (std::int64_t r = 0; r < where.ranks(); ++r)
    if (ranks.group_of(r) == ranks.group_of_tower(tower)) here.push_back(static_cast<int>(r));
  std::shuffle(here.begin(), here.end(), random);
  return here;
}

}  // namespace tower_tests
