// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/shard/sharding_plan.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

namespace detail {

TESSERA_INLINE std::vector<std::pair<std::int64_t, std::int64_t>> even_pieces(std::int64_t all, std::int64_t most) {
  auto const pieces = std::clamp<std::int64_t>(all, 1, most), each = all / pieces, more = all % pieces;
  std::vector<std::pair<std::int64_t, std::int64_t>> result;
  for (std::int64_t i = 0; i < pieces; ++i) result.emplace_back(i * each + std::min(i, more), each + (i < more ? 1 : 0));
  return result;
}

TESSERA_INLINE std::vector<int> ranks_of_host(topology const& where, std::int64_t host) {
  std::vector<int> ranks;
  for (auto const rank : where.ranks_of(where.level("host"), host)) ranks.push_back(static_cast<int>(rank));
  return ranks;
}

}  // namespace detail

TESSERA_INLINE std::vector<table_shard> column_wise(vector_view<table_options const> tables, std::int64_t table,
                                                    std::vector<int> const& ranks) {
  std::vector<std::vector<int>> blocks;
  blocks.reserve(ranks.size());
  for (auto const rank : ranks) blocks.push_back({rank});
  return grid(tables, table, blocks);
}

TESSERA_INLINE std::vector<table_shard> row_wise(vector_view<table_options const> tables, std::int64_t table, int ranks) {
  if (ranks < 1) throw error(errc::invalid_argument, "sharding plan: ranks", {{"ranks", ranks}});
  std::vector<int> all(static_cast<std::size_t>(ranks));
  std::iota(all.begin(), all.end(), 0);
  return row_wise(tables, table, all);
}

TESSERA_INLINE std::vector<table_shard> grid(vector_view<table_options const> tables, std::int64_t table,
                                             std::vector<std::vector<int>> const& blocks) {
  constexpr std::int64_t unit = 4;  // columns
  if (blocks.empty()) throw error(errc::invalid_argument, "sharding plan: ranks", {{"table", table}, {"ranks", 0}});
  for (std::size_t b = 0; b < blocks.size(); ++b)
    if (blocks[b].empty()) throw error(errc::invalid_argument, "sharding plan: ranks", {{"table", table}, {"block", b}, {"ranks", 0}});
  auto const& of = tables[table];
  std::vector<table_shard> shards;
  auto const columns = detail::even_pieces(divide_up(of.dim, unit), static_cast<std::int64_t>(blocks.size()));
  for (std::size_t b = 0; b < columns.size(); ++b) {
    auto const first = columns[b].first * unit, end = std::min(first + columns[b].second * unit, of.dim);
    auto const rows = detail::even_pieces(of.rows, static_cast<std::int64_t>(blocks[b].size()));
    for (std::size_t r = 0; r < rows.size(); ++r)
      shards.push_back({table, blocks[b][r], rows[r].first, rows[r].second, first, end - first});
  }
  return shards;
}

TESSERA_INLINE std::vector<table_shard> grid_of_hosts(vector_view<table_options const> tables, std::int64_t table, topology const& where) {
  std::vector<std::vector<int>> blocks;
  for (std::int64_t host = 0; host < where.domains(where.level("host")); ++host) blocks.push_back(detail::ranks_of_host(where, host));
  return grid(tables, table, blocks);
}

TESSERA_INLINE sharding_plan plan_round_robin(vector_view<table_options const> tables, int ranks) {
  if (ranks < 1) throw error(errc::invalid_argument, "sharding plan: ranks", {{"ranks", ranks}});
  sharding_plan plan;
  for (std::int64_t t = 0; t < tables.size(); ++t) plan.shards.push_back(whole_table(tables, t, static_cast<int>(t % ranks)));
  return plan;
}

