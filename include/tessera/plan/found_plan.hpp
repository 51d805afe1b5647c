// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include <tessera/comm/topology.hpp>
#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/types.hpp>
#include <tessera/core/view.hpp>
#include <tessera/embed/row_store.hpp>
#include <tessera/plan/cost_model.hpp>
#include <tessera/plan/shard_memory.hpp>
#include <tessera/plan/table_profile.hpp>
#include <tessera/plan/table_replicas.hpp>
#include <tessera/shard/sharding_plan.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// Devices, and what each may hold.
struct device_limits {
  std::int64_t devices = 0;
  std::int64_t bytes_per_device = 0;  ///< at least 1
  counted_memory counted = counted_memory::all;
};

/// A plan of tables for devices, with what is predicted of it. Each table is covered once.
struct found_plan {
  std::vector<table_profile> tables;  ///< whole
  device_limits limits;
  /// Of tables by their place in `tables`, by table, first column and first row. A rank is a device, or all of them.
  std::vector<table_shard> shards;
  std::vector<std::int64_t> bytes;   ///< that each device takes, (devices,)
  device_costs costs;                ///< of each device
  float cost_ms = 0;                 ///< the largest total of a device
  std::int64_t evaluations = 0;      ///< how many plans the search compared
  bool stopped_by_deadline = false;  ///< whether another run, under the same options, may find another plan

  /// The plan that sharded tables execute on so many ranks, of a device each; shards of rows return partial sums. Shards of a table that are
  /// on one rank are one there: its columns, or its rows, are dealt anew, as many to each rank as before. So first columns may differ from
  /// those of `shards`. Those of a table that is cut both ways are left as they are.
  /// @throws tessera::error incompatible for another number of ranks than devices. incompatible too for two shards on one rank of a table that
  /// is cut both ways, which sharded tables refuse; it names table, rank, and the place of both.
  sharding_plan plan(std::int64_t ranks) const;
  /// As above for the ranks of a topology.
  sharding_plan plan(topology const& where) const { return plan(where.ranks()); }
};

/// What finds a plan of tables under a model: a search with its options, or a user's own.
template <class S, class M>
concept plan_searcher = cost_model<M> &&
    requires(S const& search, host_exec const& exec, vector_view<table_profile const> tables, M const& model) {
  { search(exec, tables, model) } -> std::same_as<found_plan>;
};

/// Prints costs, bytes and tables of each device, and which table was cut how.
std::ostream& operator<<(std::ostream& out, found_plan const& found);

/// The plan of shards that were placed, with its costs computed from the beginning.
/// @throws tessera::error invalid_argument as `check_table_profiles`, as `check_plan` for shards that do not cover each table once, and as
/// `costs_of_devices` for a table on all ranks; invalid_argument for a limit below 1 byte, and for devices that the model is not of;
/// out_of_memory, naming device, its bytes and the limit, where a device is over its limit.
template <cost_model M>
found_plan plan_of_shards(vector_view<table_profile const> tables, M const& model, device_limits const& limits,
                          std::vector<table_shard> shards);

/// As above with whole tables, table t on `device_of_table[t]`, or `on_all_devices`.
/// @throws tessera::error as above; shape_mismatch for other numbers; out_of_range, naming the table, for a device that there is not.
template <cost_model M>
found_plan plan_of_tables(vector_view<table_profile const> tables, M const& model, device_limits const& limits,
                          vector_view<std::int64_t const> device_of_table);

