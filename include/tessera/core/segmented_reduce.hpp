// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// The sum of two values, a reduction operator for host and device.
struct plus {
  template <class T>
  TESSERA_HOST_DEVICE constexpr T operator()(T a, T b) const noexcept {
    return static_cast<T>(a + b);
  }
};
/// The greater of two values, a reduction operator for host and device.
struct maximum {
  template <class T>
  TESSERA_HOST_DEVICE constexpr T operator()(T a, T b) const noexcept {
    return a < b ? b : a;
  }
};

/// Folds each segment in index order: out[i] = op(… op(op(initial, v[offsets[i]]), …), v[offsets[i + 1] - 1]); `initial` where the segment
/// is empty. `offsets` (n + 1,), non-decreasing; `out` (n,). It folds in `out`'s type.
///
/// On a device, sums and maxima of integers of 4 or 8 bytes are folded in any order, which gives the same bits. `op` is a named type with a
/// call for host and device. Only a checked build synchronises.
/// @throws tessera::error shape_mismatch; in a checked build invalid_argument naming a segment whose offsets are negative or decrease.
template <execution Exec, class T, class Offset, class Result, class Op = plus>
void segmented_reduce(Exec const& exec, T const* values, vector_view<Offset> offsets, vector_view<Result> out,
                      std::type_identity_t<Result> initial = {}, Op op = {});

namespace detail {

template <class T, class Offset, class Result, class Op>
TESSERA_HOST_DEVICE constexpr Result reduce_segment(T const* values, Offset first, Offset last, Result result, Op op) noexcept {
  for (; first < last; ++first) result = op(result, static_cast<Result>(values[first]));
  return result;
}

struct segmented_reduce_tag {};

inline constexpr std::int64_t segments_per_piece = 1024;

template <>
struct back_end<segmented_reduce_tag, host_exec> {
  template <class T, class Offset, class Result, class Op>
  static void run(host_exec const& exec, T const* values, vector_view<Offset const> offsets, vector_view<Result> out, Result initial,
                  Op op) {
    if constexpr (checked) {
      for (std::int64_t i = 0; i < out.size(); ++i)
        if (offsets[i] < 0 || offsets[i + 1] < offsets[i])
          throw error(errc::invalid_argument, "segmented_reduce: offsets are negative or decrease",
                      {{"segment", i}, {"offset", offsets[i]}, {"next offset", offsets[i + 1]}});
    }
    for_each_piece(exec, out.size(), segments_per_piece, [&](std::int64_t first, std::int64_t last) {
      for (auto i = first; i < last; ++i) out[i] = reduce_segment(values, offsets[i], offsets[i + 1], initial, op);
    });
  }
};

}  // namespace detail

template <execution Exec, class T, class Offset, class Result, class Op>
void segmented_reduce(Exec const& exec, T const* values, vector_view<Offset> offsets, vector_view<Result> out,
                      std::type_identity_t<Result> initial, Op op) {
  if (offsets.size() != out.size() + 1)
    throw error(errc::shape_mismatch, "segmented_reduce: one offset more than segments",
                {{"offsets", offsets.size()}, {"segments", out.size()}});
  detail::back_end<detail::segmented_reduce_tag, Exec>::run(exec, values, vector_view<Offset const>{offsets.data(), offsets.size()}, out,
                                                            initial, op);
}

}  // namespace TESSERA_ABI
}  // namespace tessera
