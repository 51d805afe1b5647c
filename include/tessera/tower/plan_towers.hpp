// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/comm/topology.hpp>
#include <tessera/core/error.hpp>
#include <tessera/embed/table_list.hpp>
#include <tessera/shard/sharding_plan.hpp>
#include <tessera/shard/table_spec.hpp>
#include <tessera/tower/tower_kinds.hpp>
#include <tessera/tower/tower_partition.hpp>
#include <tessera/tower/tower_ranks.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

namespace detail {

/// The group of ranks that makes the tower of each table's features (tables,); -1: no feature reads the table.
/// @throws tessera::error as `check_towers`; out_of_range for a feature of no table. invalid_argument, naming table and both features, for a
/// table that features of two groups read.
std::vector<std::int64_t> groups_of_tables(std::size_t tables, std::vector<table_feature> const& features, tower_partition const& towers,
                                           tower_ranks const& ranks);

/// What one group of ranks holds of all tables. Numbers of tables, features and ranks are the group's own.
struct tower_part {
  std::vector<table_spec> specs;
  std::vector<table_feature> features;
  sharding_plan plan;
  std::vector<std::int64_t> tables;           ///< the number of each table among all
  std::vector<std::int64_t> feature_numbers;  ///< the number of each feature among all, ascending
};

/// @throws tessera::error as `groups_of_tables` and `check_plan`; invalid_argument, naming table, rank and tower, for a shard that lies
/// outside of its tower's ranks.
tower_part part_of_group(std::vector<table_spec> const& specs, std::vector<table_feature> const& features, sharding_plan const& plan,
                         tower_partition const& towers, tower_ranks const& ranks, std::int64_t group);

}  // namespace detail

/// A plan, and the kind of each table that it was made of.
struct tower_plan {
  sharding_plan plan;
  std::vector<tower_table> tables;  ///< by group of ranks; `text_of` says why
};

/// Gives each table to the ranks of the tower that reads it: whole, or cut as the options say. The largest part comes first, each to that rank
/// of the tower that has the fewest bytes so far, and none of the table. A table that nobody reads counts to tower 0.
/// @throws tessera::error as `tower_ranks` and `check_towers`. invalid_argument for a table that features of towers of other hosts read, for
/// negative options, and for other than one number of ids a feature. out_of_memory where a rank would hold more than the limit.
tower_plan choose_tower_plan(std::vector<table_spec> const& specs, std::vector<table_feature> const& features, topology const& where,
                             tower_partition const& towers, plan_towers_options const& options = {});

/// The plan alone. @throws tessera::error as above.
inline sharding_plan plan_towers(std::vector<table_spec> const& specs, std::vector<table_feature> const& features, topology const& where,
                                 tower_partition const& towers, plan_towers_options const& options = {}) {
  return choose_tower_plan(specs, features, where, towers, options).plan;
}

}  // namespace TESSERA_ABI
}  // namespace tessera

#if !TESSERA_COMPILED
#include <tessera/tower/plan_towers.ipp>
#endif
