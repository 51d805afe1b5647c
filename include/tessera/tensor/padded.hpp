// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <utility>

#include <tessera/core/buffer.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>
#include <tessera/tensor/jagged.hpp>
#include <tessera/tensor/row_copies.hpp>
#include <tessera/tensor/truncate_rows.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// Writes rows of numbers as a matrix: row i of `out` has the first or the last values of row i, and then `padding`.
///
/// `out` (rows, any) takes at most as many values of a row as it has columns. @post where nothing was cut, `from_padded` by the rows'
/// lengths gives `in` again; of a gradient it is the backward. Where rows were cut, `gather_backward` of `truncate_rows` follows. @throws
/// tessera::error shape_mismatch.
template <execution Exec, class T, class Offset>
void to_padded(Exec const& exec, jagged_view<T, Offset> in, matrix_view<std::remove_const_t<T>> out, std::remove_const_t<T> padding,
               kept_values kept = kept_values::first);

/// Reads the first lengths[i] numbers of each row i of a matrix, as a `jagged`.
///
/// `in` (rows, columns), `lengths` (rows,), whose type is that of the result's offsets. The result's memory is `exec`'s; on a device it has
/// room for all of the matrix, unless `room` gives less. @post `to_padded` of the result gives `in` again, up to the padding; with padding
/// 0 it is the backward. @throws tessera::error out_of_range naming a row whose length is negative or more than the columns,
/// shape_mismatch.
template <execution Exec, class T, class Lengths>
auto from_padded(Exec const& exec, matrix_view<T> in, Lengths const& lengths, result_room room = {});

namespace detail {

struct padded_tag {};

inline constexpr std::int64_t padded_rows_per_piece = 512;

template <>
struct back_end<padded_tag, host_exec> {
  template <class T, class Offset>
  static void to(host_exec const& exec, jagged_view<T, Offset> in, matrix_view<std::remove_const_t<T>> out, std::remove_const_t<T> padding,
                 kept_values kept) {
    check_rows("to_padded", "in", in);
    for_each_piece(exec, in.rows, padded_rows_per_piece, [&](std::int64_t first, std::int64_t last) {
      for (auto row = first; row < last; ++row) {
        auto const length = std::min(in.length(row), out.columns());
        auto const begin = kept_range(in.begin_of(row), in.end_of(row), length, kept).begin;
        auto* const to = std::copy_n(in.values + begin, length, out.row(row));
        std::fill_n(to, out.columns() - length, padding);
      }
    });
  }

  template <class T, class Offset>
  static jagged<std::remove_const_t<T>, Offset> from(host_exec const& exec, matrix_view<T> in, vector_view<Offset const> lengths,
                                                     result_room room) {
    for (std::int64_t row = 0; row < lengths.size(); ++row)
      if (lengths[row] < 0 || lengths[row] > in.columns())
        throw error(errc::out_of_range, "from_padded: no such length", {{"row", row}, {"length", lengths[row]}, {"columns", in.columns()}});
    auto result = jagged<std::remove_const_t<T>, Offset>::with_lengths(exec, lengths);
    check_room("from_padded", result.size(), room);
    auto const out = result.view();
    for_each_piece(exec, lengths.size(), padded_rows_per_piece, [&](std::int64_t first, std::int64_t last) {
      for (auto row = first; row < last; ++row) std::copy_n(in.row(row), lengths[row], out.row(row).data());
    });
    return result;
  }
};

}  // namespace detail

template <execution Exec, class T, class Offset>
void to_padded(Exec const& exec, jagged_view<T, Offset> in, matrix_view<std::remove_const_t<T>> out, std::remove_const_t<T> padding,
               kept_values kept) {
  detail::check_choice("to_padded", "kept", kept, kept_values::last);
  if (in.rows != out.rows())
    throw error(errc::shape_mismatch, "to_padded: one row of the matrix a row", {{"rows", in.rows}, {"rows of the matrix", out.rows()}});
  if (out.stride() < out.columns())
    throw error(errc::shape_mismatch, "to_padded: rows of the matrix overlap", {{"columns", out.columns()}, {"stride", out.stride()}});
  detail::back_end<detail::padded_tag, Exec>::to(exec, in, out, padding, kept);
}

template <execution Exec, class T, class Lengths>
auto from_padded(Exec const& exec, matrix_view<T> in, Lengths const& lengths, result_room room) {
  vector_view const list(lengths);
  using offset = std::remove_cvref_t<decltype(list[0])>;
  if (list.size() != in.rows())
    throw error(errc::shape_mismatch, "from_padded: one length a row", {{"rows", in.rows()}, {"lengths", list.size()}});
  return detail::back_end<detail::padded_tag, Exec>::from(exec, in, vector_view<offset const>(list), room);
}

}  // namespace TESSERA_ABI
}  // namespace tessera
