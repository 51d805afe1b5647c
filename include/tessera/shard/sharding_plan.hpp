// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include <tessera/comm/topology.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>
#include <tessera/embed/row_store.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// A rectangle of a table, and the rank that holds it.
struct table_shard {
  static constexpr int all_ranks = -1;  ///< in place of a rank: each has all of the table

  std::int64_t table = 0;                      ///< number of the table
  int rank = 0;                                ///< who holds it, or `all_ranks`
  std::int64_t first_row = 0, rows = 0;        ///< rows [first_row, first_row + rows); of a hashed table ids whose `hashed_row` is there
  std::int64_t first_column = 0, columns = 0;  ///< elements of each row, as rows above; `first_column` is a multiple of 4

  friend bool operator==(table_shard const&, table_shard const&) = default;
};

/// Which rank holds which part of which table. Shards of a table cover it once.
struct sharding_plan {
  std::vector<table_shard> shards;  ///< in any order
  /// Tables whose shards of rows return partial sums, in any order: a vector a bag and shard, which the rank that asked joins. Shards of other
  /// tables return the vectors of single ids. It says nothing of tables that are not cut by rows.
  std::vector<std::int64_t> partial = {};

  friend bool operator==(sharding_plan const&, sharding_plan const&) = default;
};

/// A shard of all of a table. `tables` (tables,) are the whole tables' options, here and below.
inline table_shard whole_table(vector_view<table_options const> tables, std::int64_t table, int rank) {
  auto const& of = tables[table];
  return {table, rank, 0, of.rows, 0, of.dim};
}

/// All of a table on one rank, as a list, as below. Lists of shards of all tables make a plan.
inline std::vector<table_shard> table_wise(vector_view<table_options const> tables, std::int64_t table, int rank) {
  return {whole_table(tables, table, rank)};
}

/// All of a dense table on each rank. @return one shard, of `table_shard::all_ranks`
inline std::vector<table_shard> data_parallel(vector_view<table_options const> tables, std::int64_t table) {
  return {whole_table(tables, table, table_shard::all_ranks)};
}

/// Blocks of columns of all rows, as even as can be: one on each of `ranks`, or as many as there are columns by 4.
/// @throws tessera::error invalid_argument for no ranks.
std::vector<table_shard> column_wise(vector_view<table_options const> tables, std::int64_t table, std::vector<int> const& ranks);

/// Blocks of rows of all columns, as even as can be: one on each of `ranks`, or as many as there are rows.
/// @throws tessera::error invalid_argument for no ranks.
std::vector<table_shard> row_wise(vector_view<table_options const> tables, std::int64_t table, std::vector<int> const& ranks);
/// As above on ranks 0 … ranks - 1. @throws tessera::error invalid_argument for less than one rank.
std::vector<table_shard> row_wise(vector_view<table_options const> tables, std::int64_t table, int ranks);

/// Blocks of columns, each cut by rows: block b over the ranks of `blocks[b]`. Where there are more lists than columns by 4, the last ones
/// get none. @throws tessera::error invalid_argument for no lists, and for an empty one.
std::vector<table_shard> grid(vector_view<table_options const> tables, std::int64_t table, std::vector<std::vector<int>> const& blocks);
/// A block of columns a host, cut by rows over its ranks. Hosts are the domains of the level "host", here and below.
/// @throws tessera::error invalid_argument for a topology without such a level, here and below.
std::vector<table_shard> grid_of_hosts(vector_view<table_options const> tables, std::int64_t table, topology const& where);

/// `row_wise` over the ranks of one host. @throws tessera::error out_of_range, naming the host, where there is none.
inline std::vector<table_shard> table_row_wise(vector_view<table_options const> tables, std::int64_t table, topology const& where,
                                               std::int64_t host);
/// `column_wise` over the ranks of one host. @throws tessera::error as above.
inline std::vector<table_shard> table_column_wise(vector_view<table_options const> tables, std::int64_t table, topology const& where,
                                                  std::int64_t host);

/// Deals out whole tables in turn. @throws tessera::error invalid_argument for less than one rank.
sharding_plan plan_round_robin(vector_view<table_options const> tables, int ranks);

