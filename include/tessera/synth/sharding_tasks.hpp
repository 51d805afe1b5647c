// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/philox.hpp>
#include <tessera/core/types.hpp>
#include <tessera/core/view.hpp>
#include <tessera/synth/alias_table.hpp>
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
/// Tables and dims are those of a draw whose float weights are small enough; one alone may be larger than a device.
///
/// Small draws are rare where tables are many and wide. So a draw prefers small tables by a factor exp(-tilt * bytes), and is kept with the
/// probability that makes up for it: kept draws are distributed as if any had been drawn again until it was small enough.
/// Source: NeuroShard's authors' code; the tilt is Cramer's, as in Asmussen and Glynn, "Stochastic Simulation", 2007, VI.2.
/// @throws tessera::error invalid_argument naming the option that is out of range, and for an empty pool; out_of_range, naming the number of
/// tables, where none of `most_draws` draws was kept.
inline sharding_task make_sharding_task(vector_view<pool_table const> pool, sharding_task_options const& options, std::int64_t number);

namespace detail {

// The least tilt, from 0, with which the mean of so many draws' sizes is at most 1. Each number is drawn with a probability in proportion to
// exp(-tilt * size). @pre the least size, so often, is below 1
inline double tilt_of_sizes(std::vector<double> const& sizes, double draws) {
  auto const least = *std::min_element(sizes.begin(), sizes.end());
  auto const mean = [&](double tilt) {
    double weights = 0, sum = 0;
    for (double const size : sizes) {
      auto const weight = std::exp(-tilt * (size - least));
      weights += weight;
      sum += weight * size;
    }
    return draws * sum / weights;
  };
  if (mean(0) <= 1) return 0;
  double low = 0, high = 1;
  for (; mean(high) > 1 && high < 1e9; high *= 2) low = high;
  for (int step = 0; step < 20; ++step) (mean((low + high) / 2) > 1 ? low : high) = (low + high) / 2;
  return high;
}

}  // namespace detail

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
  auto const task_of = static_cast<std::uint64_t>(number);
  auto const first = philox(options.seed, task_of, 0x7A5C, 0);
  auto const count =
      options.least_tables +
      static_cast<std::int64_t>(uniform_below(first[0], first[1], static_cast<std::uint64_t>(options.below_tables - options.least_tables)));
  auto const limit =
      static_cast<double>(options.device_bytes) * static_cast<double>(options.devices) - static_cast<double>(options.slack_bytes);
  // Sizes of all tables with all dims, in parts of the limit.
  std::int64_t dims = 0;
  std::vector<double> sizes;
  for (; std::int64_t{4} << dims <= options.most_dim; ++dims)
    for (auto const& table : pool) sizes.push_back(static_cast<double>(table.rows) * static_cast<double>(std::int64_t{16} << dims) / limit);
  if (auto const least = *std::min_element(sizes.begin(), sizes.end()); limit > 0 && static_cast<double>(count) * least <= 1) {
    auto const tilt = detail::tilt_of_sizes(sizes, static_cast<double>(count));
    std::vector<double> weights;
    weights.reserve(sizes.size());
    for (double const size : sizes) weights.push_back(std::exp(-tilt * (size - least)));
    alias_table const drawn(weights);
    sharding_task task{std::vector<std::int64_t>(static_cast<std::size_t>(count)),
                       std::vector<std::int64_t>(static_cast<std::size_t>(count))};
    for (std::int64_t draw = 0; draw < options.most_draws; ++draw) {
      auto const words = [&](std::size_t i) {
        return philox(options.seed, task_of << 32 | static_cast<std::uint64_t>(draw), 0x7A5D, static_cast<std::uint32_t>(i));
      };
      double size = 0;
      for (std::size_t i = 0; i < task.tables.size() && size <= 1; ++i) {
        auto const of = words(i);
        auto const choice = drawn(std::uint64_t{of[0]} << 32 | of[1]);
        task.tables[i] = choice % pool.size();
        task.dims[i] = std::int64_t{4} << choice / pool.size();
        size += sizes[static_cast<std::size_t>(choice)];
      }
      if (size <= 1 && uniform(words(task.tables.size())[0]) <= std::exp(tilt * (size - 1))) return task;
    }
  }
  throw error(errc::out_of_range, "make_sharding_task: all draws were too large", {{"tables", count}, {"draws", options.most_draws}});
}

}  // namespace TESSERA_ABI
}  // namespace tessera
