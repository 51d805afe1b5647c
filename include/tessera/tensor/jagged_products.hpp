// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>

#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/multiply_add.hpp>
#include <tessera/core/opaque.hpp>
#include <tessera/core/view.hpp>
#include <tessera/tensor/jagged_vectors.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// Multiplies each row of vectors, (length, k), with a dense matrix of its own, (k, n), into rows of vectors, (length, n). As FBGEMM's
/// jagged_dense_bmm.
///
/// `in` has dim k; `dense` (rows * k, n), of any row stride, holds the matrix of row i from i * k on. `out` has dim n and the lengths of
/// `in`, and shares no memory with either. Each sum is taken in float, in order. A device has the bits of a host whose `multiply_add`
/// rounds once, but for those of a NaN. On a device nothing waits; what offsets show is thrown when the execution synchronises, and nothing
/// is written then. @throws tessera::error shape_mismatch, invalid_argument, out_of_range for offsets past the values.
template <execution Exec, class Offset>
void jagged_dense_product(Exec const& exec, detail::jagged_vectors_in<Offset> in, matrix_view<float const> dense,
                          jagged_vectors_view<float, Offset> out);

/// Writes the gradients of `jagged_dense_product` by both operands: gradient times dense^T, and in^T times gradient. Shapes and errors are
/// those of the forward.
template <execution Exec, class Offset>
void jagged_dense_product_backward(Exec const& exec, detail::jagged_vectors_in<Offset> in, matrix_view<float const> dense,
                                   detail::jagged_vectors_in<Offset> gradient, jagged_vectors_view<float, Offset> in_gradient,
                                   matrix_view<float> dense_gradient);

/// Multiplies the transpose of each row's vectors of `a`, (k, length), with the row's vectors of `b`, (length, n), into dense matrices
/// (rows, k, n). An empty row gives 0. As FBGEMM's jagged_jagged_bmm.
///
/// `a` has dim k, `b` dim n and the same lengths; `out` (rows * k, n), of any row stride. Each sum is taken in float, in order. @throws
/// tessera::error as `jagged_dense_product`.
template <execution Exec, class T, class Offset>
void jagged_jagged_product(Exec const& exec, jagged_vectors_view<T, Offset> a, detail::jagged_vectors_in<Offset> b, matrix_view<float> out);

/// Writes the gradients of `jagged_jagged_product` by both operands: b times gradient^T, and a times gradient. Shapes and errors are those
/// of the forward.
template <execution Exec, class Offset>
void jagged_jagged_product_backward(Exec const& exec, detail::jagged_vectors_in<Offset> a, detail::jagged_vectors_in<Offset> b,
                                    matrix_view<float const> gradient, jagged_vectors_view<float, Offset> a_gradient,
                                    jagged_vectors_view<float, Offset> b_gradient);

namespace detail {

struct jagged_products_tag {};

/// The left side of a product as it lies in memory: element (r, k) is data[r * row_step + k * step].
struct product_operand {
  float const* data;
  std::int64_t row_step;
  std::int64_t step;
};

template <>
struct back_end<jagged_products_tag, host_exec> {
  static constexpr std::int64_t tile_rows = 4;
  static constexpr std::int64_t tile_columns = 32;
  static constexpr std::int64_t panel_rows = 64;

  // Vectors a piece, so that it does about 2^18 multiplications.
  static constexpr std::int64_t grain(std::int64_t k, std::int64_t n) noexcept {
    return std::clamp<std::int64_t>((std::int64_t{1} << 18) / std::max<std::int64_t>(k * n, 1), 1, 1 << 14);
  }

  // A tile of `Rows` rows and n <= tile_columns columns; n is known where Columns is not 0. Each sum runs over k in order, from what `to`
  // holds if `add`.
  template <int Rows, int Columns>
  static void multiply_tile(product_operand a, matrix_view<float const> b, float* to, std::int64_t to_stride, bool add) noexcept {
    auto const n = Columns == 0 ? b.columns() : Columns;
    float sum[std::size_t{Rows}][tile_columns] = {};
    for (int r = 0; add && r < Rows; ++r) std::copy_n(to + r * to_stride, n, sum[r]);
    for (std::int64_t k = 0; k < b.rows(); ++k) {
      auto const* const right = opaque(b.data() + k * b.stride());
      for (int r = 0; r < Rows; ++r) {
        auto const left = a.data[r * a.row_step + k * a.step];
        for (std::int64_t c = 0; c < n; ++c) sum[r][c] = multiply_add(left, right[c], sum[r][c]);
      }
    }
    for (int r = 0; r < Rows; ++r) std::copy_n(sum[r], n, to + r * to_stride);
  }

