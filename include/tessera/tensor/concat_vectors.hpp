// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <type_traits>

#include <tessera/core/buffer.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/for_each_index.hpp>
#include <tessera/core/scan.hpp>
#include <tessera/core/view.hpp>
#include <tessera/tensor/jagged_vectors.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// Writes the offsets of the rows that `concat_vectors` puts together, from 0.
///
/// `in` (parts,), rows of vectors, as many rows each; `offsets` (rows + 1,). @throws tessera::error shape_mismatch.
template <execution Exec, class Offset>
void concat_vectors_offsets(Exec const& exec, vector_view<jagged_vectors_view<float const, Offset> const> in,
                            std::type_identity_t<vector_view<Offset>> offsets);

/// Puts rows of vectors together: row r of the result is row r of the first part, then of the second, and so on. Several features become
/// one sequence.
///
/// `in` (parts,), of one dim and number of rows; `out` has rows as long as `concat_vectors_offsets` says. @post `split_vectors` of `out`
/// gives the parts again. @throws tessera::error shape_mismatch naming a row of another length; nothing is written then.
template <execution Exec, class Offset>
void concat_vectors(Exec const& exec, vector_view<jagged_vectors_view<float const, Offset> const> in,
                    jagged_vectors_view<float, Offset> out);

/// Cuts rows that `concat_vectors` put together: `in` as it made them, `out` (parts,) of the parts' lengths. Also the backward of
/// `concat_vectors`.
///
/// @post concat_vectors(split_vectors(x)) == x. @throws tessera::error as `concat_vectors`.
template <execution Exec, class Offset>
void split_vectors(Exec const& exec, std::type_identity_t<jagged_vectors_view<float const, Offset>> in,
                   vector_view<jagged_vectors_view<float, Offset> const> out);

namespace detail {

struct concat_vectors_tag {};

template <>
struct back_end<concat_vectors_tag, host_exec> {
  static constexpr std::int64_t rows_per_piece = 512;

  template <class Offset>
  static void offsets(host_exec const& exec, vector_view<jagged_vectors_view<float const, Offset> const> in, vector_view<Offset> offsets) {
    auto const rows = offsets.size() - 1;
    buffer<Offset> lengths(exec, rows);
    for_each_piece(exec, rows, rows_per_piece, [&](std::int64_t first, std::int64_t last) {
      std::fill(lengths.data() + first, lengths.data() + last, Offset{0});
      for (auto const& part : in)
        for (auto row = first; row < last; ++row) lengths[row] = static_cast<Offset>(lengths[row] + part.length(row));
    });
    lengths_to_offsets(exec, lengths.view(), offsets);
  }

  // That each row of the whole is as long as those of its parts.
  template <class Part, class Whole>
  static void check_lengths(host_exec const& exec, char const* call, vector_view<Part const> parts, Whole whole) {
    for_each_index(exec, whole.rows, rows_per_piece, [&](std::int64_t row) {
      std::int64_t length = 0;
      for (auto const& part : parts) length += part.length(row);
      if (whole.length(row) != length)
        throw error(errc::shape_mismatch, std::string(call) + ": a row of another length than its parts have",
                    {{"row", row}, {"length", whole.length(row)}, {"length expected", length}});
    });
  }

  // Calls copy(part's vectors, vectors of the whole) for each part of each row.
  template <class Part, class Whole, class Copy>
  static void for_each_part(host_exec const& exec, vector_view<Part const> parts, Whole whole, Copy const& copy) {
    for_each_row_block(exec, whole.offsets, whole.rows, vectors_per_piece(whole.dim()), [&](std::int64_t first, std::int64_t last) {
      for (auto row = first; row < last; ++row) {
        std::int64_t at = whole.begin_of(row);
        for (auto const& part : parts) {
          copy(part.row(row), whole.values.rows_from(at, part.length(row)));
          at += part.length(row);
        }
      }
    });
  }
};

template <class Exec, class Part, class Whole>
void check_concat_vectors(Exec const& exec, char const* call, vector_view<Part const> parts, Whole whole) {
  check_jagged_vectors(call, "whole", whole);
  for (auto const& part : parts) {
    check_jagged_vectors(call, "part", part);
    check_extent(call, "rows", part.rows, whole.rows);
    check_extent(call, "dim", part.dim(), whole.dim());
  }
  back_end<concat_vectors_tag, Exec>::check_lengths(exec, call, parts, whole);
}

}  // namespace detail

template <execution Exec, class Offset>
void concat_vectors_offsets(Exec const& exec, vector_view<jagged_vectors_view<float const, Offset> const> in,
                            std::type_identity_t<vector_view<Offset>> offsets) {
  if (offsets.empty()) throw error(errc::shape_mismatch, "concat_vectors_offsets: an offset more than rows", {{"offsets", 0}});
  for (auto const& part : in) {
    detail::check_jagged_vectors("concat_vectors_offsets", "part", part);
    detail::check_extent("concat_vectors_offsets", "rows", part.rows, offsets.size() - 1);
  }
  detail::back_end<detail::concat_vectors_tag, Exec>::offsets(exec, in, offsets);
}

template <execution Exec, class Offset>
void concat_vectors(Exec const& exec, vector_view<jagged_vectors_view<float const, Offset> const> in,
                    jagged_vectors_view<float, Offset> out) {
  detail::check_concat_vectors(exec, "concat_vectors", in, out);
  detail::back_end<detail::concat_vectors_tag, Exec>::for_each_part(
      exec, in, out, [](matrix_view<float const> part, matrix_view<float> whole) { detail::copy_vectors(part, whole); });
}

template <execution Exec, class Offset>
void split_vectors(Exec const& exec, std::type_identity_t<jagged_vectors_view<float const, Offset>> in,
                   vector_view<jagged_vectors_view<float, Offset> const> out) {
  detail::check_concat_vectors(exec, "split_vectors", out, in);
  detail::back_end<detail::concat_vectors_tag, Exec>::for_each_part(
      exec, out, in, [](matrix_view<float> part, matrix_view<float const> whole) { detail::copy_vectors(whole, part); });
}

}  // namespace TESSERA_ABI
}  // namespace tessera
