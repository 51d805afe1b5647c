// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include <tessera/comm/codec.cuh>
#include <tessera/comm/error_feedback.hpp>
#include <tessera/core/cuda_execution.cuh>
#include <tessera/core/device.hpp>
#include <tessera/core/four_elements.hpp>
#include <tessera/core/view.hpp>

namespace tessera {
inline namespace TESSERA_ABI {
namespace detail {

// One four a thread, added in place. Encoding and what is left follow in launches of their own: in all, 5 floats are moved an element.
struct add_values {
  matrix_view<float const> values;
  matrix_view<float> residual;
  bool values_at_once, residual_at_once;

  TESSERA_DEVICE void operator()(std::int64_t i) const {
    auto const fours = divide_up(values.columns(), 4), r = i / fours, c = i % fours * 4, count = values.columns() - c;
    auto const added = read_four<float>(values.data() + r * values.stride() + c, count, values_at_once);
    auto* const to = residual.data() + r * residual.stride() + c;
    auto sums = read_four<float>(to, count, residual_at_once);
    for (int k = 0; k < 4; ++k) sums[k] = sum_to_send{}(added[k], sums[k]);
    write_four(to, sums, count, residual_at_once);
  }
};

template <device_execution Exec>
struct back_end<error_feedback_tag, Exec> {
  template <class Encoding>
  static void encode(Exec const& exec, matrix_view<float const> values, matrix_view<float> residual, std::byte* out) {
    auto const at_once = [](auto rows) { return moves_by_four(rows.data(), rows.columns(), rows.stride()); };
    launch_for_each(exec, values.rows() * divide_up(values.columns(), 4), add_values{values, residual, at_once(values), at_once(residual)});
    using rows = back_end<codec_tag, Exec>;
    rows::template encode<Encoding>(exec, residual, out);
    rows::template decode<Encoding>(exec, out, residual, left_unsent{});
  }
};

}  // namespace detail
}  // namespace TESSERA_ABI
}  // namespace tessera
