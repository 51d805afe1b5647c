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

namespace detail {

template <class Exec>
struct factorization_machine_impl {
  static_assert(dependent_false<Exec>,
                "factorization_machine: no back end for this execution; for CUDA include <tessera/nn/factorization_machine.cuh>");
};

template <>
struct factorization_machine_impl<host_exec> {
  static constexpr std::int64_t samples_per_piece = 64;
  static constexpr std::int64_t lanes = 32;

  // Calls f(first, n) for the elements [first, first + n), `lanes` at a time: a constant where it can be, for the compiler to unroll.
  template <class F>
  static void for_each_stretch(std::int64_t dim, F const& f) {
    std::int64_t first = 0;
    for (; first + lanes <= dim; first += lanes) f(first, lanes);
    if (first < dim) f(first, dim - first);
  }

  static void forward(host_exec const& exec, vector_view<matrix_view<float const> const> vectors, matrix_view<float> logits) {
    for_each_piece(exec, logits.rows(), samples_per_piece, [&](std::int64_t begin, std::int64_t end) {
      for (auto sample = begin; sample < end; ++sample) {
        float products[lanes] = {};
        for_each_stretch(vectors[0].columns(), [&](std::int64_t first, std::int64_t n) {
          float before[lanes] = {};  // sum of the vectors so far
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

  static void backward(host_exec const& exec, vector_view<matrix_view<float const> const> vectors, matrix_view<float const> gradient,
                       vector_view<matrix_view<float> const> vector_gradients) {
    for_each_piece(exec, gradient.rows(), samples_per_piece, [&](std::int64_t begin, std::int64_t end) {
      for (auto sample = begin; sample < end; ++sample) {
        auto const slope = gradient(sample, 0);
        for_each_stretch(vectors[0].columns(), [&](std::int64_t first, std::int64_t n) {
          float sum[lanes] = {};
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
};

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

struct factorization_machine_fn {
  template <execution Exec>
  void operator()(Exec const& exec, vector_view<matrix_view<float const> const> vectors, matrix_view<float> logits) const {
    if (vectors.empty()) throw error(errc::invalid_argument, "factorization_machine: no vectors", {});
    check_machine(vectors, vectors.size(), vectors[0].columns(), logits);
    factorization_machine_impl<Exec>::forward(exec, vectors, logits);
  }
};

struct factorization_machine_backward_fn {
  template <execution Exec>
  void operator()(Exec const& exec, vector_view<matrix_view<float const> const> vectors, matrix_view<float const> gradient,
                  vector_view<matrix_view<float> const> vector_gradients) const {
    if (vectors.empty()) throw error(errc::invalid_argument, "factorization_machine: no vectors", {});
    check_machine(vectors, vectors.size(), vectors[0].columns(), gradient);
    check_machine(vector_gradients, vectors.size(), vectors[0].columns(), gradient);
    factorization_machine_impl<Exec>::backward(exec, vectors, gradient, vector_gradients);
  }
};

}  // namespace detail

/// Adds a factorization machine's second-order term to each sample's logit: the sum over all pairs i < j of its vectors of <v_i, v_j>.
/// Source: Rendle, "Factorization machines", ICDM 2010, equation 1; DeepFM (Guo et al., IJCAI 2017) adds it to an MLP's logit.
///
/// `factorization_machine(exec, vectors, logits)`: `vectors`: blocks (samples, dim) of any row stride, wherever they lie, at least one;
/// `logits` (samples, 1), any row stride. Linear in the vectors like Rendle's half of (square of the sum - sum of the squares), but as the
/// sum of <v_j, sum of the v_i before>, where nothing cancels. Sums in float; a sample's never depends on its batch.
/// @throws tessera::error invalid_argument for no vectors, shape_mismatch.
inline constexpr detail::factorization_machine_fn factorization_machine{};

/// Adds to the gradients of all vectors that of the term: slope * (sum of all vectors - v_i).
/// `factorization_machine_backward(exec, vectors, gradient of logits, vector_gradients)`: adds, since the same vectors feed other parts of a
/// model, whose backward may have written before. The gradients do not overlap the vectors. @throws as the forward.
inline constexpr detail::factorization_machine_backward_fn factorization_machine_backward{};

}  // namespace TESSERA_ABI
}  // namespace tessera
