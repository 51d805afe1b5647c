// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <type_traits>

#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/opaque.hpp>
#include <tessera/core/view.hpp>
#include <tessera/tensor/jagged_vectors.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// Says how the vectors of a row become one, column by column. An empty row gives 0.
enum class segment_pooling : std::uint8_t {
  sum,
  mean,
  max,  ///< a NaN is larger than any number
};

/// Pools each row of vectors into one.
///
/// `out` (rows, dim), of any row stride. Sums are taken in float, in order, on a device too: the same bits, but for those of a NaN. On a
/// device nothing waits; what offsets show is thrown when the execution synchronises, and nothing is written then. @throws tessera::error
/// shape_mismatch, invalid_argument, out_of_range for offsets past the values.
template <execution Exec, class T, class Offset>
void pool_segments(Exec const& exec, jagged_vectors_view<T, Offset> in, segment_pooling mode, matrix_view<float> out);

/// Writes the gradient of `pool_segments` by its input; `gradient` is that of `out`.
///
/// Of a column's equal largest values the first in the row gets the gradient, the others 0. Only `max` reads the vectors of `in`. @throws
/// tessera::error as the forward.
template <execution Exec, class Offset>
void pool_segments_backward(Exec const& exec, detail::jagged_vectors_in<Offset> in, segment_pooling mode, matrix_view<float const> gradient,
                            jagged_vectors_view<float, Offset> in_gradient);

namespace detail {

// Whether a candidate replaces the largest so far; never at a tie, so the first of equal ones stays.
TESSERA_HOST_DEVICE constexpr bool is_larger(float candidate, float largest) noexcept {
  return !(candidate <= largest) && largest == largest;
}

struct pool_segments_tag {};

template <>
struct back_end<pool_segments_tag, host_exec> {
  template <class Offset>
  static void forward(host_exec const& exec, rows_check<host_exec, Offset>&, jagged_vectors_view<float const, Offset> in,
                      segment_pooling mode, matrix_view<float> out) {
    for_each_row_block(exec, in.offsets, in.rows, vectors_per_piece(in.dim()), [&](std::int64_t first, std::int64_t last) {
      for (auto row = first; row < last; ++row) pool(in.row(row), mode, out.row(row));
    });
  }

  // Blocks of columns whose sums stay in registers while the rows go by.
  static void pool(matrix_view<float const> in, segment_pooling mode, float* to) noexcept(!checks_indices) {
    auto const dim = in.columns();
    if (in.rows() == 0) return void(std::fill_n(to, dim, 0.0F));
    constexpr std::int64_t block = 64;
    std::int64_t first = 0;
    for (; first + block <= dim; first += block) pool_columns(in, mode, first, std::integral_constant<std::int64_t, block>{}, to + first);
    if (first < dim) pool_columns(in, mode, first, dim - first, to + first);
  }

  // @pre count <= 64.
  template <class Count>
  static void pool_columns(matrix_view<float const> in, segment_pooling mode, std::int64_t first, Count count, float* to) {
    std::int64_t const n = count;
    float pooled[64];
    std::copy_n(in.row(0) + first, n, pooled);
    if (mode == segment_pooling::max) {
      for (std::int64_t r = 1; r < in.rows(); ++r) {
        auto const* const from = opaque(in.row(r) + first);
        for (std::int64_t c = 0; c < n; ++c) pooled[c] = is_larger(from[c], pooled[c]) ? from[c] : pooled[c];
      }
    } else {
      for (std::int64_t r = 1; r < in.rows(); ++r) {
        auto const* const from = opaque(in.row(r) + first);
        for (std::int64_t c = 0; c < n; ++c) pooled[c] += from[c];
      }
      auto const scale = mode == segment_pooling::mean ? 1.0F / static_cast<float>(in.rows()) : 1.0F;
      for (std::int64_t c = 0; c < n; ++c) pooled[c] *= scale;
    }
    std::copy_n(pooled, n, to);
  }

