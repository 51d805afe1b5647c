// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/view.hpp>
#include <tessera/plan/table_profile.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// Neighbouring devices, from the first one on.
struct device_range {
  std::int64_t first = 0, count = 0;

  constexpr bool has(std::int64_t device) const noexcept { return device >= first && device < first + count; }
  friend constexpr bool operator==(device_range const&, device_range const&) = default;
};

/// The devices that a tower's tables may lie on, for each tower, (towers,).
///
/// Hosts have neighbouring devices. With as many hosts as towers or more, a tower has the devices of neighbouring hosts. With fewer, towers
/// share a host. For example, 4 devices on 2 hosts: towers 0 and 1 have a host each; of 4 towers, the first two share devices 0 and 1.
/// Source: DMT, Section 3.1.
/// @throws tessera::error invalid_argument, naming the numbers, for less than one of each, for devices that hosts do not divide, and where
/// neither of towers and hosts divides the other.
inline std::vector<device_range> devices_of_towers(std::int64_t devices, std::int64_t devices_of_host, std::int64_t towers) {
  if (devices < 1 || devices_of_host < 1 || devices % devices_of_host != 0)
    throw error(errc::invalid_argument, "devices_of_towers: each host has as many devices",
                {{"devices", devices}, {"devices_of_host", devices_of_host}});
  auto const hosts = devices / devices_of_host;
  if (towers < 1 || (hosts % towers != 0 && towers % hosts != 0))
    throw error(errc::invalid_argument, "devices_of_towers: the number of towers divides that of hosts, or is a multiple of it",
                {{"towers", towers}, {"hosts", hosts}});
  auto const groups = std::min(towers, hosts), each = devices / groups;
  std::vector<device_range> ranges;
  for (std::int64_t tower = 0; tower < towers; ++tower) ranges.push_back({tower / (towers / groups) * each, each});
  return ranges;
}

/// The devices that each table may lie on, (tables,): those of its tower, or all of them.
/// @throws tessera::error as above; out_of_range, naming the table, for a tower that there is not.
inline std::vector<device_range> devices_of_tables(vector_view<table_profile const> tables, std::int64_t devices,
                                                   std::int64_t devices_of_host, std::int64_t towers) {
  auto const of_towers = devices_of_towers(devices, devices_of_host, towers);
  std::vector<device_range> ranges;
  for (auto const& table : tables) {
    if (table.tower >= towers)
      throw error(errc::out_of_range, "devices_of_tables: a table of a tower that there is not",
                  {{"table", table.name}, {"tower", table.tower}, {"towers", towers}});
    ranges.push_back(table.tower < 0 ? device_range{0, devices} : of_towers[static_cast<std::size_t>(table.tower)]);
  }
  return ranges;
}

}  // namespace TESSERA_ABI
}  // namespace tessera
