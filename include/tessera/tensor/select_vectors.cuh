// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <tessera/core/buffer.hpp>
#include <tessera/core/cuda_execution.cuh>
#include <tessera/core/device.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/faults.hpp>
#include <tessera/core/scan.cuh>
#include <tessera/core/view.hpp>
#include <tessera/tensor/jagged_vectors.cuh>
#include <tessera/tensor/select_vectors.hpp>
#include <tessera/tensor/source_lists.cuh>
#include <tessera/tensor/sum_by_target.cuh>

namespace tessera {
inline namespace TESSERA_ABI {
namespace detail {

inline constexpr fault_kind not_the_length_selected{
    errc::shape_mismatch, "a row of another length than the one selected", {"position", "index", "length", "length expected"}};

template <class Offset>
struct selected_length {
  Offset const* in;
  std::int64_t rows;
  std::int64_t const* indices;
  Offset* lengths;
  std::uint32_t const* invalid;
  fault_reporter missing;

  template <class Block>
  TESSERA_DEVICE void operator()(Block& block, std::int64_t i) const {
    auto const row = indices[i];
    bool const is_row = row >= 0 && row < rows;
    if (!is_row) missing(block, i, i, row, rows);
    lengths[i] = is_row && *invalid == 0 ? static_cast<Offset>(in[row + 1] - in[row]) : Offset{0};
  }
};

// Looks at all positions, whatever others find, so that the first that is wrong is named.
template <class Offset>
struct check_selection {
  Offset const* in;
  Offset const* out;
  std::int64_t rows;
  std::int64_t const* indices;
  std::uint32_t* invalid;
  fault_reporter missing, length;

  template <class Block>
  TESSERA_DEVICE void operator()(Block& block, std::int64_t i) const {
    auto const row = indices[i];
    auto const difference = checked_rows<Offset>::difference;
    if (row < 0 || row >= rows)
      missing(block, i, i, row, rows);
    else if (auto const expected = difference(in[row], in[row + 1]), is = difference(out[i], out[i + 1]); is != expected)
      length(block, i, i, row, is, expected);
    else
      return;
    block.store(invalid, std::uint32_t{1});
  }
};

// Moves 8 * dim bytes a vector, and reads 24 a row.
template <class T, class Offset, class Pack>
struct select_pack {
  using pack_type = Pack;
  jagged_vectors_view<T const, Offset> in;
  std::int64_t const* indices;
  matrix_view<T> out;

  TESSERA_DEVICE Pack read(pack_place const& at) const {
    return read_pack<Pack>(in.values, in.begin_of(indices[at.row]) + at.in_row, at.pack);
  }
  TESSERA_DEVICE void write(pack_place const& at, Pack const& x) const { write_pack(out, at.vector, at.pack, x); }
};

template <device_execution Exec>
struct back_end<select_vectors_tag, Exec> {
  template <class T, class Offset>
  static void offsets(Exec const& exec, rows_check<Exec, Offset>& rows, jagged_vectors_view<T, Offset> in,
                      vector_view<std::int64_t const> indices, vector_view<Offset> offsets) {
    auto const* const invalid = rows.verdict();
    buffer<Offset, Exec> lengths(exec, indices.size());
    launch_for_each(exec, indices.size(),
                    selected_length<Offset>{in.offsets, in.rows, indices.data(), lengths.data(), invalid,
                                            exec.faults(no_such_row).of("select_vectors_offsets", nullptr)});
    lengths_to_offsets(exec, lengths.view(), offsets);
  }

  template <class T, class U, class Offset>
  static void check_lengths(Exec const& exec, char const* call, rows_check<Exec, Offset>& rows, jagged_vectors_view<T, Offset> in,
                            vector_view<std::int64_t const> indices, jagged_vectors_view<U, Offset> out) {
    auto* const invalid = rows.verdict();
    auto const missing = exec.faults(no_such_row).of(call, nullptr);
    launch_for_each(
        exec, indices.size(),
        check_selection<Offset>{in.offsets, out.offsets, in.rows, indices.data(), invalid, missing, missing.as(not_the_length_selected)});
  }

  template <class T, class Offset>
  static void forward(Exec const& exec, rows_check<Exec, Offset>& rows, jagged_vectors_view<T const, Offset> in,
                      vector_view<std::int64_t const> indices, jagged_vectors_view<T, Offset> out) {
    auto const* const invalid = rows.verdict();
    with_packs(
        [&](auto pack, std::int64_t packs) {
          launch_for_packs(exec, rows_by_offsets<Offset>{out.offsets, out.rows}, out.values.rows(), packs, invalid,
                           select_pack<T, Offset, decltype(pack)>{in, indices.data(), out.values});
        },
        in.values, out.values);
  }

  template <class Offset>
  static void backward(Exec const& exec, rows_check<Exec, Offset>& rows, jagged_vectors_view<float const, Offset> gradient,
                       vector_view<std::int64_t const> indices, jagged_vectors_view<float, Offset> in_gradient) {
    source_lists<Exec> const lists(exec, indices, in_gradient.rows);
    sum_by_target(exec, lists.view(), gradient, in_gradient, {.skip = rows.verdict()});
  }
};

}  // namespace detail
}  // namespace TESSERA_ABI
}  // namespace tessera
