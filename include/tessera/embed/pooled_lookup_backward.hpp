// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/multiply_add.hpp>
#include <tessera/core/piece_list.hpp>
#include <tessera/core/row_formats.hpp>
#include <tessera/core/view.hpp>
#include <tessera/embed/bag_reader.hpp>
#include <tessera/embed/canonical_sums.hpp>
#include <tessera/embed/fused_backward.hpp>
#include <tessera/embed/host_rows.hpp>
#include <tessera/embed/lookup_checks.hpp>
#include <tessera/embed/lookup_saved.hpp>
#include <tessera/embed/pooled_lookup.hpp>
#include <tessera/embed/prepare_backward.hpp>
#include <tessera/embed/row_gradients.hpp>
#include <tessera/embed/row_optimizer.hpp>
#include <tessera/embed/row_store.hpp>
#include <tessera/embed/row_update.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// Turns the gradients of pooled vectors into updates of the rows that they were pooled from. Each touched row is read and written once.
///
/// `tables` and `features` are those of the forward that filled `saved`. `gradients` (keys,): matrices (rows of the key, dim) of any row
/// stride. `optimizers`: one for all tables, or a container of one a table, each with its own learning rate. Rows that the batch does not
/// name do not change, and an id without a row gets no gradient. Of a maximum, every row of the bag counts as named. Each table's step
/// count grows by one, whether or not the batch names the table. Rows that are not float are rounded stochastically (`rounding_block`).
/// Workspace, from `exec`'s memory: 24 bytes a value, 8 an element pooled by maximum, and 8 a value of the tables sorted at once. After
/// `prepare_backward`, 8 of the 24 are in `saved`.
///
/// On a device it waits for one number where the batch does not say its `room`, else for nothing. Dims are at most 4,096. Workspace: 16
/// bytes a value for the sort, where slots and values fit 32 bits, and as many as CUB's sort takes. On top come 8 bytes a value of a
/// weighted batch, and the floats of a row for each 512 values.
/// @pre every table was built with this kind of optimizer
/// @post a row's gradient is summed in canonical order (`canonical_sum_chunk`): the bits are the same for any number of threads, on a
/// device too
/// @throws tessera::error shape_mismatch, out_of_range, incompatible, or invalid_argument as `check_optimizer`. No row has changed then,
/// nor when memory runs out. A checked build refuses, with feature, position and id, a row that has left its table since the forward. It
/// also refuses an order that was prepared for another batch.
template <execution Exec, row_stores Tables, row_optimizers Optimizers>
void pooled_lookup_backward(Exec const& exec, Tables& tables, vector_view<pooled_feature const> features,
                            basic_lookup_saved<Exec> const& saved, vector_view<matrix_view<float const> const> gradients,
                            Optimizers const& optimizers);

/// Sums the gradients into `out`, which is overwritten, instead of updating rows. This serves a norm over all rows, accumulation over
/// micro-batches (`add_row_gradients`), and gradients that are sent elsewhere. On a device it waits for the number of rows of each table.
/// @post `update_rows` of `out` makes the step of `pooled_lookup_backward`, bit for bit
template <execution Exec, row_stores Tables>
void pooled_lookup_gradients(Exec const& exec, Tables const& tables, vector_view<pooled_feature const> features,
                             basic_lookup_saved<Exec> const& saved, vector_view<matrix_view<float const> const> gradients,
                             basic_row_gradients<Exec>& out);

/// Computes the gradient of the weights of a weighted batch. `out` is (values of the batch,): out[p] = pooling scale · <gradient of p's
/// bag, p's row>. For an unweighted batch it is the gradient at weights of 1. On a device `out` is as long as the batch's `room`; without
/// one the call waits for the number of values.
/// @pre the rows are those of the forward: no step came in between
/// @throws tessera::error shape_mismatch, out_of_range; invalid_argument for a feature that pools by maximum.
template <execution Exec, row_stores Tables>
void pooled_lookup_weight_gradient(Exec const& exec, Tables const& tables, vector_view<pooled_feature const> features,
                                   basic_lookup_saved<Exec> const& saved, vector_view<matrix_view<float const> const> gradients,
                                   vector_view<float> out);

