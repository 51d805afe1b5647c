// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <tessera/core/buffer.hpp>
#include <tessera/core/device.hpp>
#include <tessera/core/faults.hpp>
#include <tessera/core/scan.cuh>
#include <tessera/core/view.hpp>
#include <tessera/tensor/jagged_vectors.cuh>
#include <tessera/tensor/select_slices.hpp>
#include <tessera/tensor/source_lists.cuh>
#include <tessera/tensor/sum_by_target.cuh>

namespace tessera {
inline namespace TESSERA_ABI {
namespace detail {

inline constexpr fault_kind past_the_vectors{
    errc::out_of_range, "a slice that reaches past the vectors", {"slice", "begin", "length", "first value", "vectors"}};
inline constexpr fault_kind not_the_length_of_slice{
    errc::shape_mismatch, "a row of another length than its slice", {"slice", "length", "length expected"}};

template <class Offset>
struct length_of_slice {
  value_range<Offset> const* slices;
  Offset* lengths;

  TESSERA_DEVICE void operator()(std::int64_t i) const { lengths[i] = slices[i].length; }
};

// Looks at all slices, whatever others find, so that the first that is wrong is named.
template <class Offset>
struct check_slice {
  value_range<Offset> const* slices;
  Offset const* offsets;
  std::int64_t first_value, vectors;
  std::uint32_t* invalid;
  fault_reporter past, length;

  template <class Block>
  TESSERA_DEVICE void operator()(Block& block, std::int64_t i) const {
    auto const slice = slices[i];
    if (!slice.is_within(first_value, vectors))
      past(block, i, i, slice.begin, slice.length, first_value, vectors);
    else if (auto const is = checked_rows<Offset>::difference(offsets[i], offsets[i + 1]); is != static_cast<std::int64_t>(slice.length))
      length(block, i, i, is, slice.length);
    else
      return;
    block.store(invalid, std::uint32_t{1});
  }
};

// Moves 8 * dim bytes a vector, and reads 24 a slice.
template <class T, class Offset, class Pack>
struct slice_pack {
  using pack_type = Pack;
  matrix_view<T const> in;
  value_range<Offset> const* slices;
  std::int64_t first_value;
  matrix_view<T> out;

  TESSERA_DEVICE Pack read(pack_place const& at) const {
    return read_pack<Pack>(in, static_cast<std::int64_t>(slices[at.row].begin) - first_value + at.in_row, at.pack);
  }
  TESSERA_DEVICE void write(pack_place const& at, Pack const& x) const { write_pack(out, at.vector, at.pack, x); }
};

/// Which of the vectors each of the gradient's is of; none, where it is in no row or anything is wrong.
template <class Offset>
struct vector_of_gradient {
  rows_by_offsets<Offset> rows;
  value_range<Offset> const* slices;
  std::int64_t first_value;
  std::uint32_t const* invalid;
  std::int64_t* vectors;

  TESSERA_DEVICE void operator()(std::int64_t i) const {
    vectors[i] = -1;
    if (*invalid != 0 || rows.rows == 0 || i < rows.first() || i >= rows.last()) return;
    auto const row = rows.row_of(i, -1);
    vectors[i] = static_cast<std::int64_t>(slices[row].begin) - first_value + (i - rows.begin_of(row));
  }
};

template <device_execution Exec>
struct back_end<select_slices_tag, Exec> {
  template <class Offset>
  static void offsets(Exec const& exec, slices_view<Offset> slices, vector_view<Offset> offsets) {
    buffer<Offset, Exec> lengths(exec, slices.size());
    launch_for_each(exec, slices.size(), length_of_slice<Offset>{slices.data(), lengths.data()});
    lengths_to_offsets(exec, lengths.view(), offsets);
  }

  template <class T, class Offset>
  static void forward(Exec const& exec, rows_check<Exec, Offset>& rows, matrix_view<T const> in, slices_view<Offset> slices,
                      jagged_vectors_view<T, Offset> out, std::int64_t first_value) {
    auto const* const invalid = check(exec, "select_slices", rows, in.rows(), first_value, slices, out.offsets);
    with_packs(
        [&](auto pack, std::int64_t packs) {
          launch_for_packs(exec, rows_by_offsets<Offset>{out.offsets, out.rows}, out.values.rows(), packs, invalid,
                           slice_pack<T, Offset, decltype(pack)>{in, slices.data(), first_value, out.values});
        },
        in, out.values);
  }

  template <class Offset>
  static void backward(Exec const& exec, rows_check<Exec, Offset>& rows, jagged_vectors_view<float const, Offset> gradient,
                       slices_view<Offset> slices, matrix_view<float> in_gradient, std::int64_t first_value) {
    auto const* const invalid = check(exec, "select_slices_backward", rows, in_gradient.rows(), first_value, slices, gradient.offsets);
    buffer<std::int64_t, Exec> vectors(exec, gradient.values.rows());
    launch_for_each(exec, vectors.size(),
                    vector_of_gradient<Offset>{{gradient.offsets, gradient.rows}, slices.data(), first_value, invalid, vectors.data()});
    source_lists<Exec> const lists(exec, vectors.view(), in_gradient.rows());
    target_sums const sums{lists.view(), gradient.values, in_gradient};
    sum_by_target(exec, {&sums, 1}, {.skip = invalid});
  }

 private:
  template <class Offset>
  static std::uint32_t* check(Exec const& exec, char const* call, rows_check<Exec, Offset>& rows, std::int64_t vectors,
                              std::int64_t first_value, slices_view<Offset> slices, Offset const* offsets) {
    auto* const invalid = rows.verdict();
    auto const past = exec.faults(past_the_vectors).of(call, nullptr);
    launch_for_each(exec, slices.size(),
                    check_slice<Offset>{slices.data(), offsets, first_value, vectors, invalid, past, past.as(not_the_length_of_slice)});
    return invalid;
  }
};

}  // namespace detail
}  // namespace TESSERA_ABI
}  // namespace tessera
