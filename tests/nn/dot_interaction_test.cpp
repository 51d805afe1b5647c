// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-optimize: -O2, sanitizers -O0
#include "dot_interaction_suite.hpp"

namespace {

using tessera_tests::strided_floats;

static_assert(tessera::dot_interaction_width(1, 16) == 16);
static_assert(tessera::dot_interaction_width(27, 16) == 16 + 351);

TEST_CASE("dot_interaction on the host") { tessera_tests::dot_interaction_suite<tessera_tests::nn_host<tessera_tests::naive_gemm>>(); }

TEST_CASE("dot_interaction: 1, 2 and 4 threads give the same bits") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  std::int64_t const samples = 333, count = 27, dim = 16;
  strided_floats const block(random, samples, count * dim, 0), gradient(random, samples, tessera::dot_interaction_width(count, dim), 1);
  std::vector<tessera::matrix_view<float const>> vectors;
  for (std::int64_t v = 0; v < count; ++v) vectors.push_back(block.view().columns_from(v * dim, dim));
  std::vector<float> first_out, first_gradients;
  tessera_tests::for_each_host([&](tessera::host_exec const& exec, auto&) {
    strided_floats out(samples, gradient.columns, 0), gradients(samples, count * dim, 0);
    std::vector<tessera::matrix_view<float>> vector_gradients;
    for (std::int64_t v = 0; v < count; ++v) vector_gradients.push_back(gradients.view().columns_from(v * dim, dim));
    tessera::dot_interaction(exec, vectors, out.view());
    tessera::dot_interaction_backward(exec, vectors, gradient.view(), vector_gradients);
    if (first_out.empty()) {
      first_out = out.storage;
      first_gradients = gradients.storage;
    }
    CHECK(tessera_tests::same_bits(out.storage, first_out));
    CHECK(tessera_tests::same_bits(gradients.storage, first_gradients));
  });
}

TEST_CASE("dot_interaction: the first vector may already lie in the output") {
  tessera_tests::serial_host host;
  strided_floats out(3, 5, 0, 2);
  strided_floats const other(3, 4, 0, 3);
  std::vector<tessera::matrix_view<float const>> const vectors{out.view().columns_from(0, 4), other.view()};
  tessera::dot_interaction(host.exec(), vectors, out.view());
  for (std::int64_t s = 0; s < 3; ++s) {
    CHECK(out.at(s, 3) == 2);
    CHECK(out.at(s, 4) == 24);
  }
}

}  // namespace
