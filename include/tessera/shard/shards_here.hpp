// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <optional>
#include <utility>
#include <vector>

#include <tessera/comm/any_communicator.hpp>
#include <tessera/comm/collectives.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/embed/hashed_row.hpp>
#include <tessera/embed/local_tables.hpp>
#include <tessera/embed/pooling.hpp>
#include <tessera/embed/row_store.hpp>
#include <tessera/embed/table_list.hpp>
#include <tessera/embed/table_places.hpp>
#include <tessera/shard/agreed_shards.hpp>
#include <tessera/shard/flat_exchange_state.hpp>
#include <tessera/shard/sharding_plan.hpp>
#include <tessera/shard/table_spec.hpp>

/// The shards of one rank, as tables of that rank.
namespace tessera {
inline namespace TESSERA_ABI {

namespace detail {

/// What a shard is as a table of its own.
template <execution Exec>
table_options options_of_shard(basic_table_spec<Exec> const& spec, table_shard const& shard) {
  auto part = spec.table;
  part.dim = shard.columns;
  part.rows = shard.rows;
  part.first_column = shard.first_column;
  if (spec.slots_are_ids)
    part.first_row = shard.first_row;
  else
    part.most_rows = share_of_limit(part.most_rows, shard.rows, spec.table.rows);
  return part;
}

/// Makes the shards, as `Tables`. Features read the blocks of each source, in turn as each rank has them: of `ranks` ranks of sources in all.
/// The ranks are those of `comm`, on the host. Where one rank throws, all throw.
template <class Tables, execution Exec>
Tables make_tables_of_shards(host_exec const& host, any_communicator comm, Exec const& exec,
                             std::vector<basic_table_spec<Exec>> const& specs, std::vector<table_feature> const& features,
                             sharded_tables_options const& options, std::vector<table_shard> const& shards,
                             std::vector<cut_returns> const& returns, vector_view<exchanged_block const> blocks, std::int64_t sources,
                             std::int64_t ranks) {
  std::optional<Tables> made;
  std::exception_ptr failure;
  try {
    std::vector<std::int64_t> number(specs.size(), -1);  // of a table's shard here
    basic_table_list<Exec> list;
    for (auto const& shard : shards) {
      auto const table = static_cast<std::size_t>(shard.table);
      number[table] = list.size();
      specs[table].add(exec, options_of_shard(specs[table], shard), list);
    }
    std::vector<table_feature> of_blocks;
    auto const of_source = blocks.size() / sources;
    for (std::int64_t r = 0; r < ranks; ++r)
      for (auto const& block : blocks.slice(0, of_source)) {
        auto& feature = of_blocks.emplace_back(features[static_cast<std::size_t>(block.key)]);
        auto const table = static_cast<std::size_t>(feature.table);
        feature.table = number[table];
        feature.sequence |= returns[table] == cut_returns::single_ids || returns[table] == cut_returns::own_vectors;
        feature.reads = block.way != block_way::gradients && block.way != block_way::ids;
        feature.learns = block.way != block_way::own && block.way != block_way::ids;
        if (returns[table] == cut_returns::partial_sums) feature.pooling = pooling::sum;
      }
    local_tables_options const how{.sums = options.sums, .lookup = {.out_of_range = options.out_of_range, .source_ranks = ranks}};
    if constexpr (device_execution<Exec>)
      made.emplace(exec, std::move(list), std::move(of_blocks), how);
    else
      made.emplace(std::move(list), std::move(of_blocks), how);
  } catch (...) {
    failure = std::current_exception();
  }
  barrier(host, comm, "sharded_tables: tables are made", failure);
  return std::move(*made);
}
inline local_tables make_shards(host_exec const& exec, any_communicator comm, std::vector<table_spec> const& specs,
                                std::vector<table_feature> const& features, sharded_tables_options const& options,
                                std::vector<table_shard> const& shards, std::vector<cut_returns> const& returns,
                                vector_view<exchanged_block const> blocks, std::int64_t sources, std::int64_t ranks) {
  return make_tables_of_shards<local_tables>(exec, std::move(comm), exec, specs, features, options, shards, returns, blocks, sources,
                                             ranks);
}

/// All tables, and where in them these shards lie.
template <execution Exec>
table_places places_of_shards(std::vector<basic_table_spec<Exec>> const& specs, std::vector<table_shard> const& shards,
                              std::vector<cut_returns> const& returns) {
  table_places all{options_of(specs), {}};
  for (auto const& shard : shards) {
    auto const table = static_cast<std::size_t>(shard.table);
    auto& place = all.parts.emplace_back(part_place{shard.table, shard.first_column, shard.columns});
    place.is_copy = returns[table] == cut_returns::own_vectors && shard.rank > 0;
    if (returns[table] == cut_returns::whole_bags || returns[table] == cut_returns::own_vectors) continue;
    place.first_row = shard.first_row;
    place.rows = shard.rows;
    if (!specs[table].slots_are_ids) place.hashed_rows = specs[table].table.rows;
  }
  return all;
}

}  // namespace detail

}  // namespace TESSERA_ABI
}  // namespace tessera
