// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstdint>
#include <limits>
#include <string>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/philox.hpp>
#include <tessera/core/types.hpp>
#include <tessera/core/view.hpp>
#include <tessera/embed/row_optimizer.hpp>

namespace tessera::inline TESSERA_ABI {

/// What `locate` did with an id.
enum class row_status : std::uint8_t {
  found,         ///< it had a row
  inserted,      ///< it got one now, with its initial values
  not_admitted,  ///< the store keeps no row for it; slot -1
  evicted,       ///< it got the row of an id that had to leave
  moved,         ///< its row lives elsewhere now; slot -1
  out_of_range,  ///< the store can never hold it; slot -1
};

/// One embedding table. Initial weights are uniform in [-init_bound, init_bound) and depend on (seed, id, row id, element) alone: not on
/// the kind of store, its size, or how it is cut over machines.
struct table_options {
  table_id id{};
  std::int64_t dim = 0;   // elements a row, at least 1
  std::int64_t rows = 0;  // dense: ids are 0 … rows - 1; hashed: how many to make room for at first
  float init_bound = 0.01F;
  random_seed seed{};
};

/// Elements [4 * index, 4 * index + 4) of an id's initial row.
TESSERA_HOST_DEVICE constexpr random_block initial_row_block(table_options const& table, std::int64_t id, std::int64_t index) noexcept {
  return philox(table.seed, static_cast<std::uint64_t>(id), static_cast<std::uint32_t>(table.id.value), static_cast<std::uint32_t>(index));
}

/// Calls f(i, value) for elements [first, last) of an id's initial row in order.
template <class F>
TESSERA_HOST_DEVICE constexpr void for_each_initial_element(table_options const& table, std::int64_t id, std::int64_t first,
                                                            std::int64_t last, F const& f) {
  while (first < last) {
    auto const block = initial_row_block(table, id, first / 4);
    for (auto k = static_cast<int>(first % 4); k < 4 && first < last; ++k, ++first) f(first, uniform_symmetric(block[k], table.init_bound));
  }
}
template <class F>
TESSERA_HOST_DEVICE constexpr void for_each_initial_element(table_options const& table, std::int64_t id, F const& f) {
  for_each_initial_element(table, id, 0, table.dim, f);
}

namespace detail {

inline constexpr std::int64_t rows_per_init_piece = 4096;

inline void check_table_options(char const* store, table_options const& options, row_state_layout layout) {
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
  if (!(options.init_bound >= 0 && options.init_bound <= std::numeric_limits<float>::max()))
    refuse("init_bound needs to be finite and not negative", "init_bound", options.init_bound);
}

inline void check_locate_shapes(char const* call, std::int64_t ids, std::int64_t slots, std::int64_t statuses) {
  if (slots != ids || (statuses != 0 && statuses != ids))
    throw error(errc::shape_mismatch, std::string(call) + ": one slot, and one status or none, an id",
                {{"ids", ids}, {"slots", slots}, {"statuses", statuses}});
}

}  // namespace detail

/// Holds embedding rows and, beside each, its optimizer state. Use is in two steps: `locate` ids, then read and update rows by slot.
/// - `locate(exec, ids, slots, statuses)`: the slot of each id, giving it a row where the store may; a repeated id gets one row. Slots
///   stay valid until the store says otherwise. `statuses` may be empty. For one caller at a time.
/// - `find(exec, ids, slots)`: the same without changing anything; -1 where there is no row.
/// - `row(slot)`: (dim,), `state(slot)`: (state_layout().width(dim),).
/// - `slots_are_ids`: `locate` is the identity for ids in [0, rows()), and lookups skip it.
template <class S>
concept row_store = requires(S& store, S const& held, host_exec const& exec, vector_view<std::int64_t const> ids,
                             vector_view<std::int64_t> slots, vector_view<row_status> statuses, std::int64_t slot) {
  typename S::element;
  { S::slots_are_ids } -> std::convertible_to<bool>;
  { held.options() } -> std::convertible_to<table_options const&>;
  { held.dim() } -> std::same_as<std::int64_t>;
  { held.rows() } -> std::same_as<std::int64_t>;
  { held.state_layout() } -> std::convertible_to<row_state_layout>;
  { held.steps() } -> std::same_as<step_count>;
  store.set_steps(step_count{});
  store.locate(exec, ids, slots, statuses);
  held.find(exec, ids, slots);
  { store.row(slot) } -> std::same_as<typename S::element*>;
  { held.row(slot) } -> std::same_as<typename S::element const*>;
  { store.state(slot) } -> std::same_as<float*>;
  { held.state(slot) } -> std::same_as<float const*>;
  { held.bytes() } -> std::same_as<std::size_t>;
};

}  // namespace tessera::inline TESSERA_ABI