/// Gives each whole table, the largest first, to the rank with the fewest bytes so far. `row_bytes` (tables,) is what a row takes with its
/// optimizer's state. `limit_bytes` is what a rank may hold; 0: no limit.
/// @throws tessera::error invalid_argument for less than one rank, and for other numbers of tables. out_of_memory where a rank's share is
/// above the limit, naming the rank, what it would hold, and its largest table.
sharding_plan plan_by_bytes(vector_view<table_options const> tables, vector_view<std::int64_t const> row_bytes, int ranks,
                            std::int64_t limit_bytes = 0);

/// Gives each whole table, that with the most lookups first, to the rank with the fewest so far. `lookups` (tables,) are rows read in a
/// sample, in the mean, times the bytes of a row where tables differ in that. @throws tessera::error as `plan_round_robin`.
inline sharding_plan plan_by_lookups(vector_view<table_options const> tables, vector_view<double const> lookups, int ranks);

/// Refuses a plan that these tables and ranks cannot have.
/// @throws tessera::error invalid_argument, naming table, rank, rows and columns of the shard. It does so for a table or rank that is not
/// there, for a shard that is empty or reaches past its table, and for one on all ranks that is not the whole table. It also does so for a
/// first column that is no multiple of 4, for two shards that overlap, and for a table that is not covered. It names a table of `partial`
/// that is not there or there twice.
void check_plan(sharding_plan const& plan, vector_view<table_options const> tables, int ranks);

namespace detail {

// Whole tables by `cost`, the greatest first, each to the rank with the least so far: of equal ones the first.
template <class Cost>
sharding_plan deal_out(vector_view<table_options const> tables, vector_view<Cost const> costs, int ranks, std::vector<Cost>& sums) {
  if (ranks < 1) throw error(errc::invalid_argument, "sharding plan: ranks", {{"ranks", ranks}});
  if (costs.size() != tables.size())
    throw error(errc::invalid_argument, "sharding plan: one number a table", {{"tables", tables.size()}, {"numbers", costs.size()}});
  for (std::int64_t t = 0; t < costs.size(); ++t)
    if (!(costs[t] >= Cost{}))
      throw error(errc::invalid_argument, "sharding plan: a number is 0 or more", {{"table", t}, {"number", costs[t]}});
  std::vector<std::int64_t> order(static_cast<std::size_t>(tables.size()));
  std::iota(order.begin(), order.end(), std::int64_t{0});
  std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return costs[a] > costs[b]; });
  sums.assign(static_cast<std::size_t>(ranks), Cost{});
  sharding_plan plan;
  plan.shards.resize(order.size());
  for (auto const t : order) {
    auto const least = std::min_element(sums.begin(), sums.end());
    *least += costs[t];
    plan.shards[static_cast<std::size_t>(t)] = whole_table(tables, t, static_cast<int>(least - sums.begin()));
  }
  return plan;
}

// First number and size of at most so many pieces of `all`, as even as can be, the larger ones first. Nothing is one empty piece.
std::vector<std::pair<std::int64_t, std::int64_t>> even_pieces(std::int64_t all, std::int64_t most);

std::vector<int> ranks_of_host(topology const& where, std::int64_t host);

}  // namespace detail

inline std::vector<table_shard> row_wise(vector_view<table_options const> tables, std::int64_t table, std::vector<int> const& ranks) {
  return grid(tables, table, {ranks});
}

inline std::vector<table_shard> table_row_wise(vector_view<table_options const> tables, std::int64_t table, topology const& where,
                                               std::int64_t host) {
  return row_wise(tables, table, detail::ranks_of_host(where, host));
}

inline std::vector<table_shard> table_column_wise(vector_view<table_options const> tables, std::int64_t table, topology const& where,
                                                  std::int64_t host) {
  return column_wise(tables, table, detail::ranks_of_host(where, host));
}

inline sharding_plan plan_by_lookups(vector_view<table_options const> tables, vector_view<double const> lookups, int ranks) {
  std::vector<double> sums;
  return detail::deal_out<double>(tables, lookups, ranks, sums);
}

}  // namespace TESSERA_ABI
}  // namespace tessera

#if !TESSERA_COMPILED
#include <tessera/shard/sharding_plan.ipp>
#endif
