// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

#include <tessera/core/execution.hpp>
#include <tessera/core/multiply_add.hpp>
#include <tessera/core/opaque.hpp>
#include <tessera/core/view.hpp>
#include <tessera/tensor/jagged_vectors.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// Takes the softmax over the vectors of each row, each column by itself. An x becomes e^(x - m) over the sum of these, where m is the
/// column's largest x. As FBGEMM's jagged_softmax, but of whole rows.
///
/// `out` has the rows of `in`, and may be `in`. Sums are taken in double, in order. A NaN or an infinite x makes its column NaN, except
/// that -infinity beside a finite x gives 0. A device has the bits of a host whose `multiply_add` rounds once, but for those of a NaN, and
/// lies within 1e-6 of other hosts. On a device nothing waits; what offsets show is thrown when the execution synchronises, and nothing is
/// written then. @throws tessera::error shape_mismatch, invalid_argument, out_of_range for offsets past the values.
template <execution Exec, class Offset>
void jagged_softmax(Exec const& exec, detail::jagged_vectors_in<Offset> in, jagged_vectors_view<float, Offset> out);

/// Writes the gradient of `jagged_softmax` by its input: y (dy - sum of y dy over the column).
///
/// `out` is y, what the forward wrote, and `gradient` is dy; `in_gradient` may be `gradient`. A device has the same bits from the same
/// `out`. @throws tessera::error as the forward.
template <execution Exec, class Offset>
void jagged_softmax_backward(Exec const& exec, detail::jagged_vectors_in<Offset> out, detail::jagged_vectors_in<Offset> gradient,
                             jagged_vectors_view<float, Offset> in_gradient);

namespace detail {

/// Returns e^x for x <= 0, to 2e-7 of it; 0 below -87, where floats grow short of digits; NaN for NaN. Unlike the C library's function it
/// runs in SIMD registers.
///
/// x is n ln 2 + r, with |r| <= ln 2 / 2. e^r is taken by its series to r^7, and 2^n is put together bit by bit.
TESSERA_HOST_DEVICE inline float exp_of_negative(float x) noexcept {
  float const shift = 12582912.0F;  // 1.5 * 2^23: adding it rounds to an integer, which the last bits of the sum then hold
  float const shifted = multiply_add(x, 1.44269504F, shift);
  float const n = shifted - shift;
  float const r = multiply_add(n, 2.12194440e-4F, multiply_add(n, -0.693359375F, x));  // ln 2 in two parts: n times the first is exact
  float power = 1.0F / 5040;
  power = multiply_add(power, r, 1.0F / 720);
  power = multiply_add(power, r, 1.0F / 120);
  power = multiply_add(power, r, 1.0F / 24);
  power = multiply_add(power, r, 1.0F / 6);
  power = multiply_add(power, r, 0.5F);
  power = multiply_add(power, r, 1.0F);
  power = multiply_add(power, r, 1.0F);
  auto const exponent = (__builtin_bit_cast(std::uint32_t, shifted) + 127U) << 23;  // the shift's own bits leave at the top
  auto const result = power * __builtin_bit_cast(float, exponent);
  return x < -87.0F ? 0.0F : result;
}

struct jagged_softmax_tag {};

template <>
struct back_end<jagged_softmax_tag, host_exec> {
  static constexpr std::int64_t block_columns = 64;

  // f(row, column, n): columns [column, column + n) of a row that is not empty.
  template <class Offset, class F>
  static void for_each_block(host_exec const& exec, jagged_vectors_view<float const, Offset> in, F const& f) {
    for_each_row_block(exec, in.offsets, in.rows, vectors_per_piece(in.dim()), [&](std::int64_t first, std::int64_t last) {
      for (auto row = first; row < last; ++row)
        for (std::int64_t column = 0; column < (in.length(row) == 0 ? 0 : in.dim()); column += block_columns)
          f(row, column, std::min(block_columns, in.dim() - column));
    });
  }

