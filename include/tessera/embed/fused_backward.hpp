// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <utility>

#include <tessera/core/buffer.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>
#include <tessera/embed/canonical_sums.hpp>
#include <tessera/embed/host_rows.hpp>
#include <tessera/embed/lookup_saved.hpp>
#include <tessera/embed/prepare_backward.hpp>
#include <tessera/embed/row_contributions.hpp>
#include <tessera/embed/row_gradients.hpp>
#include <tessera/embed/row_optimizer.hpp>
#include <tessera/embed/row_store.hpp>
#include <tessera/embed/row_sums.hpp>
#include <tessera/embed/row_update.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

namespace detail {

inline batch_contributions contributions_of(lookup_saved const& saved, buffer<row_contribution>& of_positions) noexcept {
  return {of_positions.data(), saved.batch.values + first_value(saved.batch), saved.argmax.size() > 0};
}

/// Updates the rows that a batch names. `gradients` (keys,): of bags, or of the ids of sequences. All memory is allocated before anything
/// changes.
template <class Store, class Feature, class Optimizer>
void update_rows_of(host_exec const& exec, char const* call, vector_view<Store> tables, vector_view<Feature const> features,
                    lookup_saved const& saved, vector_view<matrix_view<float const> const> gradients,
                    vector_view<Optimizer const> optimizers) {
  vector_view<Store const> const held(tables);
  check_saved_rows(exec, call, held, features, saved);
  auto rows = rows_of_tables(exec, held);
  auto const places = places_of(exec, std::as_const(rows).view());
  buffer<row_contribution> contributions(exec, saved.batch.size());
  buffer<float> maxima;
  contribute(exec, features, saved.batch, saved.argmax, gradients, maxima, contributions.view());
  with_order(exec, held, features, saved, [&](auto const& sorted) {
    row_sums sums(exec, places.view(), sorted, contributions_of(saved, contributions));
    count_step(tables, rows.view());
    sums.for_each(exec, summed_rows_sink([&](std::int64_t t, summed_rows const& of_table_t) {
                    update_summed(std::as_const(rows[t]), of_table(optimizers, t), of_table_t);
                  }));
  });
}

/// Sums the gradient of each row that the batch names into `out`.
template <class Index>
void sum_sorted_rows(host_exec const& exec, vector_view<row_places const> tables, row_sort<Index> const& sorted,
                     batch_contributions const& contributions, row_gradients& out) {
  row_sums const sums(exec, tables, sorted, contributions);
  sums.write(exec, out);
}

/// Sums gradients into `out`, without an update. `contribute(contributions)` fills in what each position adds.
template <class Store, class Feature, class Contribute>
void sum_rows_of(host_exec const& exec, char const* call, vector_view<Store const> tables, vector_view<Feature const> features,
                 lookup_saved const& saved, row_gradients& out, Contribute const& contribute) {
  check_saved_rows(exec, call, tables, features, saved);
  auto const rows = rows_of_tables(exec, tables);
  auto const places = places_of(exec, rows.view());
  buffer<row_contribution> contributions(exec, saved.batch.size());
  contribute(contributions.view());
  with_order(exec, tables, features, saved,
             [&](auto const& sorted) { sum_sorted_rows(exec, places.view(), sorted, contributions_of(saved, contributions), out); });
}

/// As above, with the gradients of a batch as `update_rows_of` takes them.
template <class Store, class Feature>
void sum_rows_of(host_exec const& exec, char const* call, vector_view<Store const> tables, vector_view<Feature const> features,
                 lookup_saved const& saved, vector_view<matrix_view<float const> const> gradients, row_gradients& out) {
  buffer<float> maxima;
  sum_rows_of(exec, call, tables, features, saved, out, [&](vector_view<row_contribution> contributions) {
    contribute(exec, features, saved.batch, saved.argmax, gradients, maxima, contributions);
  });
}

}  // namespace detail

}  // namespace TESSERA_ABI
}  // namespace tessera
