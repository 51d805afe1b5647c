// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <tessera/core/error.hpp>
#include <tessera/core/view.hpp>
#include <tessera/embed/row_store.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// A rectangle of a table, and the rank that holds it.
struct table_shard {
  std::int64_t table = 0;                      ///< number of the table
  int rank = 0;                                ///< who holds it
  std::int64_t first_row = 0, rows = 0;        ///< rows [first_row, first_row + rows); of a hashed table all: 0 and the table's `rows`
  std::int64_t first_column = 0, columns = 0;  ///< elements of each row, as rows above; `first_column` is a multiple of 4

  friend bool operator==(table_shard const&, table_shard const&) = default;
};

/// Which rank holds which part of which table. Shards of a table cover it once.
struct sharding_plan {
  std::vector<table_shard> shards;  ///< in any order

  friend bool operator==(sharding_plan const&, sharding_plan const&) = default;
};

/// A shard of all of a table. `tables` (tables,) are the whole tables' options, here and below.
inline table_shard whole_table(vector_view<table_options const> tables, std::int64_t table, int rank) {
  auto const& of = tables[table];
  return {table, rank, 0, of.rows, 0, of.dim};
}

/// Shards of all columns of a table, cut by rows as evenly as can be: one a rank, or as many as it has rows.
/// @throws tessera::error invalid_argument for less than one rank.
inline std::vector<table_shard> row_wise(vector_view<table_options const> tables, std::int64_t table, int ranks);

/// Deals out whole tables in turn. @throws tessera::error invalid_argument for less than one rank.
inline sharding_plan plan_round_robin(vector_view<table_options const> tables, int ranks);

/// Gives each whole table, the largest first, to the rank with the fewest bytes so far. `row_bytes` (tables,) is what a row takes with its
/// optimizer's state. `limit_bytes` is what a rank may hold; 0: no limit.
/// @throws tessera::error invalid_argument for less than one rank, and for other numbers of tables; out_of_memory naming the table, the
/// rank, and what it would hold, where a rank's share is above the limit: the table is its largest.
inline sharding_plan plan_by_bytes(vector_view<table_options const> tables, vector_view<std::int64_t const> row_bytes, int ranks,
                                   std::int64_t limit_bytes = 0);

/// Gives each whole table, that with the most lookups first, to the rank with the fewest so far. `lookups` (tables,) are rows read in a
/// sample, in the mean, times the bytes of a row where tables differ in that. @throws tessera::error as `plan_round_robin`.
inline sharding_plan plan_by_lookups(vector_view<table_options const> tables, vector_view<double const> lookups, int ranks);

/// Refuses a plan that these tables and ranks cannot have.
/// @throws tessera::error invalid_argument, naming table, rank, rows and columns of the shard. It does so for a table or rank that is not
/// there, and for a shard that is empty or reaches past its table. It also does so for a first column that is no multiple of 4, for two
/// shards that overlap, and for a table that is not covered.
inline void check_plan(sharding_plan const& plan, vector_view<table_options const> tables, int ranks);

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

}  // namespace detail

inline std::vector<table_shard> row_wise(vector_view<table_options const> tables, std::int64_t table, int ranks) {
  if (ranks < 1) throw error(errc::invalid_argument, "sharding plan: ranks", {{"ranks", ranks}});
  auto const& of = tables[table];
  auto const parts = std::min<std::int64_t>(ranks, of.rows), each = of.rows / parts, more = of.rows % parts;
  std::vector<table_shard> shards;
  for (std::int64_t i = 0, first = 0; i < parts; ++i) {
    shards.push_back({table, static_cast<int>(i), first, each + (i < more ? 1 : 0), 0, of.dim});
    first += shards.back().rows;
  }
  return shards;
}

inline sharding_plan plan_round_robin(vector_view<table_options const> tables, int ranks) {
  if (ranks < 1) throw error(errc::invalid_argument, "sharding plan: ranks", {{"ranks", ranks}});
  sharding_plan plan;
  for (std::int64_t t = 0; t < tables.size(); ++t) plan.shards.push_back(whole_table(tables, t, static_cast<int>(t % ranks)));
  return plan;
}

inline sharding_plan plan_by_bytes(vector_view<table_options const> tables, vector_view<std::int64_t const> row_bytes, int ranks,
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

inline sharding_plan plan_by_lookups(vector_view<table_options const> tables, vector_view<double const> lookups, int ranks) {
  std::vector<double> sums;
  return detail::deal_out<double>(tables, lookups, ranks, sums);
}

inline void check_plan(sharding_plan const& plan, vector_view<table_options const> tables, int ranks) {
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
    if (s.rank < 0 || s.rank >= ranks) refuse("no such rank", s, {{"ranks", ranks}});
    if (s.rows < 1 || s.columns < 1 || s.first_row < 0 || s.first_column < 0) refuse("an empty shard", s);
    if (s.first_row > of.rows - s.rows || s.first_column > of.dim - s.columns)
      refuse("a shard reaches past its table", s, {{"rows of the table", of.rows}, {"its columns", of.dim}});
    if (s.first_column % 4 != 0) refuse("a first column that is no multiple of 4", s);
    for (std::size_t j = 0; j < i; ++j) {
      auto const& other = plan.shards[j];
      if (other.table == s.table && other.first_row < s.first_row + s.rows && s.first_row < other.first_row + other.rows &&
          other.first_column < s.first_column + s.columns && s.first_column < other.first_column + other.columns)
        refuse("two shards overlap", s,
               {{"other rank", other.rank}, {"its first row", other.first_row}, {"its first column", other.first_column}});
    }
    covered[static_cast<std::size_t>(s.table)] += static_cast<double>(s.rows) * static_cast<double>(s.columns);
  }
  for (std::int64_t t = 0; t < tables.size(); ++t)
    if (auto const all = static_cast<double>(tables[t].rows) * static_cast<double>(tables[t].dim);
        covered[static_cast<std::size_t>(t)] != all)
      throw error(errc::invalid_argument, "sharding plan: a table is not covered",
                  {{"table", t}, {"id", tables[t].id.value}, {"elements", all}, {"covered", covered[static_cast<std::size_t>(t)]}});
}

}  // namespace TESSERA_ABI
}  // namespace tessera
