// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>

#include <tessera/nn/any_gemm.hpp>
#include <tessera/nn/mlp.hpp>

#include "nn_harness.hpp"

namespace tessera_tests {

/// Outputs and gradients of an MLP under `policy`, one after the other, and how often the execution's memory was asked.
template <class Gemm>
std::pair<std::vector<float>, std::int64_t> mlp_results(Gemm const& policy, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  pool_host<2> host;
  constexpr std::int64_t samples = 300;
  tessera::mlp const net(host.exec(), tessera::mlp_options{{33, 70, 20, 3}, tessera::activation::relu, tessera::random_seed{seed}});
  strided_floats const x(random, samples, 33, 1);
  strided_floats gradient(random, samples, 3, 2), y(samples, 3, 1), x_gradient(samples, 33, 3);
  std::vector<float> results(static_cast<std::size_t>(net.parameters().size()));
  tessera::mlp_saved saved;
  net.forward(host.exec(), policy, x.view(), y.view(), saved);
  net.backward(host.exec(), policy, saved, gradient.view(), results, x_gradient.view());
  results.insert(results.end(), y.storage.begin(), y.storage.end());
  results.insert(results.end(), x_gradient.storage.begin(), x_gradient.storage.end());
  return {std::move(results), host.memory().allocations()};
}

/// `any_gemm` of a policy is that policy: the same bits, and no other allocation.
template <class Gemm>
void any_gemm_is(Gemm const& policy) {
  auto const seed = draw_seed();
  CAPTURE(seed);
  auto const [direct, asked] = mlp_results(policy, seed);
  auto const [held, held_asked] = mlp_results(tessera::any_gemm(policy), seed);
  CHECK(same_bits(held, direct));
  CHECK(held_asked == asked);
}

}  // namespace tessera_tests
