// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

#include <tessera/core/call_list.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/piece_list.hpp>
#include <tessera/core/view.hpp>
#include <tessera/embed/deduplicated_lookup.hpp>
#include <tessera/embed/expanded_saved.hpp>
#include <tessera/embed/lookup_checks.hpp>
#include <tessera/embed/lookup_saved.hpp>
#include <tessera/embed/pooled_argmax.hpp>
#include <tessera/embed/pooled_lookup_backward.hpp>
#include <tessera/embed/row_gradients.hpp>
#include <tessera/embed/row_optimizer.hpp>
#include <tessera/embed/row_store.hpp>
#include <tessera/embed/shared_bags.hpp>
#include <tessera/tensor/inverse_keyed_jagged.hpp>
#include <tessera/tensor/jagged_vectors.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// The order in which the gradients of samples that share a row are summed.
enum class shared_gradients : std::uint8_t {
  merged,  ///< first over the samples of a distinct row, then over what names a table's row: as few additions as there are distinct values
  expanded,  ///< over the samples and positions of the expanded batch, to its bits; sorts and reads as much as its backward
};

/// Options of a backward of an IKJT.
struct deduplicated_backward_options {
  shared_gradients sums = shared_gradients::merged;
};

/// Turns the gradients of pooled vectors into updates of rows, as `pooled_lookup_backward` of the expanded batch. `gradients` (keys,):
/// matrices (samples, dim).
///
/// Merged sums differ from those of the expanded batch by rounding. For n terms of magnitudes that sum to m, the difference is at most
/// about 2 n m 2^-24. `prepare_backward` of `saved.lookup` serves merged sums alone. Workspace: that of `pooled_lookup_backward`. Merged
/// sums also take a gradient vector for each distinct row of keys in groups, and what `gather_vectors_backward` takes for each group.
/// Expanded sums also take the ids of all samples.
///
/// On a device it waits for what `pooled_lookup_backward` waits for. Expanded sums wait once more, of hashed tables twice. Samples whose
/// inverse names no row get no gradient, and `synchronize()` reports them as of `gather_vectors` or `expand`.
/// @post expanded sums give the bits of `pooled_lookup_backward` of the expanded batch
/// @throws tessera::error as `pooled_lookup_backward`.
template <execution Exec, row_stores Tables, row_optimizers Optimizers>
void deduplicated_lookup_backward(Exec const& exec, Tables& tables, vector_view<pooled_feature const> features,
                                  basic_deduplicated_saved<Exec> const& saved, vector_view<matrix_view<float const> const> gradients,
                                  Optimizers const& optimizers, deduplicated_backward_options options = {});

/// Sums the gradients into `out` instead of updating rows, as `pooled_lookup_gradients`.
template <execution Exec, row_stores Tables>
void deduplicated_lookup_gradients(Exec const& exec, Tables const& tables, vector_view<pooled_feature const> features,
                                   basic_deduplicated_saved<Exec> const& saved, vector_view<matrix_view<float const> const> gradients,
                                   basic_row_gradients<Exec>& out, deduplicated_backward_options options = {});

