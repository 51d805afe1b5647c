// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include <tessera/core/buffer.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/opaque.hpp>
#include <tessera/core/piece_list.hpp>
#include <tessera/core/streamed_copy.hpp>
#include <tessera/core/view.hpp>
#include <tessera/tensor/inverse_keyed_jagged.hpp>
#include <tessera/tensor/jagged_vectors.hpp>
#include <tessera/tensor/select_vectors.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// Gathers rows of matrices: row i of each result is row indices[i] of its matrix; an index may come again. With an inverse as indices it
/// expands what was pooled of distinct rows. As torch.index_select.
///
/// `in` (rows, dim), `indices` (n,), `out` (n, dim), not `in`; or lists of such matrices, of as many rows each and any dims, that are
/// gathered by the same indices. @throws tessera::error out_of_range naming position and index, shape_mismatch; nothing is written then. On
/// a device, where lists lie in the host's memory, nothing waits: an index that names no row gives zeros, and is thrown when the execution
/// synchronises.
template <execution Exec>
void gather_vectors(Exec const& exec, matrix_view<float const> in, vector_view<std::int64_t const> indices, matrix_view<float> out);
template <execution Exec>
void gather_vectors(Exec const& exec, vector_view<matrix_view<float const> const> in, vector_view<std::int64_t const> indices,
                    vector_view<matrix_view<float> const> out);

/// The gradient by what was gathered from, overwritten: row r is the sum of the rows i of `gradient` with indices[i] == r, ascending by i,
/// on any number of threads; 0 where there are none.
///
/// Workspace: 8 bytes an index and 8 a row; where there are more than 65,536 of either, 32 an index. On a device the same bits but for
/// those of a NaN, and workspace for the library that sorts, too; an index that names no row gets no gradient. Errors as the forward.
template <execution Exec>
void gather_vectors_backward(Exec const& exec, matrix_view<float const> gradient, vector_view<std::int64_t const> indices,
                             matrix_view<float> in_gradient);
template <execution Exec>
void gather_vectors_backward(Exec const& exec, vector_view<matrix_view<float const> const> gradients,
                             vector_view<std::int64_t const> indices, vector_view<matrix_view<float> const> in_gradients);

namespace detail {

struct gather_vectors_tag {};

/// The group of groups in order that holds a key. @pre one does.
inline std::int64_t group_of_key(vector_view<row_group const> groups, std::int64_t key) noexcept {
  auto const behind = std::upper_bound(groups.begin(), groups.end(), key,
                                       [](std::int64_t number, row_group const& group) { return number < group.first_key; });
  return behind - groups.begin() - 1;
}

/// Matrices lie in groups, one or more each, of as many rows each; those of a group are gathered by its inverse, (indices,). All groups
/// share the parallel regions.
template <>
struct back_end<gather_vectors_tag, host_exec> {
  static constexpr std::int64_t indices_per_piece = 4096;
  static constexpr std::int64_t most_by_counting = std::int64_t{1} << 16;  // indices, and rows, of a group that one thread sorts

  static void check_indices(host_exec const& exec, char const* call, vector_view<std::int64_t const> indices, std::int64_t rows) {
    for_each_piece(exec, indices.size(), indices_per_piece, [&](std::int64_t first, std::int64_t last) {
      for (auto i = first; i < last; ++i) check_row(call, indices.data(), i, rows);
    });
  }

  /// @pre the inverses name rows.
  static void forward(host_exec const& exec, vector_view<row_group const> groups, std::int64_t indices,
                      vector_view<matrix_view<float const> const> in, vector_view<matrix_view<float> const> out) {
    bool const is_large = exceeds_caches(out);
    for_each_piece_of(
        exec, out.size(), [&](std::int64_t) { return indices; },
        [&](std::int64_t m) { return vectors_per_piece(out[m].columns(), is_large); },
        [&](std::int64_t m, std::int64_t first, std::int64_t last) {
          auto const* const rows = groups[group_of_key(groups, m)].inverse;
          auto const from = in[m];
          auto const to = out[m];
          auto const dim = to.columns();
          if (is_large && dim * static_cast<std::int64_t>(sizeof(float)) >= cache_line_bytes) {
            streamed_copies streams;
            for (auto i = first; i < last; ++i) streams.add(to.row(i), from.row(rows[i]), dim * static_cast<std::int64_t>(sizeof(float)));
          } else {
            for (auto i = first; i < last; ++i) std::copy_n(from.row(rows[i]), dim, to.row(i));
          }
        });
  }

  /// Nothing is written before all inverses are known to name rows.
  static void backward(host_exec const& exec, vector_view<row_group const> groups, std::int64_t indices,
                       vector_view<matrix_view<float const> const> gradients, vector_view<matrix_view<float> const> in_gradients) {
    auto const rows_of = [&](std::int64_t g) { return in_gradients[groups[g].first_key].rows(); };
    auto const is_counted = [&](std::int64_t g) { return indices <= most_by_counting && rows_of(g) <= most_by_counting; };
    buffer<row_sources> sources(exec, groups.size());
    std::int64_t numbers = 0;
    for (std::int64_t g = 0; g < groups.size(); ++g) numbers += is_counted(g) ? indices + rows_of(g) + 1 : 0;
    buffer<std::int64_t> memory(exec, numbers);
    auto* next = memory.data();
    for (std::int64_t g = 0; g < groups.size(); ++g) {
      sources[g] = is_counted(g) ? row_sources{next + rows_of(g) + 1, next} : row_sources{};
      next += is_counted(g) ? indices + rows_of(g) + 1 : 0;
    }
    exec.run(groups.size(), [&](std::int64_t g) {
      if (is_counted(g)) sources[g].count(groups[g].inverse, indices, rows_of(g));
    });
    for (std::int64_t g = 0; g < groups.size(); ++g)
      if (!is_counted(g)) check_indices(exec, "gather_vectors_backward", {groups[g].inverse, indices}, rows_of(g));
    for (std::int64_t g = 0; g < groups.size(); ++g) {  // what many threads sort is summed group by group
      if (is_counted(g)) continue;
      buffer<std::int64_t> sorted(exec, indices), positions(exec, indices), first_of(exec, rows_of(g) + 1);
      back_end<select_vectors_tag, host_exec>::group_by_row(exec, {groups[g].inverse, indices}, sorted, positions, first_of);
      row_sources const of_group{positions.data(), first_of.data()};
      auto const first = groups[g].first_key, count = groups[g].keys;
      sum_sources(exec, indices, gradients.slice(first, count), in_gradients.slice(first, count), [&](std::int64_t) { return of_group; });
    }
    sum_sources(exec, indices, gradients, in_gradients, [&](std::int64_t m) { return sources[group_of_key(groups, m)]; });
  }

