// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-labels: threads values
// ctest-target: tessera::dnnl
// ctest-optimize: -O2, sanitizers -O0
// ctest-weight: 2
#include <tessera/nn/gemm_dnnl.hpp>

#include "any_gemm_suite.hpp"
#include "cross_net_suite.hpp"
#include "gemm_host_suite.hpp"
#include "mlp_suite.hpp"
#include "skip.hpp"
#include "temporary_folder.hpp"

namespace {

using tessera::dnnl_bf16_gemm;
using tessera::dnnl_fp32_gemm;
using tessera_tests::nn_host;
using tessera_tests::strided_floats;

constexpr char const* no_bf16 = "oneDNN has no bf16 product for this processor";

// What the contract promises elsewhere: an error that says so.
bool has_bf16() {
  static bool const has = [] {
    try {
      strided_floats const one(1, 1, 0, 1);
      float product = 0, workspace[48];
      dnnl_bf16_gemm::multiply(one.view(), one.view(), tessera::matrix_view<float>(&product, 1, 1), workspace);
      return true;
    } catch (tessera::error const& e) {
      CHECK(e.code() == tessera::errc::incompatible);
      CHECK(e.value("status") == "unimplemented");
      return false;
    }
  }();
  return has;
}

// The definition: eight bits of a mantissa, the nearest, of two equally near the even one. For normal numbers.
double bf16_of(float value) {
  if (value == 0) return 0;
  auto const step = std::ldexp(1.0, std::ilogb(value) - 7);
  return std::nearbyint(static_cast<double>(value) / step) * step;
}
strided_floats rounded(strided_floats m) {
  for (std::int64_t r = 0; r < m.rows; ++r)
    for (std::int64_t c = 0; c < m.columns; ++c) m.at(r, c) = static_cast<float>(bf16_of(m.at(r, c)));
  return m;
}

TEST_CASE("gemm with oneDNN: the library may be called from several threads") {
  tessera_tests::gemm_concurrent_calls<dnnl_fp32_gemm>();
  if (has_bf16()) tessera_tests::gemm_concurrent_calls<dnnl_bf16_gemm>();
}

TEST_CASE("gemm with oneDNN") { tessera_tests::gemm_suite<nn_host<dnnl_fp32_gemm>>(); }
TEST_CASE("gemm with oneDNN on two threads") { tessera_tests::gemm_suite<nn_host<dnnl_fp32_gemm, tessera_tests::pool_host<2>>>(); }
TEST_CASE("mlp with oneDNN") { tessera_tests::mlp_suite<nn_host<dnnl_fp32_gemm>>(); }
TEST_CASE("cross_net with oneDNN on two threads") {
  tessera_tests::cross_net_suite<nn_host<dnnl_fp32_gemm, tessera_tests::pool_host<2>>>();
}

TEST_CASE("any_gemm of oneDNN is oneDNN") {
  tessera_tests::any_gemm_is(dnnl_fp32_gemm{});
  if (has_bf16()) tessera_tests::any_gemm_is(dnnl_bf16_gemm{});
}

TEST_CASE("gemm with oneDNN: 1, 2 and 4 threads give the same bits, and Eigen's products") {
  tessera_tests::gemm_same_bits<dnnl_fp32_gemm>();
}
TEST_CASE("gemm with oneDNN in bf16: 1, 2 and 4 threads give the same bits, and Eigen's products of rounded factors") {
  if (!has_bf16()) return tessera_tests::skip(no_bf16);
  tessera_tests::gemm_same_bits<dnnl_bf16_gemm>(rounded);
}

TEST_CASE("gemm with oneDNN: each product stays on its thread, whose number of OpenMP threads is put back") {
  if (!tessera_tests::threads_can_be_counted()) return tessera_tests::skip("threads are counted in /proc/self/task");
  auto const set = reinterpret_cast<void (*)(int)>(dlsym(RTLD_DEFAULT, "omp_set_num_threads"));
  auto const get = reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, "omp_get_max_threads"));
  int const many = 3, before = get == nullptr ? many : get();
  if (set != nullptr) set(many);
  auto const threads = tessera_tests::count_threads();
  tessera_tests::large_product<dnnl_fp32_gemm>();
  if (has_bf16()) tessera_tests::large_product<dnnl_bf16_gemm>();
  CHECK(tessera_tests::count_threads() == threads);
  if (get != nullptr) CHECK(get() == many);
  if (set != nullptr) set(before);
}

