// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <string>
#include <type_traits>

#include <tessera/core/buffer.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/opaque.hpp>
#include <tessera/core/radix_sort.hpp>
#include <tessera/core/scan.hpp>
#include <tessera/core/streamed_copy.hpp>
#include <tessera/core/view.hpp>
#include <tessera/tensor/jagged_vectors.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// The offsets of a selection: those of rows in[indices[i]], from 0. `indices` (n,), `offsets` (n + 1,). @throws tessera::error
/// out_of_range naming position and index, or the row where an offset's type is too small; shape_mismatch. On a device nothing waits; what
/// offsets and indices show is thrown when the execution synchronises, and the rows that they spoil are empty.
template <execution Exec, class T, class Offset>
void select_vectors_offsets(Exec const& exec, jagged_vectors_view<T, Offset> in, vector_view<std::int64_t const> indices,
                            std::type_identity_t<vector_view<Offset>> offsets);

/// Gathers rows of vectors: row i of the result is row indices[i] of the input; an index may come again. So it expands, too: by an inverse,
/// which is the indices of the distinct rows, or by repeats, each index as often as its row. As FBGEMM's jagged_index_select.
///
/// `indices` (n,); `out` of n rows, with the lengths that `select_vectors_offsets` gives, is not `in`. @throws tessera::error out_of_range
/// naming position and index, shape_mismatch; nothing is written then. On a device nothing waits, and what offsets and indices show is
/// thrown when the execution synchronises.
template <execution Exec, class T, class Offset>
void select_vectors(Exec const& exec, std::type_identity_t<jagged_vectors_view<T const, Offset>> in,
                    vector_view<std::int64_t const> indices, jagged_vectors_view<T, Offset> out);

/// The gradient by the input, overwritten: row r is the sum of the rows i of `gradient` with indices[i] == r, ascending by i, on any number
/// of threads; 0 where there are none. As FBGEMM's jagged_index_add_2d.
///
/// Float, shapes of the forward. Workspace: 48 bytes an index, 16 a row of the input. On a device the same bits but for those of a NaN;
/// workspace: 32 bytes an index, 8 a row, and what the library that sorts asks for. Errors as the forward.
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
    for_each_piece(exec, indices.size(), indices_per_piece, [&](std::int64_t first, std::int64_t last) {
      for (auto i = first; i < last; ++i) {
        if (indices[i] < 0 || indices[i] >= rows)
          throw error(errc::out_of_range, std::string(call) + ": no such row", {{"position", i}, {"index", indices[i]}, {"rows", rows}});
        f(i);
      }
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
    auto const n = indices.size(), rows = in_gradient.rows;
    buffer<std::int64_t> sorted(exec, n), positions(exec, n), first_of(exec, rows + 1), work(exec, rows + 1);
    group_by_row(exec, indices, sorted, positions, first_of);
    // A piece is so much work, however many sources its rows have: what a vector costs is 1 + its row's sources.
    auto const cost = [&](std::int64_t row) { return 1 + first_of[row + 1] - first_of[row]; };
    for_each_piece(exec, rows, indices_per_piece, [&](std::int64_t first, std::int64_t last) {
      for (auto row = first; row < last; ++row) work[row] = cost(row) * in_gradient.length(row);
    });
    work[rows] = exclusive_scan(exec, work.view().slice(0, rows), work.view().slice(0, rows));
    for_each_row_run(exec, work.data(), rows, vectors_per_piece(in_gradient.dim()), [&](auto row, std::int64_t first, std::int64_t last) {
      auto const from = divide_up(first - work[row], cost(row)), to = divide_up(last - work[row], cost(row));
      if (from < to)
        add_sources(gradient, positions.view().slice(first_of[row], cost(row) - 1), from, in_gradient.row(row).rows_from(from, to - from));
    });
  }

  // The positions at which each row is selected, ascending: those of row r are positions[first_of[r], first_of[r + 1]).
  static void group_by_row(host_exec const& exec, vector_view<std::int64_t const> indices, buffer<std::int64_t>& sorted,
                           buffer<std::int64_t>& positions, buffer<std::int64_t>& first_of) {
    auto const n = indices.size(), rows = first_of.size() - 1;
    for_each_piece(exec, n, indices_per_piece, [&](std::int64_t first, std::int64_t last) {
      for (auto i = first; i < last; ++i) {
        sorted[i] = indices[i];
        positions[i] = i;
      }
    });
    radix_sort_pairs(exec, sorted.view(), positions.view(), {0, static_cast<int>(std::bit_width(static_cast<std::uint64_t>(rows)))});
    for_each_piece(exec, n + 1, indices_per_piece, [&](std::int64_t first, std::int64_t last) {
      for (auto i = first; i < last; ++i) {
        auto const last_row = i == n ? rows : sorted[i];
        for (auto row = i == 0 ? 0 : sorted[i - 1] + 1; row <= last_row; ++row) first_of[row] = i;
      }
    });
  }

  // to[j] = the sum of vector first + j of the rows at `positions`, in their order.
  template <class Offset>
  static void add_sources(jagged_vectors_view<float const, Offset> gradient, vector_view<std::int64_t const> positions, std::int64_t first,
                          matrix_view<float> to) noexcept(!checks_indices) {
    if (positions.empty()) return fill_vectors(to, 0.0F);
    copy_vectors(gradient.row(positions[0]).rows_from(first, to.rows()), to);
    for (std::int64_t p = 1; p < positions.size(); ++p) {
      auto const from = gradient.row(positions[p]).rows_from(first, to.rows());
      for (std::int64_t r = 0; r < to.rows(); ++r) {
        auto const* const source = opaque(from.row(r));
        auto* const sum = to.row(r);
        for (std::int64_t c = 0; c < to.columns(); ++c) sum[c] += source[c];
      }
    }
  }
};

// Checks of the forward, and of the backward with its gradients in their places.
template <class Exec, class T, class U, class Offset>
void check_select_vectors(Exec const& exec, char const* call, rows_check<Exec, Offset>& rows, jagged_vectors_view<T, Offset> in,
                          vector_view<std::int64_t const> indices, jagged_vectors_view<U, Offset> out) {
  rows.sound("in", in);
  rows.sound("out", out);
  check_extent(call, "rows of the result", out.rows, indices.size());
  check_extent(call, "dim", out.dim(), in.dim());
  back_end<select_vectors_tag, Exec>::check_lengths(exec, call, rows, in, indices, out);
}

}  // namespace detail

template <execution Exec, class T, class Offset>
void select_vectors_offsets(Exec const& exec, jagged_vectors_view<T, Offset> in, vector_view<std::int64_t const> indices,
                            std::type_identity_t<vector_view<Offset>> offsets) {
  detail::rows_check<Exec, Offset> rows(exec, "select_vectors_offsets");
  rows.sound("in", in);
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
