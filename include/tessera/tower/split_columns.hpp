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
split_tables split_columns(std::vector<table_spec> const& specs, std::vector<table_feature> const& features,
                           std::vector<std::int64_t> const& pieces);

/// Cuts tables into so many pieces that there are as many features as towers. Each time it cuts the table whose widest piece is the widest, the
/// first of equals. Tables that no feature reads stay whole. With as many features as towers, or more, nothing is cut.
/// @throws tessera::error invalid_argument, naming towers and features, for less than one tower, and where pieces of 4 columns are too few.
split_tables split_for_towers(std::vector<table_spec> const& specs, std::vector<table_feature> const& features, std::int64_t towers);

}  // namespace TESSERA_ABI
}  // namespace tessera

#if !TESSERA_COMPILED
#include <tessera/tower/split_columns.ipp>
#endif
