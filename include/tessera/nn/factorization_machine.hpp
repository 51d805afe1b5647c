// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/multiply_add.hpp>
#include <tessera/core/view.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// Adds a factorization machine's second-order term to each sample's logit: the sum of <v_i, v_j> over all pairs i < j of its vectors.
///
/// `vectors`: at least one block (samples, dim) of any row stride, anywhere in memory. `logits` (samples, 1), any row stride. Its cost is
/// linear in the number of vectors. It sums <v_j, sum of the v_i before>, in float, where nothing cancels. Rendle's half of (square of the
/// sum - sum of the squares) would cancel. A sample's sum never depends on its batch.
/// @throws tessera::error invalid_argument for no vectors; shape_mismatch. Source: Rendle, "Factorization machines", ICDM 2010, equation 1;
/// DeepFM (Guo et al., IJCAI 2017) adds it to an MLP's logit.
inline void factorization_machine(host_exec const& exec, vector_view<matrix_view<float const> const> vectors, matrix_view<float> logits);

/// Adds the term's gradients to those of all vectors: slope * (sum of all vectors - v_i). The slope is from `gradient`, that of the logits.
/// It adds, since the backward of other parts of a model may have written before. @pre gradients do not overlap vectors
/// @throws tessera::error as the forward.
inline void factorization_machine_backward(host_exec const& exec, vector_view<matrix_view<float const> const> vectors,
                                           matrix_view<float const> gradient, vector_view<matrix_view<float> const> vector_gradients);

namespace detail {

inline constexpr std::int64_t machine_samples_per_piece = 64;
inline constexpr std::int64_t machine_lanes = 32;

// Calls f(first, n) for the elements [first, first + n), `lanes` at a time: a constant where it can be, for the compiler to unroll.
template <class F>
inline void for_each_stretch(std::int64_t dim, F const& f) {
  constexpr auto lanes = machine_lanes;
  std::int64_t first = 0;
  for (; first + lanes <= dim; first += lanes) f(first, lanes);
  if (first < dim) f(first, dim - first);
}

template <class T>
void check_machine(vector_view<matrix_view<T> const> vectors, std::int64_t count, std::int64_t dim, matrix_view<float const> logits) {
  if (vectors.size() != count)
    throw error(errc::shape_mismatch, "factorization_machine: one gradient a vector", {{"vectors", count}, {"gradients", vectors.size()}});
  if (logits.columns() != 1)
    throw error(errc::shape_mismatch, "factorization_machine: one logit a sample", {{"columns", logits.columns()}});
  for (std::int64_t v = 0; v < vectors.size(); ++v)
    if (vectors[v].rows() != logits.rows() || vectors[v].columns() != dim)
      throw error(errc::shape_mismatch, "factorization_machine: a vector block of another shape",
                  {{"vector", v},
                   {"rows", vectors[v].rows()},
                   {"expected rows", logits.rows()},
                   {"columns", vectors[v].columns()},
                   {"expected columns", dim}});
}

}  // namespace detail

inline void factorization_machine(host_exec const& exec, vector_view<matrix_view<float const> const> vectors, matrix_view<float> logits) {
  if (vectors.empty()) throw error(errc::invalid_argument, "factorization_machine: no vectors", {});
  detail::check_machine(vectors, vectors.size(), vectors[0].columns(), logits);
  for_each_piece(exec, logits.rows(), detail::machine_samples_per_piece, [&](std::int64_t begin, std::int64_t end) {
    for (auto sample = begin; sample < end; ++sample) {
      float products[detail::machine_lanes] = {};
      detail::for_each_stretch(vectors[0].columns(), [&](std::int64_t first, std::int64_t n) {
        float before[detail::machine_lanes] = {};  // sum of the vectors so far
        for (std::int64_t v = 0; v < vectors.size(); ++v) {
          auto const* const value = vectors[v].row(sample) + first;
          for (std::int64_t i = 0; i < n; ++i) {
            products[i] = multiply_add(value[i], before[i], products[i]);
            before[i] += value[i];
          }
        }
      });
      float term = 0;
      for (auto const product : products) term += product;
      logits(sample, 0) += term;
    }
  });
}

inline void factorization_machine_backward(host_exec const& exec, vector_view<matrix_view<float const> const> vectors,
                                           matrix_view<float const> gradient, vector_view<matrix_view<float> const> vector_gradients) {
  if (vectors.empty()) throw error(errc::invalid_argument, "factorization_machine: no vectors", {});
  detail::check_machine(vectors, vectors.size(), vectors[0].columns(), gradient);
  detail::check_machine(vector_gradients, vectors.size(), vectors[0].columns(), gradient);
  for_each_piece(exec, gradient.rows(), detail::machine_samples_per_piece, [&](std::int64_t begin, std::int64_t end) {
    for (auto sample = begin; sample < end; ++sample) {
      auto const slope = gradient(sample, 0);
      detail::for_each_stretch(vectors[0].columns(), [&](std::int64_t first, std::int64_t n) {
        float sum[detail::machine_lanes] = {};
        for (std::int64_t v = 0; v < vectors.size(); ++v) {
          auto const* const value = vectors[v].row(sample) + first;
          for (std::int64_t i = 0; i < n; ++i) sum[i] += value[i];
        }
        for (std::int64_t v = 0; v < vectors.size(); ++v) {
          auto const* const value = vectors[v].row(sample) + first;
          auto* const to = vector_gradients[v].row(sample) + first;
          for (std::int64_t i = 0; i < n; ++i) to[i] = multiply_add(slope, sum[i] - value[i], to[i]);
        }
      });
    }
  });
}

}  // namespace TESSERA_ABI
}  // namespace tessera
