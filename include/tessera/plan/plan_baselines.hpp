// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <tuple>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/philox.hpp>
#include <tessera/core/types.hpp>
#include <tessera/core/view.hpp>
#include <tessera/plan/cost_model.hpp>
#include <tessera/plan/found_plan.hpp>
#include <tessera/plan/plan_search.hpp>
#include <tessera/plan/shard_memory.hpp>
#include <tessera/plan/table_profile.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// What a greedy placement balances, of a table.
enum class greedy_cost {
  size,             ///< its bytes
  dim,              ///< its columns
  lookup,           ///< columns * pooling factor
  size_lookup,      ///< columns * pooling factor * bytes, as NeuroShard's paper has it
  log_rows_lookup,  ///< columns * pooling factor * log10(rows), as its authors' code has it
};

/// A greedy cost of a table. @throws tessera::error as `memory_of_shard`, and for a cost that there is not.
inline double greedy_cost_of(table_profile const& table, greedy_cost cost, counted_memory counted = counted_memory::all);

/// Puts whole tables, the costliest first, where the sum of costs is least, of the devices that have room; (tables,) devices. Of equal
/// tables the larger goes first, then the later; of equal devices the first takes it. No model is asked.
/// @throws tessera::error invalid_argument as `check_table_profiles`, and for limits that are no limits; out_of_memory, naming table, its
/// bytes and the limit, where no device has room. Source: NeuroShard, Appendix E.1.
inline std::vector<std::int64_t> place_greedily(vector_view<table_profile const> tables, greedy_cost cost, device_limits const& limits);

/// Puts each table on any device, whatever it holds already. @throws tessera::error invalid_argument for less than one device.
inline std::vector<std::int64_t> place_randomly(std::int64_t tables, std::int64_t devices, random_seed seed);

/// The best plan of whole tables that `plan_search` finds under an objective: `compute_balance` bounds what AutoShard can learn, `cost` what
/// DreamShard can. @throws tessera::error as `plan_search`.
template <cost_model M>
found_plan best_whole_tables(host_exec const& exec, vector_view<table_profile const> tables, M const& model, plan_objective objective,
                             plan_search_options options) {
  options.objective = objective;
  options.cut_columns = options.cut_rows = false;
  return plan_search(exec, tables, model, options);
}

inline double greedy_cost_of(table_profile const& table, greedy_cost cost, counted_memory counted) {
  detail::check_choice("greedy_cost_of", "greedy cost", cost, greedy_cost::log_rows_lookup);
  auto const columns = static_cast<double>(table.dim), lookup = columns * table.pooling_factor;
  if (cost == greedy_cost::dim) return columns;
  if (cost == greedy_cost::lookup) return lookup;
  if (cost == greedy_cost::log_rows_lookup) return lookup * std::log10(static_cast<double>(table.rows));
  auto const bytes = static_cast<double>(memory_of_shard(table, counted).total());
  return cost == greedy_cost::size ? bytes : lookup * bytes;
}

inline std::vector<std::int64_t> place_greedily(vector_view<table_profile const> tables, greedy_cost cost, device_limits const& limits) {
  check_table_profiles(tables);
  if (limits.devices < 1 || limits.bytes_per_device < 1)
    throw error(errc::invalid_argument, "place_greedily: there is at least one device, of at least one byte",
                {{"devices", limits.devices}, {"bytes_per_device", limits.bytes_per_device}});
  std::vector<double> costs, sums(static_cast<std::size_t>(limits.devices));
  std::vector<std::int64_t> bytes, devices(static_cast<std::size_t>(tables.size()));
  std::vector<std::int64_t> held(sums.size(), received_bytes(tables, limits.devices, limits.counted));
  for (auto const& table : tables) {
    costs.push_back(greedy_cost_of(table, cost, limits.counted));
    bytes.push_back(memory_of_shard(table, limits.counted).total());
  }
  std::vector<std::size_t> order(costs.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return std::tie(costs[a], bytes[a], a) > std::tie(costs[b], bytes[b], b); });
  for (auto const t : order) {
    auto best = sums.size();
    for (std::size_t d = 0; d < sums.size(); ++d)
      if (held[d] + bytes[t] <= limits.bytes_per_device && (best == sums.size() || sums[d] < sums[best])) best = d;
    if (best == sums.size())
      throw error(
          errc::out_of_memory, "place_greedily: no device has room for a table",
          {{"table", tables[static_cast<std::int64_t>(t)].name}, {"bytes", bytes[t]}, {"bytes_per_device", limits.bytes_per_device}});
    sums[best] += costs[t];
    held[best] += bytes[t];
    devices[t] = static_cast<std::int64_t>(best);
  }
  return devices;
}

inline std::vector<std::int64_t> place_randomly(std::int64_t tables, std::int64_t devices, random_seed seed) {
  if (devices < 1) throw error(errc::invalid_argument, "place_randomly: there is at least one device", {{"devices", devices}});
  std::vector<std::int64_t> result;
  for (std::int64_t t = 0; t < tables; ++t) {
    auto const words = philox(seed, static_cast<std::uint64_t>(t), 0xBA5E, 0);
    result.push_back(static_cast<std::int64_t>(uniform_below(words[0], words[1], static_cast<std::uint64_t>(devices))));
  }
  return result;
}

}  // namespace TESSERA_ABI
}  // namespace tessera
