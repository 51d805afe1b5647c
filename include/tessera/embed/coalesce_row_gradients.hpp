// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

#include <tessera/core/buffer.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>
#include <tessera/embed/fused_backward.hpp>
#include <tessera/embed/locate_batch.hpp>
#include <tessera/embed/lookup_saved.hpp>
#include <tessera/embed/row_contributions.hpp>
#include <tessera/embed/row_gradients.hpp>
#include <tessera/embed/row_store.hpp>
#include <tessera/tensor/keyed_jagged.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// Gradients of rows of one table, as another process sent them: row i of `values` is the gradient of `ids[i]`.
struct row_gradient_list {
  std::int64_t table = 0;               ///< its number among the tables of the call
  vector_view<std::int64_t const> ids;  ///< (n,), repeated or not, in any order
  matrix_view<float const> values;      ///< (n, dim of the table), any stride
};

/// Sums gradients of rows that arrived from other processes, each row's once, so that `update_rows` can apply them. It changes no table.
///
/// `lists`: any number of them a table, or none, in the order of arrival. `out`, which is overwritten, has all tables. As in the lookups'
/// backwards, an id that a hashed table gives no row gets no gradient. The ids of dense tables that hold a shard's rows count from its
/// first row. Workspace, from `exec`'s memory: 32 bytes an id, 8 more where tables are hashed, and 8 an id of the tables sorted at once.
/// @post a row's gradients are summed in the order of their lists, and of positions within a list, in the chunks of `canonical_sum_chunk`.
/// With one list a table the bits are those of `sequence_lookup_gradients` for the same ids, for any number of threads.
/// @throws tessera::error shape_mismatch; out_of_range for a table, or for an id, named by list and position, that a dense table has no row
/// for. `out` is then as before. Source: the name is that of PyTorch's `torch.Tensor.coalesce` of a sparse gradient.
template <row_stores Tables>
void coalesce_row_gradients(host_exec const& exec, Tables const& tables, vector_view<row_gradient_list const> lists, row_gradients& out);

namespace detail {

template <class Store>
void check_gradient_lists(vector_view<Store const> tables, vector_view<row_gradient_list const> lists) {
  for (std::int64_t l = 0; l < lists.size(); ++l) {
    auto const& list = lists[l];
    if (list.table < 0 || list.table >= tables.size())
      throw error(errc::out_of_range, "coalesce_row_gradients: no such table",
                  {{"list", l}, {"table", list.table}, {"tables", tables.size()}});
    auto const& table = tables[list.table];
    if (list.values.rows() != list.ids.size() || list.values.columns() != table.dim() || list.values.stride() < table.dim())
      throw error(errc::shape_mismatch, "coalesce_row_gradients: one gradient of the table's dim an id",
                  {{"list", l},
                   {"table", list.table},
                   {"ids", list.ids.size()},
                   {"rows", list.values.rows()},
                   {"columns", list.values.columns()},
                   {"dim", table.dim()},
                   {"stride", list.values.stride()}});
    if constexpr (Store::slots_are_ids)
      for (std::int64_t i = 0; i < list.ids.size(); ++i)
        if (auto const id = list.ids[i]; id < 0 || id >= table.slot_bound())
          throw error(errc::out_of_range, "coalesce_row_gradients: id out of range",
                      {{"list", l}, {"table", list.table}, {"position", i}, {"id", id}, {"rows", table.slot_bound()}});
  }
}

}  // namespace detail

template <row_stores Tables>
void coalesce_row_gradients(host_exec const& exec, Tables const& tables, vector_view<row_gradient_list const> lists, row_gradients& out) {
  using store = detail::element_in<Tables const>;
  detail::expect_tables_of<host_exec, store>();
  vector_view<store const> const held(tables);
  detail::check_gradient_lists(held, lists);

  // The lists are keys of one row each.
  auto const keys = lists.size();
  buffer<std::int64_t> table_of_key(exec, keys), first_row(exec, keys + 1), offsets(exec, keys + 1);
  buffer<matrix_view<float const>> values(exec, keys);
  first_row[0] = offsets[0] = 0;
  for (std::int64_t key = 0; key < keys; ++key) {
    table_of_key[key] = lists[key].table;
    values[key] = lists[key].values;
    first_row[key + 1] = key + 1;
    offsets[key + 1] = offsets[key] + lists[key].ids.size();
  }
  buffer<std::int64_t> ids(exec, offsets[keys]);
  exec.run(keys, [&](std::int64_t key) { std::copy(lists[key].ids.begin(), lists[key].ids.end(), ids.data() + offsets[key]); });

  lookup_saved saved;
  saved.batch = {ids.data(), nullptr, offsets.data(), first_row.data(), keys, ids.size()};
  vector_view<std::int64_t const> const features(table_of_key.data(), keys);
  vector_view<matrix_view<float const> const> const gradients(values.data(), keys);
  if constexpr (!store::slots_are_ids) detail::locate_all<false>(exec, held, features, saved.batch, saved.slots, 1);
  buffer<float> maxima;
  detail::sum_rows_of(exec, "coalesce_row_gradients", held, features, saved, out, [&](vector_view<detail::row_contribution> contributions) {
    detail::contribute(exec, features, saved.batch, saved.argmax, gradients, maxima, contributions);
  });
}

}  // namespace TESSERA_ABI
}  // namespace tessera
