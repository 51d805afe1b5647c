// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <math.h>  // sqrtf for host and device alike

#include <tessera/core/config.hpp>
#include <tessera/core/multiply_add.hpp>

/// What an optimizer does to one element: shared by dense parameters and embedding rows, host and device.
namespace tessera::inline TESSERA_ABI::update_rules {

/// w - rate * g.
TESSERA_HOST_DEVICE inline float sgd(float weight, float gradient, float rate) noexcept { return multiply_add(-rate, gradient, weight); }

/// How much an accumulated square slows a step down: 1 / (sqrt(s) + epsilon).
TESSERA_HOST_DEVICE inline float adagrad_scale(float square_sum, float epsilon) noexcept { return 1.0F / (sqrtf(square_sum) + epsilon); }

/// Adagrad as PyTorch has it: s += g^2, then w -= rate * g / (sqrt(s) + epsilon).
TESSERA_HOST_DEVICE inline float adagrad(float weight, float& square_sum, float gradient, float rate, float epsilon) noexcept {
  square_sum = multiply_add(gradient, gradient, square_sum);
  return weight - rate * gradient / (sqrtf(square_sum) + epsilon);
}

/// What Adam needs beside the gradient. The corrections are 1 / (1 - beta^step).
struct adam_factors {
  float rate, beta1, beta2, epsilon;
  float correction1, correction2;
};

/// Adam as PyTorch has it: epsilon outside the root of the corrected second moment.
TESSERA_HOST_DEVICE inline float adam(float weight, float& moment1, float& moment2, float gradient, adam_factors const& f) noexcept {
  moment1 = multiply_add(1.0F - f.beta1, gradient - moment1, moment1);
  moment2 = multiply_add(f.beta2, moment2, (1.0F - f.beta2) * gradient * gradient);
  return weight - f.rate * f.correction1 * moment1 / (sqrtf(moment2 * f.correction2) + f.epsilon);
}

}  // namespace tessera::inline TESSERA_ABI::update_rules
