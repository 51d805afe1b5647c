// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/comm/topology.hpp>
#include <tessera/core/error.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// Which ranks make which towers. Hosts are the domains of the level "host"; each has as many ranks.
///
/// Ranks form groups of one or more neighbouring hosts. With as many hosts as towers or more, a group makes one tower. With fewer, each host
/// makes several. *Peers* are the ranks with the same index in their groups. For example, two hosts of two ranks make two towers: ranks 0 and 1
/// tower 0, ranks 2 and 3 tower 1. Peers then are 0 and 2, and 1 and 3. Source: DMT, Section 3.1.
class tower_ranks {
 public:
  /// @throws tessera::error invalid_argument as `topology::level` and `topology::domain_ranks`, for less than one tower, and where neither
  /// number divides the other, naming towers and hosts.
  tower_ranks(topology const& where, std::int64_t towers) : towers_(towers) {
    auto const host = where.level("host");
    auto const hosts = where.domains(host), each = where.domain_ranks(host);
    if (towers < 1 || (hosts % towers != 0 && towers % hosts != 0))
      throw error(errc::invalid_argument, "tower_ranks: the number of towers divides that of hosts, or is a multiple of it",
                  {{"towers", towers}, {"hosts", hosts}});
    groups_ = towers < hosts ? towers : hosts;
    auto const hosts_of_group = hosts / groups_;
    group_of_.resize(static_cast<std::size_t>(where.ranks()));
    index_of_.resize(group_of_.size());
    for (std::int64_t h = 0; h < hosts; ++h)
      for (auto const rank : where.ranks_of(host, h)) {
        group_of_[static_cast<std::size_t>(rank)] = h / hosts_of_group;
        index_of_[static_cast<std::size_t>(rank)] = h % hosts_of_group * each + where.index_in_domain(host, rank);
      }
    ranks_of_group_ = hosts_of_group * each;
  }

  /// How many groups there are: as many as peers of a rank, itself included.
  std::int64_t groups() const noexcept { return groups_; }
  /// How many ranks a group has.
  std::int64_t ranks_of_group() const noexcept { return ranks_of_group_; }
  /// How many towers there are.
  std::int64_t towers() const noexcept { return towers_; }
  /// The group of a rank. @pre there is such a rank, here and below
  std::int64_t group_of(std::int64_t rank) const noexcept { return group_of_[static_cast<std::size_t>(rank)]; }
  /// Which of its group's ranks a rank is: by host, then by index in the host.
  std::int64_t index_of(std::int64_t rank) const noexcept { return index_of_[static_cast<std::size_t>(rank)]; }
  /// The group that makes a tower. Groups make towers in order.
  std::int64_t group_of_tower(std::int64_t tower) const noexcept { return tower / (towers_ / groups_); }

 private:
  std::int64_t towers_, groups_ = 1, ranks_of_group_ = 1;
  std::vector<std::int64_t> group_of_, index_of_;
};

}  // namespace TESSERA_ABI
}  // namespace tessera
