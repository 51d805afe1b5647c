// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include <tessera/comm/any_communicator.hpp>
#include <tessera/comm/codec.hpp>
#include <tessera/comm/collectives.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/embed/deduplicated_lookup_backward.hpp>
#include <tessera/embed/lookup_options.hpp>
#include <tessera/embed/table_list.hpp>
#include <tessera/shard/flat_exchange_state.hpp>
#include <tessera/shard/sharding_plan.hpp>
#include <tessera/shard/table_spec.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// Options of `sharded_tables`.
struct sharded_tables_options {
  out_of_range_ids out_of_range = out_of_range_ids::refuse;  ///< ids that a dense table has no row for
  exchange_codecs codecs = {};                               ///< how vectors and gradients travel, also those of a rank's own tables
  shared_gradients sums = shared_gradients::merged;          ///< of batches whose repeated rows are there once; expanded: of one rank alone
};

namespace detail {

// Refuses ranks with other tables, features or plans than rank 0's.
inline void check_same_tables(host_exec const& exec, any_communicator& comm, std::vector<table_spec> const& specs,
                              std::vector<table_feature> const& features, sharding_plan const& plan, sharded_tables_options const& options,
                              std::exception_ptr failure) {
  std::string mine;
  auto const add = [&](auto const&... values) { ((mine += ' ' + std::to_string(values)), ...); };
  for (std::size_t t = 0; t < specs.size(); ++t) {
    auto const& table = specs[t].table;
    mine += "table " + std::to_string(t) + ": id, dim, rows, bits of the initial bound, seed, dense";
    add(table.id.value, table.dim, table.rows, std::bit_cast<std::uint32_t>(table.init_bound), table.seed.value,
        specs[t].slots_are_ids ? 1 : 0);
    mine += " optimizer " + specs[t].optimizer + '\n';
  }
  for (std::size_t f = 0; f < features.size(); ++f) {
    mine += "feature " + std::to_string(f) + ": " + features[f].name + ", table, sequence, pooling";
    add(features[f].table, features[f].sequence ? 1 : 0, static_cast<int>(features[f].pooling));
    mine += '\n';
  }
  for (auto const& shard : plan.shards) {
    mine += "shard: table, rank, first row, rows, first column, columns";
    add(shard.table, shard.rank, shard.first_row, shard.rows, shard.first_column, shard.columns);
    mine += '\n';
  }
  mine += "options: out of range, codecs, sums";
  add(static_cast<int>(options.out_of_range), static_cast<int>(options.codecs.forward), static_cast<int>(options.codecs.backward),
      static_cast<int>(options.sums));
  check_same_text(exec, comm, mine, "sharded_tables: the same tables", std::move(failure));
}

// The shards of each rank, once all ranks have agreed on them.
inline std::vector<std::vector<table_shard>> agreed_shards(host_exec const& exec, any_communicator& comm,
                                                           std::vector<table_spec> const& specs, std::vector<table_feature> const& features,
                                                           sharding_plan const& plan, sharded_tables_options const& options) {
  std::vector<std::vector<table_shard>> of_rank(static_cast<std::size_t>(comm.size()));
  std::exception_ptr failure;
  try {
    auto const tables = options_of(specs);
    check_plan(plan, tables, comm.size());
    detail::check_choice("sharded_tables", "out_of_range", options.out_of_range, out_of_range_ids::zero);
    detail::check_choice("sharded_tables", "codec", options.codecs.forward, codec::fp8_e5m2);
    detail::check_choice("sharded_tables", "codec", options.codecs.backward, codec::fp8_e5m2);
    detail::check_choice("sharded_tables", "sums", options.sums, shared_gradients::expanded);
    if (options.sums == shared_gradients::expanded && (comm.size() > 1 || options.codecs != exchange_codecs{}))
      throw error(errc::invalid_argument,
                  "sharded_tables: gradients of repeated rows are summed expanded on one rank alone, without codecs",
                  {{"ranks", comm.size()}});
    for (std::size_t f = 0; f < features.size(); ++f)
      if (features[f].table < 0 || features[f].table >= static_cast<std::int64_t>(specs.size()))
        throw error(errc::out_of_range, "sharded_tables: no such table",
                    {{"feature", f}, {"table", features[f].table}, {"tables", specs.size()}});
    for (auto const& shard : plan.shards) {
      auto& there = of_rank[static_cast<std::size_t>(shard.rank)];
      auto const& table = tables[static_cast<std::size_t>(shard.table)];
      if (!specs[static_cast<std::size_t>(shard.table)].slots_are_ids && shard.rows != table.rows)
        throw error(errc::invalid_argument, "sharded_tables: a shard has not all rows of its hashed table",
                    {{"table", shard.table}, {"rank", shard.rank}, {"rows", shard.rows}, {"rows of the table", table.rows}});
      if (std::any_of(there.begin(), there.end(), [&](auto const& other) { return other.table == shard.table; }))
        throw error(errc::invalid_argument, "sharded_tables: a rank has two shards of one table",
                    {{"table", shard.table}, {"rank", shard.rank}});
      there.push_back(shard);
    }
  } catch (...) {
    failure = std::current_exception();
  }
  check_same_tables(exec, comm, specs, features, plan, options, failure);
  return of_rank;
}

// Which tables have shards that lack rows.
inline std::vector<bool> tables_cut_by_rows(std::vector<table_spec> const& specs, std::vector<std::vector<table_shard>> const& of_rank) {
  std::vector<bool> are_cut(specs.size(), false);
  for (auto const& shards : of_rank)
    for (auto const& shard : shards) {
      auto const t = static_cast<std::size_t>(shard.table);
      are_cut[t] = are_cut[t] || shard.rows != specs[t].table.rows;
    }
  return are_cut;
}

// What an exchange does with the key of each feature. Of a table that is cut by rows, the vectors of single ids travel.
inline std::vector<exchanged_key> exchanged_keys(std::vector<table_spec> const& specs, std::vector<table_feature> const& features,
                                                 std::vector<bool> const& are_cut) {
  std::vector<exchanged_key> keys;
  std::vector<std::int64_t> readers(specs.size(), 0);
  for (auto const& feature : features) ++readers[static_cast<std::size_t>(feature.table)];
  for (auto const& feature : features) {
    auto const t = static_cast<std::size_t>(feature.table);
    auto& key = keys.emplace_back(exchanged_key{feature.sequence, specs[t].slots_are_ids ? specs[t].table.rows : 0});
    if (!are_cut[t]) continue;
    key.sequence = true;
    if (!feature.sequence) key.pooled = feature.pooling;
    // A row's gradients are summed by sample, then by key. Where one key reads the table, the order of its ids says as much.
    key.keeps_rows = readers[t] > 1;
  }
  return keys;
}

// What each rank makes of these keys: a block for each shard of a key's table, by key.
inline std::vector<std::vector<exchanged_block>> exchanged_blocks(std::vector<table_feature> const& features,
                                                                  std::vector<std::vector<table_shard>> const& of_rank,
                                                                  std::vector<bool> const& are_cut) {
  std::vector<std::vector<exchanged_block>> blocks(of_rank.size());
  for (std::size_t r = 0; r < of_rank.size(); ++r)
    for (std::size_t f = 0; f < features.size(); ++f)
      for (auto const& shard : of_rank[r])
        if (shard.table == features[f].table)
          blocks[r].push_back({static_cast<std::int64_t>(f), shard.first_column, shard.columns, shard.first_row,
                               are_cut[static_cast<std::size_t>(shard.table)] ? shard.rows : 0});
  return blocks;
}

}  // namespace detail

}  // namespace TESSERA_ABI
}  // namespace tessera
