// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-labels: values
// ctest-target: tessera::blas
// ctest-optimize: -O2
// ctest-weight: 2
#include <tessera/nn/gemm_blas.hpp>

#include <limits>

#include "any_gemm_suite.hpp"
#include "cross_net_suite.hpp"
#include "gemm_host_suite.hpp"
#include "mlp_suite.hpp"
#include "skip.hpp"
#include "temporary_folder.hpp"

namespace {

using tessera::blas_gemm;
using tessera_tests::nn_host;
using tessera_tests::strided_floats;

TEST_CASE("gemm with a BLAS: the library may be called from several threads") { tessera_tests::gemm_concurrent_calls<blas_gemm>(); }

TEST_CASE("gemm with a BLAS") { tessera_tests::gemm_suite<nn_host<blas_gemm>>(); }
TEST_CASE("gemm with a BLAS on two threads") { tessera_tests::gemm_suite<nn_host<blas_gemm, tessera_tests::pool_host<2>>>(); }
TEST_CASE("mlp with a BLAS") { tessera_tests::mlp_suite<nn_host<blas_gemm>>(); }
TEST_CASE("cross_net with a BLAS on two threads") { tessera_tests::cross_net_suite<nn_host<blas_gemm, tessera_tests::pool_host<2>>>(); }

TEST_CASE("any_gemm of a BLAS is that BLAS") { tessera_tests::any_gemm_is(blas_gemm{}); }

TEST_CASE("gemm with a BLAS: 1, 2 and 4 threads give the same bits, and Eigen's products") { tessera_tests::gemm_same_bits<blas_gemm>(); }

// A library's threads start when it is loaded or at its first large product.
TEST_CASE("gemm with a BLAS: each product stays on its thread, given OPENBLAS_NUM_THREADS=1 and the like") {
  if (!tessera_tests::threads_can_be_counted()) return tessera_tests::skip("threads are counted in /proc/self/task");
  tessera_tests::large_product<blas_gemm>();
  if (!tessera_tests::under_tsan) CHECK(tessera_tests::count_threads() == 1);  // the thread sanitizer has one of its own
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

TEST_CASE("gemm with a BLAS: a single row's stride is anything") { tessera_tests::gemm_single_rows<blas_gemm>(); }

}  // namespace
