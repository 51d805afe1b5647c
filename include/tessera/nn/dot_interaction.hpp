// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

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

// Both directions are sums of rows with weights, four sums at once and a register of each, so that a sum waits for itself rarely and what is
// loaded serves four.
template <>
struct dot_interaction_impl<host_exec> {
  static constexpr std::int64_t samples_per_piece = 64;
  static constexpr std::int64_t lanes = __BIGGEST_ALIGNMENT__ / sizeof(float), sums = 4;  // of a vector register

  static constexpr std::int64_t pad(std::int64_t n) noexcept { return divide_up(n, lanes) * lanes; }

  // out[r * stride + i] = sum over k of weight(r, k) * row(k)[i], k in order; whole registers of each row are readable.
  template <class Weight, class Row>
  static void weighted_rows(std::int64_t count, Weight const& weight, Row const& row, float* out, std::int64_t stride) noexcept {
    using vector = float __attribute__((vector_size(lanes * sizeof(float))));  // arrays do not stay in registers
    vector a{}, b{}, c{}, d{}, x;
    for (std::int64_t k = 0; k < count; ++k) {
      std::memcpy(&x, row(k), sizeof(x));
      a += weight(0, k) * x;
      b += weight(1, k) * x;
      c += weight(2, k) * x;
      d += weight(3, k) * x;
    }
    std::memcpy(out, &a, sizeof(a));
    std::memcpy(out + stride, &b, sizeof(b));
    std::memcpy(out + 2 * stride, &c, sizeof(c));
    std::memcpy(out + 3 * stride, &d, sizeof(d));
  }

  // Copies n floats by registers: the last one is readable to its end, and its rest is written too unless that passes `writable`.
  static void copy_lanes(float const* from, std::int64_t n, float* to, std::int64_t writable) noexcept {
    if (pad(n) > writable) return void(std::copy_n(from, n, to));
    for (std::int64_t i = 0; i < n; i += lanes) std::memcpy(to + i, from + i, lanes * sizeof(float));
  }

  static void forward(host_exec const& exec, vector_view<matrix_view<float const> const> vectors, matrix_view<float> out) {
    auto const count = vectors.size(), dim = vectors[0].columns(), padded = pad(count);
    auto const pieces = divide_up(out.rows(), samples_per_piece);
    buffer<float> scratch(exec, pieces * (dim + sums) * padded);
    for_each_piece(exec, out.rows(), samples_per_piece, [&](std::int64_t first, std::int64_t last) {
      float* const by_element = scratch.data() + first / samples_per_piece * (dim + sums) * padded;  // (dim, vectors): a sample transposed
      float* const products = by_element + dim * padded;                                             // (sums, vectors)
      std::fill_n(by_element, dim * padded, 0.0F);
      for (auto sample = first; sample < last; ++sample) {
        for (std::int64_t v = 0; v < count; ++v) {
          auto const* const values = vectors[v].row(sample);
          for (std::int64_t d = 0; d < dim; ++d) by_element[d * padded + v] = values[d];
        }
        auto* const row = out.row(sample);
        std::copy_n(vectors[0].row(sample), dim, row);
        for (std::int64_t v = 0; v < count; v += sums) {
          auto const here = std::min(sums, count - v);
          float const* weights[sums];
          for (std::int64_t r = 0; r < sums; ++r) weights[r] = vectors[v + std::min(r, here - 1)].row(sample);
          for (std::int64_t w = 0; w < v + here - 1; w += lanes)
            weighted_rows(
                dim, [&](std::int64_t r, std::int64_t d) { return weights[r][d]; },
                [&](std::int64_t d) { return by_element + d * padded + w; }, products + w, padded);
          for (std::int64_t r = 0; r < here; ++r) {
            auto const start = dot_interaction_width(v + r, dim);
            copy_lanes(products + r * padded, v + r, row + start, out.columns() - start);
          }
        }
      }
    });
  }

  static void backward(host_exec const& exec, vector_view<matrix_view<float const> const> vectors, matrix_view<float const> gradient,
                       vector_view<matrix_view<float> const> vector_gradients) {
    auto const count = vectors.size(), dim = vectors[0].columns(), padded = pad(dim), padded_count = divide_up(count, sums) * sums;
    auto const floats = count * (padded + padded_count) + sums * padded;
    auto const pieces = divide_up(gradient.rows(), samples_per_piece);
    buffer<float> scratch(exec, pieces * floats);
    for_each_piece(exec, gradient.rows(), samples_per_piece, [&](std::int64_t first, std::int64_t last) {
      float* const values = scratch.data() + first / samples_per_piece * floats;  // (vectors, padded dim)
      float* const pairs = values + count * padded;                               // (vectors, padded vectors), symmetric, 0 on the diagonal
      float* const products = pairs + count * padded_count;                       // (sums, padded dim)
      std::fill_n(values, count * (padded + padded_count), 0.0F);
      for (auto sample = first; sample < last; ++sample) {
        auto const* pair = gradient.row(sample) + dim;
        for (std::int64_t v = 0; v < count; ++v) {
          copy_lanes(vectors[v].row(sample), dim, values + v * padded, dim);
          for (std::int64_t w = 0; w < v; ++w) pairs[v * padded_count + w] = pairs[w * padded_count + v] = *pair++;
        }
        for (std::int64_t v = 0; v < count; v += sums) {
          for (std::int64_t d = 0; d < dim; d += lanes)
            weighted_rows(
                count, [&](std::int64_t r, std::int64_t w) { return pairs[w * padded_count + v + r]; },
                [&](std::int64_t w) { return values + w * padded + d; }, products + d, padded);
          for (std::int64_t r = 0; r < std::min(sums, count - v); ++r)
            copy_lanes(products + r * padded, dim, vector_gradients[v + r].row(sample), dim);
        }
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
