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
void layer_norm(host_exec const& exec, matrix_view<float const> x, layer_norm_view<float const> parameters, matrix_view<float> y,
                row_statistics<float> statistics = {});

/// Computes the same bits of y again, from the statistics.
void layer_norm_again(host_exec const& exec, matrix_view<float const> x, layer_norm_view<float const> parameters,
                      row_statistics<float const> statistics, matrix_view<float> y);

/// Overwrites the gradients of that forward; `x_gradient` may be `gradient`. Gradients of the parameters are summed by 128 rows, then over
/// those sums in order.
void layer_norm_backward(host_exec const& exec, matrix_view<float const> x, layer_norm_view<float const> parameters,
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
                      row_statistics<float> statistics);

  static void again(host_exec const& exec, matrix_view<float const> x, layer_norm_view<float const> parameters,
                    row_statistics<float const> statistics, matrix_view<float> y);

  static void backward(host_exec const& exec, matrix_view<float const> x, layer_norm_view<float const> parameters,
                       row_statistics<float const> statistics, matrix_view<float const> gradient, layer_norm_view<float> parameter_gradient,
                       matrix_view<float> x_gradient);
};

struct layer_norm_checks {
  static void same_shape(char const* call, char const* which, matrix_view<float const> x, matrix_view<float const> other);
  static void size(char const* call, char const* which, std::int64_t size, std::int64_t expected);
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

}  // namespace TESSERA_ABI
}  // namespace tessera

#if !TESSERA_COMPILED
#include <tessera/nn/layer_norm.ipp>
#endif
