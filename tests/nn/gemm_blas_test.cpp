// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-labels: threads
// ctest-target: tessera::blas
#include <tessera/nn/gemm_blas.hpp>

#include <filesystem>
#include <iterator>
#include <limits>
#include <numeric>

#include <tessera/nn/gemm_eigen.hpp>

#include "cross_net_suite.hpp"
#include "gemm_suite.hpp"
#include "mlp_suite.hpp"
#include "skip.hpp"
#include "temporary_folder.hpp"

namespace {

using tessera::blas_gemm;
using tessera_tests::nn_host;
using tessera_tests::strided_floats;

// Many small products at once, each thread's of its own factors: a library whose buffers are a race between threads mixes them up. First in
// the file, since the race is mostly for the first buffers of a process.
TEST_CASE("gemm with a BLAS: the library may be called from several threads") {
  constexpr std::int64_t m = 257, n = 15, k = 2, pieces = 16;
  std::int64_t const products = tessera_tests::under_tsan ? 100 : 4000;
  strided_floats const ones(k, n, 0, 1);
  tessera_tests::pool_host<2> host;
  std::vector<std::int64_t> wrong(static_cast<std::size_t>(pieces));
  host.exec().run(pieces, [&](std::int64_t piece) {
    auto const value = static_cast<float>(piece + 1);
    strided_floats const mine(m, k, 0, value);
    strided_floats c(m, n, 0);
    for (std::int64_t i = 0; i < products; ++i) {
      blas_gemm::multiply(mine.view(), ones.view(), c.view(), nullptr);
      wrong[static_cast<std::size_t>(piece)] += m * n - std::count(c.storage.begin(), c.storage.end(), k * value);
    }
  });
  CHECK(std::accumulate(wrong.begin(), wrong.end(), std::int64_t{0}) == 0);
}

TEST_CASE("gemm with a BLAS") { tessera_tests::gemm_suite<nn_host<blas_gemm>>(); }
TEST_CASE("gemm with a BLAS on two threads") { tessera_tests::gemm_suite<nn_host<blas_gemm, tessera_tests::pool_host<2>>>(); }
TEST_CASE("mlp with a BLAS") { tessera_tests::mlp_suite<nn_host<blas_gemm>>(); }
TEST_CASE("cross_net with a BLAS on two threads") { tessera_tests::cross_net_suite<nn_host<blas_gemm, tessera_tests::pool_host<2>>>(); }

TEST_CASE("gemm with a BLAS: 1, 2 and 4 threads give the same bits, and Eigen's products") {
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
      tessera::gemm_operand const left(stored_a.view(), (way & 1) != 0), right(stored_b.view(), (way & 2) != 0);
      std::vector<float> first;
      tessera_tests::for_each_host([&](tessera::host_exec const& exec, auto& memory) {
        strided_floats c(m, n, 2), by_eigen(m, n, 2);
        auto const before = memory.allocations();
        tessera::gemm(exec, blas_gemm{}, left, right, c.view());
        CHECK(memory.allocations() == before);  // no workspace of ours
        if (first.empty()) {
          first = c.storage;
          tessera::gemm(exec, tessera::eigen_gemm{}, left, right, by_eigen.view());
          CHECK(tessera_tests::worst_difference(c, tessera_tests::doubles(by_eigen)) < 1e-5);
        }
        CHECK(tessera_tests::same_bits(c.storage, first));
      });
    }
  }
}

// A library's threads start when it is loaded or at its first large product.
TEST_CASE("gemm with a BLAS: each product stays on its thread, given OPENBLAS_NUM_THREADS=1 and the like") {
  if (!std::filesystem::exists("/proc/self/task")) return tessera_tests::skip("threads are counted in /proc/self/task");
  tessera_tests::serial_host host;
  auto const threads = [] {
    std::filesystem::directory_iterator const tasks("/proc/self/task");
    return std::distance(begin(tasks), end(tasks));
  };
  strided_floats const a(1000, 1000, 0, 1), b(1000, 1000, 0, 1);
  strided_floats c(1000, 1000, 0);
  tessera::gemm(host.exec(), blas_gemm{}, a.view(), b.view(), c.view());
  CHECK(c.at(999, 999) == 1000);
  CHECK(threads() == (tessera_tests::under_tsan ? threads() : 1));  // the thread sanitizer has one of its own
}

TEST_CASE("gemm with a BLAS: what the library's integer cannot hold is refused") {
  using integer = decltype(tessera::detail::blas_integer_of(&cblas_sgemm));
  if (sizeof(integer) != sizeof(std::int32_t)) return;
  std::int64_t const past = std::int64_t{std::numeric_limits<std::int32_t>::max()} + 1;
  std::vector<float> const factors{2, 3};
  float product[2] = {};
  auto const e = tessera_tests::error_of([&] {
    blas_gemm::multiply(tessera::matrix_view<float const>(factors.data(), 2, 1, past), tessera::matrix_view<float const>(&factors[1], 1, 1),
                        tessera::matrix_view<float>(product, 2, 1), nullptr);
  });
  CHECK(e.code() == tessera::errc::out_of_range);
  CHECK(e.value("stride") == std::to_string(past));
  CHECK(product[0] == 0);
}

TEST_CASE("gemm with a BLAS: a single row's stride is anything, rows that overlap are refused") {
  std::vector<float> const row{1, 2, 3, 4, 5, 6};
  float product[2] = {};
  tessera::matrix_view<float const> const one(row.data(), 1, 3, 0), columns(row.data(), 3, 2), overlapping(row.data(), 3, 2, 1);
  blas_gemm::multiply(one, columns, tessera::matrix_view<float>(product, 1, 2, 0), nullptr);
  CHECK(product[0] == 22);
  CHECK(product[1] == 28);
  auto const e =
      tessera_tests::error_of([&] { blas_gemm::multiply(one, overlapping, tessera::matrix_view<float>(product, 1, 2), nullptr); });
  CHECK(e.code() == tessera::errc::invalid_argument);
  CHECK(e.value("matrix") == "b");
  CHECK(e.value("stride") == "1");
}

}  // namespace
