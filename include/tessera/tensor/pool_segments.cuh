// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <tessera/core/cuda_execution.cuh>
#include <tessera/core/device.hpp>
#include <tessera/core/view.hpp>
#include <tessera/tensor/jagged_vectors.cuh>
#include <tessera/tensor/pool_segments.hpp>

namespace tessera {
inline namespace TESSERA_ABI {
namespace detail {

// A thread has a pack of columns of one row, whose vectors it takes in order; neighbours have the columns beside. So each vector is read
// once: 4 * dim bytes of it, and as many a row written, beside the offsets' 8.
template <class Offset, class Pack>
struct pool_pack {
  jagged_vectors_view<float const, Offset> in;
  segment_pooling mode;
  matrix_view<float> out;
  std::int64_t packs;
  std::uint32_t const* invalid;

  TESSERA_DEVICE void operator()(std::int64_t i) const {
    if (*invalid != 0) return;
    auto const row = i / packs, pack = i % packs, first = static_cast<std::int64_t>(in.begin_of(row)), length = in.length(row);
    write_pack(out, row, pack, length == 0 ? Pack{} : pooled(first, first + length, pack));
  }

  TESSERA_DEVICE Pack pooled(std::int64_t first, std::int64_t last, std::int64_t pack) const {
    auto const read = [&](std::int64_t vector) { return read_pack<Pack>(in.values, vector, pack); };
    auto result = read(first);
    if (mode == segment_pooling::max) {
      auto const larger = [](float largest, float x) { return is_larger(x, largest) ? x : largest; };
      read_ahead(first + 1, last, read, [&](std::int64_t, Pack const& x) { result = map_columns(larger, result, x); });
      return result;
    }
    auto const add = [](float sum, float x) { return sum + x; };
    read_ahead(first + 1, last, read, [&](std::int64_t, Pack const& x) { result = map_columns(add, result, x); });
    auto const scale = mode == segment_pooling::mean ? 1.0F / static_cast<float>(last - first) : 1.0F;
    return map_columns([=](float x) { return x * scale; }, result);
  }
};

// Of a column's largest values the first gets the gradient; the same thread has written its 0 before.
template <class Offset, class Pack>
struct give_to_largest {
  jagged_vectors_view<float const, Offset> in;
  matrix_view<float const> gradient;
  jagged_vectors_view<float, Offset> out;
  std::int64_t packs;
  std::uint32_t const* invalid;

  TESSERA_DEVICE void operator()(std::int64_t i) const {
    if (*invalid != 0) return;
    auto const row = i / packs, pack = i % packs, length = in.length(row);
    if (length == 0) return;
    auto const read = [&](std::int64_t r) { return read_pack<Pack>(in.values, in.begin_of(row) + r, pack); };
    std::int64_t const to = out.begin_of(row);
    Pack largest{};
    std::int64_t where[columns_of_pack<Pack>] = {};
    read_ahead(0, length, read, [&](std::int64_t r, Pack const& x) {
      write_pack(out.values, to + r, pack, Pack{});
      for (int c = 0; c < columns_of_pack<Pack>; ++c)
        if (r == 0 || is_larger(column_of(x, c), column_of(largest, c))) {
          column_of(largest, c) = column_of(x, c);
          where[c] = r;
        }
    });
    auto const given = read_pack<Pack>(gradient, row, pack);
    for (int c = 0; c < columns_of_pack<Pack>; ++c) out.values(to + where[c], pack * columns_of_pack<Pack> + c) = column_of(given, c);
  }
};

template <class Offset, class Pack>
struct spread_pack {
  using pack_type = Pack;
  matrix_view<float const> gradient;
  bool mean;
  jagged_vectors_view<float, Offset> out;

  TESSERA_DEVICE Pack read(pack_place const& at) const { return read_pack<Pack>(gradient, at.row, at.pack); }
  TESSERA_DEVICE void write(pack_place const& at, Pack const& x) const {
    auto const scale = mean ? 1.0F / static_cast<float>(out.length(at.row)) : 1.0F;
    write_pack(out.values, at.vector, at.pack, map_columns([=](float y) { return scale * y; }, x));
  }
};

template <device_execution Exec>
struct back_end<pool_segments_tag, Exec> {
  template <class Offset>
  static void forward(Exec const& exec, rows_check<Exec, Offset>& rows, jagged_vectors_view<float const, Offset> in, segment_pooling mode,
                      matrix_view<float> out) {
    auto const* const invalid = rows.verdict();
    with_packs(
        [&](auto pack, std::int64_t packs) {
          launch_for_each(exec, in.rows * packs, pool_pack<Offset, decltype(pack)>{in, mode, out, packs, invalid});
        },
        in.values, out);
  }

  template <class Offset>
  static void spread(Exec const& exec, rows_check<Exec, Offset>& rows, matrix_view<float const> gradient, bool mean,
                     jagged_vectors_view<float, Offset> out) {
    auto const* const invalid = rows.verdict();
    with_packs(
        [&](auto pack, std::int64_t packs) {
          launch_for_packs(exec, rows_by_offsets<Offset>{out.offsets, out.rows}, out.values.rows(), packs, invalid,
                           spread_pack<Offset, decltype(pack)>{gradient, mean, out});
        },
        gradient, out.values);
  }

  template <class Offset>
  static void backward_of_max(Exec const& exec, rows_check<Exec, Offset>& rows, jagged_vectors_view<float const, Offset> in,
                              matrix_view<float const> gradient, jagged_vectors_view<float, Offset> out) {
    auto const* const invalid = rows.verdict();
    with_packs(
        [&](auto pack, std::int64_t packs) {
          launch_for_each(exec, in.rows * packs, give_to_largest<Offset, decltype(pack)>{in, gradient, out, packs, invalid});
        },
        in.values, gradient, out.values);
  }
};

}  // namespace detail
}  // namespace TESSERA_ABI
}  // namespace tessera
