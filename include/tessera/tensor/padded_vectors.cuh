// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <tessera/core/cuda_execution.cuh>
#include <tessera/core/device.hpp>
#include <tessera/core/view.hpp>
#include <tessera/tensor/jagged_vectors.cuh>
#include <tessera/tensor/padded_vectors.hpp>

namespace tessera {
inline namespace TESSERA_ABI {
namespace detail {

template <class Pack>
TESSERA_DEVICE Pack filled_pack(float value) {
  return map_columns([=](float) { return value; }, Pack{});
}

// Writes 4 * dim bytes a vector of the result and reads as many of each vector that is there, beside 16 a row.
template <class Offset, class Pack>
struct to_padded_pack {
  using pack_type = Pack;
  jagged_vectors_view<float const, Offset> in;
  std::int64_t width;
  matrix_view<float> out;
  padded_vectors_options options;

  TESSERA_DEVICE Pack read(pack_place const& at) const {
    auto const length = in.length(at.row);
    if (at.in_row >= length) return filled_pack<Pack>(options.padding);
    return read_pack<Pack>(in.values, in.begin_of(at.row) + first_kept(length, width, options.keep) + at.in_row, at.pack);
  }
  TESSERA_DEVICE void write(pack_place const& at, Pack const& x) const { write_pack(out, at.vector, at.pack, x); }
};

template <class Offset, class Pack>
struct from_padded_pack {
  using pack_type = Pack;
  matrix_view<float const> in;
  std::int64_t width;
  jagged_vectors_view<float, Offset> out;
  kept_values keep;

  TESSERA_DEVICE Pack read(pack_place const& at) const {
    auto const j = at.in_row - first_kept(out.length(at.row), width, keep);
    return j < 0 || j >= width ? Pack{} : read_pack<Pack>(in, at.row * width + j, at.pack);
  }
  TESSERA_DEVICE void write(pack_place const& at, Pack const& x) const { write_pack(out.values, at.vector, at.pack, x); }
};

template <device_execution Exec>
struct back_end<padded_vectors_tag, Exec> {
  template <class Offset>
  static void to_padded(Exec const& exec, rows_check<Exec, Offset>& rows, jagged_vectors_view<float const, Offset> in, std::int64_t width,
                        matrix_view<float> out, padded_vectors_options const& options) {
    auto const* const invalid = rows.verdict();
    with_packs(
        [&](auto pack, std::int64_t packs) {
          launch_for_packs(exec, rows_by_width{width, in.rows}, out.rows(), packs, invalid,
                           to_padded_pack<Offset, decltype(pack)>{in, width, out, options});
        },
        in.values, out);
  }

  template <class Offset>
  static void from_padded(Exec const& exec, rows_check<Exec, Offset>& rows, matrix_view<float const> in, std::int64_t width,
                          jagged_vectors_view<float, Offset> out, kept_values keep) {
    auto const* const invalid = rows.verdict();
    with_packs(
        [&](auto pack, std::int64_t packs) {
          launch_for_packs(exec, rows_by_offsets<Offset>{out.offsets, out.rows}, out.values.rows(), packs, invalid,
                           from_padded_pack<Offset, decltype(pack)>{in, width, out, keep});
        },
        in, out.values);
  }
};

}  // namespace detail
}  // namespace TESSERA_ABI
}  // namespace tessera
