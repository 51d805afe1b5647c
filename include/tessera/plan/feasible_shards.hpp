// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/plan/found_plan.hpp>
#include <tessera/plan/shard_kinds.hpp>

namespace tessera {
inline namespace TESSERA_ABI {
namespace detail {

// Proves that no plan of these kinds fits, or says nothing. `device_bytes`: those of `limits.bytes_per_device` that shards may take.
// `too_large` is said of a table whose smallest shard no device has room for. @throws tessera::error out_of_memory.
inline void check_feasible(std::string const& call, shard_kinds const& kinds, device_limits const& limits, std::int64_t device_bytes,
                           char const* too_large) {
  double all = 0;
  std::vector<double> from_device(static_cast<std::size_t>(limits.devices));  // of tables that lie on a tower's devices, by the first one
  for (std::int64_t t = 0; t < kinds.tables(); ++t) {
    auto bytes = static_cast<double>(kinds[kinds.whole(t)].bytes);
    auto const on_all = kinds.replica(t);
    if (on_all >= 0) bytes = std::min(bytes, static_cast<double>(limits.devices) * static_cast<double>(kinds[on_all].bytes));
    all += bytes;
    if (auto const within = kinds.devices_of(kinds.whole(t), from_device.size()); within.count < limits.devices)
      from_device[static_cast<std::size_t>(within.first)] += bytes;
    auto smallest = kinds.whole(t);
    while (kinds[smallest].half_columns >= 0) smallest = kinds[smallest].half_columns;
    while (kinds[smallest].half_rows >= 0) smallest = kinds[smallest].half_rows;
    if (kinds[smallest].bytes <= device_bytes || (on_all >= 0 && kinds[on_all].bytes <= device_bytes)) continue;
    auto const& table = kinds.table(t);
    throw error(errc::out_of_memory, call + ": " + too_large,
                {{"table", table.name},
                 {"rows", table.rows},
                 {"dim", table.dim},
                 {"bytes of the smallest shard", kinds[smallest].bytes},
                 {"bytes_per_device", limits.bytes_per_device},
                 {"bytes for shards", device_bytes}});
  }
  for (std::int64_t t = 0; t < kinds.tables(); ++t) {
    auto const within = kinds.devices_of(kinds.whole(t), from_device.size());
    auto const bytes = from_device[static_cast<std::size_t>(within.first)];
    if (within.count < limits.devices && bytes > static_cast<double>(device_bytes) * static_cast<double>(within.count))
      throw error(errc::out_of_memory, call + ": the devices of a tower together are too small",
                  {{"tower", kinds.table(t).tower},
                   {"first device", within.first},
                   {"devices", within.count},
                   {"bytes", bytes},
                   {"bytes_per_device", limits.bytes_per_device},
                   {"bytes for shards", device_bytes}});
  }
  if (all > static_cast<double>(device_bytes) * static_cast<double>(limits.devices))
    throw error(
        errc::out_of_memory, call + ": all devices together are too small",
        {{"bytes", all}, {"devices", limits.devices}, {"bytes_per_device", limits.bytes_per_device}, {"bytes for shards", device_bytes}});
}

}  // namespace detail
}  // namespace TESSERA_ABI
}  // namespace tessera
