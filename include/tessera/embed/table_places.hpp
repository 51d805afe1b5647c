// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstdint>
#include <limits>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/embed/row_store.hpp>
#include <tessera/embed/table_part.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// Where a part lies in its table: columns [first_column, first_column + columns) of rows [first_row, first_row + rows).
struct part_place {
  /// All rows of the table, however many they are.
  static constexpr std::int64_t all_rows = std::numeric_limits<std::int64_t>::max();

  std::int64_t table = 0;  ///< number of the table
  std::int64_t first_column = 0, columns = 0;
  std::int64_t first_row = 0, rows = all_rows;  ///< 0 and `all_rows`, or a range of the table's rows
  std::int64_t hashed_rows = 0;                 ///< of a range of a hashed table: ids are in it by `hashed_row(id, hashed_rows)`
  bool is_copy = false;                         ///< another rank has the same rows, which counts for both where each counts once
};

/// The whole tables of a source, also those that lie on other ranks, and where in them its parts lie.
struct table_places {
  std::vector<table_options> tables;  ///< of each whole table
  std::vector<part_place> parts;      ///< of each of the source's `parts()`
};

/// A source whose parts may be rectangles of tables. `places()` says of which.
template <class S>
concept places_parts = requires(S const& source) {
  { source.places() } -> std::same_as<table_places>;
};

/// A source of which another rank may have the same gradients of rows, and which says so itself. `counted_elsewhere()`, (tables of what
/// `gradients` gives,), is true of a table that another rank counts where each counts once: in a norm, say.
template <class S>
concept tells_counted_elsewhere = requires(S const& source) {
  { source.counted_elsewhere() } -> std::same_as<std::vector<bool>>;
};

/// What the source says; else true of the parts that are copies. Empty: each rank counts all that it has.
template <class Source>
std::vector<bool> counted_elsewhere_of(Source const& source) {
  std::vector<bool> elsewhere;
  if constexpr (tells_counted_elsewhere<Source>)
    elsewhere = source.counted_elsewhere();
  else if constexpr (places_parts<Source>)
    for (auto const& part : source.places().parts) elsewhere.push_back(part.is_copy);
  return elsewhere;
}

/// Where the parts of a source lie. Part t of a source without `places()` is all of table t.
template <class Source>
table_places places_of(Source const& source, table_parts const& parts) {
  if constexpr (places_parts<Source>) {
    return source.places();
  } else {
    table_places all;
    for (auto const& part : parts) {
      all.parts.push_back({.table = static_cast<std::int64_t>(all.tables.size()), .columns = part->options().dim});
      all.tables.push_back(part->options());
    }
    return all;
  }
}

}  // namespace TESSERA_ABI
}  // namespace tessera
