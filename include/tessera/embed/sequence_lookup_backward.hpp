// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>
#include <tessera/embed/canonical_sums.hpp>
#include <tessera/embed/fused_backward.hpp>
#include <tessera/embed/lookup_checks.hpp>
#include <tessera/embed/lookup_saved.hpp>
#include <tessera/embed/row_gradients.hpp>
#include <tessera/embed/row_optimizer.hpp>
#include <tessera/embed/row_store.hpp>
#include <tessera/embed/row_update.hpp>
#include <tessera/embed/sequence_lookup.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// Turns the gradients of looked-up vectors into updates of their rows. `gradients` (keys,): matrices (values of the key, dim) of any row
/// stride. The rest is as for `pooled_lookup_backward`.
template <execution Exec, row_stores Tables, row_optimizers Optimizers>
void sequence_lookup_backward(Exec const& exec, Tables& tables, vector_view<std::int64_t const> features,
                              basic_lookup_saved<Exec> const& saved, vector_view<matrix_view<float const> const> gradients,
                              Optimizers const& optimizers);

/// Sums the gradients into `out` instead of updating rows, as `pooled_lookup_gradients`.
template <execution Exec, row_stores Tables>
void sequence_lookup_gradients(Exec const& exec, Tables const& tables, vector_view<std::int64_t const> features,
                               basic_lookup_saved<Exec> const& saved, vector_view<matrix_view<float const> const> gradients,
                               basic_row_gradients<Exec>& out);

namespace detail {

struct sequence_lookup_backward_tag {};

template <>
struct back_end<sequence_lookup_backward_tag, host_exec> {
  template <class Store, class Optimizer>
  static void update(host_exec const& exec, vector_view<Store> tables, vector_view<std::int64_t const> features, lookup_saved const& saved,
                     vector_view<matrix_view<float const> const> gradients, vector_view<Optimizer const> optimizers) {
    update_rows_of(exec, "sequence_lookup_backward", tables, features, saved, gradients, optimizers);
  }

  template <class Store>
  static void sum(host_exec const& exec, vector_view<Store const> tables, vector_view<std::int64_t const> features,
                  lookup_saved const& saved, vector_view<matrix_view<float const> const> gradients, row_gradients& out) {
    sum_rows_of(exec, "sequence_lookup_gradients", tables, features, saved, gradients, out);
  }
};

}  // namespace detail

template <execution Exec, row_stores Tables, row_optimizers Optimizers>
void sequence_lookup_backward(Exec const& exec, Tables& tables, vector_view<std::int64_t const> features,
                              basic_lookup_saved<Exec> const& saved, vector_view<matrix_view<float const> const> gradients,
                              Optimizers const& optimizers) {
  using store = detail::element_in<Tables>;
  detail::expect_tables_of<Exec, store>();
  detail::expect_mutable_tables<Tables>();
  vector_view<store> const stores(tables);
  vector_view<store const> const held(stores);
  auto const each = detail::per_table(optimizers);
  detail::check_saved<store>("sequence_lookup_backward", features, saved);
  detail::check_sequence_call(exec, "sequence_lookup_backward", held, features, saved.batch, gradients);
  detail::check_optimizers("sequence_lookup_backward", held, each);
  detail::back_end<detail::sequence_lookup_backward_tag, Exec>::update(exec, stores, features, saved, gradients, each);
}

template <execution Exec, row_stores Tables>
void sequence_lookup_gradients(Exec const& exec, Tables const& tables, vector_view<std::int64_t const> features,
                               basic_lookup_saved<Exec> const& saved, vector_view<matrix_view<float const> const> gradients,
                               basic_row_gradients<Exec>& out) {
  using store = detail::element_in<Tables const>;
  detail::expect_tables_of<Exec, store>();
  vector_view<store const> const held(tables);
  detail::check_saved<store>("sequence_lookup_gradients", features, saved);
  detail::check_sequence_call(exec, "sequence_lookup_gradients", held, features, saved.batch, gradients);
  detail::back_end<detail::sequence_lookup_backward_tag, Exec>::sum(exec, held, features, saved, gradients, out);
}

}  // namespace TESSERA_ABI
}  // namespace tessera
