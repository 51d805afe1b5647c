// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <tessera/core/cuda_execution.cuh>
#include <tessera/core/device.hpp>
#include <tessera/core/view.hpp>
#include <tessera/tensor/jagged_vectors.cuh>
#include <tessera/tensor/vector_arithmetic.hpp>

namespace tessera {
inline namespace TESSERA_ABI {
namespace detail {

// Each of these moves 12 * dim bytes a vector of the result, beside 16 a row.
template <class Offset, class Pack, class Operation>
struct combine_with_padded {
  using pack_type = Pack;
  jagged_vectors_view<float const, Offset> in;
  matrix_view<float const> padded;
  std::int64_t width;
  matrix_view<float> out;
  Operation operation;

  TESSERA_DEVICE Pack read(pack_place const& at) const {
    auto const a = read_pack<Pack>(in.values, in.begin_of(at.row) + at.in_row, at.pack);
    auto const b = at.in_row < width ? read_pack<Pack>(padded, at.row * width + at.in_row, at.pack) : Pack{};
    return map_columns(operation, a, b);
  }
  TESSERA_DEVICE void write(pack_place const& at, Pack const& x) const { write_pack(out, at.vector, at.pack, x); }
};

template <class Offset, class Pack, class Operation>
struct combine_with_jagged {
  using pack_type = Pack;
  jagged_vectors_view<float const, Offset> in;
  jagged_vectors_view<float const, Offset> other;
  matrix_view<float> out;
  Operation operation;

  TESSERA_DEVICE Pack read(pack_place const& at) const {
    auto const a = read_pack<Pack>(in.values, in.begin_of(at.row) + at.in_row, at.pack);
    auto const b = read_pack<Pack>(other.values, other.begin_of(at.row) + at.in_row, at.pack);
    return map_columns(operation, a, b);
  }
  TESSERA_DEVICE void write(pack_place const& at, Pack const& x) const { write_pack(out, at.vector, at.pack, x); }
};

template <class Offset, class Pack>
struct padded_product_pack {
  using pack_type = Pack;
  jagged_vectors_view<float const, Offset> a;
  jagged_vectors_view<float const, Offset> b;
  matrix_view<float> out;

  TESSERA_DEVICE Pack read(pack_place const& at) const {
    if (at.in_row >= a.length(at.row)) return Pack{};
    return map_columns(multiply_elements{}, read_pack<Pack>(a.values, a.begin_of(at.row) + at.in_row, at.pack),
                       read_pack<Pack>(b.values, b.begin_of(at.row) + at.in_row, at.pack));
  }
  TESSERA_DEVICE void write(pack_place const& at, Pack const& x) const { write_pack(out, at.vector, at.pack, x); }
};

template <device_execution Exec>
struct back_end<combine_vectors_tag, Exec> {
  template <class Offset, class Operation>
  static void with_padded(Exec const& exec, rows_check<Exec, Offset>& rows, jagged_vectors_view<float const, Offset> in,
                          matrix_view<float const> padded, std::int64_t width, jagged_vectors_view<float, Offset> out,
                          Operation operation) {
    auto const* const invalid = rows.verdict();
    with_packs(
        [&](auto pack, std::int64_t packs) {
          launch_for_packs(exec, rows_by_offsets<Offset>{out.offsets, out.rows}, out.values.rows(), packs, invalid,
                           combine_with_padded<Offset, decltype(pack), Operation>{in, padded, width, out.values, operation});
        },
        in.values, padded, out.values);
  }

  template <class Offset, class Operation>
  static void with_jagged(Exec const& exec, rows_check<Exec, Offset>& rows, jagged_vectors_view<float const, Offset> in,
                          jagged_vectors_view<float const, Offset> other, jagged_vectors_view<float, Offset> out, Operation operation) {
    auto const* const invalid = rows.verdict();
    with_packs(
        [&](auto pack, std::int64_t packs) {
          launch_for_packs(exec, rows_by_offsets<Offset>{out.offsets, out.rows}, out.values.rows(), packs, invalid,
                           combine_with_jagged<Offset, decltype(pack), Operation>{in, other, out.values, operation});
        },
        in.values, other.values, out.values);
  }

  template <class Offset>
  static void padded_product(Exec const& exec, rows_check<Exec, Offset>& rows, jagged_vectors_view<float const, Offset> a,
                             jagged_vectors_view<float const, Offset> b, std::int64_t width, matrix_view<float> out) {
    auto const* const invalid = rows.verdict();
    with_packs(
        [&](auto pack, std::int64_t packs) {
          launch_for_packs(exec, rows_by_width{width, a.rows}, out.rows(), packs, invalid,
                           padded_product_pack<Offset, decltype(pack)>{a, b, out});
        },
        a.values, b.values, out);
  }
};

}  // namespace detail
}  // namespace TESSERA_ABI
}  // namespace tessera
