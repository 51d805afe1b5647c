// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>
#include <tessera/embed/bag_reader.hpp>
#include <tessera/embed/host_rows.hpp>
#include <tessera/embed/locate_batch.hpp>
#include <tessera/embed/lookup_checks.hpp>
#include <tessera/embed/lookup_options.hpp>
#include <tessera/embed/lookup_saved.hpp>
#include <tessera/embed/pooled_argmax.hpp>
#include <tessera/embed/pooling.hpp>
#include <tessera/embed/row_store.hpp>
#include <tessera/tensor/keyed_jagged.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// Looks up and pools many features from many tables of any dims in one call, for training. Hashed tables give new ids a row. `saved` is
/// for `pooled_lookup_backward`, `pooled_lookup_gradients` and `pooled_lookup_weight_gradient`.
///
/// `tables`: a container of one kind of row store. `features` (keys,): the table of each key, and how to pool. `batch`: ids, optionally
/// weighted (a row counts weight times); each key has its own number of rows. `out` (keys,): matrices (rows of the key, dim of its table)
/// of any row stride, so that vectors land where the next layer reads them. An id that its store could hold but does not (not seen, not
/// admitted) reads as the row that it would get. `lookup_options` say what happens to ids that a dense table has no row for.
///
/// On a device ids, slots, offsets, weights and the content of matrices are in its memory. Tables, features and the list of matrices are
/// read before the call returns. Only hashed tables wait, and only for a batch that does not say its `room`. `synchronize()` reports
/// invalid ids and offsets. Such ids read as zeros, such rows as empty bags, and neither gets a gradient.
/// @post row r of out[k] is row r of key k, pooled: a sum in float, in the order of the bag. The bits are the same for any number of
/// threads and on a device.
/// @throws tessera::error shape_mismatch. out_of_range, with feature, table, row, position and id, for an id that a dense table has no row
/// for, unless the options say otherwise. No table has changed then. invalid_argument for offsets that decrease, for a maximum of a weighted
/// batch or on a device, and for source ranks that do not fit the features. Offsets past the end of the values are refused where the batch
/// says its `room`; else by `validate(batch, values)`.
template <execution Exec, row_stores Tables>
void pooled_lookup(Exec const& exec, Tables& tables, vector_view<pooled_feature const> features,
                   keyed_jagged_view<std::int64_t const> batch, vector_view<matrix_view<float> const> out, basic_lookup_saved<Exec>& saved,
                   lookup_options const& options = {});

/// As above, for evaluation: it changes nothing.
template <execution Exec, row_stores Tables>
void pooled_lookup(Exec const& exec, Tables const& tables, vector_view<pooled_feature const> features,
                   keyed_jagged_view<std::int64_t const> batch, vector_view<matrix_view<float> const> out,
                   lookup_options const& options = {});

namespace detail {

struct pooled_lookup_tag {};

template <>
struct back_end<pooled_lookup_tag, host_exec> {
  template <class Store>
  static void run(host_exec const& exec, vector_view<Store const> stores, vector_view<pooled_feature const> features,
                  keyed_jagged_view<std::int64_t const> batch, std::int64_t const* slots, vector_view<matrix_view<float> const> out,
                  lookup_options const& options, pooled_argmax* argmax) {
    auto const tables = rows_of_tables(exec, stores);
    auto const places = places_of(exec, tables.view());
    read_bags(exec, places.view(), features, batch, slots, out, options, argmax,
              [&](bag_request const& request, std::int64_t table, std::int64_t first, std::int64_t last) {
                pool_bags(tables[table], request, first, last);
              });
  }
};

template <class Exec, class Store>
void check_pooled_lookup(Exec const& exec, vector_view<Store const> tables, vector_view<pooled_feature const> features,
                         keyed_jagged_view<std::int64_t const> batch, vector_view<matrix_view<float> const> out,
                         lookup_options const& options) {
  check_choice("pooled_lookup", "out_of_range", options.out_of_range, out_of_range_ids::zero);
  check_lookup_call("pooled_lookup", tables, features, batch, out.size());
  check_source_ranks("pooled_lookup", features, options.source_ranks);
  check_poolings("pooled_lookup", features);
  validate_batch(exec, batch);
  for (std::int64_t key = 0; key < batch.keys; ++key) {
    check_lookup_matrix("pooled_lookup", key, batch.rows(key), tables[features[key].table].dim(), out[key]);
    if (features[key].pooling == pooling::max && (device_execution<Exec> || batch.weighted()))
      throw error(errc::invalid_argument, "pooled_lookup: a maximum is of an unweighted batch, on the host",
                  {{"feature", key}, {"weighted", batch.weighted()}});
  }
}

}  // namespace detail

template <execution Exec, row_stores Tables>
void pooled_lookup(Exec const& exec, Tables& tables, vector_view<pooled_feature const> features,
                   keyed_jagged_view<std::int64_t const> batch, vector_view<matrix_view<float> const> out, basic_lookup_saved<Exec>& saved,
                   lookup_options const& options) {
  using store = detail::element_in<Tables>;
  detail::expect_tables_of<Exec, store>();
  detail::expect_mutable_tables<Tables>();
  vector_view<store> const stores(tables);
  vector_view<store const> const held(stores);
  saved.clear();
  detail::check_pooled_lookup(exec, held, features, batch, out, options);
  detail::training_lookup(exec, stores, features, batch, options, saved, [&](std::int64_t const* slots) {
    detail::back_end<detail::pooled_lookup_tag, Exec>::run(exec, held, features, batch, slots, out, options, &saved.argmax);
  });
}

template <execution Exec, row_stores Tables>
void pooled_lookup(Exec const& exec, Tables const& tables, vector_view<pooled_feature const> features,
                   keyed_jagged_view<std::int64_t const> batch, vector_view<matrix_view<float> const> out, lookup_options const& options) {
  using store = detail::element_in<Tables const>;
  detail::expect_tables_of<Exec, store>();
  vector_view<store const> const stores(tables);
  detail::check_pooled_lookup(exec, stores, features, batch, out, options);
  detail::evaluation_lookup(exec, stores, features, batch, [&](std::int64_t const* slots) {
    detail::back_end<detail::pooled_lookup_tag, Exec>::run(exec, stores, features, batch, slots, out, options, nullptr);
  });
}

}  // namespace TESSERA_ABI
}  // namespace tessera
