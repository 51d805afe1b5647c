// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-optimize: -O2, sanitizers -O0
#include "factorization_machine_suite.hpp"

namespace {

using tessera_tests::strided_floats;

TEST_CASE("factorization_machine on the host") {
  tessera_tests::factorization_machine_suite<tessera_tests::nn_host<tessera_tests::naive_gemm>>();
}

TEST_CASE("factorization_machine: 1, 2 and 4 threads give the same bits") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  std::int64_t const samples = 333, count = 27, dim = 20;
  strided_floats const block(random, samples, count * dim, 0), gradient(random, samples, 1, 1);
  std::vector<tessera::matrix_view<float const>> vectors;
  for (std::int64_t v = 0; v < count; ++v) vectors.push_back(block.view().columns_from(v * dim, dim));
  std::vector<float> first_logits, first_gradients;
  tessera_tests::for_each_host([&](tessera::host_exec const& exec, auto&) {
    strided_floats logits(samples, 1, 0, 1), gradients(samples, count * dim, 0, 1);
    std::vector<tessera::matrix_view<float>> vector_gradients;
    for (std::int64_t v = 0; v < count; ++v) vector_gradients.push_back(gradients.view().columns_from(v * dim, dim));
    tessera::factorization_machine(exec, vectors, logits.view());
    tessera::factorization_machine_backward(exec, vectors, gradient.view(), vector_gradients);
    if (first_logits.empty()) {
      first_logits = logits.storage;
      first_gradients = gradients.storage;
    }
    CHECK(tessera_tests::same_bits(logits.storage, first_logits));
    CHECK(tessera_tests::same_bits(gradients.storage, first_gradients));
  });
}

}  // namespace
