// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/embed/row_store.hpp>
#include <tessera/embed/table_list.hpp>
#include <tessera/shard/sharding_plan.hpp>
#include <tessera/shard/table_spec.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// Columns [first_column, first_column + columns) of a table, or of a feature's vectors.
struct column_piece {
  std::int64_t of = 0;  ///< number of the table or feature
  std::int64_t first_column = 0, columns = 0;

  friend bool operator==(column_piece const&, column_piece const&) = default;
};

/// Tables that were cut by columns into tables of their own, and features likewise, so that towers may be more than features.
///
///     auto const split = split_for_towers(specs, features, 8);          // of 5 features
///     auto const plan = plan_towers(split.specs, split.features, where, towers);
///     split_source source(sptt_tables(exec, comm, where, split.specs, split.features, plan, towers), split);
///
/// A piece of table "user" is read by a feature "user.0", and all pieces of one stand side by side. Pieces start as those columns of the whole
/// table do, and have its id. They are tables of their own to everything else: each keeps a row-wise state, and clips by norm, by itself.
/// Source of the need: DMT, Table 4, footnote 1.
struct split_tables {
  std::vector<table_spec> specs;          ///< of pieces
  std::vector<table_feature> features;    ///< that read pieces
  std::vector<column_piece> of_tables;    ///< (specs,): columns of which table each is
  std::vector<column_piece> of_features;  ///< (features,): columns of which feature each is, in the order of features and columns
  std::vector<table_options> tables;      ///< the whole tables
  std::vector<table_feature> whole;       ///< the features of whole tables
};

/// Cuts each table into so many pieces of columns, as even as can be in multiples of 4.
/// @throws tessera::error invalid_argument, naming the table, for less than one piece, and for more pieces than its columns by 4.
/// invalid_argument for other than one number a table. out_of_range for a feature of no table.
inline split_tables split_columns(std::vector<table_spec> const& specs, std::vector<table_feature> const& features,
                                  std::vector<std::int64_t> const& pieces) {
  if (pieces.size() != specs.size())
    throw error(errc::invalid_argument, "split_columns: one number of pieces a table",
                {{"tables", specs.size()}, {"numbers", pieces.size()}});
  split_tables split;
  split.tables = options_of(specs);
  split.whole = features;
  std::vector<std::vector<std::int64_t>> pieces_of(specs.size());
  for (std::size_t t = 0; t < specs.size(); ++t) {
    auto const fours = divide_up(specs[t].table.dim, std::int64_t{4});
    if (pieces[t] < 1 || pieces[t] > fours)
      throw error(errc::invalid_argument, "split_columns: from one piece to as many as a table has columns by 4",
                  {{"table", t}, {"id", specs[t].table.id.value}, {"pieces", pieces[t]}, {"columns", specs[t].table.dim}});
    for (auto const& [first_four, count] : detail::even_pieces(fours, pieces[t])) {
      auto const first = 4 * first_four, columns = std::min(specs[t].table.dim - first, 4 * count);
      pieces_of[t].push_back(static_cast<std::int64_t>(split.specs.size()));
      split.of_tables.push_back({static_cast<std::int64_t>(t), first, columns});
      auto& spec = split.specs.emplace_back(specs[t]);
      if (pieces[t] == 1) continue;
      spec.table.dim = columns;
      spec.add = [add = specs[t].add, first = first](host_exec const& exec, table_options const& part, basic_table_list<host_exec>& list) {
        auto shifted = part;
        shifted.first_column += first;
        add(exec, shifted, list);
      };
    }
  }
  for (std::size_t f = 0; f < features.size(); ++f) {
    auto const table = features[f].table;
    if (table < 0 || table >= static_cast<std::int64_t>(specs.size()))
      throw error(errc::out_of_range, "split_columns: no such table", {{"feature", f}, {"table", table}, {"tables", specs.size()}});
    auto const& own = pieces_of[static_cast<std::size_t>(table)];
    for (std::size_t p = 0; p < own.size(); ++p) {
      auto const& piece = split.of_tables[static_cast<std::size_t>(own[p])];
      auto& feature = split.features.emplace_back(features[f]);
      feature.table = own[p];
      if (own.size() > 1) feature.name += "." + std::to_string(p);
      split.of_features.push_back({static_cast<std::int64_t>(f), piece.first_column, piece.columns});
    }
  }
  return split;
}

/// Cuts tables into so many pieces that there are as many features as towers. Each time it cuts the table whose widest piece is the widest, the
/// first of equals. Tables that no feature reads stay whole. With as many features as towers, or more, nothing is cut.
/// @throws tessera::error invalid_argument, naming towers and features, for less than one tower, and where pieces of 4 columns are too few.
inline split_tables split_for_towers(std::vector<table_spec> const& specs, std::vector<table_feature> const& features,
                                     std::int64_t towers) {
  std::vector<std::int64_t> pieces(specs.size(), 1), readers(specs.size(), 0);
  for (auto const& feature : features)
    if (feature.table >= 0 && feature.table < static_cast<std::int64_t>(specs.size())) ++readers[static_cast<std::size_t>(feature.table)];
  auto const fours = [&](std::size_t t) { return divide_up(specs[t].table.dim, std::int64_t{4}); };
  for (auto made = static_cast<std::int64_t>(features.size()); made < towers;) {
    std::size_t widest = specs.size();
    for (std::size_t t = 0; t < specs.size(); ++t)
      if (readers[t] > 0 && pieces[t] < fours(t) &&
          (widest == specs.size() || divide_up(fours(t), pieces[t]) > divide_up(fours(widest), pieces[widest])))
        widest = t;
    if (widest == specs.size())
      throw error(errc::invalid_argument, "split_for_towers: more towers than features have columns by 4",
                  {{"towers", towers}, {"features", features.size()}, {"pieces", made}});
    ++pieces[widest];
    made += readers[widest];
  }
  if (towers < 1) throw error(errc::invalid_argument, "split_for_towers: towers", {{"towers", towers}, {"features", features.size()}});
  return split_columns(specs, features, pieces);
}

}  // namespace TESSERA_ABI
}  // namespace tessera
