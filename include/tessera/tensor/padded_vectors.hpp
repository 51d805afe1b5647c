// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/streamed_copy.hpp>
#include <tessera/core/view.hpp>
#include <tessera/tensor/jagged_vectors.hpp>
#include <tessera/tensor/row_copies.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// How rows of vectors fit a width.
struct padded_vectors_options {
  float padding = 0;                      // fills a row that is shorter than the width, behind its vectors; 0 where one reads
  kept_values keep = kept_values::first;  // which vectors of a row that is longer
};

/// Writes rows of vectors as a dense (rows, width, dim): a longer row is cut, a shorter one padded behind. As FBGEMM's jagged_2d_to_dense,
/// which keeps the first and pads with 0.
///
/// `in` is float; `out` (rows * width, dim), of any row stride, does not overlap `in`, and its rows give the width. Vector j of row i
/// becomes row i * width + j of `out`, also where the last vectors are kept. @post where nothing was cut, `from_padded_vectors(exec, out,
/// x, options)` into rows of the same lengths gives `in` again. The backward is `from_padded_vectors(exec, gradient, in_gradient,
/// options)`. On a device nothing waits; what offsets show is thrown when the execution synchronises, and nothing is written then. @throws
/// tessera::error shape_mismatch, invalid_argument, out_of_range for offsets past the values.
template <execution Exec, class T, class Offset>
void to_padded_vectors(Exec const& exec, jagged_vectors_view<T, Offset> in, matrix_view<float> out, padded_vectors_options options = {});

/// Reads rows of vectors from a dense (rows, width, dim); vectors that the width cut off become 0. As FBGEMM's dense_to_jagged.
///
/// `in` (rows * width, dim), of any row stride; `out` has the lengths to be read, and does not overlap `in`. Of `options`, `keep` says
/// which vectors the width kept. The backward is `to_padded_vectors(exec, gradient, in_gradient, {.keep})`, padded with 0. @throws
/// tessera::error as `to_padded_vectors`.
template <execution Exec, class Offset>
void from_padded_vectors(Exec const& exec, matrix_view<float const> in, jagged_vectors_view<float, Offset> out,
                         padded_vectors_options options = {});

namespace detail {

struct padded_vectors_tag {};

/// The first vector of a row that the width keeps.
TESSERA_HOST_DEVICE constexpr std::int64_t first_kept(std::int64_t length, std::int64_t width, kept_values keep) noexcept {
  return keep == kept_values::last && length > width ? length - width : 0;
}

template <>
struct back_end<padded_vectors_tag, host_exec> {
  template <class Offset>
  static void to_padded(host_exec const& exec, rows_check<host_exec, Offset>&, jagged_vectors_view<float const, Offset> in,
                        std::int64_t width, matrix_view<float> out, padded_vectors_options const& options) {
    bool const streamed = are_streamed(out, out.rows());
    for_each_piece(exec, out.rows(), vectors_per_piece(out.columns(), streamed), [&](std::int64_t first, std::int64_t last) {
      streamed_copies streams;
      for (auto row = first / width; first < last; ++row) {
        auto const from = first - row * width, to = std::min(width, last - row * width);
        auto const kept = std::clamp(in.length(row), from, to);
        auto const skipped = in.begin_of(row) + first_kept(in.length(row), width, options.keep);
        copy_vectors(in.values.rows_from(skipped + (from < kept ? from : 0), kept - from), out.rows_from(first, kept - from),
                     streamed ? &streams : nullptr);
        fill_vectors(out.rows_from(first + kept - from, to - kept), options.padding);
        first += to - from;
      }
    });
  }

  template <class Offset>
  static void from_padded(host_exec const& exec, rows_check<host_exec, Offset>&, matrix_view<float const> in, std::int64_t width,
                          jagged_vectors_view<float, Offset> out, kept_values keep) {
    bool const streamed = are_streamed(out.values, out.size());
    for_each_row_run(exec, out.offsets, out.rows, vectors_per_piece(out.dim(), streamed),
                     [&](auto row, std::int64_t first, std::int64_t last, streamed_copies& streams) {
                       auto const kept = out.begin_of(row) + first_kept(out.length(row), width, keep);
                       auto const from = std::clamp<std::int64_t>(kept, first, last),
                                  to = std::clamp<std::int64_t>(kept + width, first, last);
                       fill_vectors(out.values.rows_from(first, from - first), 0.0F);
                       if (from < to)
                         copy_vectors(in.rows_from(row * width + from - kept, to - from), out.values.rows_from(from, to - from),
                                      streamed ? &streams : nullptr);
                       fill_vectors(out.values.rows_from(to, last - to), 0.0F);
                     });
  }
};

}  // namespace detail

template <execution Exec, class T, class Offset>
void to_padded_vectors(Exec const& exec, jagged_vectors_view<T, Offset> in, matrix_view<float> out, padded_vectors_options options) {
  detail::check_choice("to_padded_vectors", "keep", options.keep, kept_values::last);
  detail::rows_check<Exec, Offset> rows(exec, "to_padded_vectors");
  rows.valid("in", in);
  auto const width = detail::padded_width("to_padded_vectors", in.rows, in.dim(), out);
  detail::back_end<detail::padded_vectors_tag, Exec>::template to_padded<Offset>(exec, rows, in, width, out, options);
}

template <execution Exec, class Offset>
void from_padded_vectors(Exec const& exec, matrix_view<float const> in, jagged_vectors_view<float, Offset> out,
                         padded_vectors_options options) {
  detail::check_choice("from_padded_vectors", "keep", options.keep, kept_values::last);
  detail::rows_check<Exec, Offset> rows(exec, "from_padded_vectors");
  rows.valid("out", out);
  auto const width = detail::padded_width("from_padded_vectors", out.rows, out.dim(), in);
  detail::back_end<detail::padded_vectors_tag, Exec>::from_padded(exec, rows, in, width, out, options.keep);
}

}  // namespace TESSERA_ABI
}  // namespace tessera
