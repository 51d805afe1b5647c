// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/for_each_index.hpp>
#include <tessera/core/philox.hpp>
#include <tessera/core/types.hpp>
#include <tessera/core/view.hpp>
#include <tessera/nn/gemm.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// What follows a layer. As in PyTorch, a ReLU passes NaN on, so that a training that diverges is seen.
enum class activation : std::uint8_t { identity, relu };

/// max(x, 0); NaN stays NaN.
TESSERA_HOST_DEVICE constexpr float relu(float x) noexcept { return x <= 0 ? 0 : x; }
/// The gradient by x of y = relu(x), from the gradient by y.
TESSERA_HOST_DEVICE constexpr float relu_gradient(float y, float gradient) noexcept { return y <= 0 ? 0 : gradient; }

/// Views of a linear layer's parameters: y = activation(x weight^T + bias).
template <class T>
struct linear_view {
  matrix_view<T> weight;  ///< (out, in)
  vector_view<T> bias;    ///< (out,)
};

/// Computes y = activation(x weight^T + bias), with bias and activation applied while each tile of y is in the cache. x (samples, in), y
/// (samples, out), any row strides. @throws tessera::error shape_mismatch, as all here.
template <gemm_policy Gemm>
void linear_forward(host_exec const& exec, Gemm const& policy, matrix_view<float const> x, linear_view<float const> layer, activation act,
                    matrix_view<float> y);

/// Overwrites the gradients of a layer's parameters: weight = gradient^T x, bias = column sums of gradient, rows in order. `gradient`
/// (samples, out) is that of the layer's output before its activation.
template <gemm_policy Gemm>
void linear_backward_parameters(host_exec const& exec, Gemm const& policy, matrix_view<float const> x, matrix_view<float const> gradient,
                                linear_view<float> parameter_gradient);

/// Computes the gradient for the layer before: x_gradient = gradient weight, times the derivative of the activation that made x. For a ReLU
/// the derivative is read off x; x is not read else.
template <gemm_policy Gemm>
void linear_backward_input(host_exec const& exec, Gemm const& policy, matrix_view<float const> gradient, linear_view<float const> layer,
                           activation act_before, matrix_view<float const> x, matrix_view<float> x_gradient);

/// Turns the gradient of y = relu(z) into that of z, in place; both (samples, columns).
void relu_backward(host_exec const& exec, matrix_view<float const> y, matrix_view<float> gradient);

namespace detail {

inline constexpr std::int64_t bias_columns_per_piece = 64;
inline constexpr std::int64_t relu_rows_per_piece = 256;
inline constexpr std::int64_t initialised_rows_per_piece = 64;

// sums[c] = sum of column c, rows in order.
void column_sums(host_exec const& exec, matrix_view<float const> m, vector_view<float> sums);

// weight(r, c) uniform in ±sqrt(6 / fan), a function of the rest alone: `matrix` tells apart the matrices of one stream.
void initialise_weight(host_exec const& exec, matrix_view<float> weight, std::int64_t fan, random_seed seed, std::uint32_t stream,
                       std::uint64_t matrix);

void check_linear(std::int64_t in, std::int64_t out, linear_view<float const> layer);

}  // namespace detail

template <gemm_policy Gemm>
void linear_forward(host_exec const& exec, Gemm const& policy, matrix_view<float const> x, linear_view<float const> layer, activation act,
                    matrix_view<float> y) {
  detail::check_choice("linear_forward", "activation", act, activation::relu);
  detail::check_linear(x.columns(), y.columns(), layer);
  gemm(exec, policy, x, transposed(layer.weight), y, [&](matrix_view<float> tile, std::int64_t, std::int64_t column) {
    auto const* const bias = layer.bias.data() + column;
    for (std::int64_t r = 0; r < tile.rows(); ++r) {
      auto* const row = tile.row(r);
      if (act == activation::relu)
        for (std::int64_t c = 0; c < tile.columns(); ++c) row[c] = relu(row[c] + bias[c]);
      else
        for (std::int64_t c = 0; c < tile.columns(); ++c) row[c] += bias[c];
    }
  });
}

template <gemm_policy Gemm>
void linear_backward_parameters(host_exec const& exec, Gemm const& policy, matrix_view<float const> x, matrix_view<float const> gradient,
                                linear_view<float> parameter_gradient) {
  detail::check_linear(x.columns(), gradient.columns(),
                       {parameter_gradient.weight, {parameter_gradient.bias.data(), parameter_gradient.bias.size()}});
  gemm(exec, policy, transposed(gradient), x, parameter_gradient.weight);
  detail::column_sums(exec, gradient, parameter_gradient.bias);
}

template <gemm_policy Gemm>
void linear_backward_input(host_exec const& exec, Gemm const& policy, matrix_view<float const> gradient, linear_view<float const> layer,
                           activation act_before, matrix_view<float const> x, matrix_view<float> x_gradient) {
  detail::check_choice("linear_backward_input", "activation", act_before, activation::relu);
  detail::check_linear(x_gradient.columns(), gradient.columns(), layer);
  if (act_before == activation::identity) return gemm(exec, policy, gradient, layer.weight, x_gradient);
  if (x.rows() != x_gradient.rows() || x.columns() != x_gradient.columns())
    throw error(
        errc::shape_mismatch, "linear: the input and its gradient differ in shape",
        {{"rows", x.rows()}, {"columns", x.columns()}, {"gradient rows", x_gradient.rows()}, {"gradient columns", x_gradient.columns()}});
  gemm(exec, policy, gradient, layer.weight, x_gradient, [&](matrix_view<float> tile, std::int64_t first_row, std::int64_t first_column) {
    for (std::int64_t r = 0; r < tile.rows(); ++r) {
      auto* const row = tile.row(r);
      auto const* const input = x.row(first_row + r) + first_column;
      for (std::int64_t c = 0; c < tile.columns(); ++c) row[c] = relu_gradient(input[c], row[c]);
    }
  });
}

}  // namespace TESSERA_ABI
}  // namespace tessera

#if !TESSERA_COMPILED
#include <tessera/nn/linear.ipp>
#endif
