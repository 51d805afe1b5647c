// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-optimize: -O2, sanitizers -O0
#include "gemm_host_suite.hpp"

namespace {

TEST_CASE("gemm with Eigen") { tessera_tests::gemm_suite<tessera_tests::nn_host<tessera::eigen_gemm>>(); }

TEST_CASE("gemm with Eigen: 1, 2 and 4 threads give the same bits") { tessera_tests::gemm_same_bits<tessera::eigen_gemm>(); }
TEST_CASE("gemm with Eigen: a single row's stride is anything") { tessera_tests::gemm_single_rows<tessera::eigen_gemm>(); }

// Remembers the most it was asked for, and checks that each tile finds as much.
struct watchful_gemm {
  std::int64_t* largest;
  std::int64_t workspace(std::int64_t m, std::int64_t n, std::int64_t k) const {
    auto const floats = tessera::eigen_gemm::workspace(m, n, k);
    *largest = std::max(*largest, floats);
    return floats;
  }
  void multiply(tessera::gemm_operand a, tessera::gemm_operand, tessera::matrix_view<float> c, float*) const {
    if (tessera::eigen_gemm::workspace(c.rows(), c.columns(), a.columns()) > *largest)
      throw tessera::error(tessera::errc::out_of_range, "too little workspace");
  }
};

TEST_CASE("gemm with Eigen: every tile of every shape finds the workspace it needs") {
  tessera_tests::serial_host host;
  std::int64_t short_of = 0;
  for (std::int64_t const n : {1, 16, 64, 128, 200, 256, 367, 512})
    for (std::int64_t const k : {1, 13, 64, 128, 200, 256, 367, 512})
      for (std::int64_t m = 1; m <= 2500; m += m < 600 ? 1 : 7) {
        std::int64_t largest = 0;
        float nothing = 0;  // watchful_gemm touches no element
        try {
          tessera::gemm(host.exec(), watchful_gemm{&largest}, tessera::matrix_view<float const>(&nothing, m, k),
                        tessera::matrix_view<float const>(&nothing, k, n), tessera::matrix_view<float>(&nothing, m, n));
        } catch (tessera::error const&) {
          ++short_of;
        }
      }
  CHECK(short_of == 0);
}

TEST_CASE("gemm with Eigen: a product stays inside its workspace") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  tessera_tests::serial_host host;
  std::vector<tessera_tests::gemm_shape> shapes{{1000 % 256, 128, 128}, {232, 128, 128}, {225, 1, 200}, {1, 1, 1},
                                                {256, 256, 2048},       {153, 256, 512}};
  for (int i = 0; i < 40; ++i)
    shapes.push_back({static_cast<std::int64_t>(random() % 256 + 1), static_cast<std::int64_t>(random() % 256 + 1),
                      static_cast<std::int64_t>(random() % 600 + 1)});
  for (auto const shape : shapes) {
    auto const m = shape.m, n = shape.n, k = shape.k;
    CAPTURE(m);
    CAPTURE(n);
    CAPTURE(k);
    auto const floats = tessera::eigen_gemm::workspace(m, n, k);
    tessera::buffer<float> workspace(host.exec(), floats + 64);
    std::fill(workspace.begin() + floats, workspace.end(), 7.0F);
    std::vector<float> const a(static_cast<std::size_t>(m * k), 1.0F), b(static_cast<std::size_t>(k * n), 2.0F);
    std::vector<float> c(static_cast<std::size_t>(m * n));
    tessera::eigen_gemm::multiply(tessera::matrix_view<float const>(a.data(), m, k), tessera::matrix_view<float const>(b.data(), k, n),
                                  {c.data(), m, n}, workspace.data());
    CHECK(std::all_of(workspace.begin() + floats, workspace.end(), [](float f) { return f == 7.0F; }));
    CHECK(std::all_of(c.begin(), c.end(), [expected = 2.0F * static_cast<float>(k)](float f) { return f == expected; }));
  }
}

}  // namespace