TEST_CASE("gemm with oneDNN: a single row's stride is anything, and a refusal names status and extents") {
  tessera_tests::gemm_single_rows<dnnl_fp32_gemm>();
  if (has_bf16()) tessera_tests::gemm_single_rows<dnnl_bf16_gemm>();
  std::vector<float> const row{1, 2, 3, 4, 5, 6};
  float product[2] = {};
  float workspace[96];
  tessera::matrix_view<float const> const one(row.data(), 1, 3), overlapping(row.data(), 3, 2, 1);
  auto const e =
      tessera_tests::error_of([&] { dnnl_fp32_gemm::multiply(one, overlapping, tessera::matrix_view<float>(product, 1, 2), nullptr); });
  CHECK(e.code() == tessera::errc::invalid_argument);
  CHECK(std::string(e.what()) ==
        "dnnl_fp32_gemm: oneDNN refuses the product (status invalid_arguments, rows 1, columns 2, inner extent 3)");
  if (!has_bf16()) return;
  dnnl_bf16_gemm::multiply(one, overlapping, tessera::matrix_view<float>(product, 1, 2, 0), workspace);
  CHECK(product[0] == 14);
  CHECK(product[1] == 20);
}

TEST_CASE("gemm with oneDNN in bf16: random products match a double reference of rounded factors") {
  if (!has_bf16()) return tessera_tests::skip(no_bf16);
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  tessera_tests::serial_host host;
  auto const gap = [&] { return static_cast<std::int64_t>(random() % 4); };
  auto const extent = [&] { return static_cast<std::int64_t>(random() % (random() % 2 == 0 ? 20 : 200)); };  // 0 too
  // More shapes than a thread keeps prepared.
  for (int i = 0; i < (tessera_tests::under_sanitizer ? 20 : 700); ++i) {
    auto const m = extent(), n = extent(), k = extent();
    CAPTURE(m);
    CAPTURE(n);
    CAPTURE(k);
    strided_floats const a(random, m, k, gap()), b(random, k, n, gap());
    bool const a_transposed = random() % 2 == 0, b_transposed = random() % 2 == 0;
    auto const stored_a = a_transposed ? a.transposed(gap()) : a;
    auto const stored_b = b_transposed ? b.transposed(gap()) : b;
    strided_floats c(m, n, gap());
    tessera::gemm(host.exec(), dnnl_bf16_gemm{}, {stored_a.view(), a_transposed}, {stored_b.view(), b_transposed}, c.view());
    REQUIRE(c.gaps_intact());
    REQUIRE(tessera_tests::gemm_reference(rounded(a), rounded(b)).met_by(c));
  }
}

// A float has 24 bits and bf16 8 of them: ties at the first bit that is cut off, and what is just beside them.
TEST_CASE("gemm with oneDNN in bf16: factors are rounded to nearest even") {
  if (!has_bf16()) return tessera_tests::skip(no_bf16);
  auto const at = [](float one) {
    strided_floats const a(1, 1, 0, one), b(1, 1, 0, 1);
    float product = 0, workspace[48];
    dnnl_bf16_gemm::multiply(a.view(), b.view(), tessera::matrix_view<float>(&product, 1, 1), workspace);
    return product;
  };
  CHECK(at(1 + 0x1p-8F) == 1);
  CHECK(at(1 + 0x1p-8F + 0x1p-23F) == 1 + 0x1p-7F);
  CHECK(at(1 + 0x3p-8F) == 1 + 0x1p-6F);
  CHECK(at(-1 - 0x3p-8F + 0x1p-23F) == -1 - 0x1p-7F);
  CHECK(at(0x1.FFFFFEp127F) == HUGE_VALF);
  CHECK(std::isnan(at(tessera::detail::float_of_bits(0x7F800001))));  // whose upper half alone would be infinity
}

TEST_CASE("gemm with oneDNN in bf16: a product of nothing is zero; NaN and infinity reach the products they enter and no other") {
  if (!has_bf16()) return tessera_tests::skip(no_bf16);
  tessera_tests::serial_host host;
  strided_floats nothing(300, 20, 1);
  tessera::gemm(host.exec(), dnnl_bf16_gemm{}, tessera::matrix_view<float const>(nullptr, 300, 0),
                tessera::matrix_view<float const>(nullptr, 0, 20), nothing.view());
  CHECK(nothing.gaps_intact());
  CHECK(tessera_tests::worst_difference(nothing, tessera_tests::doubles(300, 20)) == 0);

  strided_floats a(40, 20, 0, 1), b(20, 30, 0, 1), c(40, 30, 0);
  a.at(33, 7) = std::nanf("");
  b.at(4, 29) = HUGE_VALF;
  tessera::gemm(host.exec(), dnnl_bf16_gemm{}, a.view(), b.view(), c.view());
  int wrong = 0;
  for (std::int64_t i = 0; i < 40; ++i)
    for (std::int64_t j = 0; j < 30; ++j)
      wrong += !(i == 33 ? std::isnan(c.at(i, j)) : j == 29 ? c.at(i, j) == HUGE_VALF : c.at(i, j) == 20.0F);
  CHECK(wrong == 0);
}

