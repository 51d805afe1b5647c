// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/tower/plan_towers.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

namespace detail {

TESSERA_INLINE std::vector<std::int64_t> groups_of_tables(std::size_t tables, std::vector<table_feature> const& features,
                                                          tower_partition const& towers, tower_ranks const& ranks) {
  auto const tower_of = towers_of_features(towers, static_cast<std::int64_t>(features.size()));
  std::vector<std::int64_t> group_of(tables, -1), read_by(tables, -1);
  for (std::size_t f = 0; f < features.size(); ++f) {
    auto const table = features[f].table;
    if (table < 0 || table >= static_cast<std::int64_t>(tables))
      throw error(errc::out_of_range, "towers: no such table", {{"feature", f}, {"table", table}, {"tables", tables}});
    auto const group = ranks.group_of_tower(tower_of[f]);
    auto& known = group_of[static_cast<std::size_t>(table)];
    if (known >= 0 && known != group)
      throw error(errc::invalid_argument, "towers: features of one table in towers of other hosts",
                  {{"table", table}, {"feature", f}, {"other feature", read_by[static_cast<std::size_t>(table)]}});
    known = group;
    read_by[static_cast<std::size_t>(table)] = static_cast<std::int64_t>(f);
  }
  return group_of;
}

TESSERA_INLINE tower_part part_of_group(std::vector<table_spec> const& specs, std::vector<table_feature> const& features,
                                        sharding_plan const& plan, tower_partition const& towers, tower_ranks const& ranks,
                                        std::int64_t group) {
  auto const all_ranks = static_cast<int>(ranks.groups() * ranks.ranks_of_group());
  check_plan(plan, options_of(specs), all_ranks);
  auto const group_of = groups_of_tables(specs.size(), features, towers, ranks);
  for (auto const& shard : plan.shards) {
    auto const its = group_of[static_cast<std::size_t>(shard.table)];
    if (shard.rank != table_shard::all_ranks && its >= 0 && ranks.group_of(shard.rank) != its)
      throw error(errc::invalid_argument, "towers: a shard lies outside of its tower's ranks",
                  {{"table", shard.table}, {"rank", shard.rank}, {"its group", ranks.group_of(shard.rank)}, {"group of the tower", its}});
  }
  tower_part part;
  std::vector<std::int64_t> number(specs.size(), -1);
  for (std::size_t t = 0; t < specs.size(); ++t) {
    if (group_of[t] != group && !(group_of[t] < 0 && group == 0)) continue;  // what nobody reads lies in the first group
    number[t] = static_cast<std::int64_t>(part.tables.size());
    part.tables.push_back(static_cast<std::int64_t>(t));
    part.specs.push_back(specs[t]);
  }
  for (std::size_t f = 0; f < features.size(); ++f) {
    auto const table = number[static_cast<std::size_t>(features[f].table)];
    if (table < 0) continue;
    part.feature_numbers.push_back(static_cast<std::int64_t>(f));
    part.features.push_back(features[f]);
    part.features.back().table = table;
  }
  for (auto shard : plan.shards) {
    shard.table = number[static_cast<std::size_t>(shard.table)];
    if (shard.table < 0) continue;
    if (shard.rank != table_shard::all_ranks) {
      if (ranks.group_of(shard.rank) != group)
        throw error(errc::invalid_argument, "towers: a table that no feature reads lies outside of the first tower's ranks",
                    {{"table", part.tables[static_cast<std::size_t>(shard.table)]}, {"rank", shard.rank}});
      shard.rank = static_cast<int>(ranks.index_of(shard.rank));
    }
    part.plan.shards.push_back(shard);
  }
  for (auto const table : plan.partial)
    if (auto const own = number[static_cast<std::size_t>(table)]; own >= 0) part.plan.partial.push_back(own);
  return part;
}

}  // namespace detail

TESSERA_INLINE tower_plan choose_tower_plan(std::vector<table_spec> const& specs, std::vector<table_feature> const& features,
                                            topology const& where, tower_partition const& towers, plan_towers_options const& options) {
  tower_ranks const ranks(where, static_cast<std::int64_t>(towers.towers.size()));
  auto const group_of = detail::groups_of_tables(specs.size(), features, towers, ranks);
  if (options.limit_bytes < 0 || options.samples < 0)
    throw error(errc::invalid_argument, "plan_towers: negative options",
                {{"limit_bytes", options.limit_bytes}, {"samples", options.samples}});
  if (!options.ids_a_sample.empty() && options.ids_a_sample.size() != features.size())
    throw error(errc::invalid_argument, "plan_towers: one number of ids a feature",
                {{"features", features.size()}, {"numbers", options.ids_a_sample.size()}});
  std::vector<int> rank_of(static_cast<std::size_t>(where.ranks()));  // by group and index
  for (std::int64_t r = 0; r < where.ranks(); ++r)
    rank_of[static_cast<std::size_t>(ranks.group_of(r) * ranks.ranks_of_group() + ranks.index_of(r))] = static_cast<int>(r);
  tower_plan made;
  for (std::int64_t group = 0; group < ranks.groups(); ++group) {
    std::vector<std::int64_t> tables;
    for (std::size_t t = 0; t < specs.size(); ++t)
      if (std::max<std::int64_t>(group_of[t], 0) == group) tables.push_back(static_cast<std::int64_t>(t));
    detail::tower_dealer const dealt(specs, features, tables, group, ranks.ranks_of_group(), ranks.groups(), options);
    for (auto shard : dealt.plan.shards) {
      shard.rank = rank_of[static_cast<std::size_t>(group * ranks.ranks_of_group() + shard.rank)];
      made.plan.shards.push_back(shard);
    }
    made.plan.partial.insert(made.plan.partial.end(), dealt.plan.partial.begin(), dealt.plan.partial.end());
    made.tables.insert(made.tables.end(), dealt.choices.begin(), dealt.choices.end());
  }
  return made;
}

}  // namespace TESSERA_ABI
}  // namespace tessera
