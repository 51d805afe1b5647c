// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include <tessera/core/buffer.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/register_bytes.hpp>
#include <tessera/core/view.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// The columns that `dot_interaction` writes: those of the first vector, then one product a pair.
TESSERA_HOST_DEVICE constexpr std::int64_t dot_interaction_width(std::int64_t vectors, std::int64_t dim) noexcept {
  return dim + vectors * (vectors - 1) / 2;
}

/// DLRM's interaction. It writes a sample's first vector, then the dot products of all pairs of its vectors, (1,0) (2,0) (2,1) (3,0) …
///
/// `vectors`: blocks (samples, dim) whose rows do not overlap, anywhere in memory. `out` (samples, dot_interaction_width(vectors, dim)).
/// Sums are in float, over the elements in order.
/// @throws tessera::error invalid_argument for no vectors; shape_mismatch naming the block that does not fit. Source: Naumov et al., "Deep
/// learning recommendation model for personalization and recommendation systems", 2019.
inline void dot_interaction(host_exec const& exec, vector_view<matrix_view<float const> const> vectors, matrix_view<float> out);

/// Overwrites the gradients of all vectors, from `gradient`, that of `out`. A vector that is not finite makes its own gradient NaN, as zero
/// times the vector is added. @throws tessera::error as the forward.
inline void dot_interaction_backward(host_exec const& exec, vector_view<matrix_view<float const> const> vectors,
                                     matrix_view<float const> gradient, vector_view<matrix_view<float> const> vector_gradients);

namespace detail {

// Both directions are sums of rows with weights, eight sums at once and a register of each: as many as two units that add take to never wait,
// and what is loaded serves eight.
struct dot_interaction_kernels {
  static constexpr std::int64_t samples_per_piece = 64;
  static constexpr std::int64_t lanes = detail::register_bytes / sizeof(float), sums = 8;  // of a vector register

  static constexpr std::int64_t pad(std::int64_t n) noexcept { return divide_up(n, lanes) * lanes; }

  // A matrix of floats by its first and how far apart rows begin.
  struct rows_of {
    float const* data;
    std::int64_t stride;
  };

  // out[r * stride + i] = sum over k of weights(k, r) * rows(k, i), k in order, for `sums` r and `lanes` i.
  static void weighted_rows(std::int64_t count, rows_of weights, rows_of rows, float* out, std::int64_t stride) noexcept {
    using vector = float __attribute__((vector_size(lanes * sizeof(float))));  // arrays do not stay in registers
    vector a{}, b{}, c{}, d{}, e{}, f{}, g{}, h{}, x;
    for (std::int64_t k = 0; k < count; ++k) {
      float const* const weight = weights.data + k * weights.stride;
      std::memcpy(&x, rows.data + k * rows.stride, sizeof(x));
      a += weight[0] * x;
      b += weight[1] * x;
      c += weight[2] * x;
      d += weight[3] * x;
      e += weight[4] * x;
      f += weight[5] * x;
      g += weight[6] * x;
      h += weight[7] * x;
    }
    std::memcpy(out, &a, sizeof(a));
    std::memcpy(out + stride, &b, sizeof(b));
    std::memcpy(out + 2 * stride, &c, sizeof(c));
    std::memcpy(out + 3 * stride, &d, sizeof(d));
    std::memcpy(out + 4 * stride, &e, sizeof(e));
    std::memcpy(out + 5 * stride, &f, sizeof(f));
    std::memcpy(out + 6 * stride, &g, sizeof(g));
    std::memcpy(out + 7 * stride, &h, sizeof(h));
  }

  // to[d * stride + v] = vectors[v].row(sample)[d], four vectors at once. Up to three columns past the last vector's repeat it.
  static void transpose(vector_view<matrix_view<float const> const> vectors, std::int64_t sample, float* to, std::int64_t stride) noexcept {
    auto const dim = vectors[0].columns();
    for (std::int64_t v = 0; v < vectors.size(); v += 4) {
      float const* rows[4];
      for (std::int64_t r = 0; r < 4; ++r) rows[r] = vectors[std::min(v + r, vectors.size() - 1)].row(sample);
      std::int64_t d = 0;
#if defined(__SSE2__)
      for (; d + 4 <= dim; d += 4) {
        auto a = _mm_loadu_ps(rows[0] + d), b = _mm_loadu_ps(rows[1] + d), c = _mm_loadu_ps(rows[2] + d), e = _mm_loadu_ps(rows[3] + d);
        _MM_TRANSPOSE4_PS(a, b, c, e);
        _mm_storeu_ps(to + d * stride + v, a);
        _mm_storeu_ps(to + (d + 1) * stride + v, b);
        _mm_storeu_ps(to + (d + 2) * stride + v, c);
        _mm_storeu_ps(to + (d + 3) * stride + v, e);
      }
#endif
      for (; d < dim; ++d)
        for (std::int64_t r = 0; r < 4; ++r) to[d * stride + v + r] = rows[r][d];
    }
  }

