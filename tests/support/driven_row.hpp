// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include <tessera/core/optimizers.hpp>

#include "random.hpp"

namespace tessera_tests {

inline double as_double(float x) { return static_cast<double>(x); }

/// One row, driven as the backward drives it: the row's states first, then one plane of `dim` a state of the elements.
template <class Optimizer>
struct driven_row {
  Optimizer optimizer;
  std::vector<float> weights, state;

  driven_row(Optimizer const& optimizer, std::vector<float> const& weights)
      : optimizer(optimizer),
        weights(weights),
        state(static_cast<std::size_t>(Optimizer::row_state) + static_cast<std::size_t>(Optimizer::element_state) * weights.size(),
              tessera::initial_state_of(optimizer)) {}

  void step(std::vector<float> gradient, std::int64_t count) {
    auto const dim = static_cast<std::int64_t>(weights.size());
    float squares = 0;
    for (std::size_t c = 0; c < weights.size(); ++c) {
      if constexpr (requires { optimizer.gradient_of(0.0F, 0.0F); }) gradient[c] = optimizer.gradient_of(gradient[c], weights[c]);
      squares += gradient[c] * gradient[c];
    }
    auto const factor = optimizer.begin_row(state.data(), {squares, dim, tessera::step_count(count)});
    for (std::int64_t c = 0; c < dim; ++c)
      optimizer.update(weights[static_cast<std::size_t>(c)], state.data() + Optimizer::row_state + (Optimizer::element_state > 0 ? c : 0),
                       dim, gradient[static_cast<std::size_t>(c)], factor);
  }
};

/// Runs steps beside a float64 reference: `reference(weights, gradient, step)` changes its weights.
template <class Optimizer, class Reference>
void compare_with(Optimizer const& optimizer, Reference reference) {
  auto const seed = draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  auto const weights = random_floats(random, 19);
  driven_row<Optimizer> row(optimizer, weights);
  std::vector<double> expected(weights.begin(), weights.end());
  for (std::int64_t step = 1; step <= 20; ++step) {
    auto const gradient = random_floats(random, 19);
    row.step(gradient, step);
    reference(expected, gradient, step);
    for (std::size_t c = 0; c < 19; ++c) CHECK(std::abs(static_cast<double>(row.weights[c]) - expected[c]) < 1e-5);
  }
}

}  // namespace tessera_tests
