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
#include <tessera/core/streamed_copy.hpp>
#include <tessera/core/view.hpp>
#include <tessera/tensor/jagged_vectors.hpp>
#include <tessera/tensor/source_lists.hpp>
#include <tessera/tensor/sum_by_target.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// Writes the offsets of a selection: those of rows in[indices[i]], from 0.
///
/// `indices` (n,), `offsets` (n + 1,). On a device nothing waits. What offsets and indices show is thrown when the execution synchronises,
/// and the rows that they spoil are empty. @throws tessera::error out_of_range naming position and index, or the row where an offset's type
/// is too small; shape_mismatch.
template <execution Exec, class T, class Offset>
void select_vectors_offsets(Exec const& exec, jagged_vectors_view<T, Offset> in, vector_view<std::int64_t const> indices,
                            std::type_identity_t<vector_view<Offset>> offsets);

/// Gathers rows of vectors: row i of the result is row indices[i] of the input; an index may come again. As FBGEMM's jagged_index_select.
///
/// An inverse as indices expands distinct rows; each index as often as its row repeats rows. `indices` (n,); `out` of n rows, with the
/// lengths that `select_vectors_offsets` gives, is not `in`. On a device nothing waits; what offsets and indices show is thrown when the
/// execution synchronises. @throws tessera::error out_of_range naming position and index, shape_mismatch; nothing is written then.
template <execution Exec, class T, class Offset>
void select_vectors(Exec const& exec, std::type_identity_t<jagged_vectors_view<T const, Offset>> in,
                    vector_view<std::int64_t const> indices, jagged_vectors_view<T, Offset> out);

/// Writes the gradient by the input. Row r becomes the sum of the rows i of `gradient` with indices[i] == r, ascending by i, on any number
/// of threads. A row that no index names becomes 0. As FBGEMM's jagged_index_add_2d.
///
/// Float, with the shapes of the forward. Workspace: 32 bytes an index while they are sorted, then 8, and 16 a row of the input. A device
/// has the same bits, but for those of a NaN. Its workspace is 32 bytes an index, 8 a row, and what the library that sorts asks for.
/// @throws tessera::error as the forward.
template <execution Exec, class Offset>
void select_vectors_backward(Exec const& exec, detail::jagged_vectors_in<Offset> gradient, vector_view<std::int64_t const> indices,
                             jagged_vectors_view<float, Offset> in_gradient);

namespace detail {

struct select_vectors_tag {};

template <>
struct back_end<select_vectors_tag, host_exec> {
  static constexpr std::int64_t indices_per_piece = 4096;

  // f(i) for each index, once it is known to name a row.
  template <class F>
  static void for_each_selected(host_exec const& exec, char const* call, vector_view<std::int64_t const> indices, std::int64_t rows,
                                F const& f) {
    for_each_index(exec, indices.size(), indices_per_piece, [&](std::int64_t i) {
      check_row(call, indices.data(), i, rows);
      f(i);
    });
  }

  template <class T, class Offset>
  static void offsets(host_exec const& exec, rows_check<host_exec, Offset>&, jagged_vectors_view<T, Offset> in,
                      vector_view<std::int64_t const> indices, vector_view<Offset> offsets) {
    buffer<Offset> lengths(exec, indices.size());
    for_each_selected(exec, "select_vectors_offsets", indices, in.rows,
                      [&](std::int64_t i) { lengths[i] = static_cast<Offset>(in.length(indices[i])); });
    lengths_to_offsets(exec, lengths.view(), offsets);
  }

  // That out has the lengths of the selected rows.
  template <class T, class U, class Offset>
  static void check_lengths(host_exec const& exec, char const* call, rows_check<host_exec, Offset>&, jagged_vectors_view<T, Offset> in,
                            vector_view<std::int64_t const> indices, jagged_vectors_view<U, Offset> out) {
    for_each_selected(exec, call, indices, in.rows, [&](std::int64_t i) {
      if (in.length(indices[i]) != out.length(i))
        throw error(errc::shape_mismatch, std::string(call) + ": a row of another length than the one selected",
                    {{"position", i}, {"index", indices[i]}, {"length", out.length(i)}, {"length expected", in.length(indices[i])}});
    });
  }

  template <class T, class Offset>
  static void forward(host_exec const& exec, rows_check<host_exec, Offset>&, jagged_vectors_view<T const, Offset> in,
                      vector_view<std::int64_t const> indices, jagged_vectors_view<T, Offset> out) {
    bool const streamed = are_streamed(out.values, out.size());
    for_each_row_run(exec, out.offsets, out.rows, vectors_per_piece(out.dim(), streamed),
                     [&](auto row, std::int64_t first, std::int64_t last, streamed_copies& streams) {
                       auto const from = in.begin_of(indices[row]) + (first - out.begin_of(row));
                       copy_vectors(in.values.rows_from(from, last - first), out.values.rows_from(first, last - first),
                                    streamed ? &streams : nullptr);
                     });
  }

  template <class Offset>
  static void backward(host_exec const& exec, rows_check<host_exec, Offset>&, jagged_vectors_view<float const, Offset> gradient,
                       vector_view<std::int64_t const> indices, jagged_vectors_view<float, Offset> in_gradient) {
    source_lists const lists(exec, indices, in_gradient.rows);
    sum_by_target(exec, lists.view(), gradient, in_gradient);
  }
};

// Checks of the forward, and of the backward with its gradients in their places.
template <class Exec, class T, class U, class Offset>
void check_select_vectors(Exec const& exec, char const* call, rows_check<Exec, Offset>& rows, jagged_vectors_view<T, Offset> in,
                          vector_view<std::int64_t const> indices, jagged_vectors_view<U, Offset> out) {
  rows.valid("in", in);
  rows.valid("out", out);
  check_extent(call, "rows of the result", out.rows, indices.size());
  check_extent(call, "dim", out.dim(), in.dim());
  back_end<select_vectors_tag, Exec>::check_lengths(exec, call, rows, in, indices, out);
}

}  // namespace detail

template <execution Exec, class T, class Offset>
void select_vectors_offsets(Exec const& exec, jagged_vectors_view<T, Offset> in, vector_view<std::int64_t const> indices,
                            std::type_identity_t<vector_view<Offset>> offsets) {
  detail::rows_check<Exec, Offset> rows(exec, "select_vectors_offsets");
  rows.valid("in", in);
  detail::back_end<detail::select_vectors_tag, Exec>::offsets(exec, rows, in, indices, offsets);
}

template <execution Exec, class T, class Offset>
void select_vectors(Exec const& exec, std::type_identity_t<jagged_vectors_view<T const, Offset>> in,
                    vector_view<std::int64_t const> indices, jagged_vectors_view<T, Offset> out) {
  detail::rows_check<Exec, Offset> rows(exec, "select_vectors");
  detail::check_select_vectors(exec, "select_vectors", rows, in, indices, out);
  detail::back_end<detail::select_vectors_tag, Exec>::forward(exec, rows, in, indices, out);
}

template <execution Exec, class Offset>
void select_vectors_backward(Exec const& exec, detail::jagged_vectors_in<Offset> gradient, vector_view<std::int64_t const> indices,
                             jagged_vectors_view<float, Offset> in_gradient) {
  detail::rows_check<Exec, Offset> rows(exec, "select_vectors_backward");
  detail::check_select_vectors(exec, "select_vectors_backward", rows, in_gradient, indices, gradient);
  detail::back_end<detail::select_vectors_tag, Exec>::backward(exec, rows, gradient, indices, in_gradient);
}

}  // namespace TESSERA_ABI
}  // namespace tessera
