// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>

#include <tessera/core/buffer.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>
#include <tessera/nn/register_tiles.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// Views of a layer norm's parameters, (dim,) each.
template <class T>
struct layer_norm_view {
  vector_view<T> gain, bias;
};

/// What is added to a variance before its root is taken.
inline constexpr float layer_norm_epsilon = 1e-5F;

/// What a layer norm saves of each row, (rows,) each.
template <class T>
struct row_statistics {
  vector_view<T> mean, reciprocal_deviation;
};

/// Computes y = gain * (x - mean) / sqrt(variance + 1e-5) + bias, with mean and variance of each row. x and y (rows, dim) have any row
/// strides; y may be x. `statistics`, empty where no backward follows, gets what that reads.
/// @throws tessera::error shape_mismatch, as all here; also for rows of y or of a gradient that overlap. Source: Ba, Kiros, Hinton, "Layer
/// normalization", 2016.
inline void layer_norm(host_exec const& exec, matrix_view<float const> x, layer_norm_view<float const> parameters, matrix_view<float> y,
                       row_statistics<float> statistics = {});

/// Computes the same bits of y again, from the statistics.
inline void layer_norm_again(host_exec const& exec, matrix_view<float const> x, layer_norm_view<float const> parameters,
                             row_statistics<float const> statistics, matrix_view<float> y);

/// Overwrites the gradients of that forward; `x_gradient` may be `gradient`. Gradients of the parameters are summed by 128 rows, then over
/// those sums in order.
inline void layer_norm_backward(host_exec const& exec, matrix_view<float const> x, layer_norm_view<float const> parameters,
                                row_statistics<float const> statistics, matrix_view<float const> gradient,
                                layer_norm_view<float> parameter_gradient, matrix_view<float> x_gradient);

namespace detail {

struct layer_norm_kernels {
  static constexpr std::int64_t rows_per_piece = 128;
  static constexpr std::int64_t columns_per_piece = 64;

  template <int W>
  using width = std::integral_constant<int, W>;

  /// Calls f(width, column) for a row's columns, a register at a time, the rest one by one.
  template <class F>
  [[gnu::always_inline]] static void for_columns(std::int64_t dim, F const& f) {
    std::int64_t c = 0;
    for (; c + register_lanes <= dim; c += register_lanes) f(width<register_lanes>{}, c);
    for (; c < dim; ++c) f(width<1>{}, c);
  }

  // A sum over columns: lanes apart, then together in order, then what is left over.
  struct column_sum {
    register_floats<> lanes{};
    float rest = 0;

    [[gnu::always_inline]] void add(register_floats<> const& x) noexcept { lanes += x; }
    [[gnu::always_inline]] void add(float x) noexcept { rest += x; }
    float total() const noexcept {
      float sum = 0;
      for (int i = 0; i < register_lanes; ++i) sum += lanes[i];
      return sum + rest;
    }
  };

  // Never a part of what calls it, so that all who do round alike.
  [[gnu::noinline]] static void normalise(float const* x, std::int64_t dim, float mean, float reciprocal,
                                          layer_norm_view<float const> parameters, float* y) noexcept {
    auto const* const gain = parameters.gain.data();
    auto const* const bias = parameters.bias.data();
    for_columns(dim, [&](auto w, std::int64_t c) {
      store_register<w>(y + c, (load_register<w>(x + c) - mean) * reciprocal * load_register<w>(gain + c) + load_register<w>(bias + c));
    });
  }

  static void forward(host_exec const& exec, matrix_view<float const> x, layer_norm_view<float const> parameters, matrix_view<float> y,
                      row_statistics<float> statistics) {
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

  static void again(host_exec const& exec, matrix_view<float const> x, layer_norm_view<float const> parameters,
                    row_statistics<float const> statistics, matrix_view<float> y) {
    for_each_piece(exec, x.rows(), rows_per_piece, [&](std::int64_t first, std::int64_t last) {
      for (auto r = first; r < last; ++r)
        normalise(x.row(r), x.columns(), statistics.mean[r], statistics.reciprocal_deviation[r], parameters, y.row(r));
    });
  }

  static void backward(host_exec const& exec, matrix_view<float const> x, layer_norm_view<float const> parameters,
                       row_statistics<float const> statistics, matrix_view<float const> gradient, layer_norm_view<float> parameter_gradient,
                       matrix_view<float> x_gradient) {
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
};

struct layer_norm_checks {
  static void same_shape(char const* call, char const* which, matrix_view<float const> x, matrix_view<float const> other) {
    if (other.rows() != x.rows() || other.columns() != x.columns() || (other.rows() > 1 && other.stride() < other.columns()))
      throw error(errc::shape_mismatch, std::string(call) + ": an argument of another shape",
                  {{"argument", which},
                   {"rows", other.rows()},
                   {"expected rows", x.rows()},
                   {"columns", other.columns()},
                   {"expected columns", x.columns()},
                   {"stride", other.stride()}});
  }
  static void size(char const* call, char const* which, std::int64_t size, std::int64_t expected) {
    if (size != expected)
      throw error(errc::shape_mismatch, std::string(call) + ": an argument of another size",
                  {{"argument", which}, {"size", size}, {"expected", expected}});
  }
  template <class T>
  static void parameters(char const* call, matrix_view<float const> x, layer_norm_view<T> parameters) {
    size(call, "gain", parameters.gain.size(), x.columns());
    size(call, "bias", parameters.bias.size(), x.columns());
  }
  template <class T>
  static void statistics(char const* call, matrix_view<float const> x, row_statistics<T> statistics) {
    size(call, "mean", statistics.mean.size(), x.rows());
    size(call, "reciprocal deviation", statistics.reciprocal_deviation.size(), x.rows());
  }
};

}  // namespace detail

inline void layer_norm(host_exec const& exec, matrix_view<float const> x, layer_norm_view<float const> parameters, matrix_view<float> y,
                       row_statistics<float> statistics) {
  using checks = detail::layer_norm_checks;
  checks::parameters("layer_norm", x, parameters);
  checks::same_shape("layer_norm", "y", x, y);
  if (!statistics.mean.empty() || !statistics.reciprocal_deviation.empty()) checks::statistics("layer_norm", x, statistics);
  detail::layer_norm_kernels::forward(exec, x, parameters, y, statistics);
}

inline void layer_norm_again(host_exec const& exec, matrix_view<float const> x, layer_norm_view<float const> parameters,
                             row_statistics<float const> statistics, matrix_view<float> y) {
  using checks = detail::layer_norm_checks;
  checks::parameters("layer_norm_again", x, parameters);
  checks::statistics("layer_norm_again", x, statistics);
  checks::same_shape("layer_norm_again", "y", x, y);
  detail::layer_norm_kernels::again(exec, x, parameters, statistics, y);
}

inline void layer_norm_backward(host_exec const& exec, matrix_view<float const> x, layer_norm_view<float const> parameters,
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