namespace detail {

std::vector<table_options> options_of_tables(vector_view<table_profile const> tables);

template <cost_model M>
void check_search(char const* call, vector_view<table_profile const> tables, M const& model, device_limits const& limits) {
  check_table_profiles(tables);
  check_devices(call, model, limits.devices);
  if (limits.devices > (std::int64_t{1} << 20))
    throw error(errc::invalid_argument, std::string(call) + ": more devices than are planned for", {{"devices", limits.devices}});
  if (limits.bytes_per_device < 1)
    throw error(errc::invalid_argument, std::string(call) + ": a device holds at least one byte",
                {{"bytes_per_device", limits.bytes_per_device}});
}

// Which part of its table a shard is.
inline std::string place_text(table_shard const& shard) {
  auto const range = [](std::int64_t first, std::int64_t count) { return std::to_string(first) + " to " + std::to_string(first + count); };
  return "rows " + range(shard.first_row, shard.rows) + ", columns " + range(shard.first_column, shard.columns);
}

void check_one_shard_a_rank(table_profile const& table, std::vector<table_shard> const& shards);

// Shards of one table, each rank's as one block of columns or of rows, in the order in which ranks come first. A block of columns whose width
// is no multiple of 4 comes last, where its table ends.
void join_shards_of_ranks(table_profile const& table, std::vector<table_shard>& shards);

inline bool is_cut(found_plan const& found, table_shard const& shard) {
  auto const& table = found.tables[static_cast<std::size_t>(shard.table)];
  return shard.columns != table.dim || shard.rows != table.rows;
}

}  // namespace detail

template <cost_model M>
found_plan plan_of_shards(vector_view<table_profile const> tables, M const& model, device_limits const& limits,
                          std::vector<table_shard> shards) {
  detail::check_search("plan_of_shards", tables, model, limits);
  found_plan found;
  found.tables.assign(tables.begin(), tables.end());
  found.limits = limits;
  check_plan({shards}, detail::options_of_tables(tables), static_cast<int>(limits.devices));
  static_assert(table_shard::all_ranks == on_all_devices);
  auto const place = [](table_shard const& s) { return std::pair(s.table, std::pair(s.first_column, s.first_row)); };
  std::sort(shards.begin(), shards.end(), [&](auto const& a, auto const& b) { return place(a) < place(b); });
  found.shards = std::move(shards);
  found.bytes.assign(static_cast<std::size_t>(limits.devices), received_bytes(tables, limits.devices, limits.counted));
  std::vector<table_profile> profiles;
  std::vector<std::int64_t> devices;
  for (auto const& shard : found.shards) {
    profiles.push_back(profile_of_shard(tables[shard.table], shard.rows, shard.columns));
    devices.push_back(shard.rank);
    if (shard.rank == table_shard::all_ranks) {
      auto const bytes = memory_of_shard(detail::checked_replica(profiles.back(), limits.devices), limits.counted).total();
      for (auto& held : found.bytes) held += bytes;
    } else {
      found.bytes[static_cast<std::size_t>(shard.rank)] += memory_of_shard(profiles.back(), limits.counted).total();
    }
  }
  for (std::size_t d = 0; d < found.bytes.size(); ++d)
    if (found.bytes[d] > limits.bytes_per_device)
      throw error(errc::out_of_memory, "a device would hold more than it may",
                  {{"device", d}, {"bytes", found.bytes[d]}, {"bytes_per_device", limits.bytes_per_device}});
  found.costs = costs_of_devices(model, profiles, devices, limits.devices);
  found.cost_ms = cost_of(found.costs);
  return found;
}

template <cost_model M>
found_plan plan_of_tables(vector_view<table_profile const> tables, M const& model, device_limits const& limits,
                          vector_view<std::int64_t const> device_of_table) {
  if (tables.size() != device_of_table.size())
    throw error(errc::shape_mismatch, "plan_of_tables: one device a table",
                {{"tables", tables.size()}, {"devices", device_of_table.size()}});
  std::vector<table_shard> shards;
  for (std::int64_t t = 0; t < tables.size(); ++t) {
    if (device_of_table[t] < on_all_devices || device_of_table[t] >= limits.devices)
      throw error(errc::out_of_range, "plan_of_tables: no such device",
                  {{"table", tables[t].name}, {"device", device_of_table[t]}, {"devices", limits.devices}});
    shards.push_back({t, static_cast<int>(device_of_table[t]), 0, tables[t].rows, 0, tables[t].dim});
  }
  return plan_of_shards(tables, model, limits, std::move(shards));
}

}  // namespace TESSERA_ABI
}  // namespace tessera

#if !TESSERA_COMPILED
#include <tessera/plan/found_plan.ipp>
#endif
