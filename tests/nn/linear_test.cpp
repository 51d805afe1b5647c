// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-optimize: -O2, sanitizers -O0
#include "linear_suite.hpp"

#include <tessera/nn/gemm_eigen.hpp>

namespace {

using tessera_tests::nn_host;
using tessera_tests::strided_floats;

TEST_CASE("linear with a triple loop on two threads") {
  tessera_tests::linear_suite<nn_host<tessera_tests::naive_gemm, tessera_tests::pool_host<2>>>();
}
TEST_CASE("linear with Eigen") { tessera_tests::linear_suite<nn_host<tessera::eigen_gemm>>(); }

TEST_CASE("linear: bias gradients sum the rows in order, whatever the thread count") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  strided_floats const x(random, 500, 3, 0), gradient(random, 500, 333, 2);
  std::vector<float> expected(333);
  for (std::int64_t r = 0; r < 500; ++r)
    for (std::int64_t c = 0; c < 333; ++c) expected[static_cast<std::size_t>(c)] += gradient.at(r, c);
  tessera_tests::for_each_host([&](tessera::host_exec const& exec, auto&) {
    strided_floats weight(333, 3, 0);
    std::vector<float> bias(333);
    tessera::linear_backward_parameters(exec, tessera_tests::naive_gemm{}, x.view(), gradient.view(), {weight.view(), bias});
    CHECK(tessera_tests::same_bits(bias, expected));
  });
}

TEST_CASE("linear: relu_backward masks by the output, in place") {
  tessera_tests::for_each_host([](tessera::host_exec const& exec, auto&) {
    for (std::int64_t const rows : {0, 1, 256, 257, 700}) {
      strided_floats y(rows, 6, 1), gradient(rows, 6, 2, 5);
      std::vector<float> const outputs{-1, 0, -0.0F, 1e-30F, HUGE_VALF, std::nanf("")};
      for (std::int64_t r = 0; r < rows; ++r)
        for (std::int64_t c = 0; c < 6; ++c) y.at(r, c) = outputs[static_cast<std::size_t>((r + c) % 6)];
      tessera::relu_backward(exec, y.view(), gradient.view());
      int wrong = 0;
      for (std::int64_t r = 0; r < rows; ++r)
        for (std::int64_t c = 0; c < 6; ++c) wrong += gradient.at(r, c) != ((r + c) % 6 < 3 ? 0.0F : 5.0F);
      CHECK(wrong == 0);
      CHECK(gradient.gaps_intact());
    }
    strided_floats const y(2, 3, 0, 1);
    strided_floats gradient(3, 2, 0, 1);
    CHECK_THROWS_AS(tessera::relu_backward(exec, y.view(), gradient.view()), tessera::error);
  });
}

}  // namespace
