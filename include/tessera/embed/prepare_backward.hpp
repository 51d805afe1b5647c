// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>
#include <string>

#include <tessera/core/buffer.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>
#include <tessera/embed/lookup_checks.hpp>
#include <tessera/embed/lookup_options.hpp>
#include <tessera/embed/lookup_saved.hpp>
#include <tessera/embed/row_order.hpp>
#include <tessera/embed/row_store.hpp>
#include <tessera/tensor/keyed_jagged.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// Sorts the ids of a lookup by row, so that its backward need not. It reads no row, so it may be called while other batches are computed.
/// `features` are those of the forward that filled `saved`.
///
/// On a device it waits for one number where the batch does not say its `room`. Where it is called on a stream of its own, that stream must
/// wait for the backward before `saved` is destroyed or prepared again.
/// @throws tessera::error shape_mismatch, out_of_range.
template <execution Exec, row_stores Tables, detail::container Features>
void prepare_backward(Exec const& exec, Tables const& tables, Features const& features, basic_lookup_saved<Exec>& saved);

/// As above, for dense tables on the host before there is a forward. After the forward, swap `order` with that of `saved`. `options` are
/// those of the forward.
/// @throws tessera::error shape_mismatch, out_of_range; invalid_argument for source ranks that do not fit.
template <row_stores Tables, detail::container Features>
void prepare_backward(host_exec const& exec, Tables const& tables, Features const& features, keyed_jagged_view<std::int64_t const> batch,
                      row_order& order, lookup_options const& options = {});

namespace detail {

struct sort_rows_tag {};

/// Sorts the positions of a batch by the rows that their slots name.
template <class Store, class Feature>
void sort_rows(host_exec const& exec, vector_view<Store const> tables, vector_view<Feature const> features,
               keyed_jagged_view<std::int64_t const> batch, std::int64_t const* slots, std::int64_t source_ranks, row_order& order) {
  buffer<std::int64_t> bounds(exec, tables.size()), table_of_key(exec, batch.keys);
  buffer<std::int64_t const*> slots_of_key(exec, batch.keys);
  for (std::int64_t t = 0; t < tables.size(); ++t) bounds[t] = tables[t].slot_bound();
  for (std::int64_t key = 0; key < batch.keys; ++key) {
    table_of_key[key] = table_of(features[key]);
    slots_of_key[key] = slots;
  }
  order.sort(exec, {batch, table_of_key.view(), bounds.view(), slots_of_key.view(), source_ranks});
}

template <>
struct back_end<sort_rows_tag, host_exec> {
  template <class Store, class Feature>
  static void run(host_exec const& exec, vector_view<Store const> tables, vector_view<Feature const> features, lookup_saved const& saved,
                  row_order& order) {
    sort_rows(exec, tables, features, saved.batch, saved.slots_of<Store>(), saved.source_ranks, order);
  }
};

// In a checked build: what a forward saved is as it left it, so are the rows that it read, and a prepared order is theirs. Other builds
// trust an order that has as many values as the batch.
template <class Store, class Feature>
void check_saved_rows(host_exec const& exec, char const* call, vector_view<Store const> tables, vector_view<Feature const> features,
                      lookup_saved const& saved) {
  if constexpr (checked) {
    auto const batch = saved.batch;
    validate(batch, std::numeric_limits<std::int64_t>::max());
    if constexpr (!Store::slots_are_ids)
      for (std::int64_t key = 0; key < batch.keys; ++key) {
        auto const bags = batch.key(key);
        if (bags.rows == 0) continue;
        auto const first = bags.offsets[0] - first_value(batch);
        auto const find = [&](auto ids, auto slots) { tables[table_of(features[key])].find(exec, ids, slots); };
        check_rows_stay(exec, call, "feature", key, find, {bags.values + bags.offsets[0], bags.size()}, saved.slots.data() + first);
      }
    if (saved.order.ready()) {
      row_order expected;
      sort_rows(exec, tables, features, saved.batch, saved.template slots_of<Store>(), saved.source_ranks, expected);
      if (auto const table = saved.order.first_difference(expected); table >= 0)
        throw error(errc::invalid_argument, std::string(call) + ": the order was prepared for other ids, tables or features",
                    {{"table", table}, {"values", saved.batch.size()}});
    }
  }
}

/// Calls f(detail::row_sort) with the order that was prepared, or with one made for the call.
template <class Store, class Feature, class F>
void with_order(host_exec const& exec, vector_view<Store const> tables, vector_view<Feature const> features, lookup_saved const& saved,
                F const& f) {
  if (saved.order.ready()) return saved.order.visit(f);
  row_order order;
  sort_rows(exec, tables, features, saved.batch, saved.template slots_of<Store>(), saved.source_ranks, order);
  order.visit(f);
}

}  // namespace detail

template <execution Exec, row_stores Tables, detail::container Features>
void prepare_backward(Exec const& exec, Tables const& tables, Features const& features, basic_lookup_saved<Exec>& saved) {
  using store = detail::element_in<Tables const>;
  detail::expect_tables_of<Exec, store>();
  vector_view<store const> const held(tables);
  vector_view<detail::element_in<Features const> const> const of_keys(features);
  detail::check_saved<store>("prepare_backward", of_keys, saved);
  detail::check_lookup_call("prepare_backward", held, of_keys, saved.batch, saved.batch.keys);
  detail::back_end<detail::sort_rows_tag, Exec>::run(exec, held, of_keys, saved, saved.order);
}

template <row_stores Tables, detail::container Features>
void prepare_backward(host_exec const& exec, Tables const& tables, Features const& features, keyed_jagged_view<std::int64_t const> batch,
                      row_order& order, lookup_options const& options) {
  using store = detail::element_in<Tables const>;
  static_assert(store::slots_are_ids, "prepare_backward: rows of such tables get their slots in the forward; sort what it has saved");
  vector_view<store const> const held(tables);
  vector_view<detail::element_in<Features const> const> const of_keys(features);
  order.clear();
  detail::check_lookup_call("prepare_backward", held, of_keys, batch, batch.keys);
  detail::check_source_ranks("prepare_backward", of_keys, options.source_ranks);
  detail::sort_rows(exec, held, of_keys, batch, detail::slots_in<store>(batch, buffer<std::int64_t>{}), options.source_ranks, order);
}

}  // namespace TESSERA_ABI
}  // namespace tessera
