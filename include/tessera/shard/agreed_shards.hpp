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
#include <tessera/shard/sample_rows.hpp>
#include <tessera/shard/sharding_plan.hpp>
#include <tessera/shard/table_spec.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// Options of `sharded_tables`.
struct sharded_tables_options {
  out_of_range_ids out_of_range = out_of_range_ids::refuse;  ///< ids that a dense table has no row for
  exchange_codecs codecs = {};                               ///< how vectors and gradients travel, also those of a rank's own tables
  shared_gradients sums = shared_gradients::merged;          ///< of batches whose repeated rows are there once
  std::int64_t sources = 1;                                  ///< whose keys a batch has, one after the other; more than one: without groups
};

namespace detail {

// The features of each source's keys.
inline std::vector<table_feature> features_of_sources(std::vector<table_feature> const& features, std::int64_t sources) {
  std::vector<table_feature> all;
  for (std::int64_t s = 0; s < std::max<std::int64_t>(sources, 1); ++s) all.insert(all.end(), features.begin(), features.end());
  return all;
}

// Refuses ranks with other tables, features or plans than rank 0's.
template <execution Exec>
void check_same_tables(host_exec const& exec, any_communicator& comm, std::vector<basic_table_spec<Exec>> const& specs,
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
  mine += "partial sums of tables";
  for (auto const table : plan.partial) add(table);
  mine += "\noptions: out of range, codecs, sums, sources";
  add(static_cast<int>(options.out_of_range), static_cast<int>(options.codecs.forward), static_cast<int>(options.codecs.backward),
      static_cast<int>(options.sums), options.sources);
  check_same_text(exec, comm, mine, "sharded_tables: the same tables", std::move(failure));
}

// Refuses partial sums of what is no sum: an id's vector, and the largest of several.
inline void check_partial_sums(std::vector<table_feature> const& features, sharding_plan const& plan) {
  for (auto const& feature : features)
    if ((feature.sequence || feature.is_largest()) && std::count(plan.partial.begin(), plan.partial.end(), feature.table) > 0)
      throw error(errc::invalid_argument, "sharded_tables: partial sums of a table that is read as a sequence or pooled by maximum",
                  {{"table", feature.table}, {"feature", feature.name}});
}

// Refuses blocks of columns of one hashed table whose rows are cut differently: files could not join them.
template <execution Exec>
void check_hashed_rows(std::vector<basic_table_spec<Exec>> const& specs, sharding_plan const& plan) {
  for (auto const& a : plan.shards)
    for (auto const& b : plan.shards)
      if (a.table == b.table && !specs[static_cast<std::size_t>(a.table)].slots_are_ids && a.first_row != b.first_row &&
          a.first_row < b.first_row + b.rows && b.first_row < a.first_row + a.rows)
        throw error(errc::invalid_argument, "sharded_tables: blocks of columns of a hashed table whose rows are cut differently",
                    {{"table", a.table},
                     {"rank", a.rank},
                     {"first row", a.first_row},
                     {"rows", a.rows},
                     {"other rank", b.rank},
                     {"its first row", b.first_row},
                     {"its rows", b.rows}});
}

// Refuses expanded sums of tables whose vectors are not looked up and pooled by one rank: their gradients come an id, not a bag.
template <execution Exec>
void check_expanded_sums(std::vector<basic_table_spec<Exec>> const& specs, sharding_plan const& plan, int ranks) {
  for (auto const& shard : plan.shards)
    if ((shard.rank == table_shard::all_ranks && ranks > 1) || shard.rows != specs[static_cast<std::size_t>(shard.table)].table.rows)
      throw error(
          errc::invalid_argument, "sharded_tables: expanded sums of a table that is cut by rows or on all ranks",
          {{"table", shard.table}, {"rows", specs[static_cast<std::size_t>(shard.table)].table.rows}, {"rows of a shard", shard.rows}});
}

// The shards of each rank, once all ranks have agreed on them.
template <execution Exec>
std::vector<std::vector<table_shard>> agreed_shards(host_exec const& exec, any_communicator& comm,
                                                    std::vector<basic_table_spec<Exec>> const& specs,
                                                    std::vector<table_feature> const& features, sharding_plan const& plan,
                                                    sharded_tables_options const& options) {
  std::vector<std::vector<table_shard>> of_rank(static_cast<std::size_t>(comm.size()));
  std::exception_ptr failure;
  try {
    auto const tables = options_of(specs);
    check_plan(plan, tables, comm.size());
    detail::check_choice("sharded_tables", "out_of_range", options.out_of_range, out_of_range_ids::zero);
    detail::check_choice("sharded_tables", "codec", options.codecs.forward, codec::fp8_e5m2);
    detail::check_choice("sharded_tables", "codec", options.codecs.backward, codec::fp8_e5m2);
    detail::check_choice("sharded_tables", "sums", options.sums, shared_gradients::expanded);
    if (options.sources < 1) throw error(errc::invalid_argument, "sharded_tables: sources", {{"sources", options.sources}});
    if (options.sums == shared_gradients::expanded && options.sources > 1)
      throw error(errc::invalid_argument, "sharded_tables: batches of several sources have no repeated rows",
                  {{"sources", options.sources}});
    for (std::size_t f = 0; f < features.size(); ++f)
      if (features[f].table < 0 || features[f].table >= static_cast<std::int64_t>(specs.size()))
        throw error(errc::out_of_range, "sharded_tables: no such table",
                    {{"feature", f}, {"table", features[f].table}, {"tables", specs.size()}});
    for (auto const& shard : plan.shards) {
      bool const is_everywhere = shard.rank == table_shard::all_ranks;
      auto const& spec = specs[static_cast<std::size_t>(shard.table)];
      if (is_everywhere && (!spec.keeps_ids || (!spec.slots_are_ids && spec.table.most_rows < table_options{}.most_rows)))
        throw error(errc::invalid_argument, "sharded_tables: a table on all ranks whose ids may have no row", {{"table", shard.table}});
      for (int rank = is_everywhere ? 0 : shard.rank; rank < (is_everywhere ? comm.size() : shard.rank + 1); ++rank) {
        auto& there = of_rank[static_cast<std::size_t>(rank)];
        if (std::any_of(there.begin(), there.end(), [&](auto const& other) { return other.table == shard.table; }))
          throw error(errc::invalid_argument, "sharded_tables: a rank has two shards of one table",
                      {{"table", shard.table}, {"rank", shard.rank}});
        there.push_back(shard);
        there.back().rank = rank;
      }
    }
    check_partial_sums(features, plan);
    check_hashed_rows(specs, plan);
    if (options.sums == shared_gradients::expanded) check_expanded_sums(specs, plan, comm.size());
  } catch (...) {
    failure = std::current_exception();
  }
  check_same_tables(exec, comm, specs, features, plan, options, failure);
  return of_rank;
}

// What comes back from the shards of a table's rows.
enum class cut_returns : std::uint8_t {
  whole_bags,    // it is not cut by rows
  single_ids,    // a vector an id
  partial_sums,  // a vector a bag, which a shard sums its own ids of
  own_vectors,   // all ranks have it: nothing comes back. Gradients of single ids go to one rank each
};

// What comes back of each table.
template <execution Exec>
std::vector<cut_returns> returns_of_tables(std::vector<basic_table_spec<Exec>> const& specs, sharding_plan const& plan, int ranks) {
  std::vector<cut_returns> returns(specs.size(), cut_returns::whole_bags);
  for (auto const& shard : plan.shards)
    if (auto const t = static_cast<std::size_t>(shard.table); ranks > 1 && shard.rank == table_shard::all_ranks)
      returns[t] = cut_returns::own_vectors;
    else if (shard.rows != specs[t].table.rows)
      returns[t] =
          std::count(plan.partial.begin(), plan.partial.end(), shard.table) > 0 ? cut_returns::partial_sums : cut_returns::single_ids;
  return returns;
}

// What an exchange does with the key of each feature, and of `sample_rows` behind them where it `expands`.
template <execution Exec>
std::vector<exchanged_key> exchanged_keys(std::vector<basic_table_spec<Exec>> const& specs, std::vector<table_feature> const& features,
                                          std::vector<cut_returns> const& returns, std::int64_t sources, bool expands) {
  std::vector<exchanged_key> keys;
  std::vector<std::int64_t> readers(specs.size(), 0);  // of each source
  for (std::size_t f = 0; f < features.size() / static_cast<std::size_t>(sources); ++f)
    ++readers[static_cast<std::size_t>(features[f].table)];
  for (auto const& feature : features) {
    auto const t = static_cast<std::size_t>(feature.table);
    auto& key = keys.emplace_back(exchanged_key{feature.sequence, specs[t].slots_are_ids ? specs[t].table.rows : 0});
    if (returns[t] == cut_returns::whole_bags) continue;
    key.sequence = returns[t] != cut_returns::partial_sums;
    if (!specs[t].slots_are_ids) key.hashed_rows = specs[t].table.rows;
    key.keeps_ids = !specs[t].slots_are_ids || returns[t] == cut_returns::own_vectors;
    if (!feature.sequence) key.pooled = feature.pooling;
    // A row's gradients are summed by sample, then by key. Where one key reads the table, the order of its ids says as much.
    key.keeps_rows = readers[t] > 1;
  }
  if (expands)
    for (auto const& feature : features)
      keys.push_back({.sequence = feature.sequence, .id_bound = sample_rows::row_bound, .is_inverse = true});
  return keys;
}

// What each rank makes of these keys: a block for each shard of a key's table, by key. Of a table that all ranks have, a rank looks up its own
// ids, and sums the gradients of some rows. Where all `expands`, gradients are those of `sample_rows`, whose blocks come behind.
template <execution Exec>
std::vector<std::vector<exchanged_block>> exchanged_blocks(std::vector<basic_table_spec<Exec>> const& specs,
                                                           std::vector<table_feature> const& features,
                                                           std::vector<std::vector<table_shard>> const& of_rank,
                                                           std::vector<cut_returns> const& returns, std::int64_t sources, bool expands) {
  auto const of_source = static_cast<std::int64_t>(features.size()) / sources;
  std::vector<std::vector<exchanged_block>> blocks(of_rank.size());
  for (std::size_t r = 0; r < of_rank.size(); ++r)
    for (std::size_t f = 0; f < features.size(); ++f)
      for (auto const& shard : of_rank[r]) {
        if (shard.table != features[f].table) continue;
        auto const comes_back = returns[static_cast<std::size_t>(shard.table)];
        exchanged_block block{static_cast<std::int64_t>(f), shard.first_column, shard.columns, shard.first_row,
                              comes_back == cut_returns::whole_bags ? 0 : shard.rows};
        block.section = block.key / of_source;
        if (comes_back == cut_returns::own_vectors) {
          // Copies of a hashed table get the same ids, in the same order.
          block.way = block_way::ids;
          if (!specs[static_cast<std::size_t>(shard.table)].slots_are_ids) blocks[r].push_back(block);
          block.way = block_way::own;
        }
        blocks[r].push_back(block);
        auto const sums = even_pieces(shard.rows, static_cast<std::int64_t>(of_rank.size()));
        if (comes_back != cut_returns::own_vectors || r >= sums.size()) continue;
        block.way = block_way::gradients;
        block.first_row = sums[r].first;
        block.rows = sums[r].second;
        blocks[r].push_back(block);
      }
  for (auto& here : blocks)
    for (std::size_t i = 0, count = expands ? here.size() : 0; i < count; ++i) {
      auto of_samples = here[i];
      here[i].way = block_way::vectors;
      of_samples.way = block_way::gradients;
      of_samples.key += static_cast<std::int64_t>(features.size());
      of_samples.section = 1;
      here.push_back(of_samples);
    }
  return blocks;
}

}  // namespace detail

}  // namespace TESSERA_ABI
}  // namespace tessera