  // Copies n floats by registers: the last one is readable to its end, and its rest is written too unless that passes `writable`.
  static void copy_lanes(float const* from, std::int64_t n, float* to, std::int64_t writable) noexcept {
    if (pad(n) > writable) return void(std::copy_n(from, n, to));
    for (std::int64_t i = 0; i < n; i += lanes) std::memcpy(to + i, from + i, lanes * sizeof(float));
  }

  static void forward(host_exec const& exec, vector_view<matrix_view<float const> const> vectors, matrix_view<float> out) {
    auto const count = vectors.size(), dim = vectors[0].columns(), padded = divide_up(pad(count), sums) * sums;
    auto const pieces = divide_up(out.rows(), samples_per_piece);
    buffer<float> scratch(exec, pieces * (dim + sums) * padded);
    for_each_piece(exec, out.rows(), samples_per_piece, [&](std::int64_t first, std::int64_t last) {
      float* const by_element = scratch.data() + first / samples_per_piece * (dim + sums) * padded;  // (dim, vectors): a sample transposed
      float* const products = by_element + dim * padded;                                             // (sums, vectors)
      std::fill_n(by_element, dim * padded, 0.0F);
      for (auto sample = first; sample < last; ++sample) {
        transpose(vectors, sample, by_element, padded);
        auto* const row = out.row(sample);
        std::copy_n(vectors[0].row(sample), dim, row);
        for (std::int64_t v = 0; v < count; v += sums) {
          auto const here = std::min(sums, count - v);
          for (std::int64_t w = 0; w < v + here - 1; w += lanes)
            weighted_rows(dim, {by_element + v, padded}, {by_element + w, padded}, products + w, padded);
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
            weighted_rows(count, {pairs + v, padded_count}, {values + d, padded}, products + d, padded);
          for (std::int64_t r = 0; r < std::min(sums, count - v); ++r)
            copy_lanes(products + r * padded, dim, vector_gradients[v + r].row(sample), dim);
        }
        for (std::int64_t d = 0; d < dim; ++d) vector_gradients[0].row(sample)[d] += gradient.row(sample)[d];
      }
    });
  }
};

inline void check_interaction(std::int64_t vectors, std::int64_t dim, matrix_view<float const> out) {
  if (out.columns() != dot_interaction_width(vectors, dim) || (out.rows() > 1 && out.stride() < out.columns()))
    throw error(errc::shape_mismatch, "dot_interaction: width or stride of the output",
                {{"columns", out.columns()},
                 {"expected", dot_interaction_width(vectors, dim)},
                 {"stride", out.stride()},
                 {"vectors", vectors},
                 {"dim", dim},
                 {"rows", out.rows()}});
}

template <class T>
void check_interaction_vectors(char const* argument, vector_view<matrix_view<T> const> vectors, std::int64_t rows, std::int64_t dim) {
  for (std::int64_t v = 0; v < vectors.size(); ++v)
    if (vectors[v].rows() != rows || vectors[v].columns() != dim || (rows > 1 && vectors[v].stride() < dim))
      throw error(errc::shape_mismatch, "dot_interaction: a vector block of another shape",
                  {{"argument", argument},
                   {"vector", v},
                   {"rows", vectors[v].rows()},
                   {"expected rows", rows},
                   {"columns", vectors[v].columns()},
                   {"expected columns", dim},
                   {"stride", vectors[v].stride()}});
}

}  // namespace detail

inline void dot_interaction(host_exec const& exec, vector_view<matrix_view<float const> const> vectors, matrix_view<float> out) {
  if (vectors.empty()) throw error(errc::invalid_argument, "dot_interaction: no vectors", {});
  detail::check_interaction(vectors.size(), vectors[0].columns(), out);
  detail::check_interaction_vectors("vectors", vectors, out.rows(), vectors[0].columns());
  detail::dot_interaction_kernels::forward(exec, vectors, out);
}

inline void dot_interaction_backward(host_exec const& exec, vector_view<matrix_view<float const> const> vectors,
                                     matrix_view<float const> gradient, vector_view<matrix_view<float> const> vector_gradients) {
  if (vectors.empty()) throw error(errc::invalid_argument, "dot_interaction: no vectors", {});
  detail::check_interaction(vectors.size(), vectors[0].columns(), gradient);
  detail::check_interaction_vectors("vectors", vectors, gradient.rows(), vectors[0].columns());
  if (vector_gradients.size() != vectors.size())
    throw error(errc::shape_mismatch, "dot_interaction: one gradient a vector",
                {{"vectors", vectors.size()}, {"gradients", vector_gradients.size()}});
  detail::check_interaction_vectors("vector_gradients", vector_gradients, gradient.rows(), vectors[0].columns());
  detail::dot_interaction_kernels::backward(exec, vectors, gradient, vector_gradients);
}

}  // namespace TESSERA_ABI
}  // namespace tessera
