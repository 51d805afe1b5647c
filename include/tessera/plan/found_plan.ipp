// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/plan/found_plan.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

namespace detail {

TESSERA_INLINE std::vector<table_options> options_of_tables(vector_view<table_profile const> tables) {
  std::vector<table_options> options(static_cast<std::size_t>(tables.size()));
  for (std::size_t t = 0; t < options.size(); ++t) {
    auto const& of = tables[static_cast<std::int64_t>(t)];
    options[t].id = table_id{static_cast<std::int64_t>(t)};
    options[t].rows = of.rows;
    options[t].dim = of.dim;
  }
  return options;
}

TESSERA_INLINE void check_one_shard_a_rank(table_profile const& table, std::vector<table_shard> const& shards) {
  for (auto const& second : shards)
    for (auto const& first : shards) {
      if (&first == &second) break;
      if (first.rank == second.rank)
        throw error(errc::incompatible, "found_plan: a rank has two shards of a table that is cut both ways",
                    {{"table", table.name}, {"rank", first.rank}, {"first", place_text(first)}, {"second", place_text(second)}});
    }
}

TESSERA_INLINE void join_shards_of_ranks(table_profile const& table, std::vector<table_shard>& shards) {
  auto const all = [&](auto const& is) { return std::all_of(shards.begin(), shards.end(), is); };
  bool const by_columns = all([&](auto const& s) { return s.rows == table.rows; });
  if (!by_columns && !all([&](auto const& s) { return s.columns == table.dim; })) return check_one_shard_a_rank(table, shards);
  auto const extent = by_columns ? &table_shard::columns : &table_shard::rows;
  std::vector<table_shard> joined;
  for (auto const& shard : shards) {
    auto const there = std::find_if(joined.begin(), joined.end(), [&](auto const& one) { return one.rank == shard.rank; });
    if (there == joined.end())
      joined.push_back(shard);
    else
      (*there).*extent += shard.*extent;
  }
  if (by_columns) std::stable_partition(joined.begin(), joined.end(), [](auto const& one) { return one.columns % 4 == 0; });
  for (std::int64_t first = 0; auto& shard : joined) {
    shard.*(by_columns ? &table_shard::first_column : &table_shard::first_row) = first;
    first += shard.*extent;
  }
  shards = std::move(joined);
}

}  // namespace detail

TESSERA_INLINE sharding_plan found_plan::plan(std::int64_t ranks) const {
  if (ranks != limits.devices)
    throw error(errc::incompatible, "found_plan: the plan is for another number of ranks", {{"ranks", ranks}, {"devices", limits.devices}});
  sharding_plan plan;
  for (auto first = shards.begin(); first != shards.end();) {
    auto const last = std::find_if(first, shards.end(), [&](auto const& shard) { return shard.table != first->table; });
    std::vector<table_shard> of_table(first, last);
    detail::join_shards_of_ranks(tables[static_cast<std::size_t>(first->table)], of_table);
    plan.shards.insert(plan.shards.end(), of_table.begin(), of_table.end());
    first = last;
  }
  for (auto const& shard : plan.shards)
    if (shard.rows != tables[static_cast<std::size_t>(shard.table)].rows && (plan.partial.empty() || plan.partial.back() != shard.table))
      plan.partial.push_back(shard.table);
  return plan;
}

TESSERA_INLINE std::ostream& operator<<(std::ostream& out, found_plan const& found) {
  out << found.cost_ms << " ms, " << found.tables.size() << " tables in " << found.shards.size() << " shards on " << found.limits.devices
      << " devices, " << found.evaluations << " plans compared" << (found.stopped_by_deadline ? ", stopped by its deadline" : "") << '\n';
  auto const on_all =
      std::count_if(found.shards.begin(), found.shards.end(), [](auto const& s) { return s.rank == table_shard::all_ranks; });
  for (std::int64_t d = 0; d < found.limits.devices; ++d) {
    auto const at = static_cast<std::size_t>(d);
    auto const tables = std::count_if(found.shards.begin(), found.shards.end(), [&](auto const& shard) { return shard.rank == d; });
    out << "device " << d << ": " << found.costs.total(d) << " ms = " << found.costs.compute[at] << " compute + "
        << found.costs.backward[at] << " backward + " << found.costs.forward[at] << " forward, " << found.bytes[at];
    if (found.limits.bytes_per_device < std::numeric_limits<std::int64_t>::max()) out << " of " << found.limits.bytes_per_device;
    out << " bytes, " << tables << " shards" << (on_all > 0 ? " and " + std::to_string(on_all) + " on all devices" : "") << '\n';
  }
  for (auto const& shard : found.shards)
    if (shard.rank == table_shard::all_ranks)
      out << "table " << found.tables[static_cast<std::size_t>(shard.table)].name << ": on all devices\n";
  for (auto const& shard : found.shards)
    if (detail::is_cut(found, shard))
      out << "table " << found.tables[static_cast<std::size_t>(shard.table)].name << ": " << detail::place_text(shard) << " on device "
          << shard.rank << '\n';
  return out;
}

}  // namespace TESSERA_ABI
}  // namespace tessera
