// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstdint>

#include <tessera/core/buffer.hpp>
#include <tessera/core/cuda_execution.cuh>
#include <tessera/core/device.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/faults.hpp>
#include <tessera/core/radix_sort.cuh>
#include <tessera/core/scan.cuh>
#include <tessera/core/view.hpp>
#include <tessera/tensor/jagged_vectors.cuh>
#include <tessera/tensor/select_vectors.hpp>

namespace tessera {
inline namespace TESSERA_ABI {
namespace detail {

inline constexpr fault_kind no_such_row{errc::out_of_range, "no such row", {"position", "index", "rows"}};
inline constexpr fault_kind not_the_length_selected{
    errc::shape_mismatch, "a row of another length than the one selected", {"position", "index", "length", "length expected"}};

template <class Offset>
struct selected_length {  // unproven
  Offset const* in;
  std::int64_t rows;
  std::int64_t const* indices;
  Offset* lengths;
  std::uint32_t const* unsound;
  fault_reporter missing;

  template <class Block>
  TESSERA_DEVICE void operator()(Block& block, std::int64_t i) const {
    auto const row = indices[i];
    bool const there = row >= 0 && row < rows;
    if (!there) missing(block, i, i, row, rows);
    lengths[i] = there && *unsound == 0 ? static_cast<Offset>(in[row + 1] - in[row]) : Offset{0};
  }
};

// Looks at all positions, whatever others find, so that the first that is wrong is named.
template <class Offset>
struct check_selection {  // unproven
  Offset const* in;
  Offset const* out;
  std::int64_t rows;
  std::int64_t const* indices;
  std::uint32_t* unsound;
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
    block.store(unsound, std::uint32_t{1});
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

struct number_indices {  // unproven
  std::int64_t const* indices;
  std::int64_t rows;
  std::int64_t* keys;
  std::int64_t* positions;

  TESSERA_DEVICE void operator()(std::int64_t i) const {
    auto const row = indices[i];
    keys[i] = row >= 0 && row < rows ? row : rows;
    positions[i] = i;
  }
};

struct first_source {  // unproven
  std::int64_t const* sorted;
  std::int64_t n;
  std::int64_t* first_of;

  TESSERA_DEVICE void operator()(std::int64_t row) const { first_of[row] = count_below(sorted, n, row); }
};

/// The positions at which each row is selected, ascending: those of row r are positions()[first_of()[r], first_of()[r + 1]). Indices that
/// name no row are nobody's.
template <device_execution Exec>
class sources_by_row {
 public:
  sources_by_row(Exec const& exec, vector_view<std::int64_t const> indices, std::int64_t rows)
      : keys_(exec, indices.size()),
        positions_(exec, indices.size()),
        other_keys_(exec, indices.size()),
        other_positions_(exec, indices.size()),
        first_of_(exec, rows + 1) {
    auto const n = indices.size();
    launch_for_each(exec, n, number_indices{indices.data(), rows, keys_.data(), positions_.data()});
    auto const bits = static_cast<int>(std::bit_width(static_cast<std::uint64_t>(rows)));
    auto const sorted = back_end<radix_sort_tag, Exec>::run_between(exec, keys_.view(), positions_.view(), other_keys_.view(),
                                                                    other_positions_.view(), radix_bits{0, bits});
    sorted_positions_ = sorted.second;
    launch_for_each(exec, rows + 1, first_source{sorted.first, n, first_of_.data()});
  }

  std::int64_t const* positions() const noexcept { return sorted_positions_; }
  std::int64_t const* first_of() const noexcept { return first_of_.data(); }

 private:
  buffer<std::int64_t, Exec> keys_, positions_, other_keys_, other_positions_, first_of_;
  std::int64_t const* sorted_positions_ = nullptr;
};

// The sum of a pack's sources in ascending order of their positions: those of row r are positions[first_of[r], first_of[r + 1]).
template <class Gradient, class Pack>
struct add_sources_pack {
  using pack_type = Pack;
  Gradient gradient;  // rows of vectors
  std::int64_t const* positions;
  std::int64_t const* first_of;
  matrix_view<float> out;

  TESSERA_DEVICE Pack read(pack_place const& at) const {
    auto const first = first_of[at.row], last = first_of[at.row + 1];
    if (first == last) return Pack{};
    auto const source = [&](std::int64_t p) {
      return read_pack<Pack>(gradient.values, gradient.begin_of(positions[p]) + at.in_row, at.pack);
    };
    auto sum = source(first);
    auto const add = [](float a, float b) { return a + b; };
    read_ahead(first + 1, last, source, [&](std::int64_t, Pack const& x) { sum = map_columns(add, sum, x); });
    return sum;
  }
  TESSERA_DEVICE void write(pack_place const& at, Pack const& x) const { write_pack(out, at.vector, at.pack, x); }
};

template <device_execution Exec>
struct back_end<select_vectors_tag, Exec> {
  template <class T, class Offset>
  static void offsets(Exec const& exec, rows_check<Exec, Offset>& rows, jagged_vectors_view<T, Offset> in,
                      vector_view<std::int64_t const> indices, vector_view<Offset> offsets) {
    auto const* const unsound = rows.verdict();
    buffer<Offset, Exec> lengths(exec, indices.size());
    launch_for_each(exec, indices.size(),
                    selected_length<Offset>{in.offsets, in.rows, indices.data(), lengths.data(), unsound,
                                            exec.faults(no_such_row).of("select_vectors_offsets", nullptr)});
    lengths_to_offsets(exec, lengths.view(), offsets);
  }

  template <class T, class U, class Offset>
  static void check_lengths(Exec const& exec, char const* call, rows_check<Exec, Offset>& rows, jagged_vectors_view<T, Offset> in,
                            vector_view<std::int64_t const> indices, jagged_vectors_view<U, Offset> out) {
    auto* const unsound = rows.verdict();
    auto const missing = exec.faults(no_such_row).of(call, nullptr);
    launch_for_each(
        exec, indices.size(),
        check_selection<Offset>{in.offsets, out.offsets, in.rows, indices.data(), unsound, missing, missing.as(not_the_length_selected)});
  }

  template <class T, class Offset>
  static void forward(Exec const& exec, rows_check<Exec, Offset>& rows, jagged_vectors_view<T const, Offset> in,
                      vector_view<std::int64_t const> indices, jagged_vectors_view<T, Offset> out) {
    auto const* const unsound = rows.verdict();
    with_packs(
        [&](auto pack, std::int64_t packs) {
          launch_for_packs(exec, rows_by_offsets<Offset>{out.offsets, out.rows}, out.values.rows(), packs, unsound,
                           select_pack<T, Offset, decltype(pack)>{in, indices.data(), out.values});
        },
        in.values, out.values);
  }

  template <class Offset>
  static void backward(Exec const& exec, rows_check<Exec, Offset>& rows, jagged_vectors_view<float const, Offset> gradient,
                       vector_view<std::int64_t const> indices, jagged_vectors_view<float, Offset> in_gradient) {
    auto const* const unsound = rows.verdict();
    sources_by_row<Exec> const sources(exec, indices, in_gradient.rows);
    with_packs(
        [&](auto pack, std::int64_t packs) {
          launch_for_packs<1>(exec, rows_by_offsets<Offset>{in_gradient.offsets, in_gradient.rows}, in_gradient.values.rows(), packs,
                              unsound,
                              add_sources_pack<jagged_vectors_view<float const, Offset>, decltype(pack)>{
                                  gradient, sources.positions(), sources.first_of(), in_gradient.values});
        },
        gradient.values, in_gradient.values);
  }
};

}  // namespace detail
}  // namespace TESSERA_ABI
}  // namespace tessera
