// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

#include <tessera/core/buffer.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>

namespace tessera::inline TESSERA_ABI {

/// Columns that `dot_interaction` writes for so many vectors: the first vector, then one product a pair.
TESSERA_HOST_DEVICE constexpr std::int64_t dot_interaction_width(std::int64_t vectors, std::int64_t dim) noexcept {
  return dim + vectors * (vectors - 1) / 2;
}

namespace detail {

template <class Exec>
struct dot_interaction_impl {
  static_assert(dependent_false<Exec>,
                "dot_interaction: no back end for this execution; for CUDA include <tessera/nn/dot_interaction.cuh>");
};

template <>
struct dot_interaction_impl<host_exec> {
  static constexpr std::int64_t samples_per_piece = 64;
  static constexpr std::int64_t lanes = 16;

  static constexpr std::int64_t pad(std::int64_t n) noexcept { return divide_up(n, lanes) * lanes; }

  // out[0, n) = sum over k of coefficients[k] * rows[k * stride + i], k in order; n rounded up to the lanes is readable.
  static void weighted_rows(float const* coefficients, std::int64_t count, float const* rows, std::int64_t stride, std::int64_t n,
                            float* out) noexcept {
    for (std::int64_t first = 0; first < n; first += lanes) {
      float sum[lanes] = {};
      for (std::int64_t k = 0; k < count; ++k)
        for (std::int64_t i = 0; i < lanes; ++i) sum[i] += coefficients[k] * rows[k * stride + first + i];
      std::copy_n(sum, std::min(lanes, n - first), out + first);
    }
  }

  static void forward(host_exec const& exec, vector_view<matrix_view<float const> const> vectors, matrix_view<float> out) {
    auto const count = vectors.size(), dim = vectors[0].columns(), padded = pad(count);
    auto const pieces = divide_up(out.rows(), samples_per_piece);
    buffer<float> scratch(exec, pieces * dim * padded);
    for_each_piece(exec, out.rows(), samples_per_piece, [&](std::int64_t first, std::int64_t last) {
      float* const by_element = scratch.data() + first / samples_per_piece * dim * padded;  // (dim, vectors): a sample transposed
      std::fill_n(by_element, dim * padded, 0.0F);
      for (auto sample = first; sample < last; ++sample) {
        for (std::int64_t v = 0; v < count; ++v)
          for (std::int64_t d = 0; d < dim; ++d) by_element[d * padded + v] = vectors[v].row(sample)[d];
        std::copy_n(vectors[0].row(sample), dim, out.row(sample));
        for (std::int64_t v = 1; v < count; ++v)
          weighted_rows(vectors[v].row(sample), dim, by_element, padded, v, out.row(sample) + dim + v * (v - 1) / 2);
      }
    });
  }

