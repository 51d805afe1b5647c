// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>
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
#include <tessera/embed/row_update.hpp>

namespace tessera::inline TESSERA_ABI {

namespace detail {

inline constexpr std::int64_t gradient_rows_per_piece = 256;

template <class Exec>
struct update_rows_impl {
  static_assert(dependent_false<Exec>, "update_rows: no back end for this execution; for CUDA include <tessera/embed/row_gradients.cuh>");
};

template <>
struct update_rows_impl<host_exec> {
  template <class Store, class Optimizer>
  static void run(host_exec const& exec, vector_view<Store> tables, row_gradients const& gradients,
                  vector_view<Optimizer const> optimizers) {
    std::int64_t largest = 0;
    for (std::int64_t t = 0; t < tables.size(); ++t)
      largest = std::max(largest, 2 * tables[t].dim() * divide_up(gradients.rows(t), gradient_rows_per_piece));
    buffer<float> scratch(exec, largest);
    auto rows = rows_of_tables(exec, vector_view<Store const>(tables));
    count_step(tables);  // from here on nothing throws
    for (std::int64_t t = 0; t < tables.size(); ++t) {
      auto& table = rows[t];
      table.step = tables[t].steps();
      auto const& optimizer = of_table(optimizers, t);
      auto const dim = table.dim();
      auto const values = gradients.values(t);
      auto const slots = gradients.slots(t), ids = gradients.ids(t);
      for_each_piece(exec, slots.size(), gradient_rows_per_piece, [&](std::int64_t first, std::int64_t last) {
        float* const gradient = scratch.data() + 2 * dim * (first / gradient_rows_per_piece);
        for (auto i = first; i < last; ++i) {
          std::copy_n(values.row(i), dim, gradient);
          update_summed(std::as_const(table), optimizer, {&slots[i], &ids[i], 1, gradient, gradient + dim});
        }
      });
    }
  }
};

struct update_rows_fn {
  template <execution Exec, row_stores Tables, row_optimizers Optimizers>
  void operator()(Exec const& exec, Tables& tables, basic_row_gradients<Exec> const& gradients, Optimizers const& optimizers) const {
    using store = element_in<Tables>;
    expect_tables_of<Exec, store>();
    vector_view<store> const stores(tables);
    auto const each = per_table(optimizers);
    check_optimizers("update_rows", vector_view<store const>(stores), each);
    if (gradients.tables() != stores.size())
      throw error(errc::shape_mismatch, "update_rows: gradients of other tables",
                  {{"tables", stores.size()}, {"tables of the gradients", gradients.tables()}});
    for (std::int64_t t = 0; t < stores.size(); ++t) {
      if (gradients.dim(t) != stores[t].dim())
        throw error(errc::shape_mismatch, "update_rows: gradients of another dim",
                    {{"table", t}, {"dim", stores[t].dim()}, {"dim of the gradients", gradients.dim(t)}});
      if constexpr (device_execution<Exec>) continue;  // kernels look at the slots
      if (auto const slots = gradients.slots(t); !slots.empty() && slots[slots.size() - 1] >= stores[t].slot_bound())
        throw error(errc::out_of_range, "update_rows: no such slot",
                    {{"table", t}, {"slot", slots[slots.size() - 1]}, {"bound", stores[t].slot_bound()}});
    }
    if constexpr (checked && std::is_same_v<Exec, host_exec>)
      for (std::int64_t t = 0; t < stores.size(); ++t)
        check_rows_stay(exec, "update_rows", "table", t, std::as_const(stores[t]), gradients.ids(t), gradients.slots(t).data());
    update_rows_impl<Exec>::run(exec, stores, gradients, each);
  }
};

}  // namespace detail

/// One optimizer step with summed gradients: `update_rows(exec, tables, gradients, optimizers)`; `optimizers`: one for all tables or a
/// container of one a table; every table was built with this kind. What `pooled_lookup_backward` does at once, bit for bit, when nothing
/// has changed the gradients in between. Each table's step count grows by one. @throws tessera::error shape_mismatch, incompatible,
/// out_of_range; in a checked build also for a row that has left its table. No row has changed then; nor has it when memory runs out.
/// On a device slots that a table has not are told by `synchronize()`, and passed over.
inline constexpr detail::update_rows_fn update_rows{};

}  // namespace tessera::inline TESSERA_ABI