namespace detail {

struct pooled_lookup_backward_tag {};

template <>
struct back_end<pooled_lookup_backward_tag, host_exec> {
  template <class Store, class Optimizer>
  static void update(host_exec const& exec, vector_view<Store> tables, vector_view<pooled_feature const> features,
                     lookup_saved const& saved, vector_view<matrix_view<float const> const> gradients,
                     vector_view<Optimizer const> optimizers) {
    update_rows_of(exec, "pooled_lookup_backward", tables, features, saved, gradients, optimizers);
  }

  template <class Store>
  static void sum(host_exec const& exec, vector_view<Store const> tables, vector_view<pooled_feature const> features,
                  lookup_saved const& saved, vector_view<matrix_view<float const> const> gradients, row_gradients& out) {
    sum_rows_of(exec, "pooled_lookup_gradients", tables, features, saved, gradients, out);
  }

  template <class Store>
  static void weight_gradient(host_exec const& exec, vector_view<Store const> stores, vector_view<pooled_feature const> features,
                              lookup_saved const& saved, vector_view<matrix_view<float const> const> gradients, vector_view<float> out) {
    if (out.size() != saved.batch.size())
      throw error(errc::shape_mismatch, "pooled_lookup_weight_gradient: one gradient a value",
                  {{"values", saved.batch.size()}, {"gradients", out.size()}});
    check_saved_rows(exec, "pooled_lookup_weight_gradient", stores, features, saved);
    auto const tables = rows_of_tables(exec, stores);
    weight_gradient(exec, tables.view(), features, saved, saved.slots_of<Store>(), gradients, out);
  }

 private:
  template <class Element>
  static void weight_gradient(host_exec const& exec, vector_view<host_rows<Element> const> tables,
                              vector_view<pooled_feature const> features, lookup_saved const& saved, std::int64_t const* slots,
                              vector_view<matrix_view<float const> const> gradients, vector_view<float> out) {
    auto const base = first_value(saved.batch);
    for_each_bag_piece(exec, saved.batch, [&](std::int64_t key, std::int64_t first, std::int64_t last) {
      auto const bags = saved.batch.key(key);
      auto const& table = tables[features[key].table];
      for (auto bag = first; bag < last; ++bag) {
        auto const scale = pooling_scale(features[key].pooling, bags.length(bag));
        auto const* const gradient = gradients[key].row(bag);
        for (auto p = bags.begin_of(bag); p < bags.end_of(bag); ++p) {
          auto const slot = slots[p - base];
          out[p - base] = scale * (table.holds(slot) ? dot(table.row(slot), gradient, table.dim())
                                                     : dot_initial(table, saved.batch.values[p], gradient));
        }
      }
    });
  }

  // Sixteen running sums joined pairwise: the order depends on the dim alone.
  template <class Element>
  static float dot(Element const* row, float const* gradient, std::int64_t dim) noexcept {
    auto const scale = row_scale<Element>::of(row);
    float lane[16] = {};
    std::int64_t i = 0;
    for (; i + 16 <= dim; i += 16)
      for (int k = 0; k < 16; ++k) lane[k] = multiply_add(scale.value(row[i + k]), gradient[i + k], lane[k]);
    for (int k = 0; k < dim - i; ++k) lane[k] = multiply_add(scale.value(row[i + k]), gradient[i + k], lane[k]);
    return join_lanes(lane);
  }