  static void backward(host_exec const& exec, vector_view<matrix_view<float const> const> vectors, matrix_view<float const> gradient,
                       vector_view<matrix_view<float> const> vector_gradients) {
    auto const count = vectors.size(), dim = vectors[0].columns(), padded = pad(dim);
    auto const pieces = divide_up(gradient.rows(), samples_per_piece);
    buffer<float> scratch(exec, pieces * count * (padded + count));
    for_each_piece(exec, gradient.rows(), samples_per_piece, [&](std::int64_t first, std::int64_t last) {
      float* const values = scratch.data() + first / samples_per_piece * count * (padded + count);  // (vectors, padded dim)
      float* const pairs = values + count * padded;                                                 // (vectors, vectors), symmetric
      std::fill_n(values, count * (padded + count), 0.0F);
      for (auto sample = first; sample < last; ++sample) {
        auto const* pair = gradient.row(sample) + dim;
        for (std::int64_t v = 0; v < count; ++v) {
          std::copy_n(vectors[v].row(sample), dim, values + v * padded);
          for (std::int64_t w = 0; w < v; ++w) pairs[v * count + w] = pairs[w * count + v] = *pair++;
        }
        for (std::int64_t v = 0; v < count; ++v)
          weighted_rows(pairs + v * count, count, values, padded, dim, vector_gradients[v].row(sample));
        for (std::int64_t d = 0; d < dim; ++d) vector_gradients[0].row(sample)[d] += gradient.row(sample)[d];
      }
    });
  }
};

inline void check_interaction(std::int64_t vectors, std::int64_t rows, std::int64_t columns, std::int64_t dim) {
  if (columns != dot_interaction_width(vectors, dim))
    throw error(
        errc::shape_mismatch, "dot_interaction: width of the output",
        {{"columns", columns}, {"expected", dot_interaction_width(vectors, dim)}, {"vectors", vectors}, {"dim", dim}, {"rows", rows}});
}

template <class T>
void check_interaction_vectors(char const* argument, vector_view<matrix_view<T> const> vectors, std::int64_t rows, std::int64_t dim) {
  for (std::int64_t v = 0; v < vectors.size(); ++v)
    if (vectors[v].rows() != rows || vectors[v].columns() != dim)
      throw error(errc::shape_mismatch, "dot_interaction: a vector block of another shape",
                  {{"argument", argument},
                   {"vector", v},
                   {"rows", vectors[v].rows()},
                   {"expected rows", rows},
                   {"columns", vectors[v].columns()},
                   {"expected columns", dim}});
}

struct dot_interaction_fn {
  template <execution Exec>
  void operator()(Exec const& exec, vector_view<matrix_view<float const> const> vectors, matrix_view<float> out) const {
    if (vectors.empty()) throw error(errc::invalid_argument, "dot_interaction: no vectors", {});
    check_interaction(vectors.size(), out.rows(), out.columns(), vectors[0].columns());
    check_interaction_vectors("vectors", vectors, out.rows(), vectors[0].columns());
    dot_interaction_impl<Exec>::forward(exec, vectors, out);
  }
};

struct dot_interaction_backward_fn {
  template <execution Exec>
  void operator()(Exec const& exec, vector_view<matrix_view<float const> const> vectors, matrix_view<float const> gradient,
                  vector_view<matrix_view<float> const> vector_gradients) const {
    if (vectors.empty()) throw error(errc::invalid_argument, "dot_interaction: no vectors", {});
    check_interaction(vectors.size(), gradient.rows(), gradient.columns(), vectors[0].columns());
    check_interaction_vectors("vectors", vectors, gradient.rows(), vectors[0].columns());
    if (vector_gradients.size() != vectors.size())
      throw error(errc::shape_mismatch, "dot_interaction: one gradient a vector",
                  {{"vectors", vectors.size()}, {"gradients", vector_gradients.size()}});
    check_interaction_vectors("vector_gradients", vector_gradients, gradient.rows(), vectors[0].columns());
    dot_interaction_impl<Exec>::backward(exec, vectors, gradient, vector_gradients);
  }
};

}  // namespace detail

/// DLRM's interaction: a sample's first vector, then the dot products of all pairs of its vectors, (1,0) (2,0) (2,1) (3,0) …
/// Source: Naumov et al., "Deep learning recommendation model for personalization and recommendation systems", 2019.
///
/// `dot_interaction(exec, vectors, out)`: `vectors`: blocks (samples, dim) of any row stride, wherever they lie; `out` (samples,
/// dot_interaction_width(vectors, dim)). Sums in float, over the elements in order.
/// @throws tessera::error invalid_argument for no vectors, shape_mismatch naming the block that does not fit.
inline constexpr detail::dot_interaction_fn dot_interaction{};

/// The gradients of all vectors, overwritten. `dot_interaction_backward(exec, vectors, gradient of out, vector_gradients)`.
/// @throws as the forward.
inline constexpr detail::dot_interaction_backward_fn dot_interaction_backward{};

}  // namespace tessera::inline TESSERA_ABI
