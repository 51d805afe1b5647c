// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/embed/row_store.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

namespace detail {

TESSERA_INLINE void check_table_options(char const* store, table_options const& options, row_state_layout layout) {
  constexpr std::int64_t most_elements = std::int64_t{1} << 48;  // what an address space holds; keeps products of sizes exact
  auto const refuse = [&](char const* why, char const* option, auto value) {
    throw error(errc::invalid_argument, std::string(store) + ": " + why, {{"table", options.id.value}, {option, value}});
  };
  if (options.id.value < 0 || options.id.value > std::int64_t{std::numeric_limits<std::uint32_t>::max()})
    refuse("a table id needs to lie in [0, 2^32)", "id", options.id.value);
  if (options.dim < 1) refuse("a row needs a dim of at least 1", "dim", options.dim);
  if (options.dim > std::numeric_limits<std::int32_t>::max()) refuse("dim too large", "dim", options.dim);
  if (options.rows < 0) refuse("negative number of rows", "rows", options.rows);
  if (options.rows > most_elements / (options.dim + layout.width(options.dim)))
    refuse("more rows than memory can hold", "rows", options.rows);
  if (options.most_rows < options.rows) refuse("fewer rows allowed than made room for", "most_rows", options.most_rows);
  if (options.batches_in_flight < 1) refuse("the current batch is in flight", "batches_in_flight", options.batches_in_flight);
  if (!(options.init_bound >= 0 && options.init_bound <= std::numeric_limits<float>::max()))
    refuse("init_bound needs to be finite and not negative", "init_bound", options.init_bound);
  if (options.first_row < 0 || options.first_row > std::numeric_limits<std::int64_t>::max() - options.rows)
    refuse("rows of a larger table are numbered from 0 and below 2^63", "first_row", options.first_row);
  if (options.first_row != 0 && options.row_ids != nullptr)
    refuse("rows of a larger table are scattered, or count from a first one", "first_row", options.first_row);
  if (options.first_column < 0 || options.first_column > std::numeric_limits<std::int32_t>::max() - options.dim)
    refuse("columns of a larger table are numbered from 0 and below 2^31", "first_column", options.first_column);
  if (options.first_column % 4 != 0)
    refuse("a table is cut by columns at multiples of 4, which share random words", "first_column", options.first_column);
}

TESSERA_INLINE void check_hashed_options(char const* store, table_options const& options, row_state_layout layout) {
  check_table_options(store, options, layout);
  if (options.first_row != 0 || options.row_ids != nullptr)
    throw error(errc::invalid_argument, std::string(store) + ": ids are those of the whole table already: no first_row and no row_ids",
                {{"table", options.id.value}, {"first_row", options.first_row}});
}

TESSERA_INLINE void check_locate_shapes(char const* call, std::int64_t ids, std::int64_t slots, std::int64_t statuses) {
  if (slots != ids || (statuses != 0 && statuses != ids))
    throw error(errc::shape_mismatch, std::string(call) + ": one slot, and one status or none, an id",
                {{"ids", ids}, {"slots", slots}, {"statuses", statuses}});
}

TESSERA_INLINE void check_slot(char const* store, table_options const& options, std::int64_t slot, std::int64_t bound) {
  if (slot < 0 || slot >= bound)
    throw error(errc::out_of_range, std::string(store) + ": no such slot",
                {{"table", options.id.value}, {"slot", slot}, {"slot bound", bound}});
}

}  // namespace detail

}  // namespace TESSERA_ABI
}  // namespace tessera
