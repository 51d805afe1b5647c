// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>

#include <tessera/core/buffer.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/for_each_index.hpp>
#include <tessera/core/scan.hpp>
#include <tessera/core/streamed_copy.hpp>
#include <tessera/core/view.hpp>
#include <tessera/tensor/jagged_vectors.hpp>
#include <tessera/tensor/source_lists.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// Writes the offsets of rows that are slices, from 0. `slices` (n,), `offsets` (n + 1,). On a device nothing waits. @throws tessera::error
/// as `lengths_to_offsets`.
template <execution Exec, class Offset>
void select_slices_offsets(Exec const& exec, std::type_identity_t<vector_view<value_range<Offset> const>> slices,
                           vector_view<Offset> offsets);

/// Gathers slices of vectors: row i of the result is the slices[i].length vectors of `in` from slices[i].begin - first_value on. Slices may
/// overlap, as histories of one user do whose events were looked up once.
///
/// `in` (vectors, dim); `slices` (n,), whose begins count from `first_value`, a number of the host's, so that `in` may be a part. `out` has
/// n rows, with the lengths that `select_slices_offsets` gives, and is not `in`. On a device nothing waits; what offsets and slices show is
/// thrown when the execution synchronises. @throws tessera::error out_of_range naming a slice that reaches past `in`, shape_mismatch;
/// nothing is written then.
template <execution Exec, class T, class Offset>
void select_slices(Exec const& exec, std::type_identity_t<matrix_view<T const>> in,
                   std::type_identity_t<vector_view<value_range<Offset> const>> slices, jagged_vectors_view<T, Offset> out,
                   std::int64_t first_value = 0);

/// Writes the gradient by the vectors. Each becomes the sum, from 0, of its gradients in the slices that have it, ascending by slice, on
/// any number of threads.
///
/// Float, with the shapes of the forward; the rows of `in_gradient` do not overlap. Workspace: 8 bytes a slice, and 32 for each piece of
/// about 64 KiB of vectors that a slice reaches into. On a device 40 bytes a vector of the gradient, 8 one of the result, and what the
/// library that sorts asks for. A device has the same bits, but for the sign of a zero and those of a NaN. @throws tessera::error as the
/// forward.
template <execution Exec, class T, class Offset>
void select_slices_backward(Exec const& exec, jagged_vectors_view<T, Offset> gradient,
                            std::type_identity_t<vector_view<value_range<Offset> const>> slices, matrix_view<float> in_gradient,
                            std::int64_t first_value = 0);

namespace detail {

inline constexpr std::int64_t slices_per_piece = 4096;

template <class Offset>
using slices_view = vector_view<value_range<Offset> const>;

// That slices lie within the vectors, and that `lengths` has theirs.
template <class Offset>
void check_vector_slices(host_exec const& exec, char const* call, std::int64_t vectors, std::int64_t first_value,
                         std::type_identity_t<slices_view<Offset>> slices, Offset const* offsets) {
  for_each_index(exec, slices.size(), slices_per_piece, [&](std::int64_t i) {
    auto const slice = slices[i];
    std::int64_t const length = slice.length;
    if (!slice.is_within(first_value, vectors))
      throw error(errc::out_of_range, std::string(call) + ": a slice that reaches past the vectors",
                  {{"slice", i}, {"begin", slice.begin}, {"length", length}, {"first value", first_value}, {"vectors", vectors}});
    if (std::int64_t const is = offsets[i + 1] - offsets[i]; is != length)
      throw error(errc::shape_mismatch, std::string(call) + ": a row of another length than its slice",
                  {{"slice", i}, {"length", is}, {"length expected", length}});
  });
}

struct select_slices_tag {};

template <>
struct back_end<select_slices_tag, host_exec> {
  template <class Offset>
  static void offsets(host_exec const& exec, slices_view<Offset> slices, vector_view<Offset> offsets) {
    buffer<Offset> lengths(exec, slices.size());
    for_each_index(exec, slices.size(), slices_per_piece, [&](std::int64_t i) { lengths[i] = slices[i].length; });
    lengths_to_offsets(exec, lengths.view(), offsets);
  }

  template <class T, class Offset>
  static void forward(host_exec const& exec, rows_check<host_exec, Offset>&, matrix_view<T const> in, slices_view<Offset> slices,
                      jagged_vectors_view<T, Offset> out, std::int64_t first_value) {
    check_vector_slices(exec, "select_slices", in.rows(), first_value, slices, out.offsets);
    bool const streamed = are_streamed(out.values, out.size());
    for_each_row_run(exec, out.offsets, out.rows, vectors_per_piece(out.dim(), streamed),
                     [&](auto row, std::int64_t first, std::int64_t last, streamed_copies& streams) {
                       auto const from = slices[row].begin - first_value + (first - out.begin_of(row));
                       copy_vectors(in.rows_from(from, last - first), out.values.rows_from(first, last - first),
                                    streamed ? &streams : nullptr);
                     });
  }

