// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/philox.hpp>
#include <tessera/core/types.hpp>
#include <tessera/core/view.hpp>
#include <tessera/synth/table_pool.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// Tables of a pool that are to be placed: table `tables[i]` of the pool with `dims[i]` elements a row.
struct sharding_task {
  std::vector<std::int64_t> tables;
  std::vector<std::int64_t> dims;

  friend bool operator==(sharding_task const&, sharding_task const&) = default;
};

/// Options of `make_sharding_task`; defaults are those of NeuroShard's tasks for four devices.
struct sharding_task_options {
  random_seed seed{};
  std::int64_t devices = 4;
  std::int64_t most_dim = 128;     ///< dims are 4, 8, 16, … up to it
  std::int64_t least_tables = 10;  ///< for eight devices the paper has 20
  std::int64_t below_tables = 60;  ///< numbers of tables are below it; for eight devices the paper has 120
  std::int64_t device_bytes = std::int64_t{4} << 30;
  std::int64_t slack_bytes = std::int64_t{1} << 30;  ///< float weights of a task leave so many bytes of all devices together
  std::int64_t most_draws = 1'000'000;
};

/// Draws task `number` of a seed. The number of tables is uniform; each table is any of the pool, of any dim, so that one may come twice.
/// Tables and dims are drawn again until their float weights are small enough; one alone may be larger than a device.
/// Source: NeuroShard's authors' code.
/// @throws tessera::error invalid_argument naming the option that is out of range, and for an empty pool; out_of_range, naming the number of
/// tables, where `most_draws` draws were too large.
inline sharding_task make_sharding_task(vector_view<pool_table const> pool, sharding_task_options const& options, std::int64_t number);

inline sharding_task make_sharding_task(vector_view<pool_table const> pool, sharding_task_options const& options, std::int64_t number) {
  auto const check = [](char const* option, std::int64_t value, bool fits) {
    if (!fits) throw error(errc::invalid_argument, "make_sharding_task: an option out of range", {{option, value}});
  };
  check("tables of the pool", pool.size(), pool.size() > 0);
  check("devices", options.devices, options.devices > 0);
  check("most_dim", options.most_dim, options.most_dim >= 4 && options.most_dim <= 4096);
  check("least_tables", options.least_tables, options.least_tables > 0);
  check("below_tables", options.below_tables, options.below_tables > options.least_tables);
  check("device_bytes", options.device_bytes, options.device_bytes > 0);
  check("slack_bytes", options.slack_bytes, options.slack_bytes >= 0);
  check("number", number, number >= 0);
  std::int64_t dims = 1;
  while (std::int64_t{4} << dims <= options.most_dim) ++dims;
  auto const below = [](std::uint32_t high, std::uint32_t low, std::int64_t bound) {
    return static_cast<std::int64_t>(uniform_below(high, low, static_cast<std::uint64_t>(bound)));
  };
  auto const task_of = static_cast<std::uint64_t>(number);
  auto const first = philox(options.seed, task_of, 0x7A5C, 0);
  auto const count = options.least_tables + below(first[0], first[1], options.below_tables - options.least_tables);
  auto const limit =
      static_cast<double>(options.device_bytes) * static_cast<double>(options.devices) - static_cast<double>(options.slack_bytes);
  sharding_task task{std::vector<std::int64_t>(static_cast<std::size_t>(count)),
                     std::vector<std::int64_t>(static_cast<std::size_t>(count))};
  for (std::int64_t draw = 0; draw < options.most_draws; ++draw) {
    double bytes = 0;
    for (std::size_t i = 0; i < task.tables.size() && bytes <= limit; ++i) {
      auto const words = philox(options.seed, task_of << 32 | static_cast<std::uint64_t>(draw), 0x7A5D, static_cast<std::uint32_t>(i));
      task.tables[i] = below(words[0], words[1], pool.size());
      task.dims[i] = std::int64_t{4} << below(words[2], words[3], dims);
      bytes += static_cast<double>(pool[task.tables[i]].rows) * static_cast<double>(task.dims[i]) * 4;
    }
    if (bytes <= limit) return task;
  }
  throw error(errc::out_of_range, "make_sharding_task: all draws were too large", {{"tables", count}, {"draws", options.most_draws}});
}

}  // namespace TESSERA_ABI
}  // namespace tessera
