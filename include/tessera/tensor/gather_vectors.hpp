// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include <tessera/core/buffer.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/for_each_index.hpp>
#include <tessera/core/piece_list.hpp>
#include <tessera/core/streamed_copy.hpp>
#include <tessera/core/view.hpp>
#include <tessera/tensor/inverse_keyed_jagged.hpp>
#include <tessera/tensor/jagged_vectors.hpp>
#include <tessera/tensor/source_lists.hpp>
#include <tessera/tensor/sum_by_target.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// Gathers rows of a matrix: row i of the result is row indices[i] of the matrix; an index may come again. With an inverse as indices, the
/// call expands what was pooled of distinct rows. As torch.index_select.
///
/// `in` (rows, dim), `indices` (n,), `out` (n, dim), which is not `in`. On a device nothing waits. There an index that names no row gives
/// zeros, and is thrown when the execution synchronises. @throws tessera::error out_of_range naming position and index, shape_mismatch;
/// nothing is written then.
template <execution Exec>
void gather_vectors(Exec const& exec, matrix_view<float const> in, vector_view<std::int64_t const> indices, matrix_view<float> out);
/// Gathers the same rows of several matrices, of as many rows each and any dims. `in` and `out` are lists of as many matrices, in the
/// host's memory on a device, too. @throws tessera::error as above.
template <execution Exec>
void gather_vectors(Exec const& exec, vector_view<matrix_view<float const> const> in, vector_view<std::int64_t const> indices,
                    vector_view<matrix_view<float> const> out);

/// Writes the gradient by what was gathered from. Row r becomes the sum of the rows i of `gradient` with indices[i] == r, ascending by i,
/// on any number of threads. A row that no index names becomes 0.
///
/// Workspace: 8 bytes an index and 8 a row; where there are more than 65,536 of either, up to 32 an index. A device has the same bits, but
/// for those of a NaN, and workspace for the library that sorts, too. There an index that names no row gets no gradient. @throws
/// tessera::error as the forward.
template <execution Exec>
void gather_vectors_backward(Exec const& exec, matrix_view<float const> gradient, vector_view<std::int64_t const> indices,
                             matrix_view<float> in_gradient);
/// Writes the gradients of `gather_vectors` of several matrices, by each of them.
template <execution Exec>
void gather_vectors_backward(Exec const& exec, vector_view<matrix_view<float const> const> gradients,
                             vector_view<std::int64_t const> indices, vector_view<matrix_view<float> const> in_gradients);

/// Gathers rows of matrices in groups, each group by its own inverse, (indices,). All groups share the parallel regions.
///
/// Matrices [first_key, first_key + keys) belong to a group and have as many rows each; the groups cover all matrices in order. @pre the
/// inverses name rows. @throws tessera::error shape_mismatch.
template <execution Exec>
void gather_vectors(Exec const& exec, vector_view<row_group const> groups, std::int64_t indices,
                    vector_view<matrix_view<float const> const> in, vector_view<matrix_view<float> const> out);