  template <class Offset>
  static void spread(host_exec const& exec, rows_check<host_exec, Offset>&, matrix_view<float const> gradient, bool mean,
                     jagged_vectors_view<float, Offset> out) {
    auto const dim = out.dim();
    for_each_row_run(exec, out.offsets, out.rows, vectors_per_piece(dim), [&](auto row, std::int64_t first, std::int64_t last) {
      auto const scale = mean ? 1.0F / static_cast<float>(out.length(row)) : 1.0F;
      for (; first < last; ++first) {
        auto const* const from = opaque(gradient.row(row));
        auto* const to = out.values.row(first);
        for (std::int64_t c = 0; c < dim; ++c) to[c] = scale * from[c];
      }
    });
  }

  template <class Offset>
  static void backward_of_max(host_exec const& exec, rows_check<host_exec, Offset>&, jagged_vectors_view<float const, Offset> in,
                              matrix_view<float const> gradient, jagged_vectors_view<float, Offset> out) {
    for_each_row_block(exec, in.offsets, in.rows, vectors_per_piece(in.dim()), [&](std::int64_t first, std::int64_t last) {
      for (auto row = first; row < last; ++row) {
        fill_vectors(out.row(row), 0.0F);
        if (in.length(row) > 0) give_to_largest(in.row(row), gradient.row(row), out.row(row));
      }
    });
  }

  static void give_to_largest(matrix_view<float const> in, float const* gradient, matrix_view<float> out) noexcept(!checks_indices) {
    constexpr std::int64_t width = 64;
    for (std::int64_t column = 0; column < in.columns(); column += width) {
      auto const n = std::min(width, in.columns() - column);
      float largest[width];
      std::int64_t where[width] = {};
      std::copy_n(in.row(0) + column, n, largest);
      for (std::int64_t r = 1; r < in.rows(); ++r) {
        auto const* const from = opaque(in.row(r) + column);
        for (std::int64_t c = 0; c < n; ++c) {
          bool const larger = is_larger(from[c], largest[c]);
          largest[c] = larger ? from[c] : largest[c];
          where[c] = larger ? r : where[c];
        }
      }
      for (std::int64_t c = 0; c < n; ++c) out(where[c], column + c) = gradient[column + c];
    }
  }
};

template <class Exec, class T, class Offset>
void check_pool_segments(char const* call, rows_check<Exec, Offset>& rows, jagged_vectors_view<T, Offset> in, segment_pooling mode,
                         matrix_view<float const> pooled) {
  rows.valid("in", in);
  check_choice(call, "mode", mode, segment_pooling::max);
  if (pooled.rows() != in.rows || pooled.columns() != in.dim() || pooled.stride() < in.dim())
    throw error(
        errc::shape_mismatch, std::string(call) + ": pooled vectors (rows, dim) of another shape",
        {{"matrix rows", pooled.rows()}, {"rows", in.rows}, {"columns", pooled.columns()}, {"dim", in.dim()}, {"stride", pooled.stride()}});
}

}  // namespace detail

template <execution Exec, class T, class Offset>
void pool_segments(Exec const& exec, jagged_vectors_view<T, Offset> in, segment_pooling mode, matrix_view<float> out) {
  detail::rows_check<Exec, Offset> rows(exec, "pool_segments");
  detail::check_pool_segments("pool_segments", rows, in, mode, out);
  detail::back_end<detail::pool_segments_tag, Exec>::template forward<Offset>(exec, rows, in, mode, out);
}

template <execution Exec, class Offset>
void pool_segments_backward(Exec const& exec, detail::jagged_vectors_in<Offset> in, segment_pooling mode, matrix_view<float const> gradient,
                            jagged_vectors_view<float, Offset> in_gradient) {
  detail::rows_check<Exec, Offset> rows(exec, "pool_segments_backward");
  detail::check_pool_segments("pool_segments_backward", rows, in, mode, gradient);
  rows.same("in_gradient", in, in_gradient);
  if (mode == segment_pooling::max)
    detail::back_end<detail::pool_segments_tag, Exec>::backward_of_max(exec, rows, in, gradient, in_gradient);
  else
    detail::back_end<detail::pool_segments_tag, Exec>::spread(exec, rows, gradient, mode == segment_pooling::mean, in_gradient);
}

}  // namespace TESSERA_ABI
}  // namespace tessera
