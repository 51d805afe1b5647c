// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include <tessera/core/buffer.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/piece_list.hpp>
#include <tessera/core/streamed_copy.hpp>
#include <tessera/core/view.hpp>
#include <tessera/tensor/jagged_vectors.hpp>
#include <tessera/tensor/select_vectors.hpp>

namespace tessera::inline TESSERA_ABI {

namespace detail {

template <class Exec>
struct gather_vectors_impl {
  static_assert(dependent_false<Exec>,
                "gather_vectors: no back end for this execution; for CUDA include <tessera/tensor/gather_vectors.cuh>");
};

template <>
struct gather_vectors_impl<host_exec> {
  static constexpr std::int64_t indices_per_piece = 4096;

  static void check_indices(host_exec const& exec, char const* call, vector_view<std::int64_t const> indices, std::int64_t rows) {
    for_each_piece(exec, indices.size(), indices_per_piece, [&](std::int64_t first, std::int64_t last) {
      for (auto i = first; i < last; ++i)
        if (indices[i] < 0 || indices[i] >= rows)
          throw error(errc::out_of_range, std::string(call) + ": no such row", {{"position", i}, {"index", indices[i]}, {"rows", rows}});
    });
  }

  static void forward(host_exec const& exec, vector_view<matrix_view<float const> const> in, vector_view<std::int64_t const> indices,
                      vector_view<matrix_view<float> const> out) {
    if (in.empty()) return;
    check_indices(exec, "gather_vectors", indices, in[0].rows());
    bool const is_large = exceeds_caches(out);
    for_each_piece_of(
        exec, out.size(), [&](std::int64_t) { return indices.size(); },
        [&](std::int64_t m) { return vectors_per_piece(out[m].columns(), is_large); },
        [&](std::int64_t m, std::int64_t first, std::int64_t last) {
          auto const from = in[m];
          auto const to = out[m];
          auto const dim = to.columns();
          if (is_large && dim * static_cast<std::int64_t>(sizeof(float)) >= cache_line_bytes) {
            streamed_copies streams;
            for (auto i = first; i < last; ++i)
              streams.add(to.row(i), from.row(indices[i]), dim * static_cast<std::int64_t>(sizeof(float)));
          } else {
            for (auto i = first; i < last; ++i) std::copy_n(from.row(indices[i]), dim, to.row(i));
          }
        });
  }