  template <int Rows>
  static void multiply_rows(product_operand a, matrix_view<float const> b, float* to, std::int64_t to_stride, bool add) noexcept {
    std::int64_t column = 0;
    for (; column + tile_columns <= b.columns(); column += tile_columns)
      multiply_tile<Rows, tile_columns>(a, b.columns_from(column, tile_columns), to + column, to_stride, add);
    if (column < b.columns()) multiply_tile<Rows, 0>(a, b.columns_from(column, b.columns() - column), to + column, to_stride, add);
  }

  // to (m, n) = a (m, k) times b (k, n), or that added to it.
  static void multiply(product_operand a, matrix_view<float const> b, matrix_view<float> to, bool add = false) noexcept {
    std::int64_t r = 0;
    for (; r + tile_rows <= to.rows(); r += tile_rows)
      multiply_rows<tile_rows>({a.data + r * a.row_step, a.row_step, a.step}, b, to.data() + r * to.stride(), to.stride(), add);
    for (; r < to.rows(); ++r)
      multiply_rows<1>({a.data + r * a.row_step, a.row_step, a.step}, b, to.data() + r * to.stride(), to.stride(), add);
  }

  // to (m, k) = a (m, n) times the transpose of b (k, n), of which a panel at a time is turned round.
  static void multiply_transposed(matrix_view<float const> a, matrix_view<float const> b, matrix_view<float> to) noexcept {
    if (b.columns() == 0) return fill_vectors(to, 0.0F);
    for (std::int64_t column = 0; column < b.rows(); column += tile_columns) {
      auto const columns = std::min(tile_columns, b.rows() - column);
      for (std::int64_t first = 0; first < b.columns(); first += panel_rows) {
        auto const depth = std::min(panel_rows, b.columns() - first);
        float panel[panel_rows * tile_columns];
        for (std::int64_t c = 0; c < columns; ++c)
          for (std::int64_t k = 0; k < depth; ++k) panel[k * tile_columns + c] = b.data()[(column + c) * b.stride() + first + k];
        multiply({a.data() + first, a.stride(), 1}, {panel, depth, columns, tile_columns}, to.columns_from(column, columns), first > 0);
      }
    }
  }

  // out(l, :) = in(l, :) times dense(row), (k, n).
  template <class Offset>
  static void with_dense(host_exec const& exec, rows_check<host_exec, Offset>&, jagged_vectors_view<float const, Offset> in,
                         matrix_view<float const> dense, jagged_vectors_view<float, Offset> out) {
    auto const k = in.dim();
    for_each_row_run(exec, out.offsets, out.rows, grain(k, out.dim()), [&](auto row, std::int64_t first, std::int64_t last) {
      auto const from = in.values.rows_from(in.begin_of(row) + (first - out.begin_of(row)), last - first);
      multiply({from.data(), from.stride(), 1}, dense.rows_from(row * k, k), out.values.rows_from(first, last - first));
    });
  }

  // out(l, :) = in(l, :) times the transpose of dense(row), (k, n).
  template <class Offset>
  static void with_transposed(host_exec const& exec, rows_check<host_exec, Offset>&, jagged_vectors_view<float const, Offset> in,
                              matrix_view<float const> dense, jagged_vectors_view<float, Offset> out) {
    auto const k = out.dim(), n = in.dim();
    for_each_row_run(exec, out.offsets, out.rows, grain(k, n), [&](auto row, std::int64_t first, std::int64_t last) {
      auto const from = in.values.rows_from(in.begin_of(row) + (first - out.begin_of(row)), last - first);
      multiply_transposed(from, dense.rows_from(row * k, k), out.values.rows_from(first, last - first));
    });
  }

