// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include <tessera/comm/collectives.hpp>
#include <tessera/comm/communicator.hpp>
#include <tessera/comm/topology.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// The hosts that ranks run on, by the names that the hosts give themselves. All ranks call it.
/// @throws tessera::error as `communicator` says.
template <communicator C>
topology detect_topology(host_exec const& exec, C& comm) {
  char name[256] = "";
  if (gethostname(name, sizeof name - 1) != 0 || name[0] == '\0') std::snprintf(name, sizeof name, "a host without a name");
  std::string const own = name;
  typename C::pending_type pending;
  std::vector<std::string> hosts;
  for (auto const& one : all_gather<char>(exec, comm, own, pending, "names of hosts")) hosts.emplace_back(one.begin(), one.end());
  return topology::of_host_names(hosts);
}

/// Communicators for `rank_sums` whose sums keep to a topology, the innermost first. All ranks call it.
///
/// The first joins the ranks of this rank's domain of level 0. Each further one joins it with the ranks that have the same place in the
/// other domains of a level. The last joins the domains of the outermost level. Where domains of a level differ in size, there is one
/// communicator, of all ranks.
/// @throws tessera::error invalid_argument for a topology of other ranks; and as `communicator` says.
template <communicator C>
std::vector<C> split_by_levels(host_exec const& exec, C& comm, topology const& ranks) {
  check_topology(ranks, comm.size());
  std::vector<C> levels;
  for (std::int64_t l = 0; l < ranks.levels(); ++l)
    if (!ranks.is_even(l)) {
      levels.push_back(comm);
      return levels;
    }
  std::int64_t place = 0, places = 1;  // among the ranks that sum the same part
  for (std::int64_t l = 0; l <= ranks.levels(); ++l) {
    auto const domain = l < ranks.levels() ? ranks.domain_of(l, comm.rank()) : 0;
    levels.push_back(comm.split(exec, domain * comm.size() + place, comm.rank()));
    place += places * levels.back().rank();
    places *= levels.back().size();
  }
  return levels;
}

}  // namespace TESSERA_ABI
}  // namespace tessera
