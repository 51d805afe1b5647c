// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/nn/linear.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

namespace detail {

TESSERA_INLINE void column_sums(host_exec const& exec, matrix_view<float const> m, vector_view<float> sums) {
  for_each_piece(exec, m.columns(), bias_columns_per_piece, [&](std::int64_t first, std::int64_t last) {
    auto const columns = last - first;
    float sum[bias_columns_per_piece] = {};  // in registers where the piece is whole
    for (std::int64_t r = 0; r < m.rows(); ++r) {
      auto const* const row = m.row(r) + first;
      if (columns == bias_columns_per_piece)
        for (std::int64_t c = 0; c < bias_columns_per_piece; ++c) sum[c] += row[c];
      else
        for (std::int64_t c = 0; c < columns; ++c) sum[c] += row[c];
    }
    std::copy_n(sum, columns, sums.data() + first);
  });
}

TESSERA_INLINE void initialise_weight(host_exec const& exec, matrix_view<float> weight, std::int64_t fan, random_seed seed,
                                      std::uint32_t stream, std::uint64_t matrix) {
  auto const bound = std::sqrt(6.0F / static_cast<float>(fan));
  for_each_index(exec, weight.rows(), initialised_rows_per_piece, [=](std::int64_t r) {
    for (std::int64_t c = 0; c < weight.columns(); ++c) {
      auto const block = philox(seed, matrix << 32 | static_cast<std::uint64_t>(r), ~stream, static_cast<std::uint32_t>(c / 4));
      weight(r, c) = uniform_symmetric(block[static_cast<int>(c % 4)], bound);
    }
  });
}

TESSERA_INLINE void check_linear(std::int64_t in, std::int64_t out, linear_view<float const> layer) {
  if (layer.weight.columns() != in || layer.weight.rows() != out || layer.bias.size() != out)
    throw error(errc::shape_mismatch, "linear: parameters do not fit the input or output",
                {{"input columns", in},
                 {"output columns", out},
                 {"weight rows", layer.weight.rows()},
                 {"weight columns", layer.weight.columns()},
                 {"bias", layer.bias.size()}});
}

}  // namespace detail

TESSERA_INLINE void relu_backward(host_exec const& exec, matrix_view<float const> y, matrix_view<float> gradient) {
  if (y.rows() != gradient.rows() || y.columns() != gradient.columns())
    throw error(
        errc::shape_mismatch, "relu_backward: the output and its gradient differ in shape",
        {{"rows", y.rows()}, {"columns", y.columns()}, {"gradient rows", gradient.rows()}, {"gradient columns", gradient.columns()}});
  for_each_index(exec, y.rows(), detail::relu_rows_per_piece, [=](std::int64_t r) {
    for (std::int64_t c = 0; c < y.columns(); ++c) gradient(r, c) = relu_gradient(y(r, c), gradient(r, c));
  });
}

}  // namespace TESSERA_ABI
}  // namespace tessera