  template <class Offset>
  static void forward(host_exec const& exec, rows_check<host_exec, Offset>&, jagged_vectors_view<float const, Offset> in,
                      jagged_vectors_view<float, Offset> out) {
    for_each_block(exec, in, [&](std::int64_t row, std::int64_t column, std::int64_t n) {
      auto const from = in.row(row).columns_from(column, n);
      auto const to = out.row(row).columns_from(column, n);
      float largest[block_columns];
      double sum[block_columns] = {};
      std::copy_n(from.row(0), n, largest);
      for (std::int64_t r = 1; r < from.rows(); ++r) {
        auto const* const x = opaque(from.row(r));
        for (std::int64_t c = 0; c < n; ++c) largest[c] = largest[c] < x[c] ? x[c] : largest[c];
      }
      for (std::int64_t r = 0; r < from.rows(); ++r) {
        auto const* const x = opaque(from.row(r));
        auto* const y = to.row(r);
        float power[block_columns];  // apart, as y may be x
        for (std::int64_t c = 0; c < n; ++c) power[c] = exp_of_negative(x[c] - largest[c]);
        for (std::int64_t c = 0; c < n; ++c) sum[c] += static_cast<double>(power[c]);
        std::copy_n(power, n, y);
      }
      float scale[block_columns];
      for (std::int64_t c = 0; c < n; ++c) scale[c] = static_cast<float>(1.0 / sum[c]);
      for (std::int64_t r = 0; r < to.rows(); ++r) {
        auto* const y = to.row(r);
        for (std::int64_t c = 0; c < n; ++c) y[c] *= scale[c];
      }
    });
  }

  template <class Offset>
  static void backward(host_exec const& exec, rows_check<host_exec, Offset>&, jagged_vectors_view<float const, Offset> out,
                       jagged_vectors_view<float const, Offset> gradient, jagged_vectors_view<float, Offset> in_gradient) {
    for_each_block(exec, out, [&](std::int64_t row, std::int64_t column, std::int64_t n) {
      auto const y = out.row(row).columns_from(column, n), dy = gradient.row(row).columns_from(column, n);
      auto const dx = in_gradient.row(row).columns_from(column, n);
      double sum[block_columns] = {};
      for (std::int64_t r = 0; r < y.rows(); ++r)
        for (std::int64_t c = 0; c < n; ++c) sum[c] += static_cast<double>(y(r, c)) * static_cast<double>(dy(r, c));
      float mean[block_columns];
      for (std::int64_t c = 0; c < n; ++c) mean[c] = static_cast<float>(sum[c]);
      for (std::int64_t r = 0; r < y.rows(); ++r)
        for (std::int64_t c = 0; c < n; ++c) dx(r, c) = y(r, c) * (dy(r, c) - mean[c]);
    });
  }
};

}  // namespace detail

template <execution Exec, class Offset>
void jagged_softmax(Exec const& exec, detail::jagged_vectors_in<Offset> in, jagged_vectors_view<float, Offset> out) {
  detail::rows_check<Exec, Offset> rows(exec, "jagged_softmax");
  rows.valid("in", in);
  rows.same("out", in, out);
  detail::back_end<detail::jagged_softmax_tag, Exec>::forward(exec, rows, in, out);
}

template <execution Exec, class Offset>
void jagged_softmax_backward(Exec const& exec, detail::jagged_vectors_in<Offset> out, detail::jagged_vectors_in<Offset> gradient,
                             jagged_vectors_view<float, Offset> in_gradient) {
  detail::rows_check<Exec, Offset> rows(exec, "jagged_softmax_backward");
  rows.valid("out", out);
  rows.same("gradient", out, gradient);
  rows.same("in_gradient", out, in_gradient);
  detail::back_end<detail::jagged_softmax_tag, Exec>::backward(exec, rows, out, gradient, in_gradient);
}

}  // namespace TESSERA_ABI
}  // namespace tessera
