// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/nn/layer_norm.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

namespace detail {

TESSERA_INLINE void layer_norm_kernels::forward(host_exec const& exec, matrix_view<float const> x, layer_norm_view<float const> parameters,
                                                matrix_view<float> y, row_statistics<float> statistics) {
  auto const dim = x.columns();
  for_each_piece(exec, x.rows(), rows_per_piece, [&](std::int64_t first, std::int64_t last) {
    for (auto r = first; r < last; ++r) {
      auto const* const row = x.row(r);
      column_sum sum, squares;
      for_columns(dim, [&](auto w, std::int64_t c) { sum.add(load_register<w>(row + c)); });
      auto const mean = sum.total() / static_cast<float>(dim);
      for_columns(dim, [&](auto w, std::int64_t c) {
        auto const centred = load_register<w>(row + c) - mean;
        squares.add(centred * centred);
      });
      auto const reciprocal = 1.0F / std::sqrt(squares.total() / static_cast<float>(dim) + layer_norm_epsilon);
      normalise(row, dim, mean, reciprocal, parameters, y.row(r));
      if (statistics.mean.empty()) continue;
      statistics.mean[r] = mean;
      statistics.reciprocal_deviation[r] = reciprocal;
    }
  });
}

TESSERA_INLINE void layer_norm_kernels::again(host_exec const& exec, matrix_view<float const> x, layer_norm_view<float const> parameters,
                                              row_statistics<float const> statistics, matrix_view<float> y) {
  for_each_piece(exec, x.rows(), rows_per_piece, [&](std::int64_t first, std::int64_t last) {
    for (auto r = first; r < last; ++r)
      normalise(x.row(r), x.columns(), statistics.mean[r], statistics.reciprocal_deviation[r], parameters, y.row(r));
  });
}

TESSERA_INLINE void layer_norm_kernels::backward(host_exec const& exec, matrix_view<float const> x, layer_norm_view<float const> parameters,
                                                 row_statistics<float const> statistics, matrix_view<float const> gradient,
                                                 layer_norm_view<float> parameter_gradient, matrix_view<float> x_gradient) {
  auto const dim = x.columns(), pieces = divide_up(x.rows(), rows_per_piece);
  buffer<float> sums(exec, pieces * 2 * dim);  // of each piece of rows: gain, bias
  for_each_piece(exec, x.rows(), rows_per_piece, [&](std::int64_t first, std::int64_t last) {
    auto* const of_gain = sums.data() + first / rows_per_piece * 2 * dim;
    auto* const of_bias = of_gain + dim;
    std::fill_n(of_gain, 2 * dim, 0.0F);
    auto const* const gain = parameters.gain.data();
    for (auto r = first; r < last; ++r) {
      auto const* const row = x.row(r);
      auto const* const from = gradient.row(r);
      auto* const to = x_gradient.row(r);
      auto const mean = statistics.mean[r], reciprocal = statistics.reciprocal_deviation[r];
      column_sum slopes, products;
      for_columns(dim, [&](auto w, std::int64_t c) {
        auto const normal = (load_register<w>(row + c) - mean) * reciprocal;
        auto const slope = load_register<w>(from + c), own = slope * load_register<w>(gain + c);
        store_register<w>(of_gain + c, slope * normal + load_register<w>(of_gain + c));
        store_register<w>(of_bias + c, slope + load_register<w>(of_bias + c));
        slopes.add(own);
        products.add(own * normal);
      });
      auto const shift = slopes.total() / static_cast<float>(dim), tilt = products.total() / static_cast<float>(dim);
      for_columns(dim, [&](auto w, std::int64_t c) {
        auto const normal = (load_register<w>(row + c) - mean) * reciprocal;
        store_register<w>(to + c, (load_register<w>(from + c) * load_register<w>(gain + c) - shift - normal * tilt) * reciprocal);
      });
    }
  });
  for_each_piece(exec, 2 * dim, columns_per_piece, [&](std::int64_t first, std::int64_t last) {
    for (auto c = first; c < last; ++c) {
      float sum = 0;
      for (std::int64_t piece = 0; piece < pieces; ++piece) sum += sums[piece * 2 * dim + c];
      (c < dim ? parameter_gradient.gain[c] : parameter_gradient.bias[c - dim]) = sum;
    }
  });
}

TESSERA_INLINE void layer_norm_checks::same_shape(char const* call, char const* which, matrix_view<float const> x,
                                                  matrix_view<float const> other) {
  if (other.rows() != x.rows() || other.columns() != x.columns() || (other.rows() > 1 && other.stride() < other.columns()))
    throw error(errc::shape_mismatch, std::string(call) + ": an argument of another shape",
                {{"argument", which},
                 {"rows", other.rows()},
                 {"expected rows", x.rows()},
                 {"columns", other.columns()},
                 {"expected columns", x.columns()},
                 {"stride", other.stride()}});
}

TESSERA_INLINE void layer_norm_checks::size(char const* call, char const* which, std::int64_t size, std::int64_t expected) {
  if (size != expected)
    throw error(errc::shape_mismatch, std::string(call) + ": an argument of another size",
                {{"argument", which}, {"size", size}, {"expected", expected}});
}

}  // namespace detail

TESSERA_INLINE void layer_norm(host_exec const& exec, matrix_view<float const> x, layer_norm_view<float const> parameters,
                               matrix_view<float> y, row_statistics<float> statistics) {
  using checks = detail::layer_norm_checks;
  checks::parameters("layer_norm", x, parameters);
  checks::same_shape("layer_norm", "y", x, y);
  if (!statistics.mean.empty() || !statistics.reciprocal_deviation.empty()) checks::statistics("layer_norm", x, statistics);
  detail::layer_norm_kernels::forward(exec, x, parameters, y, statistics);
}

TESSERA_INLINE void layer_norm_again(host_exec const& exec, matrix_view<float const> x, layer_norm_view<float const> parameters,
                                     row_statistics<float const> statistics, matrix_view<float> y) {
  using checks = detail::layer_norm_checks;
  checks::parameters("layer_norm_again", x, parameters);
  checks::statistics("layer_norm_again", x, statistics);
  checks::same_shape("layer_norm_again", "y", x, y);
  detail::layer_norm_kernels::again(exec, x, parameters, statistics, y);
}

TESSERA_INLINE void layer_norm_backward(host_exec const& exec, matrix_view<float const> x, layer_norm_view<float const> parameters,
                                        row_statistics<float const> statistics, matrix_view<float const> gradient,
                                        layer_norm_view<float> parameter_gradient, matrix_view<float> x_gradient) {
  using checks = detail::layer_norm_checks;
  checks::parameters("layer_norm_backward", x, parameters);
  checks::statistics("layer_norm_backward", x, statistics);
  checks::same_shape("layer_norm_backward", "gradient", x, gradient);
  checks::parameters("layer_norm_backward", x, parameter_gradient);
  checks::same_shape("layer_norm_backward", "x_gradient", x, x_gradient);
  detail::layer_norm_kernels::backward(exec, x, parameters, statistics, gradient, parameter_gradient, x_gradient);
}

}  // namespace TESSERA_ABI
}  // namespace tessera