/// Writes the gradient of `gather_vectors` of groups. @throws tessera::error out_of_range, too, for an index that names no row; nothing is
/// written then.
template <execution Exec>
void gather_vectors_backward(Exec const& exec, vector_view<row_group const> groups, std::int64_t indices,
                             vector_view<matrix_view<float const> const> gradients, vector_view<matrix_view<float> const> in_gradients);

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

  static void check_indices(host_exec const& exec, char const* call, vector_view<std::int64_t const> indices, std::int64_t rows) {
    for_each_index(exec, indices.size(), indices_per_piece, [&](std::int64_t i) { check_row(call, indices.data(), i, rows); });
  }

  static void check_indices(host_exec const& exec, char const* call, vector_view<row_group const> groups, std::int64_t indices,
                            vector_view<matrix_view<float const> const> in) {
    for_each_piece_of(
        exec, groups.size(), [&](std::int64_t) { return indices; }, [](std::int64_t) { return indices_per_piece; },
        [&](std::int64_t g, std::int64_t first, std::int64_t last) {
          for (auto i = first; i < last; ++i) check_row(call, groups[g].inverse, i, in[groups[g].first_key].rows());
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
    auto const inverse_of = [&](std::int64_t g) { return vector_view<std::int64_t const>{groups[g].inverse, indices}; };
    auto const is_counted = [&](std::int64_t g) { return indices <= most_counted_sources && rows_of(g) <= most_counted_sources; };
    buffer<std::int64_t> first_of(exec, groups.size() + 1);  // of each group's counted lists in the memory of all
    first_of[0] = 0;
    for (std::int64_t g = 0; g < groups.size(); ++g) first_of[g + 1] = first_of[g] + (is_counted(g) ? indices + rows_of(g) + 1 : 0);
    buffer<std::int64_t> memory(exec, first_of[groups.size()]);
    auto const starts_of = [&](std::int64_t g) { return memory.view().slice(first_of[g], rows_of(g) + 1); };
    auto const sources_of = [&](std::int64_t g) { return memory.view().slice(first_of[g] + rows_of(g) + 1, indices); };
    exec.run(groups.size(), [&](std::int64_t g) {
      if (is_counted(g)) count_sources(inverse_of(g), starts_of(g), sources_of(g));
    });
    for (std::int64_t g = 0; g < groups.size(); ++g)
      if (!is_counted(g) || starts_of(g)[rows_of(g)] < indices) check_indices(exec, "gather_vectors_backward", inverse_of(g), rows_of(g));
    buffer<target_sums> sums(exec, in_gradients.size());
    std::int64_t counted = 0;
    for (std::int64_t g = 0; g < groups.size(); ++g) {
      auto const first = groups[g].first_key, last = first + groups[g].keys;
      if (is_counted(g)) {
        for (auto m = first; m < last; ++m) sums[counted++] = {{starts_of(g), sources_of(g)}, gradients[m], in_gradients[m]};
      } else {  // what many threads sort is summed group by group
        source_lists const lists(exec, inverse_of(g), rows_of(g));
        for (auto m = first; m < last; ++m) sums[counted + m - first] = {lists.view(), gradients[m], in_gradients[m]};
        sum_by_target(exec, sums.view().slice(counted, last - first));
      }
    }
    sum_by_target(exec, sums.view().slice(0, counted));
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

template <class In, class Out>
void check_gathered_groups(char const* call, vector_view<row_group const> groups, vector_view<In const> in, std::int64_t indices,
                           vector_view<Out const> out) {
  std::int64_t first = 0;
  for (auto const& group : groups) {
    if (group.first_key != first || group.keys < 1 || group.keys > std::min(in.size(), out.size()) - first)
      throw error(errc::shape_mismatch, std::string(call) + ": groups of other matrices",
                  {{"first key", group.first_key}, {"keys", group.keys}, {"matrices", in.size()}, {"results", out.size()}});
    check_gathered(call, in.slice(first, group.keys), indices, out.slice(first, group.keys));
    first += group.keys;
  }
  if (first != in.size() || first != out.size())
    throw error(errc::shape_mismatch, std::string(call) + ": groups of other matrices",
                {{"keys", first}, {"matrices", in.size()}, {"results", out.size()}});
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
void gather_vectors(Exec const& exec, vector_view<row_group const> groups, std::int64_t indices,
                    vector_view<matrix_view<float const> const> in, vector_view<matrix_view<float> const> out) {
  detail::check_gathered_groups("gather_vectors", groups, in, indices, out);
  if constexpr (checked) detail::back_end<detail::gather_vectors_tag, Exec>::check_indices(exec, "gather_vectors", groups, indices, in);
  detail::back_end<detail::gather_vectors_tag, Exec>::forward(exec, groups, indices, in, out);
}

template <execution Exec>
void gather_vectors_backward(Exec const& exec, vector_view<row_group const> groups, std::int64_t indices,
                             vector_view<matrix_view<float const> const> gradients, vector_view<matrix_view<float> const> in_gradients) {
  detail::check_gathered_groups("gather_vectors_backward", groups, in_gradients, indices, gradients);
  detail::back_end<detail::gather_vectors_tag, Exec>::backward(exec, groups, indices, gradients, in_gradients);
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
