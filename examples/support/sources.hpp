// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include <tessera/comm/any_communicator.hpp>
#include <tessera/comm/topology.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/embed/local_tables.hpp>
#include <tessera/embed/table_list.hpp>
#include <tessera/shard/sharding_plan.hpp>
#include <tessera/shard/table_spec.hpp>
#include <tessera/tower/split_columns.hpp>
#include <tessera/tower/tower_partition.hpp>
#include <tessera/train/any_source.hpp>

#include "hot_batches.hpp"
#include "settings.hpp"

namespace examples {

/// What a source is made of.
struct source_parts {
  std::vector<tessera::table_spec> specs;
  std::vector<tessera::table_feature> features;
  tessera::sharding_plan plan;
  tessera::any_communicator comm;
  tessera::topology where;
  std::optional<tessera::tower_partition> towers;  // none: tables alone
  std::optional<tessera::split_tables> split;      // what specs and features are pieces of, where there are more towers than features
  hot_batches const* hot = nullptr;                // null: no rows are hot
};

/// The source that --exchange and --tower-module ask for. In train_ctr/sources.cpp. All ranks call it. @throws tessera::error as the source's constructor.
tessera::any_source make_source(settings const& s, tessera::host_exec const& exec, source_parts parts);

/// The shards of such a source that lie here, as tables of this process: its part t is their table t.
tessera::local_tables& tables_here(tessera::any_source& source);
/// The copies of hot rows, table t of table t; null where none are hot.
tessera::local_tables* hot_tables_here(tessera::any_source& source);
/// How often hot rows have moved in a run, and how many in all; none where none are hot.
std::optional<std::pair<std::int64_t, std::int64_t>> swaps_of(tessera::any_source& source);

}  // namespace examples