  // out(row), (k, n), = the transpose of a's row times b's.
  template <class Offset>
  static void of_rows(host_exec const& exec, rows_check<host_exec, Offset>&, jagged_vectors_view<float const, Offset> a,
                      jagged_vectors_view<float const, Offset> b, matrix_view<float> out) {
    auto const k = a.dim();
    for_each_row_block(exec, a.offsets, a.rows, grain(k, b.dim()), [&](std::int64_t first, std::int64_t last) {
      for (auto row = first; row < last; ++row) {
        auto const left = a.row(row);
        multiply({left.data(), 1, left.stride()}, b.row(row), out.rows_from(row * k, k));
      }
    });
  }
};

inline void check_dense_batch(char const* call, char const* which, std::int64_t rows, std::int64_t k, std::int64_t n,
                              matrix_view<float const> dense) {
  if (dense.rows() != rows * k || dense.columns() != n || dense.stride() < n)
    throw error(errc::shape_mismatch, std::string(call) + ": a dense batch (rows * k, n) of another shape",
                {{"argument", which},
                 {"matrix rows", dense.rows()},
                 {"rows", rows},
                 {"k", k},
                 {"columns", dense.columns()},
                 {"n", n},
                 {"stride", dense.stride()}});
}

}  // namespace detail

template <execution Exec, class Offset>
void jagged_dense_product(Exec const& exec, detail::jagged_vectors_in<Offset> in, matrix_view<float const> dense,
                          jagged_vectors_view<float, Offset> out) {
  constexpr auto name = "jagged_dense_product";
  detail::rows_check<Exec, Offset> rows(exec, name);
  rows.valid("in", in);
  rows.same("out", in, out, false);
  detail::check_dense_batch(name, "dense", in.rows, in.dim(), out.dim(), dense);
  detail::back_end<detail::jagged_products_tag, Exec>::with_dense(exec, rows, in, dense, out);
}

template <execution Exec, class Offset>
void jagged_dense_product_backward(Exec const& exec, detail::jagged_vectors_in<Offset> in, matrix_view<float const> dense,
                                   detail::jagged_vectors_in<Offset> gradient, jagged_vectors_view<float, Offset> in_gradient,
                                   matrix_view<float> dense_gradient) {
  constexpr auto name = "jagged_dense_product_backward";
  detail::rows_check<Exec, Offset> rows(exec, name);
  rows.valid("in", in);
  rows.same("gradient", in, gradient, false);
  rows.same("in_gradient", in, in_gradient);
  detail::check_dense_batch(name, "dense", in.rows, in.dim(), gradient.dim(), dense);
  detail::check_dense_batch(name, "dense_gradient", in.rows, in.dim(), gradient.dim(), dense_gradient);
  detail::back_end<detail::jagged_products_tag, Exec>::with_transposed(exec, rows, gradient, dense, in_gradient);
  detail::back_end<detail::jagged_products_tag, Exec>::of_rows(exec, rows, in, gradient, dense_gradient);
}

template <execution Exec, class T, class Offset>
void jagged_jagged_product(Exec const& exec, jagged_vectors_view<T, Offset> a, detail::jagged_vectors_in<Offset> b,
                           matrix_view<float> out) {
  constexpr auto name = "jagged_jagged_product";
  detail::rows_check<Exec, Offset> rows(exec, name);
  rows.valid("a", a);
  rows.same("b", a, b, false);
  detail::check_dense_batch(name, "out", a.rows, a.dim(), b.dim(), out);
  detail::back_end<detail::jagged_products_tag, Exec>::template of_rows<Offset>(exec, rows, a, b, out);
}

template <execution Exec, class Offset>
void jagged_jagged_product_backward(Exec const& exec, detail::jagged_vectors_in<Offset> a, detail::jagged_vectors_in<Offset> b,
                                    matrix_view<float const> gradient, jagged_vectors_view<float, Offset> a_gradient,
                                    jagged_vectors_view<float, Offset> b_gradient) {
  constexpr auto name = "jagged_jagged_product_backward";
  detail::rows_check<Exec, Offset> rows(exec, name);
  rows.valid("a", a);
  rows.same("b", a, b, false);
  rows.same("a_gradient", a, a_gradient);
  rows.same("b_gradient", b, b_gradient);
  detail::check_dense_batch(name, "gradient", a.rows, a.dim(), b.dim(), gradient);
  detail::back_end<detail::jagged_products_tag, Exec>::with_transposed(exec, rows, b, gradient, a_gradient);
  detail::back_end<detail::jagged_products_tag, Exec>::with_dense(exec, rows, a, gradient, b_gradient);
}

}  // namespace TESSERA_ABI
}  // namespace tessera