  // A row that the forward read as zeros, or as the row that the id would get: then the same sum as if it had it.
  template <class Element>
  static float dot_initial(host_rows<Element> const& table, std::int64_t id, float const* gradient) noexcept {
    float lane[16] = {};
    if (!table.slots_are_ids)
      for_each_initial_element(table.options(), id, [&](std::int64_t i, float value) {
        lane[i % 16] = multiply_add(stored_initial<Element>(table.options(), value), gradient[i], lane[i % 16]);
      });
    return join_lanes(lane);
  }
};

// Features pool by maximum where those of the forward did. @pre tables of features are there.
template <class Store, class Exec>
void check_saved_maxima(char const* call, vector_view<Store const> tables, vector_view<pooled_feature const> features,
                        basic_lookup_saved<Exec> const& saved) {
  for (std::int64_t key = 0; key < saved.batch.keys; ++key) {
    auto const& feature = features[key];
    auto const maxima = feature.is_largest() ? saved.batch.rows(key) * tables[feature.table].dim() : 0;
    if (maxima != saved.argmax.size(key))
      throw error(errc::shape_mismatch, std::string(call) + ": the feature pooled otherwise when this was saved",
                  {{"feature", key}, {"maxima", maxima}, {"maxima saved", saved.argmax.size(key)}});
  }
}

template <class Store, class Exec>
void check_pooled_backward(char const* call, vector_view<Store const> tables, vector_view<pooled_feature const> features,
                           basic_lookup_saved<Exec> const& saved, vector_view<matrix_view<float const> const> gradients) {
  check_saved<Store>(call, features, saved);
  check_lookup_call(call, tables, features, saved.batch, gradients.size());
  check_poolings(call, features);
  for (std::int64_t key = 0; key < saved.batch.keys; ++key)
    check_lookup_matrix(call, key, saved.batch.rows(key), tables[features[key].table].dim(), gradients[key]);
  check_saved_maxima(call, tables, features, saved);
}

}  // namespace detail

template <execution Exec, row_stores Tables, row_optimizers Optimizers>
void pooled_lookup_backward(Exec const& exec, Tables& tables, vector_view<pooled_feature const> features,
                            basic_lookup_saved<Exec> const& saved, vector_view<matrix_view<float const> const> gradients,
                            Optimizers const& optimizers) {
  using store = detail::element_in<Tables>;
  detail::expect_tables_of<Exec, store>();
  detail::expect_mutable_tables<Tables>();
  vector_view<store> const stores(tables);
  vector_view<store const> const held(stores);
  auto const each = detail::per_table(optimizers);
  detail::check_pooled_backward("pooled_lookup_backward", held, features, saved, gradients);
  detail::check_optimizers("pooled_lookup_backward", held, each);
  detail::back_end<detail::pooled_lookup_backward_tag, Exec>::update(exec, stores, features, saved, gradients, each);
}

template <execution Exec, row_stores Tables>
void pooled_lookup_gradients(Exec const& exec, Tables const& tables, vector_view<pooled_feature const> features,
                             basic_lookup_saved<Exec> const& saved, vector_view<matrix_view<float const> const> gradients,
                             basic_row_gradients<Exec>& out) {
  using store = detail::element_in<Tables const>;
  detail::expect_tables_of<Exec, store>();
  vector_view<store const> const held(tables);
  detail::check_pooled_backward("pooled_lookup_gradients", held, features, saved, gradients);
  detail::back_end<detail::pooled_lookup_backward_tag, Exec>::sum(exec, held, features, saved, gradients, out);
}

template <execution Exec, row_stores Tables>
void pooled_lookup_weight_gradient(Exec const& exec, Tables const& tables, vector_view<pooled_feature const> features,
                                   basic_lookup_saved<Exec> const& saved, vector_view<matrix_view<float const> const> gradients,
                                   vector_view<float> out) {
  using store = detail::element_in<Tables const>;
  detail::expect_tables_of<Exec, store>();
  vector_view<store const> const held(tables);
  detail::check_pooled_backward("pooled_lookup_weight_gradient", held, features, saved, gradients);
  if (saved.argmax.size() > 0)
    throw error(errc::invalid_argument, "pooled_lookup_weight_gradient: a maximum has no weights", {{"maxima", saved.argmax.size()}});
  detail::back_end<detail::pooled_lookup_backward_tag, Exec>::weight_gradient(exec, held, features, saved, gradients, out);
}

}  // namespace TESSERA_ABI
}  // namespace tessera