 private:
  // Row r of a group's matrices is gathered at positions [first_of[r], first_of[r + 1]), ascending.
  struct row_sources {
    std::int64_t* positions = nullptr;
    std::int64_t* first_of = nullptr;  // nullptr: the group waits for another call

    // A counting sort; @throws tessera::error out_of_range.
    void count(std::int64_t const* rows_of, std::int64_t n, std::int64_t rows) const {
      std::fill_n(first_of, rows + 1, 0);
      for (std::int64_t i = 0; i < n; ++i) {
        check_row("gather_vectors_backward", rows_of, i, rows);
        ++first_of[rows_of[i]];
      }
      for (std::int64_t row = 0, before = 0; row <= rows; ++row) {
        before += first_of[row];
        first_of[row] = before;  // where the row's positions end
      }
      for (auto i = n - 1; i >= 0; --i) positions[--first_of[rows_of[i]]] = i;
    }
  };

  static void check_row(char const* call, std::int64_t const* indices, std::int64_t i, std::int64_t rows) {
    if (indices[i] < 0 || indices[i] >= rows)
      throw error(errc::out_of_range, std::string(call) + ": no such row", {{"position", i}, {"index", indices[i]}, {"rows", rows}});
  }

  template <class SourcesOf>
  static void sum_sources(host_exec const& exec, std::int64_t n, vector_view<matrix_view<float const> const> gradients,
                          vector_view<matrix_view<float> const> in_gradients, SourcesOf const& sources_of) {
    auto const rows_of = [&](std::int64_t m) { return sources_of(m).first_of == nullptr ? 0 : in_gradients[m].rows(); };
    // A piece is so many vectors read or written, however many sources its rows have.
    auto const share = [&](std::int64_t m) {
      auto const rows = in_gradients[m].rows();
      return std::max<std::int64_t>(1, vectors_per_piece(in_gradients[m].columns()) * rows / std::max<std::int64_t>(n + rows, 1));
    };
    for_each_piece_of(exec, in_gradients.size(), rows_of, share, [&](std::int64_t m, std::int64_t first, std::int64_t last) {
      auto const sources = sources_of(m);
      auto const gradient = gradients[m];
      auto const dim = gradient.columns();
      for (auto row = first; row < last; ++row) {
        auto* const sum = in_gradients[m].row(row);
        auto at = sources.first_of[row];
        auto const end = sources.first_of[row + 1];
        if (at == end)
          std::fill_n(sum, dim, 0.0F);
        else
          std::copy_n(gradient.row(sources.positions[at++]), dim, sum);
        for (; at < end; ++at) {
          auto const* const more = opaque(gradient.row(sources.positions[at]));
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

}  // namespace detail

template <execution Exec>
void gather_vectors(Exec const& exec, matrix_view<float const> in, vector_view<std::int64_t const> indices, matrix_view<float> out) {
  gather_vectors(exec, vector_view<matrix_view<float const> const>(&in, 1), indices, vector_view<matrix_view<float> const>(&out, 1));
}

template <execution Exec>
void gather_vectors(Exec const& exec, vector_view<matrix_view<float const> const> in, vector_view<std::int64_t const> indices,
                    vector_view<matrix_view<float> const> out) {
  detail::check_gathered("gather_vectors", in, indices.size(), out);
  if (in.empty()) return;
  detail::back_end<detail::gather_vectors_tag, Exec>::check_indices(exec, "gather_vectors", indices, in[0].rows());
  row_group const all{0, in.size(), indices.data()};
  detail::back_end<detail::gather_vectors_tag, Exec>::forward(exec, {&all, 1}, indices.size(), in, out);
}

template <execution Exec>
void gather_vectors_backward(Exec const& exec, matrix_view<float const> gradient, vector_view<std::int64_t const> indices,
                             matrix_view<float> in_gradient) {
  gather_vectors_backward(exec, vector_view<matrix_view<float const> const>(&gradient, 1), indices,
                          vector_view<matrix_view<float> const>(&in_gradient, 1));
}

template <execution Exec>
void gather_vectors_backward(Exec const& exec, vector_view<matrix_view<float const> const> gradients,
                             vector_view<std::int64_t const> indices, vector_view<matrix_view<float> const> in_gradients) {
  detail::check_gathered("gather_vectors_backward", in_gradients, indices.size(), gradients);
  if (in_gradients.empty()) return;
  row_group const all{0, in_gradients.size(), indices.data()};
  detail::back_end<detail::gather_vectors_tag, Exec>::backward(exec, {&all, 1}, indices.size(), gradients, in_gradients);
}

}  // namespace TESSERA_ABI
}  // namespace tessera