  static void backward(host_exec const& exec, vector_view<matrix_view<float const> const> gradients,
                       vector_view<std::int64_t const> indices, vector_view<matrix_view<float> const> in_gradients) {
    if (in_gradients.empty()) return;
    auto const n = indices.size(), rows = in_gradients[0].rows();
    check_indices(exec, "gather_vectors_backward", indices, rows);
    buffer<std::int64_t> sorted(exec, n), positions(exec, n), first_of(exec, rows + 1);
    select_vectors_impl<host_exec>::group_by_row(exec, indices, sorted, positions, first_of);
    // A piece is so many vectors read or written, however many sources its rows have.
    auto const share = [&](std::int64_t m) {
      return std::max<std::int64_t>(1, vectors_per_piece(in_gradients[m].columns()) * rows / std::max<std::int64_t>(n + rows, 1));
    };
    for_each_piece_of(
        exec, in_gradients.size(), [&](std::int64_t) { return rows; }, share,
        [&](std::int64_t m, std::int64_t first, std::int64_t last) {
          auto const gradient = gradients[m];
          auto const dim = gradient.columns();
          for (auto row = first; row < last; ++row) {
            auto* const sum = in_gradients[m].row(row);
            auto at = first_of[row];
            auto const end = first_of[row + 1];
            if (at == end)
              std::fill_n(sum, dim, 0.0F);
            else
              std::copy_n(gradient.row(positions[at++]), dim, sum);
            for (; at < end; ++at) {
              auto const* const more = opaque_vector(gradient.row(positions[at]));
              for (std::int64_t c = 0; c < dim; ++c) sum[c] += more[c];
            }
          }
        });
  }
};

// Matrices of `rows` and `indices` rows, pairwise of one dim; what they show without being read.
template <class In, class Out>
void check_gathered(char const* call, vector_view<In const> in, std::int64_t indices, vector_view<Out const> out) {
  if (in.size() != out.size())
    throw error(errc::shape_mismatch, std::string(call) + ": one result a matrix", {{"matrices", in.size()}, {"results", out.size()}});
  for (std::int64_t m = 0; m < in.size(); ++m)
    if (in[m].rows() != in[0].rows() || out[m].rows() != indices || out[m].columns() != in[m].columns() ||
        in[m].stride() < in[m].columns() || out[m].stride() < out[m].columns())
      throw error(errc::shape_mismatch, std::string(call) + ": a matrix of another shape",
                  {{"matrix", m},
                   {"rows", in[m].rows()},
                   {"rows expected", in[0].rows()},
                   {"dim", in[m].columns()},
                   {"rows gathered", out[m].rows()},
                   {"indices", indices},
                   {"dim gathered", out[m].columns()}});
}

struct gather_vectors_fn {
  template <execution Exec>
  void operator()(Exec const& exec, vector_view<matrix_view<float const> const> in, vector_view<std::int64_t const> indices,
                  vector_view<matrix_view<float> const> out) const {
    check_gathered("gather_vectors", in, indices.size(), out);
    gather_vectors_impl<Exec>::forward(exec, in, indices, out);
  }
  template <execution Exec>
  void operator()(Exec const& exec, matrix_view<float const> in, vector_view<std::int64_t const> indices, matrix_view<float> out) const {
    (*this)(exec, vector_view<matrix_view<float const> const>(&in, 1), indices, vector_view<matrix_view<float> const>(&out, 1));
  }
};

struct gather_vectors_backward_fn {
  template <execution Exec>
  void operator()(Exec const& exec, vector_view<matrix_view<float const> const> gradients, vector_view<std::int64_t const> indices,
                  vector_view<matrix_view<float> const> in_gradients) const {
    check_gathered("gather_vectors_backward", in_gradients, indices.size(), gradients);
    gather_vectors_impl<Exec>::backward(exec, gradients, indices, in_gradients);
  }
  template <execution Exec>
  void operator()(Exec const& exec, matrix_view<float const> gradient, vector_view<std::int64_t const> indices,
                  matrix_view<float> in_gradient) const {
    (*this)(exec, vector_view<matrix_view<float const> const>(&gradient, 1), indices,
            vector_view<matrix_view<float> const>(&in_gradient, 1));
  }
};

}  // namespace detail

/// Gathers rows of matrices: row i of each result is row indices[i] of its matrix; an index may come again. With an inverse as indices it
/// expands what was pooled of distinct rows. As torch.index_select.
///
/// `gather_vectors(exec, in, indices, out)`: `in` (rows, dim), `indices` (n,), `out` (n, dim), not `in`; or lists of such matrices, of as
/// many rows each and any dims, that are gathered by the same indices. @throws tessera::error out_of_range naming position and index,
/// shape_mismatch; nothing is written then. On a device, where lists lie in the host's memory, nothing waits: an index that names no row gives
/// zeros, and is thrown when the execution synchronises.
inline constexpr detail::gather_vectors_fn gather_vectors{};

/// The gradient by what was gathered from, overwritten: row r is the sum of the rows i of `gradient` with indices[i] == r, ascending by i, on
/// any number of threads; 0 where there are none.
///
/// `gather_vectors_backward(exec, gradient, indices, in_gradient)`, or with lists. Workspace: 32 bytes an index, 8 a row. On a device the same
/// bits but for those of a NaN, and workspace for the library that sorts, too; an index that names no row gets no gradient. Errors as the
/// forward.
inline constexpr detail::gather_vectors_backward_fn gather_vectors_backward{};

}  // namespace tessera::inline TESSERA_ABI
