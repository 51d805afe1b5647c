// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/core/buffer.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>
#include <tessera/tensor/jagged.hpp>
#include <tessera/tensor/keyed_jagged.hpp>

namespace tessera::inline TESSERA_ABI {

namespace detail {

template <class Exec>
struct select_rows_impl {
  static_assert(dependent_false<Exec>, "select_rows: no back end for this execution; for CUDA include <tessera/tensor/select_rows.cuh>");
};

inline constexpr std::int64_t selected_rows_per_piece = 512;

template <>
struct select_rows_impl<host_exec> {
  template <class T, class Offset>
  static jagged<std::remove_const_t<T>, Offset> run(host_exec const& exec, jagged_view<T, Offset> in,
                                                    vector_view<std::int64_t const> indices) {
    buffer<Offset> lengths(exec, indices.size());
    for_each_piece(exec, indices.size(), selected_rows_per_piece, [&](std::int64_t first, std::int64_t last) {
      for (auto i = first; i < last; ++i) {
        if (indices[i] < 0 || indices[i] >= in.rows)
          throw error(errc::out_of_range, "select_rows: no such row", {{"position", i}, {"index", indices[i]}, {"rows", in.rows}});
        lengths[i] = static_cast<Offset>(in.length(indices[i]));
      }
    });
    auto result = jagged<std::remove_const_t<T>, Offset>::with_lengths(exec, std::as_const(lengths).view());
    auto const out = result.view();
    for_each_piece(exec, indices.size(), selected_rows_per_piece, [&](std::int64_t first, std::int64_t last) {
      for (auto i = first; i < last; ++i) {
        auto const row = in.row(indices[i]);
        std::copy(row.begin(), row.end(), out.row(i).begin());
      }
    });
    return result;
  }
};

struct select_rows_fn {
  template <execution Exec, class T, class Offset>
  auto operator()(Exec const& exec, jagged_view<T, Offset> in, vector_view<std::int64_t const> indices) const {
    return select_rows_impl<Exec>::run(exec, in, indices);
  }

  template <execution Exec, class T, class Offset>
  keyed_jagged<T, Offset> operator()(Exec const& exec, keyed_jagged<T, Offset> const& in, vector_view<std::int64_t const> indices) const {
    auto const view = in.view();
    buffer<std::int64_t> flat(exec, view.keys * indices.size());
    std::vector<std::int64_t> rows_per_key(static_cast<std::size_t>(view.keys), indices.size());
    for (std::int64_t key = 0; key < view.keys; ++key)
      for (std::int64_t i = 0; i < indices.size(); ++i) {
        if (indices[i] < 0 || indices[i] >= view.rows(key))
          throw error(
              errc::out_of_range, "select_rows: no such row",
              {{"key", in.keys()[static_cast<std::size_t>(key)]}, {"position", i}, {"index", indices[i]}, {"rows", view.rows(key)}});
        flat[key * indices.size() + i] = view.first_row[key] + indices[i];
      }
    auto rows = (*this)(exec, view.flat(), std::as_const(flat).view());
    jagged<float, Offset> weights;
    if (view.weighted())
      weights = (*this)(exec, jagged_view<float const, Offset>{view.weights, view.offsets, view.rows()}, std::as_const(flat).view());
    return keyed_jagged<T, Offset>::from_parts(exec, in.keys(), std::move(rows), rows_per_key, std::move(weights));
  }
};

}  // namespace detail

/// Gathers rows: row i of the result is row indices[i] of the input; an index may come again.
///
/// `select_rows(exec, jagged_view, indices) -> jagged` and `select_rows(exec, keyed_jagged, indices) -> keyed_jagged`, which takes the
/// same rows of every key. The result's memory is `exec`'s. @throws tessera::error out_of_range naming position and index.
inline constexpr detail::select_rows_fn select_rows{};

}  // namespace tessera::inline TESSERA_ABI
