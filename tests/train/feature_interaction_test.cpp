// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <cstdint>
#include <new>
#include <vector>

#include <tessera/nn/gemm_eigen.hpp>
#include <tessera/train/feature_interaction.hpp>

#include "hosts.hpp"

using namespace tessera;

TEST_CASE_TEMPLATE("of a forward that throws, no backward takes what it saved", Interaction, dot_products, cross_layers, factorization) {
  tessera_tests::serial_host host;
  constexpr std::int64_t samples = 5, vectors = 3, dim = 4;
  Interaction interaction(host.exec(), {}, vectors, dim, random_seed{1});
  auto const width = interaction.output_width();
  std::vector<float> x(samples * vectors * dim, 0.5F), x_gradient = x, out(static_cast<std::size_t>(samples * width)), out_gradient = out;
  std::vector<float> const logit_gradient(samples, 1.0F);
  std::vector<float> block(static_cast<std::size_t>(interaction.parameters().size()));
  typename Interaction::saved saved;
  auto const forward = [&](std::int64_t columns) {
    interaction.forward(host.exec(), eigen_gemm{}, matrix_view<float const>(x.data(), samples, vectors * dim),
                        matrix_view<float>(out.data(), samples, columns), saved);
  };
  auto const backward = [&] {
    interaction.backward(host.exec(), eigen_gemm{}, saved, matrix_view<float>(out_gradient.data(), samples, width), logit_gradient, block,
                         matrix_view<float>(x_gradient.data(), samples, vectors * dim));
  };
  forward(width);
  backward();
  if (checked || !std::is_same_v<Interaction, factorization>) {
    CHECK_THROWS_AS(forward(width - 1), error);
    CHECK_THROWS_AS(backward(), error);
  }
  for (int failures = 0;; ++failures) {
    forward(width);
    host.memory().fail_after(failures);
    bool failed = false;
    try {
      forward(width);
    } catch (std::bad_alloc const&) {
      failed = true;
    }
    host.memory().never_fail();
    if (!failed) break;
    CHECK_THROWS_AS(backward(), error);
  }
  backward();
}
