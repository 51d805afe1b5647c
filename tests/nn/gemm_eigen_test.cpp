// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-labels: threads
#include <tessera/nn/gemm_eigen.hpp>

#include "gemm_suite.hpp"

namespace {

using tessera_tests::strided_floats;

TEST_CASE("gemm with Eigen") { tessera_tests::gemm_suite<tessera_tests::nn_host<tessera::eigen_gemm>>(); }

TEST_CASE("gemm with Eigen: 1, 2 and 4 threads give the same bits") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  std::vector<tessera_tests::gemm_shape> shapes{{1, 1, 1}, {17, 513, 33}, {300, 300, 5}, {1, 700, 100}, {700, 1, 100}, {33, 65, 3000}};
  if (!tessera_tests::under_tsan)
    shapes.insert(shapes.end(), {{128, 512, 367}, {2048, 16, 64}, {367, 512, 2048}, {1, 256, 2048}, {2048, 512, 13}, {2048, 1, 256}});
  for (auto const shape : shapes) {
    auto const m = shape.m, n = shape.n, k = shape.k;
    CAPTURE(m);
    CAPTURE(n);
    CAPTURE(k);
    strided_floats const a(random, m, k, 1), b(random, k, n, 0);
    for (unsigned way = 0; way < 4; ++way) {
      if (m * n * k > 1 << 24 && way != 1 && way != 2) continue;
      CAPTURE(way);
      auto const stored_a = (way & 1) != 0 ? a.transposed(0) : a;
      auto const stored_b = (way & 2) != 0 ? b.transposed(3) : b;
      std::vector<float> first;
      tessera_tests::for_each_host([&](tessera::host_exec const& exec, auto&) {
        strided_floats c(m, n, 2);
        tessera::gemm(exec, tessera::eigen_gemm{}, tessera::gemm_operand(stored_a.view(), (way & 1) != 0),
                      tessera::gemm_operand(stored_b.view(), (way & 2) != 0), c.view());
        if (first.empty()) first = c.storage;
        CHECK(tessera_tests::same_bits(c.storage, first));
      });
    }
  }
}

}  // namespace
