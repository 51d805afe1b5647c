// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include <tessera/core/cuda_execution.cuh>
#include <tessera/core/device.hpp>
#include <tessera/core/view.hpp>
#include <tessera/tensor/jagged_softmax.hpp>
#include <tessera/tensor/jagged_vectors.cuh>

namespace tessera {
inline namespace TESSERA_ABI {
namespace detail {

// A thread has a pack of columns of one row, in order, and so has its own sums; neighbours have the columns beside. Each vector is read
// three times and written twice, of which short rows see the device's memory once each: 8 * dim bytes a vector.
template <class Offset, class Pack>
struct softmax_pack {
  static constexpr int columns = columns_of_pack<Pack>;
  jagged_vectors_view<float const, Offset> in;
  jagged_vectors_view<float, Offset> out;
  std::int64_t packs;
  std::uint32_t const* invalid;

  TESSERA_DEVICE void operator()(std::int64_t i) const {
    if (*invalid != 0) return;
    auto const row = i / packs, pack = i % packs, length = in.length(row);
    if (length == 0) return;
    std::int64_t const from = in.begin_of(row), to = out.begin_of(row);
    auto const x = [&](std::int64_t r) { return read_pack<Pack>(in.values, from + r, pack); };
    auto largest = x(0);
    auto const larger = [](float a, float b) { return a < b ? b : a; };
    read_ahead(1, length, x, [&](std::int64_t, Pack const& value) { largest = map_columns(larger, largest, value); });
    double sum[std::size_t{columns}] = {};
    auto const power = [](float value, float most) { return exp_of_negative(value - most); };
    read_ahead(0, length, x, [&](std::int64_t r, Pack const& value) {
      auto const y = map_columns(power, value, largest);
      for (int c = 0; c < columns; ++c) sum[c] += static_cast<double>(column_of(y, c));
      write_pack(out.values, to + r, pack, y);
    });
    Pack scale{};
    for (int c = 0; c < columns; ++c) column_of(scale, c) = static_cast<float>(1.0 / sum[c]);
    auto const scaled = [](float y, float by) { return y * by; };
    read_ahead(
        0, length, [&](std::int64_t r) { return read_pack<Pack>(out.values, to + r, pack); },
        [&](std::int64_t r, Pack const& y) { write_pack(out.values, to + r, pack, map_columns(scaled, y, scale)); });
  }
};

template <class Pack>
struct two_packs {
  Pack y;
  Pack dy;
};

template <class Offset, class Pack>
struct softmax_backward_pack {
  static constexpr int columns = columns_of_pack<Pack>;
  jagged_vectors_view<float const, Offset> out;
  jagged_vectors_view<float const, Offset> gradient;
  jagged_vectors_view<float, Offset> in_gradient;
  std::int64_t packs;
  std::uint32_t const* invalid;

  TESSERA_DEVICE void operator()(std::int64_t i) const {
    if (*invalid != 0) return;
    auto const row = i / packs, pack = i % packs, length = out.length(row);
    std::int64_t const first_y = out.begin_of(row), first_dy = gradient.begin_of(row), to = in_gradient.begin_of(row);
    auto const both = [&](std::int64_t r) {
      return two_packs<Pack>{read_pack<Pack>(out.values, first_y + r, pack), read_pack<Pack>(gradient.values, first_dy + r, pack)};
    };
    double sum[std::size_t{columns}] = {};
    read_ahead(0, length, both, [&](std::int64_t, two_packs<Pack> const& at) {
      for (int c = 0; c < columns; ++c) sum[c] += static_cast<double>(column_of(at.y, c)) * static_cast<double>(column_of(at.dy, c));
    });
    Pack mean{};
    for (int c = 0; c < columns; ++c) column_of(mean, c) = static_cast<float>(sum[c]);
    auto const dx = [](float y, float dy, float average) { return y * (dy - average); };
    read_ahead(0, length, both, [&](std::int64_t r, two_packs<Pack> const& at) {
      write_pack(in_gradient.values, to + r, pack, map_columns(dx, at.y, at.dy, mean));
    });
  }
};

template <device_execution Exec>
struct back_end<jagged_softmax_tag, Exec> {
  template <class Offset>
  static void forward(Exec const& exec, rows_check<Exec, Offset>& rows, jagged_vectors_view<float const, Offset> in,
                      jagged_vectors_view<float, Offset> out) {
    auto const* const invalid = rows.verdict();
    with_packs(
        [&](auto pack, std::int64_t packs) {
          launch_for_each(exec, in.rows * packs, softmax_pack<Offset, decltype(pack)>{in, out, packs, invalid});
        },
        in.values, out.values);
  }

  template <class Offset>
  static void backward(Exec const& exec, rows_check<Exec, Offset>& rows, jagged_vectors_view<float const, Offset> out,
                       jagged_vectors_view<float const, Offset> gradient, jagged_vectors_view<float, Offset> in_gradient) {
    auto const* const invalid = rows.verdict();
    with_packs(
        [&](auto pack, std::int64_t packs) {
          launch_for_each(exec, out.rows * packs,
                          softmax_backward_pack<Offset, decltype(pack)>{out, gradient, in_gradient, packs, invalid});
        },
        out.values, gradient.values, in_gradient.values);
  }
};

}  // namespace detail
}  // namespace TESSERA_ABI
}  // namespace tessera
