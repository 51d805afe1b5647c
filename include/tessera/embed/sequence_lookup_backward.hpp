// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstdint>

#include <tessera/core/buffer.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>
#include <tessera/embed/canonical_sums.hpp>
#include <tessera/embed/fused_backward.hpp>
#include <tessera/embed/lookup_checks.hpp>
#include <tessera/embed/lookup_saved.hpp>
#include <tessera/embed/row_contributions.hpp>
#include <tessera/embed/row_gradients.hpp>
#include <tessera/embed/row_optimizer.hpp>
#include <tessera/embed/row_store.hpp>
#include <tessera/embed/row_update.hpp>
#include <tessera/embed/sequence_lookup.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

namespace detail {

template <class Exec>
struct sequence_lookup_backward_impl {
  static_assert(dependent_false<Exec>,
                "sequence_lookup_backward: no back end for this execution; for CUDA include <tessera/embed/sequence_lookup_backward.cuh>");
};

struct sequence_lookup_backward_fn {
  template <execution Exec, row_stores Tables, row_optimizers Optimizers>
  void operator()(Exec const& exec, Tables& tables, vector_view<std::int64_t const> features, basic_lookup_saved<Exec> const& saved,
                  vector_view<matrix_view<float const> const> gradients, Optimizers const& optimizers) const {
    using store = element_in<Tables>;
    expect_tables_of<Exec, store>();
    vector_view<store> const stores(tables);
    vector_view<store const> const held(stores);
    auto const each = per_table(optimizers);
    check_saved<store>("sequence_lookup_backward", features, saved);
    check_sequence_call(exec, "sequence_lookup_backward", held, features, saved.batch, gradients);
    check_optimizers("sequence_lookup_backward", held, each);
    if constexpr (std::same_as<Exec, host_exec>) {
      buffer<float> maxima;
      update_rows_of(exec, "sequence_lookup_backward", stores, features, saved, each, [&](vector_view<row_contribution> out) {
        contribute(exec, features, saved.batch, saved.argmax, gradients, maxima, out);
      });
    } else
      sequence_lookup_backward_impl<Exec>::update(exec, stores, features, saved, gradients, each);
  }
};

struct sequence_lookup_gradients_fn {
  template <execution Exec, row_stores Tables>
  void operator()(Exec const& exec, Tables const& tables, vector_view<std::int64_t const> features, basic_lookup_saved<Exec> const& saved,
                  vector_view<matrix_view<float const> const> gradients, basic_row_gradients<Exec>& out) const {
    using store = element_in<Tables const>;
    expect_tables_of<Exec, store>();
    vector_view<store const> const held(tables);
    check_saved<store>("sequence_lookup_gradients", features, saved);
    check_sequence_call(exec, "sequence_lookup_gradients", held, features, saved.batch, gradients);
    if constexpr (std::same_as<Exec, host_exec>) {
      buffer<float> maxima;
      sum_rows_of(exec, "sequence_lookup_gradients", held, features, saved, out, [&](vector_view<row_contribution> contributions) {
        contribute(exec, features, saved.batch, saved.argmax, gradients, maxima, contributions);
      });
    } else
      sequence_lookup_backward_impl<Exec>::sum(exec, held, features, saved, gradients, out);
  }
};

}  // namespace detail

/// Turns the gradients of looked-up vectors into updates of their rows. `sequence_lookup_backward(exec, tables, features, saved, gradients,
/// optimizers)`: `gradients` (keys,): matrices (values of the key, dim), any stride; all else as `pooled_lookup_backward`.
inline constexpr detail::sequence_lookup_backward_fn sequence_lookup_backward{};

/// The summed gradients, handed out instead of an update, as `pooled_lookup_gradients`.
inline constexpr detail::sequence_lookup_gradients_fn sequence_lookup_gradients{};

}  // namespace TESSERA_ABI
}  // namespace tessera
