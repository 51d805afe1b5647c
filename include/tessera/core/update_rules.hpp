// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <math.h>  // fabsf, copysignf for host and device alike

#include <cstdint>

#include <tessera/core/config.hpp>
#include <tessera/core/float_bits.hpp>
#include <tessera/core/multiply_add.hpp>
#include <tessera/core/square_root.hpp>

/// What an optimizer does to one element: shared by dense parameters and embedding rows, host and device.
namespace tessera {
inline namespace TESSERA_ABI {
namespace update_rules {

/// base^exponent by squaring, with the same bits on host and device. @pre exponent >= 0
TESSERA_HOST_DEVICE constexpr double power(double base, std::int64_t exponent) noexcept {
  double result = 1;
  for (; exponent > 0; exponent /= 2) {
    if (exponent % 2 != 0) result *= base;
    base *= base;
  }
  return result;
}

/// The value, clipped to [-limit, limit]; NaN stays. @pre limit >= 0
TESSERA_HOST_DEVICE constexpr float clip(float value, float limit) noexcept {
  auto const bits = detail::float_bits(value), magnitude = bits & 0x7FFFFFFF, most = detail::float_bits(limit) & 0x7FFFFFFF;
  bool const outside = magnitude > most && magnitude <= 0x7F800000;  // bits order magnitudes, with NaN above infinity
  return detail::float_of_bits(detail::select(outside, (bits & 0x80000000) | most, bits));
}

/// Gradient descent: w - rate * g.
TESSERA_HOST_DEVICE inline float sgd(float weight, float gradient, float rate) noexcept { return multiply_add(-rate, gradient, weight); }

/// The factor by which an accumulated square slows a step down: 1 / (sqrt(s) + epsilon).
TESSERA_HOST_DEVICE inline float adagrad_scale(float square_sum, float epsilon) noexcept {
  return 1.0F / (square_root(square_sum) + epsilon);
}

/// Adagrad as in PyTorch: s += g^2, then w -= rate * g / (sqrt(s) + epsilon).
TESSERA_HOST_DEVICE inline float adagrad(float weight, float& square_sum, float gradient, float rate, float epsilon) noexcept {
  square_sum = multiply_add(gradient, gradient, square_sum);
  return weight - rate * gradient / (square_root(square_sum) + epsilon);
}

/// What Adam needs beside the gradient. The corrections are 1 / (1 - beta^step).
struct adam_factors {
  float rate, beta1, beta2, epsilon;
  float correction1, correction2;
};

/// 1 / (1 - beta^step), computed in double. @pre step > 0
TESSERA_HOST_DEVICE constexpr float adam_correction(float beta, std::int64_t step) noexcept {
  return static_cast<float>(1.0 / (1.0 - power(static_cast<double>(beta), step)));
}

/// Adam as in PyTorch, with epsilon outside the root of the corrected second moment.
TESSERA_HOST_DEVICE inline float adam(float weight, float& moment1, float& moment2, float gradient, adam_factors const& f) noexcept {
  moment1 = multiply_add(1.0F - f.beta1, gradient - moment1, moment1);
  moment2 = multiply_add(f.beta2, moment2, (1.0F - f.beta2) * gradient * gradient);
  return weight - f.rate * f.correction1 * moment1 / (square_root(moment2 * f.correction2) + f.epsilon);
}

/// What FTRL-proximal needs beside the gradient.
struct ftrl_factors {
  float rate, beta, lambda1, lambda2;
};

/// FTRL-proximal: z += g - sigma * w with sigma = (sqrt(n + g^2) - sqrt(n)) / rate, then n += g^2. The weight follows from z alone; it is 0
/// where |z| <= lambda1. Source: McMahan et al., "Ad click prediction: a view from the trenches", KDD 2013, algorithm 1.
TESSERA_HOST_DEVICE inline float ftrl(float weight, float& z, float& n, float gradient, ftrl_factors const& f) noexcept {
  auto const root_before = square_root(n);
  n = multiply_add(gradient, gradient, n);
  auto const root = square_root(n);
  z += multiply_add(-(root - root_before) / f.rate, weight, gradient);
  auto const proximal = (copysignf(f.lambda1, z) - z) / ((f.beta + root) / f.rate + f.lambda2);
  return detail::float_of_bits(detail::select(fabsf(z) <= f.lambda1, 0, detail::float_bits(proximal)));
}

}  // namespace update_rules
}  // namespace TESSERA_ABI
}  // namespace tessera
