// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

#include <tessera/core/buffer.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/piece_list.hpp>
#include <tessera/core/view.hpp>
#include <tessera/embed/host_rows.hpp>
#include <tessera/embed/lookup_checks.hpp>
#include <tessera/embed/row_gradients.hpp>
#include <tessera/embed/row_optimizer.hpp>
#include <tessera/embed/row_store.hpp>
#include <tessera/embed/row_sums.hpp>
#include <tessera/embed/row_update.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// Makes one optimizer step with summed gradients: each row of `gradients` changes once, and each table's step count grows by one.
/// `optimizers` is one for all tables, or a container of one a table.
///
/// On a device a step passes over slots that its table does not have; the next `synchronize()` reports them.
/// @pre every table was built with this kind of optimizer.
/// @post the rows are those of `pooled_lookup_backward`, bit for bit, unless the gradients were changed in between.
/// @throws tessera::error shape_mismatch, incompatible, out_of_range, or invalid_argument as `check_optimizer`. In a checked build the call
/// also refuses a row that has left its table. No row has changed then, nor when memory runs out.
template <execution Exec, row_stores Tables, row_optimizers Optimizers>
void update_rows(Exec const& exec, Tables& tables, basic_row_gradients<Exec> const& gradients, Optimizers const& optimizers);

namespace detail {

struct update_rows_tag {};

/// Checks that the gradients are of these tables, whose dims and slot bounds are `dim_of(t)` and `slot_bound_of(t)`.
template <class Exec, class DimOf, class BoundOf>
void check_row_gradients(char const* call, std::int64_t tables, DimOf const& dim_of, BoundOf const& slot_bound_of,
                         basic_row_gradients<Exec> const& gradients) {
  if (gradients.tables() != tables)
    throw error(errc::shape_mismatch, std::string(call) + ": gradients of other tables",
                {{"tables", tables}, {"tables of the gradients", gradients.tables()}});
  for (std::int64_t t = 0; t < tables; ++t) {
    if (gradients.dim(t) != dim_of(t))
      throw error(errc::shape_mismatch, std::string(call) + ": gradients of another dim",
                  {{"table", t}, {"dim", dim_of(t)}, {"dim of the gradients", gradients.dim(t)}});
    back_end<update_rows_tag, Exec>::check_slots(call, gradients, t, slot_bound_of);
  }
}

/// Hands copies of all rows to `sink`, some of a table at a time, on any threads; the sink may overwrite them. `begin()` is called once all
/// memory is allocated: nothing throws from then on.
template <class Begin>
void visit_summed_rows(host_exec const& exec, row_gradients const& gradients, Begin const& begin, summed_rows_sink const& sink) {
  constexpr std::int64_t rows_per_piece = 256, most_rows = 16;
  std::int64_t widest = 0;
  for (std::int64_t t = 0; t < gradients.tables(); ++t) widest = std::max(widest, gradients.dim(t));
  piece_list const pieces(exec, gradients.tables(), [&](std::int64_t t) { return divide_up(gradients.rows(t), rows_per_piece); });
  buffer<float> scratch(exec, (most_rows + 1) * widest * pieces.count());
  begin();
  exec.run(pieces.count(), [&](std::int64_t piece) {
    auto const t = pieces.range_of(piece);
    auto const values = gradients.values(t);
    auto const dim = values.columns(), end = std::min(values.rows(), (piece - pieces.first_of(t) + 1) * rows_per_piece);
    float* const copies = scratch.data() + (most_rows + 1) * widest * piece;
    for (auto first = (piece - pieces.first_of(t)) * rows_per_piece; first < end; first += most_rows) {
      auto const count = std::min(most_rows, end - first);
      std::copy_n(values.row(first), count * dim, copies);
      sink(t, {gradients.slots(t).data() + first, gradients.ids(t).data() + first, nullptr, count, copies, copies + count * dim});
    }
  });
}

template <>
struct back_end<update_rows_tag, host_exec> {
  template <class BoundOf>
  static void check_slots(char const* call, row_gradients const& gradients, std::int64_t table, BoundOf const& slot_bound_of) {
    if (auto const slots = gradients.slots(table); !slots.empty() && slots[slots.size() - 1] >= slot_bound_of(table))
      throw error(errc::out_of_range, std::string(call) + ": no such slot",
                  {{"table", table}, {"slot", slots[slots.size() - 1]}, {"bound", slot_bound_of(table)}});
  }

  template <class Store, class Optimizer>
  static void run(host_exec const& exec, vector_view<Store> tables, row_gradients const& gradients,
                  vector_view<Optimizer const> optimizers) {
    // No `if constexpr`: behind one that is discarded, nvcc 13 loses what the lambda below captures.
    for (std::int64_t t = 0; checked && t < tables.size(); ++t) {
      auto const find = [&](auto ids, auto slots) { std::as_const(tables[t]).find(exec, ids, slots); };
      check_rows_stay(exec, "update_rows", "table", t, find, gradients.ids(t), gradients.slots(t).data());
    }
    auto rows = rows_of_tables(exec, vector_view<Store const>(tables));
    auto const begin = [&] { count_step(tables, rows.view()); };
    visit_summed_rows(exec, gradients, begin, summed_rows_sink([&](std::int64_t t, summed_rows const& some) {
                        update_summed(std::as_const(rows[t]), of_table(optimizers, t), some);
                      }));
  }
};

}  // namespace detail

template <execution Exec, row_stores Tables, row_optimizers Optimizers>
void update_rows(Exec const& exec, Tables& tables, basic_row_gradients<Exec> const& gradients, Optimizers const& optimizers) {
  using store = detail::element_in<Tables>;
  detail::expect_tables_of<Exec, store>();
  detail::expect_mutable_tables<Tables>();
  vector_view<store> const stores(tables);
  auto const each = detail::per_table(optimizers);
  detail::check_optimizers("update_rows", vector_view<store const>(stores), each);
  detail::check_row_gradients(
      "update_rows", stores.size(), [&](std::int64_t t) { return stores[t].dim(); }, [&](std::int64_t t) { return stores[t].slot_bound(); },
      gradients);
  detail::back_end<detail::update_rows_tag, Exec>::run(exec, stores, gradients, each);
}

}  // namespace TESSERA_ABI
}  // namespace tessera