namespace detail {

struct deduplicated_backward_tag {};

/// Expands the winners of bags that pool by maximum to all samples. @pre inverses name rows
template <class Feature, class DimOf>
void expand_argmax(host_exec const& exec, vector_view<Feature const> features, inverse_keyed_jagged_view<std::int64_t const> batch,
                   pooled_argmax const& of_rows, DimOf const& dim_of, keyed_jagged_view<std::int64_t const> expanded,
                   pooled_argmax& of_samples) {
  of_samples.resize(exec, features, expanded, dim_of);
  if (of_samples.size() == 0) return;
  for_each_piece_of(
      exec, batch.keys(), [&](std::int64_t key) { return features[key].is_largest() ? batch.samples : 0; },
      [&](std::int64_t key) { return vectors_per_piece(dim_of(key)); },
      [&](std::int64_t key, std::int64_t first, std::int64_t last) {
        auto const dim = dim_of(key);
        auto const* const from = of_rows.of(key);
        auto* const to = of_samples.of(key);
        auto const inverse = batch.inverse(key);
        for (auto i = first; i < last; ++i) std::copy_n(from + (inverse.empty() ? i : inverse[i]) * dim, dim, to + i * dim);
      });
}

template <>
struct back_end<deduplicated_backward_tag, host_exec> {
  static void expand_argmax(host_exec const& exec, vector_view<pooled_feature const> features, deduplicated_saved const& saved,
                            vector_view<matrix_view<float const> const> gradients, lookup_saved& expanded) {
    auto const dim_of = [&](std::int64_t key) { return gradients[key].columns(); };
    detail::expand_argmax(exec, features, saved.batch(), saved.lookup.argmax, dim_of, expanded.batch, expanded.argmax);
  }
};

// What a backward is given fits what the lookup of an IKJT saved: gradients of its samples, all else of its distinct rows.
template <class Store, class Exec>
void check_shared_gradients(char const* call, vector_view<Store const> tables, vector_view<pooled_feature const> features,
                            basic_deduplicated_saved<Exec> const& saved, vector_view<matrix_view<float const> const> gradients) {
  auto const batch = saved.batch();
  check_sample_matrices(call, features.size(), batch, gradients);
  for (std::int64_t key = 0; key < batch.keys(); ++key)
    if (gradients[key].rows() != batch.samples)
      throw error(errc::shape_mismatch, std::string(call) + ": a row a sample",
                  {{"feature", key}, {"rows", gradients[key].rows()}, {"samples", batch.samples}});
  check_saved<Store>(call, features, saved.lookup);
  check_lookup_call(call, tables, features, batch.distinct, gradients.size());
  for (std::int64_t key = 0; key < batch.keys(); ++key)
    check_lookup_matrix(call, key, batch.samples, tables[features[key].table].dim(), gradients[key]);
  check_saved_maxima(call, tables, features, saved.lookup);
}

// Calls f(lookup saved, gradients): those of the distinct rows, or of the expanded batch.
template <class Exec, class Tables, class F>
void with_shared_gradients(Exec const& exec, char const* call, Tables const& tables, vector_view<pooled_feature const> features,
                           basic_deduplicated_saved<Exec> const& saved, vector_view<matrix_view<float const> const> gradients,
                           deduplicated_backward_options options, F const& f) {
  check_choice(call, "sums", options.sums, shared_gradients::expanded);
  auto const batch = saved.batch();
  if (batch.groups.empty()) return f(saved.lookup, gradients);
  check_shared_gradients(call, vector_view<element_in<Tables const> const>(tables), features, saved, gradients);
  if (options.sums == shared_gradients::expanded) {
    auto expanded = expanded_saved<Exec>::of(exec, tables, batch, saved.lookup);
    back_end<deduplicated_backward_tag, Exec>::expand_argmax(exec, features, saved, gradients, expanded.get());
    return f(std::as_const(expanded.get()), gradients);
  }
  shared_bags<Exec> const shared(exec, batch, features, [&](std::int64_t key) { return gradients[key].columns(); });
  call_list<matrix_view<float const>, Exec> of_rows(exec, batch.keys());
  for (std::int64_t key = 0; key < batch.keys(); ++key) of_rows[key] = gradients[key];
  shared.merge(exec, batch.samples, gradients);
  shared.put_into(of_rows.view());
  f(saved.lookup, std::as_const(of_rows).view());
}

}  // namespace detail

template <execution Exec, row_stores Tables, row_optimizers Optimizers>
void deduplicated_lookup_backward(Exec const& exec, Tables& tables, vector_view<pooled_feature const> features,
                                  basic_deduplicated_saved<Exec> const& saved, vector_view<matrix_view<float const> const> gradients,
                                  Optimizers const& optimizers, deduplicated_backward_options options) {
  detail::with_shared_gradients(
      exec, "deduplicated_lookup_backward", tables, features, saved, gradients, options,
      [&](auto const& lookup, auto of_rows) { pooled_lookup_backward(exec, tables, features, lookup, of_rows, optimizers); });
}

template <execution Exec, row_stores Tables>
void deduplicated_lookup_gradients(Exec const& exec, Tables const& tables, vector_view<pooled_feature const> features,
                                   basic_deduplicated_saved<Exec> const& saved, vector_view<matrix_view<float const> const> gradients,
                                   basic_row_gradients<Exec>& out, deduplicated_backward_options options) {
  detail::with_shared_gradients(
      exec, "deduplicated_lookup_gradients", tables, features, saved, gradients, options,
      [&](auto const& lookup, auto of_rows) { pooled_lookup_gradients(exec, tables, features, lookup, of_rows, out); });
}

}  // namespace TESSERA_ABI
}  // namespace tessera
