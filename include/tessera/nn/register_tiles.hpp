// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include <tessera/core/config.hpp>
#include <tessera/core/register_bytes.hpp>
#include <tessera/core/view.hpp>

/// Small products whose sums stay in vector registers, transposition and powers of two: what attention on the host is made of.
namespace tessera {
inline namespace TESSERA_ABI {

namespace detail {

// Floats of the machine's widest vector register.
inline constexpr int register_lanes = register_bytes / static_cast<int>(sizeof(float));
/// How many sums a tile keeps: of 32 registers or of 16, those that the factors leave.
inline constexpr int register_sums = register_lanes >= 16 ? 24 : 12;

template <int W>
struct register_types {
  using floats [[gnu::vector_size(W * sizeof(float))]] = float;
  using in_memory [[gnu::vector_size(W * sizeof(float)), gnu::aligned(alignof(float)), gnu::may_alias]] = float;
  using bits [[gnu::vector_size(W * sizeof(float))]] = std::uint32_t;
};
template <>
struct register_types<1> {
  using floats = float;
  using in_memory = float;
};
template <int W = register_lanes>
using register_floats = typename register_types<W>::floats;

template <int W>
[[gnu::always_inline]] inline register_floats<W> load_register(float const* from) noexcept {
  return *reinterpret_cast<typename register_types<W>::in_memory const*>(from);
}
template <int W>
[[gnu::always_inline]] inline void store_register(float* to, register_floats<W> const& x) noexcept {
  *reinterpret_cast<typename register_types<W>::in_memory*>(to) = x;
}

/// 2^x to 3 units in the last place, for x <= 126; 0 below -125; NaN stays NaN. Adding 1.5 * 2^23 rounds x to an integer, whose low bits
/// become the exponent. The rest, in [-0.5, 0.5], goes through a polynomial of least relative error (9e-8).
template <int W>
[[gnu::always_inline]] inline register_floats<W> power_of_two(register_floats<W> const& x) noexcept {
  using bits = typename register_types<W>::bits;
  auto const shifted = x + 0x1.8p23F;
  auto const rest = x - (shifted - 0x1.8p23F);
  auto power = rest * 0x1.5bba14p-10F + 0x1.3cea88p-7F;
  power = power * rest + 0x1.c6b752p-5F;
  power = power * rest + 0x1.ebf9bcp-3F;
  power = power * rest + 0x1.62e42ap-1F;
  power = power * rest + 1.0F;
  auto const result = (register_floats<W>)((bits)power + ((bits)shifted << 23));  // NOLINT: the bits
  return x < -125.0F ? register_floats<W>{} : result;
}

/// The larger, lane by lane; x where y is NaN.
template <int W>
[[gnu::always_inline]] inline register_floats<W> larger(register_floats<W> const& x, register_floats<W> const& y) noexcept {
  return y > x ? y : x;
}

/// A factor of a product: its first element, and the distances of its rows and of its steps (those summed over). Distances are constants
/// where the compiler should know them.
template <class RowStride, class StepStride>
struct tile_factor {
  float const* data;
  RowStride row;
  StepStride step;
};

/// Computes c(r, x) = sum over k, in order, of a(r, k) * b(k, x), for `Rows` r and sizeof...(X) registers x of W lanes. With `adds` the
/// sums begin with c.
template <int W, class Factor, int... I, int... X>
[[gnu::always_inline]] inline void multiply_tile(std::integer_sequence<int, I...>, std::integer_sequence<int, X...>, Factor a,
                                                 float const* b, std::int64_t b_stride, std::int64_t count, float* c, std::int64_t c_stride,
                                                 bool adds) noexcept {
  constexpr int across = sizeof...(X);
  register_floats<W> sum[] = {((void)I, register_floats<W>{})...};
  if (adds) ((sum[I] = load_register<W>(c + I / across * c_stride + I % across * W)), ...);
  for (std::int64_t k = 0; k < count; ++k) {
    register_floats<W> const x[] = {load_register<W>(b + X * W)...};
    ((sum[I] += a.data[I / across * a.row] * x[I % across]), ...);
    a.data += a.step;
    b += b_stride;
  }
  (store_register<W>(c + I / across * c_stride + I % across * W, sum[I]), ...);
}

/// The steps of the sum that count for rows [first, last) of a product: all.
struct all_steps {
  std::int64_t count;
  constexpr std::pair<std::int64_t, std::int64_t> operator()(std::int64_t, std::int64_t) const noexcept { return {0, count}; }
};

/// Computes rows [first, rows) of a product in tiles of `Rows`, as far as they go; returns the first row left.
template <int W, int Across, int Rows, class Factor, class Steps>
std::int64_t multiply_rows(std::int64_t first, std::int64_t rows, Factor a, float const* b, std::int64_t b_stride, Steps const& steps,
                           float* c, std::int64_t c_stride, bool adds) noexcept {
  for (; first + Rows <= rows; first += Rows) {
    auto const [begin, end] = steps(first, first + Rows);
    multiply_tile<W>(std::make_integer_sequence<int, Rows * Across>{}, std::make_integer_sequence<int, Across>{},
                     Factor{a.data + first * a.row + begin * a.step, a.row, a.step}, b + begin * b_stride, b_stride, end - begin,
                     c + first * c_stride, c_stride, adds);
  }
  return first;
}

/// Computes c (rows, Across * W) = a b, or adds it. `Most` is how many rows are done at once: with varying strides address registers run
/// out.
template <int W, int Across, int Most, class Factor, class Steps>
void multiply_columns(std::int64_t rows, Factor a, float const* b, std::int64_t b_stride, Steps const& steps, float* c,
                      std::int64_t c_stride, bool adds) noexcept {
  constexpr int tall = std::min(Most, register_sums / Across);
  auto first = multiply_rows<W, Across, tall>(0, rows, a, b, b_stride, steps, c, c_stride, adds);
  if constexpr (tall > 4) first = multiply_rows<W, Across, 4>(first, rows, a, b, b_stride, steps, c, c_stride, adds);
  if constexpr (tall > 2) first = multiply_rows<W, Across, 2>(first, rows, a, b, b_stride, steps, c, c_stride, adds);
  multiply_rows<W, Across, 1>(first, rows, a, b, b_stride, steps, c, c_stride, adds);
}

/// As above for any number of columns: two registers at once, then one, then halves of one down to single floats.
template <int W = register_lanes, class Factor, class Steps>
void multiply_any_columns(std::int64_t rows, std::int64_t columns, Factor a, float const* b, std::int64_t b_stride, Steps const& steps,
                          float* c, std::int64_t c_stride, bool adds) noexcept {
  std::int64_t done = 0;
  if constexpr (W == register_lanes)
    for (; done + 2 * W <= columns; done += 2 * W) multiply_columns<W, 2, 12>(rows, a, b + done, b_stride, steps, c + done, c_stride, adds);
  for (; done + W <= columns; done += W) multiply_columns<W, 1, 12>(rows, a, b + done, b_stride, steps, c + done, c_stride, adds);
  if constexpr (W > 1)
    if (done < columns) multiply_any_columns<W / 2>(rows, columns - done, a, b + done, b_stride, steps, c + done, c_stride, adds);
}

// Lanes a0 b0 a1 b1 …, in two registers.
#if __has_builtin(__builtin_shufflevector)
// The lanes are written out: nvcc passes no pack of them on to the host's compiler.
template <int W>
[[gnu::always_inline]] inline void interleave(register_floats<W> const& a, register_floats<W> const& b, register_floats<W>& low,
                                              register_floats<W>& high) noexcept {
  static_assert(W == 2 || W == 4 || W == 8 || W == 16);
  if constexpr (W == 2) {
    low = __builtin_shufflevector(a, b, 0, 2);
    high = __builtin_shufflevector(a, b, 1, 3);
  }
  if constexpr (W == 4) {
    low = __builtin_shufflevector(a, b, 0, 4, 1, 5);
    high = __builtin_shufflevector(a, b, 2, 6, 3, 7);
  }
  if constexpr (W == 8) {
    low = __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11);
    high = __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
  }
  if constexpr (W == 16) {
    low = __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    high = __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
  }
}
#else
// g++ 11 has its own builtin alone, which clang lacks.
template <int W, int... I>
[[gnu::always_inline]] inline void interleave_lanes(register_floats<W> const& a, register_floats<W> const& b, register_floats<W>& low,
                                                    register_floats<W>& high, std::integer_sequence<int, I...>) noexcept {
  using lanes = typename register_types<W>::bits;
  low = __builtin_shuffle(a, b, lanes{(I / 2 + I % 2 * W)...});
  high = __builtin_shuffle(a, b, lanes{(W / 2 + I / 2 + I % 2 * W)...});
}
template <int W>
[[gnu::always_inline]] inline void interleave(register_floats<W> const& a, register_floats<W> const& b, register_floats<W>& low,
                                              register_floats<W>& high) noexcept {
  interleave_lanes<W>(a, b, low, high, std::make_integer_sequence<int, W>{});
}
#endif

// The place of an element is (row, column) in binary; to interleave the two halves of the rows turns those bits by one, log W times.
template <int W, int Turns, int... Pair>
[[gnu::always_inline]] inline void transpose_turns(register_floats<W>* rows, std::integer_sequence<int, Pair...> pairs) noexcept {
  if constexpr (Turns > 1) {
    register_floats<W> turned[static_cast<std::size_t>(W)];
    (interleave<W>(rows[Pair], rows[Pair + W / 2], turned[2 * Pair], turned[2 * Pair + 1]), ...);
    transpose_turns<W, Turns / 2>(turned, pairs);
    ((rows[2 * Pair] = turned[2 * Pair], rows[2 * Pair + 1] = turned[2 * Pair + 1]), ...);
  }
}

/// Transposes W registers of W lanes in place.
template <int W>
[[gnu::always_inline]] inline void transpose_registers(register_floats<W>* rows) noexcept {
  transpose_turns<W, W>(rows, std::make_integer_sequence<int, W / 2>{});
}

template <int W, int... I>
[[gnu::always_inline]] inline void transpose_square(matrix_view<float const> m, std::int64_t first, std::int64_t column, float factor,
                                                    float* to, std::int64_t stride, std::integer_sequence<int, I...>) noexcept {
  auto const count = m.rows() - first;
  register_floats<W> rows[] = {
      (I < count ? factor * load_register<W>(m.data() + (first + I) * m.stride() + column) : register_floats<W>{})...};
  if constexpr (W > 1) transpose_registers<W>(rows);
  (store_register<W>(to + (column + I) * stride + first, rows[I]), ...);
}

/// Writes to(c, r) = factor * m(r, c), with rows of `stride`; it writes 0 for further r up to the next multiple of W.
template <int W = register_lanes>
void transpose_scaled(matrix_view<float const> m, float factor, float* to, std::int64_t stride, std::int64_t column = 0) noexcept {
  for (; column + W <= m.columns(); column += W)
    for (std::int64_t first = 0; first < m.rows(); first += W)
      transpose_square<W>(m, first, column, factor, to, stride, std::make_integer_sequence<int, W>{});
  if constexpr (W > 1) {
    if (column == m.columns()) return;
    transpose_scaled<W / 2>(m, factor, to, stride, column);
    auto const full = (m.rows() + W - 1) / W * W, written = (m.rows() + W / 2 - 1) / (W / 2) * (W / 2);
    for (; column < m.columns(); ++column) std::fill(to + column * stride + written, to + column * stride + full, 0.0F);
  }
}

}  // namespace detail

}  // namespace TESSERA_ABI
}  // namespace tessera