// What is beside the end of an inner extent belongs to another row.
TEST_CASE("gemm with oneDNN in bf16: any inner extent, and NaN stays in its row and its column") {
  if (!has_bf16()) return tessera_tests::skip(no_bf16);
  tessera_tests::serial_host host;
  for (std::int64_t k = 1; k < 132; ++k)
    for (int transposed = 0; transposed < 4; ++transposed) {
      CAPTURE(k);
      CAPTURE(transposed);
      strided_floats a(46, k, 0, 1), b(k, 152, 0, 1), c(46, 152, 0);
      a.at(33, k / 2) = std::nanf("");
      b.at(k - 1, 71) = std::nanf("");
      bool const a_transposed = transposed % 2 == 1, b_transposed = transposed / 2 == 1;
      auto const stored_a = a_transposed ? a.transposed(0) : a, stored_b = b_transposed ? b.transposed(0) : b;
      tessera::gemm(host.exec(), dnnl_bf16_gemm{}, {stored_a.view(), a_transposed}, {stored_b.view(), b_transposed}, c.view());
      int wrong = 0;
      for (std::int64_t i = 0; i < 46; ++i)
        for (std::int64_t j = 0; j < 152; ++j)
          wrong += !(i == 33 || j == 71 ? std::isnan(c.at(i, j)) : c.at(i, j) == static_cast<float>(k));
      REQUIRE(wrong == 0);
    }
}

// Eight bits of mantissa a factor, on inputs that no rounding moves across a ReLU's kink.
TEST_CASE("mlp with oneDNN in bf16: outputs and gradients are near those in float") {
  if (!has_bf16()) return tessera_tests::skip(no_bf16);
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  tessera_tests::pool_host<2> host;
  constexpr std::int64_t samples = 64;
  tessera::mlp const net(host.exec(), tessera::mlp_options{{70, 40, 3}, tessera::activation::identity, tessera::random_seed{seed}});
  auto const parameters = net.parameters();
  tessera_tests::reference_mlp const reference{net.widths(), tessera::activation::identity, {parameters.begin(), parameters.end()}};
  auto const x = tessera_tests::inputs_off_the_kinks(random, reference, samples, 1, 0.02);
  strided_floats const gradient(random, samples, 3, 0);
  struct result {
    strided_floats y{samples, 3, 0}, x_gradient{samples, 70, 0};
    std::vector<float> parameter_gradient;
  };
  auto const run = [&](auto const& policy) {
    result r;
    r.parameter_gradient.resize(static_cast<std::size_t>(net.parameters().size()));
    tessera::mlp_saved saved;
    auto g = gradient;
    net.forward(host.exec(), policy, x.view(), r.y.view(), saved);
    net.backward(host.exec(), policy, saved, g.view(), r.parameter_gradient, r.x_gradient.view());
    return r;
  };
  auto const distance = [](std::vector<float> const& values, std::vector<float> const& expected) {
    double of_difference = 0, of_expected = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      auto const difference = static_cast<double>(values[i]) - static_cast<double>(expected[i]);
      of_difference += difference * difference;
      of_expected += static_cast<double>(expected[i]) * static_cast<double>(expected[i]);
    }
    return std::sqrt(of_difference / of_expected);
  };
  auto const in_bf16 = run(dnnl_bf16_gemm{}), in_float = run(tessera::eigen_gemm{});
  CHECK(distance(in_bf16.y.storage, in_float.y.storage) < 0.01);
  CHECK(distance(in_bf16.y.storage, in_float.y.storage) > 1e-4);  // it was bf16 that multiplied
  CHECK(distance(in_bf16.x_gradient.storage, in_float.x_gradient.storage) < 0.02);
  CHECK(distance(in_bf16.parameter_gradient, in_float.parameter_gradient) < 0.02);
}

}  // namespace