  template <class Offset>
  static void backward(host_exec const& exec, rows_check<host_exec, Offset>&, jagged_vectors_view<float const, Offset> gradient,
                       slices_view<Offset> slices, matrix_view<float> in_gradient, std::int64_t first_value) {
    check_vector_slices(exec, "select_slices_backward", in_gradient.rows(), first_value, slices, gradient.offsets);

    // Each piece of the vectors has the list of the slices that reach into it, and adds them up in order.
    auto const grain = vectors_per_piece(in_gradient.columns());
    auto const pieces = divide_up(in_gradient.rows(), grain), n = slices.size();
    auto const begin_of = [&](std::int64_t i) { return static_cast<std::int64_t>(slices[i].begin) - first_value; };
    auto const first_piece = [&](std::int64_t i) { return begin_of(i) / grain; };
    auto const reached = [&](std::int64_t i) {
      return slices[i].length == 0 ? 0 : (begin_of(i) + slices[i].length - 1) / grain - first_piece(i) + 1;
    };
    buffer<std::int64_t> starts(exec, n + 1);
    for_each_index(exec, n, slices_per_piece, [&](std::int64_t i) { starts[i] = reached(i); });
    starts[n] = exclusive_scan(exec, starts.view().slice(0, n), starts.view().slice(0, n));
    buffer<std::int64_t> piece_of(exec, starts[n]), slice_of(exec, starts[n]);
    for_each_index(exec, n, slices_per_piece, [&](std::int64_t i) {
      for (auto at = starts[i]; at < starts[i + 1]; ++at) {
        piece_of[at] = first_piece(i) + (at - starts[i]);
        slice_of[at] = i;
      }
    });
    source_lists const lists(exec, std::move(piece_of), std::move(slice_of), pieces);
    exec.run(pieces, [&](std::int64_t piece) {
      auto const first = piece * grain, last = std::min(in_gradient.rows(), first + grain);
      fill_vectors(in_gradient.rows_from(first, last - first), 0.0F);
      for (auto const i : lists.view().of(piece)) {
        auto const begin = std::max(first, begin_of(i)), end = std::min(last, begin_of(i) + slices[i].length);
        add_vectors(gradient.row(i).rows_from(begin - begin_of(i), end - begin), in_gradient.rows_from(begin, end - begin));
      }
    });
  }
};

}  // namespace detail

template <execution Exec, class Offset>
void select_slices_offsets(Exec const& exec, std::type_identity_t<vector_view<value_range<Offset> const>> slices,
                           vector_view<Offset> offsets) {
  detail::back_end<detail::select_slices_tag, Exec>::offsets(exec, slices, offsets);
}

template <execution Exec, class T, class Offset>
void select_slices(Exec const& exec, std::type_identity_t<matrix_view<T const>> in,
                   std::type_identity_t<vector_view<value_range<Offset> const>> slices, jagged_vectors_view<T, Offset> out,
                   std::int64_t first_value) {
  detail::rows_check<Exec, Offset> rows(exec, "select_slices");
  rows.valid("out", out);
  detail::check_extent("select_slices", "rows of the result", out.rows, slices.size());
  detail::check_extent("select_slices", "dim", out.dim(), in.columns());
  detail::back_end<detail::select_slices_tag, Exec>::forward(exec, rows, in, slices, out, first_value);
}

template <execution Exec, class T, class Offset>
void select_slices_backward(Exec const& exec, jagged_vectors_view<T, Offset> gradient,
                            std::type_identity_t<vector_view<value_range<Offset> const>> slices, matrix_view<float> in_gradient,
                            std::int64_t first_value) {
  static_assert(std::is_same_v<T const, float const>, "select_slices_backward: gradients are floats");
  detail::rows_check<Exec, Offset> rows(exec, "select_slices_backward");
  rows.valid("gradient", gradient);
  detail::check_extent("select_slices_backward", "rows of the gradient", gradient.rows, slices.size());
  detail::check_extent("select_slices_backward", "dim", gradient.dim(), in_gradient.columns());
  if (in_gradient.rows() > 1 && in_gradient.stride() < in_gradient.columns())
    throw error(errc::shape_mismatch, "select_slices_backward: rows of the result overlap",
                {{"dim", in_gradient.columns()}, {"stride", in_gradient.stride()}});
  detail::back_end<detail::select_slices_tag, Exec>::backward(exec, rows, jagged_vectors_view<float const, Offset>(gradient), slices,
                                                              in_gradient, first_value);
}

}  // namespace TESSERA_ABI
}  // namespace tessera