TESSERA_INLINE sharding_plan plan_by_bytes(vector_view<table_options const> tables, vector_view<std::int64_t const> row_bytes, int ranks,
                                           std::int64_t limit_bytes) {
  std::vector<std::int64_t> bytes(row_bytes.begin(), row_bytes.end()), sums;
  for (std::int64_t t = 0; t < std::min(tables.size(), row_bytes.size()); ++t) bytes[static_cast<std::size_t>(t)] *= tables[t].rows;
  auto plan = detail::deal_out<std::int64_t>(tables, bytes, ranks, sums);
  for (std::size_t r = 0; limit_bytes > 0 && r < sums.size(); ++r) {
    if (sums[r] <= limit_bytes) continue;
    auto const* largest = static_cast<table_shard const*>(nullptr);
    for (auto const& shard : plan.shards)
      if (shard.rank == static_cast<int>(r) &&
          (largest == nullptr || bytes[static_cast<std::size_t>(shard.table)] > bytes[static_cast<std::size_t>(largest->table)]))
        largest = &shard;
    throw error(errc::out_of_memory, "sharding plan: a rank would hold more than it may",
                {{"rank", r}, {"bytes", sums[r]}, {"limit_bytes", limit_bytes}, {"table", tables[largest->table].id.value}});
  }
  return plan;
}

TESSERA_INLINE void check_plan(sharding_plan const& plan, vector_view<table_options const> tables, int ranks) {
  auto const refuse = [&](char const* what, table_shard const& s, std::vector<error_value> more = {}) {
    std::vector<error_value> values{
        {"table", s.table},    {"rank", s.rank}, {"first row", s.first_row}, {"rows", s.rows}, {"first column", s.first_column},
        {"columns", s.columns}};
    for (auto& value : more) values.push_back(std::move(value));
    throw error(errc::invalid_argument, std::string("sharding plan: ") + what, std::move(values));
  };
  std::vector<double> covered(static_cast<std::size_t>(tables.size()), 0);  // elements; a double holds those of any table
  for (std::size_t i = 0; i < plan.shards.size(); ++i) {
    auto const& s = plan.shards[i];
    if (s.table < 0 || s.table >= tables.size()) refuse("no such table", s, {{"tables", tables.size()}});
    auto const& of = tables[s.table];
    if (s.rank != table_shard::all_ranks && (s.rank < 0 || s.rank >= ranks)) refuse("no such rank", s, {{"ranks", ranks}});
    if (s.rows < 1 || s.columns < 1 || s.first_row < 0 || s.first_column < 0) refuse("an empty shard", s);
    if (s.first_row > of.rows - s.rows || s.first_column > of.dim - s.columns)
      refuse("a shard reaches past its table", s, {{"rows of the table", of.rows}, {"its columns", of.dim}});
    if (s.first_column % 4 != 0) refuse("a first column that is no multiple of 4", s);
    if (s.rank == table_shard::all_ranks && (s.rows != of.rows || s.columns != of.dim)) refuse("a part of a table on all ranks", s);
    for (std::size_t j = 0; j < i; ++j) {
      auto const& other = plan.shards[j];
      if (other.table == s.table && other.first_row < s.first_row + s.rows && s.first_row < other.first_row + other.rows &&
          other.first_column < s.first_column + s.columns && s.first_column < other.first_column + other.columns)
        refuse("two shards overlap", s,
               {{"other rank", other.rank}, {"its first row", other.first_row}, {"its first column", other.first_column}});
    }
    covered[static_cast<std::size_t>(s.table)] += static_cast<double>(s.rows) * static_cast<double>(s.columns);
  }
  for (auto const t : plan.partial)
    if (t < 0 || t >= tables.size() || std::count(plan.partial.begin(), plan.partial.end(), t) > 1)
      throw error(errc::invalid_argument, "sharding plan: partial sums of a table that is not there, or is listed twice",
                  {{"table", t}, {"tables", tables.size()}});
  for (std::int64_t t = 0; t < tables.size(); ++t)
    if (auto const all = static_cast<double>(tables[t].rows) * static_cast<double>(tables[t].dim);
        covered[static_cast<std::size_t>(t)] != all)
      throw error(errc::invalid_argument, "sharding plan: a table is not covered",
                  {{"table", t}, {"id", tables[t].id.value}, {"elements", all}, {"covered", covered[static_cast<std::size_t>(t)]}});
}

}  // namespace TESSERA_ABI
}  // namespace tessera
