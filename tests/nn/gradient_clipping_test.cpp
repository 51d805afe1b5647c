// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-labels: threads
// ctest-optimize: -O2, sanitizers -O0
#include "gradient_clipping_suite.hpp"

TEST_CASE("gradient clipping on the host") { tessera_tests::gradient_clipping_suite<tessera_tests::nn_host<tessera_tests::naive_gemm>>(); }

TEST_CASE("clip_global_norm: 1, 2 and 4 threads give the same bits") {
  std::mt19937_64 random(1);
  std::vector<std::vector<float>> const values{tessera_tests::random_floats(random, 100'000), tessera_tests::random_floats(random, 1000),
                                               tessera_tests::random_floats(random, 50'000)};
  std::vector<float> first;
  double first_norm = 0;
  tessera_tests::for_each_host([&](tessera::host_exec const& exec, auto&) {
    auto gradients = values;
    std::vector<tessera::vector_view<float>> const views(gradients.begin(), gradients.end());
    auto const norm = tessera::clip_global_norm(exec, views, 3);
    std::vector<float> all;
    for (auto const& g : gradients) all.insert(all.end(), g.begin(), g.end());
    if (first.empty()) {
      first = all;
      first_norm = norm;
    }
    CHECK(norm == first_norm);
    CHECK(tessera_tests::same_bits(all, first));
  });
}
