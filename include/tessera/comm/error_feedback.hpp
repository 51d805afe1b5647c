// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include <tessera/comm/codec.hpp>
#include <tessera/comm/row_encoding.hpp>
#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/float_bits.hpp>
#include <tessera/core/row_formats.hpp>
#include <tessera/core/view.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// Encodes gradients of dense parameters with what earlier steps left unsent, and keeps what this step leaves.
///
/// It encodes the sums values + residual. Then `residual` becomes the sums less what `decode` makes of `out`. So over many steps the
/// sum of what was sent is the sum of the values within the codec's error of one step, beside the rounding of float sums. Small values
/// arrive that the codec alone would lose each time. That is for values that every step sends anew, such as gradients in an all-reduce.
///
/// - `values` (n, width), `residual` of the same shape, `out` as `encode` takes it; rows may have any strides. The residual belongs to the
/// caller, one a sender and parameter, zeros at first. It goes with the parameter into a checkpoint.
/// - Where a value is not finite, `out` says so as the codec does, and the residual of each element that is then read as infinite or NaN
/// becomes 0. With int8 these are all elements of the row. What was left of them is lost, and the next step begins anew. So no residual
/// stays infinite or NaN; one that comes in so counts as 0.
/// - Sums past the largest float become it. With fp16, what sums have past 65504 stays in the residual.
///
/// On a device nothing waits. @throws tessera::error shape_mismatch for a residual of another shape; and as `encode`.
/// Source: Seide, Fu, Droppo, Li, Yu, "1-bit stochastic gradient descent and its application to data-parallel distributed training of
/// speech DNNs", Interspeech 2014, section 2.1.
template <execution Exec>
void encode_with_feedback(Exec const& exec, codec with, matrix_view<float const> values, matrix_view<float> residual,
                          vector_view<std::byte> out);

namespace detail {

/// The bits of a float, or those of 0 where it is infinite or NaN.
TESSERA_HOST_DEVICE constexpr float finite_or_zero(float value) noexcept {
  auto const bits = float_bits(value);
  return float_of_bits(select((bits & float_magnitude) < float_infinity, bits, 0));
}

/// What is to be sent of a value: with the residual, and finite where the value is.
struct sum_to_send {
  TESSERA_HOST_DEVICE constexpr float operator()(float value, float residual) const noexcept {
    auto const sum = float_bits(value + finite_or_zero(residual)), sign = sum & ~float_magnitude;
    bool const overflows = ((sum & float_magnitude) == float_infinity) & (magnitude_of(value) < float_infinity);
    return float_of_bits(select(overflows, sign | (float_infinity - 1), sum));
  }
};

/// What is left of a sum of which this was sent; 0 where either is not finite. The product in `decode` is exact, so that it may be fused
/// with this difference.
struct left_unsent {
  static constexpr bool reads = true;
  TESSERA_HOST_DEVICE constexpr float operator()(float sum, float sent) const noexcept { return finite_or_zero(sum - sent); }
};

struct error_feedback_tag {};

template <>
struct back_end<error_feedback_tag, host_exec> {
  template <class Encoding>
  static void encode(host_exec const& exec, matrix_view<float const> values, matrix_view<float> residual, std::byte* out) {
    using rows = back_end<codec_tag, host_exec>;
    auto const width = values.columns();
    rows::for_each_part<Encoding>(exec, values.rows(), width, [&](std::int64_t r, std::int64_t first, std::int64_t last) {
      auto* const row = out + r * encoded_row_bytes<Encoding>(width);
      auto* const sums = residual.data() + r * residual.stride();
      add(values.data() + r * values.stride() + first, last - first, sums + first);
      rows::encode_part<Encoding>(sums, width, first, last, {row});
      rows::decode_part<Encoding>({row}, first, last, sums, left_unsent{});
    });
  }

 private:
  static void add(float const* __restrict values, std::int64_t n, float* __restrict residual) noexcept {
    for (std::int64_t i = 0; i < n; ++i) residual[i] = sum_to_send{}(values[i], residual[i]);
  }
};

}  // namespace detail

template <execution Exec>
void encode_with_feedback(Exec const& exec, codec with, matrix_view<float const> values, matrix_view<float> residual,
                          vector_view<std::byte> out) {
  if (residual.rows() != values.rows() || residual.columns() != values.columns())
    throw error(errc::shape_mismatch, "encode_with_feedback: the residual is of another shape than the values",
                {{"rows", residual.rows()},
                 {"columns", residual.columns()},
                 {"expected rows", values.rows()},
                 {"expected columns", values.columns()}});
  detail::check_encoded("encode_with_feedback", with, values.rows(), values.columns(), out);
  if (out.empty()) return;
  detail::with_row_encoding("encode_with_feedback", with, [&]<class Encoding>(Encoding) {
    auto const from = detail::joined_rows<Encoding>(values);
    auto const left = detail::joined_rows<Encoding>(residual);
    using back_end = detail::back_end<detail::error_feedback_tag, Exec>;
    if (from.rows() == left.rows())
      back_end::template encode<Encoding>(exec, from, left, out.data());
    else
      back_end::template encode<Encoding>(exec, values, residual, out.data());
  });
}

}  // namespace TESSERA_ABI
}  // namespace tessera
