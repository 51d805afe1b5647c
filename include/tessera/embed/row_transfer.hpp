// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include <tessera/core/buffer.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/row_formats.hpp>
#include <tessera/core/view.hpp>
#include <tessera/embed/row_store.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// Copies rows out of a store, with their optimizer states; it changes nothing.
///
/// `weights` (ids, dim); `states` (ids, state width), or without columns where they are not wanted. `statuses` (ids,) or empty: found; for
/// an id without a row out_of_range where slots are ids, else not_admitted. Such an id reads as its row would first appear. On a device all
/// of these are in its memory, and nothing waits; rows in the lines of a `row_cache` are read there. Workspace: 8 bytes an id.
/// @throws tessera::error shape_mismatch.
template <execution Exec, row_store Store>
void read_rows(Exec const& exec, Store const& store, vector_view<std::int64_t const> ids, matrix_view<float> weights,
               matrix_view<float> states = {}, vector_view<row_status> statuses = {});

/// Copies rows into a store, with their optimizer states. Shapes are those of `read_rows`. Without states, rows that are there keep theirs
/// and new rows have the initial ones.
///
/// An id gets a row where the store has room, whatever its admission policy says; else its values are dropped. `statuses` are those of
/// `locate`. Weights are rounded to the nearest value of the store's elements. Of an id that comes twice, the last row stays.
/// @post `read_rows` gives back what was written, rounded as the store's elements are
/// @throws tessera::error shape_mismatch, and as `locate`; no weight was written then.
template <execution Exec, row_store Store>
void write_rows(Exec const& exec, Store& store, vector_view<std::int64_t const> ids, matrix_view<float const> weights,
                matrix_view<float const> states = {}, vector_view<row_status> statuses = {});

namespace detail {

inline constexpr std::int64_t moved_rows_per_piece = 256;

template <class Store>
void check_row_transfer(char const* call, Store const& store, std::int64_t ids, matrix_view<float const> weights,
                        matrix_view<float const> states, std::int64_t statuses) {
  auto const refuse = [&](char const* what, std::int64_t rows, std::int64_t columns, std::int64_t expected) {
    throw error(errc::shape_mismatch, std::string(call) + ": " + what,
                {{"table", store.options().id.value}, {"ids", ids}, {"rows", rows}, {"columns", columns}, {"expected", expected}});
  };
  auto const width = store.state_layout().width(store.dim());
  if (weights.rows() != ids || weights.columns() != store.dim() || weights.stride() < store.dim())
    refuse("weights of another shape", weights.rows(), weights.columns(), store.dim());
  if (states.columns() != 0 && (states.rows() != ids || states.columns() != width || states.stride() < width))
    refuse("states of another shape", states.rows(), states.columns(), width);
  if (statuses != 0 && statuses != ids) refuse("one status or none an id", statuses, 1, ids);
}

struct row_transfer_tag {};

template <>
struct back_end<row_transfer_tag, host_exec> {
  template <class Store>
  static void read(host_exec const& exec, Store const& store, vector_view<std::int64_t const> ids, matrix_view<float> weights,
                   matrix_view<float> states, vector_view<row_status> statuses) {
    constexpr auto absent = Store::slots_are_ids ? row_status::out_of_range : row_status::not_admitted;
    buffer<std::int64_t> slots(exec, ids.size());
    store.find(exec, ids, slots.view());
    for_each_piece(exec, ids.size(), moved_rows_per_piece, [&](std::int64_t first, std::int64_t last) {
      for (auto i = first; i < last; ++i) {
        if (!statuses.empty()) statuses[i] = slots[i] < 0 ? absent : row_status::found;
        if (slots[i] < 0) {
          initialise(store, ids[i], weights.row(i), states.columns() > 0 ? states.row(i) : nullptr);
        } else {
          auto const* const row = store.row(slots[i]);
          auto const scale = row_scale<typename Store::element>::of(row);
          std::transform(row, row + store.dim(), weights.row(i), [&](auto element) { return scale.value(element); });
          if (states.columns() > 0) std::copy_n(store.state(slots[i]), states.columns(), states.row(i));
        }
      }
    });
  }

  // A row that the store has not reads as it would first appear.
  template <class Store>
  static void initialise(Store const& store, std::int64_t id, float* row, float* state) noexcept {
    using element = typename Store::element;
    for_each_initial_element(store.options(), id,
                             [&](std::int64_t i, float value) { row[i] = stored_initial<element>(store.options(), value); });
    if (state != nullptr) std::fill_n(state, store.state_layout().width(store.dim()), store.state_layout().initial);
  }

  // One thread writes, so that the last of two rows of one id stays.
  template <class Store>
  static void write(host_exec const& exec, Store& store, vector_view<std::int64_t const> ids, matrix_view<float const> weights,
                    matrix_view<float const> states, vector_view<row_status> statuses) {
    using element = typename Store::element;
    buffer<std::int64_t> slots(exec, ids.size());
    if constexpr (requires { store.insert(exec, ids, slots.view(), statuses); })
      store.insert(exec, ids, slots.view(), statuses);
    else
      store.locate(exec, ids, slots.view(), statuses);
    for (std::int64_t i = 0; i < ids.size(); ++i) {
      if (slots[i] < 0) continue;
      auto const* const row = weights.row(i);
      auto const scale = row_scale<element>::for_values(row, store.dim());
      std::transform(row, row + store.dim(), store.row(slots[i]), [&](float value) { return scale.nearest(value); });
      scale.write_to(store.row(slots[i]));
      if (states.columns() > 0) std::copy_n(states.row(i), states.columns(), store.state(slots[i]));
    }
  }
};

}  // namespace detail

template <execution Exec, row_store Store>
void read_rows(Exec const& exec, Store const& store, vector_view<std::int64_t const> ids, matrix_view<float> weights,
               matrix_view<float> states, vector_view<row_status> statuses) {
  detail::expect_tables_of<Exec, Store>();
  detail::check_row_transfer("read_rows", store, ids.size(), weights, states, statuses.size());
  detail::back_end<detail::row_transfer_tag, Exec>::read(exec, store, ids, weights, states, statuses);
}

template <execution Exec, row_store Store>
void write_rows(Exec const& exec, Store& store, vector_view<std::int64_t const> ids, matrix_view<float const> weights,
                matrix_view<float const> states, vector_view<row_status> statuses) {
  detail::expect_tables_of<Exec, Store>();
  detail::check_row_transfer("write_rows", store, ids.size(), weights, states, statuses.size());
  detail::back_end<detail::row_transfer_tag, Exec>::write(exec, store, ids, weights, states, statuses);
}

}  // namespace TESSERA_ABI
}  // namespace tessera
