// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <tessera/core/config.hpp>
#include <tessera/core/types.hpp>
#include <tessera/core/update_rules.hpp>

/// Optimizers whose elements know nothing of each other; they serve embedding rows (`row_optimizer`) and dense parameters
/// (`dense_optimizer`) alike, on host and device.
namespace tessera::inline TESSERA_ABI {

/// What an optimizer learns of a row, or of a block of dense parameters, before its elements.
struct row_gradient {
  float sum_of_squares;  // of a row's summed gradient; 0 for a dense block
  std::int64_t dim;
  step_count step;  // of the table or model, 1 at the first
};

/// w -= learning_rate * g.
struct sgd {
  static constexpr int row_state = 0;
  static constexpr int element_state = 0;
  float learning_rate = 0.1F;

  TESSERA_HOST_DEVICE float begin_row(float*, row_gradient const&) const noexcept { return learning_rate; }
  TESSERA_HOST_DEVICE void update(float& weight, float*, std::int64_t, float gradient, float rate) const noexcept {
    weight = update_rules::sgd(weight, gradient, rate);
  }
};

/// s += g^2, then w -= learning_rate * g / (sqrt(s) + epsilon), as torch.optim.Adagrad.
struct adagrad {
  static constexpr int row_state = 0;
  static constexpr int element_state = 1;
  float learning_rate = 0.01F;
  float epsilon = 1e-10F;
  float initial_state = 0;

  TESSERA_HOST_DEVICE float begin_row(float*, row_gradient const&) const noexcept { return learning_rate; }
  TESSERA_HOST_DEVICE void update(float& weight, float* state, std::int64_t, float gradient, float rate) const noexcept {
    weight = update_rules::adagrad(weight, state[0], gradient, rate, epsilon);
  }
};

/// As torch.optim.Adam; source: Kingma and Ba, "Adam: a method for stochastic optimization", ICLR 2015, algorithm 1.
struct adam {
  static constexpr int row_state = 0;
  static constexpr int element_state = 2;
  float learning_rate = 0.001F;
  float beta1 = 0.9F;
  float beta2 = 0.999F;
  float epsilon = 1e-8F;

  TESSERA_HOST_DEVICE update_rules::adam_factors begin_row(float*, row_gradient const& row) const noexcept {
    auto const step = static_cast<double>(row.step.value);
    return {learning_rate,
            beta1,
            beta2,
            epsilon,
            static_cast<float>(1.0 / (1.0 - ::pow(static_cast<double>(beta1), step))),
            static_cast<float>(1.0 / (1.0 - ::pow(static_cast<double>(beta2), step)))};
  }
  TESSERA_HOST_DEVICE void update(float& weight, float* state, std::int64_t stride, float gradient,
                                  update_rules::adam_factors const& factors) const noexcept {
    weight = update_rules::adam(weight, state[0], state[stride], gradient, factors);
  }
};

}  // namespace tessera::inline TESSERA_ABI
