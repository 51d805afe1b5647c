// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-labels: threads
// ctest-optimize: -O2, sanitizers -O0
#include "any_gemm_suite.hpp"

#include <array>
#include <atomic>
#include <concepts>
#include <memory>
#include <string>
#include <type_traits>

#include <tessera/nn/gemm_eigen.hpp>

#include "gemm_suite.hpp"
#include "temporary_folder.hpp"

namespace {

using tessera::any_gemm;
using tessera::eigen_gemm;
using tessera_tests::same_bits;
using tessera_tests::strided_floats;

struct any_eigen : any_gemm {
  any_eigen() : any_gemm(eigen_gemm{}) {}
};

// Products in reverse order of k, which are other bits than Eigen's, and what was asked for.
struct counting_gemm {
  struct counts {
    std::atomic<std::int64_t> products{0}, workspaces{0}, copies{0};
  };
  counts* seen;

  explicit counting_gemm(counts& seen) : seen(&seen) {}
  counting_gemm(counting_gemm const& other) : seen(other.seen) { ++seen->copies; }
  counting_gemm& operator=(counting_gemm const&) = delete;

  std::int64_t workspace(std::int64_t m, std::int64_t n, std::int64_t k) const {
    ++seen->workspaces;
    return m + 1000 * n + 1000000 * k;
  }
  void multiply(tessera::gemm_operand a, tessera::gemm_operand b, tessera::matrix_view<float> c, float* workspace) const {
    ++seen->products;
    *workspace = 0;
    for (std::int64_t i = 0; i < c.rows(); ++i)
      for (std::int64_t j = 0; j < c.columns(); ++j) {
        float sum = 0;
        for (auto k = a.columns(); k-- > 0;)
          sum += (a.is_transposed ? a.stored(k, i) : a.stored(i, k)) * (b.is_transposed ? b.stored(j, k) : b.stored(k, j));
        c(i, j) = sum;
      }
  }
};

// Too large for any small buffer, moved and never copied.
struct unique_gemm : eigen_gemm {
  std::unique_ptr<std::array<float, 100>> table = std::make_unique<std::array<float, 100>>();
};

struct throwing_gemm : eigen_gemm {
  static void multiply(tessera::gemm_operand, tessera::gemm_operand, tessera::matrix_view<float>, float*) {
    throw tessera::error(tessera::errc::out_of_range, "throwing_gemm: a product", {{"m", 1}});
  }
};

static_assert(std::copyable<any_gemm> && !std::is_default_constructible_v<any_gemm>);
static_assert(std::convertible_to<eigen_gemm, any_gemm> && std::convertible_to<unique_gemm, any_gemm>);
static_assert(!std::constructible_from<any_gemm, int>);

TEST_CASE("any_gemm: a gemm policy as any other") { tessera_tests::gemm_suite<tessera_tests::nn_host<any_eigen>>(); }

TEST_CASE("any_gemm: an MLP under the policy held has the bits it has under the policy") {
  tessera_tests::any_gemm_is(eigen_gemm{});
  tessera_tests::any_gemm_is(tessera_tests::naive_workspace_gemm{});
  tessera_tests::any_gemm_is(any_gemm(eigen_gemm{}));
}

TEST_CASE("any_gemm: the policy may change from product to product; every call reaches the one held, and copies share it") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  tessera_tests::serial_host host;
  strided_floats const a(random, 40, 50, 1), b(random, 50, 30, 0);
  auto const product = [&](auto const& policy) {
    strided_floats c(40, 30, 0);
    tessera::gemm(host.exec(), policy, a.view(), b.view(), c.view());
    return c.storage;
  };
  counting_gemm::counts seen;
  counting_gemm const counting(seen);
  auto const by_eigen = product(eigen_gemm{}), by_counting = product(counting);
  REQUIRE_FALSE(same_bits(by_eigen, by_counting));
  auto const products = seen.products.load(), workspaces = seen.workspaces.load();
  CHECK(products == 1);

  any_gemm policy = eigen_gemm{};
  any_gemm const other = counting;
  CHECK(seen.copies == 1);
  CHECK(same_bits(product(policy), by_eigen));
  CHECK(seen.products == products);
  auto const before = policy;
  policy = other;
  CHECK(same_bits(product(policy), by_counting));
  CHECK(same_bits(product(other), by_counting));
  CHECK(same_bits(product(before), by_eigen));
  CHECK(seen.products == 3 * products);
  CHECK(seen.workspaces == 3 * workspaces);
  CHECK(policy.workspace(1, 2, 3) == 3002001);
  CHECK(seen.copies == 1);
  policy = eigen_gemm{};
  CHECK(same_bits(product(policy), by_eigen));

  auto const moved = std::move(policy);         // what is moved from is as good as before
  CHECK(same_bits(product(policy), by_eigen));  // NOLINT: used after a move
  CHECK(same_bits(product(moved), by_eigen));
  CHECK(same_bits(product(any_gemm(unique_gemm{})), by_eigen));
}

TEST_CASE("any_gemm: what the policy throws reaches the caller") {
  tessera_tests::serial_host host;
  strided_floats const a(3, 3, 0, 1);
  strided_floats c(3, 3, 0);
  any_gemm const policy = throwing_gemm{};
  auto const e = tessera_tests::error_of([&] { tessera::gemm(host.exec(), policy, a.view(), a.view(), c.view()); });
  CHECK(e.code() == tessera::errc::out_of_range);
  CHECK(e.value("m") == "1");
}

}  // namespace
