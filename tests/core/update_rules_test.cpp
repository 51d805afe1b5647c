// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-optimize: -O2
#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <random>

#include <tessera/core/update_rules.hpp>

#include "../support/random.hpp"

namespace rules = tessera::update_rules;

TEST_CASE("one step by hand") {
  CHECK(rules::sgd(1.0F, 0.5F, 0.25F) == 0.875F);
  CHECK(rules::adagrad_scale(4.0F, 0.0F) == 0.5F);
  CHECK(rules::adagrad_scale(0.0F, 0.5F) == 2.0F);
  float square_sum = 12.0F;
  CHECK(rules::adagrad(1.0F, square_sum, 2.0F, 0.5F, 0.0F) == 0.75F);
  CHECK(square_sum == 16.0F);
}

TEST_CASE("power") {
  static_assert(rules::power(2, 0) == 1 && rules::power(2, 10) == 1024 && rules::power(-3, 3) == -27 && rules::power(0.5, 1) == 0.5);
  for (double const base : {0.9, 0.999, 0.9999999})
    for (std::int64_t const exponent : {1, 2, 3, 17, 1000, 123'457, 100'000'000})
      CHECK(rules::power(base, exponent) == doctest::Approx(std::pow(base, static_cast<double>(exponent))).epsilon(1e-6));
  CHECK(rules::power(0.999, 1'000'003) == 0);  // no NaN far down
  CHECK(rules::adam_correction(0.9F, 1) == doctest::Approx(10).epsilon(1e-6));
  CHECK(rules::adam_correction(0.5F, 2) == doctest::Approx(4.0 / 3).epsilon(1e-6));
  CHECK(rules::adam_correction(0.999F, 1'000'000'000'000) == 1.0F);
}

TEST_CASE("clip") {
  CHECK(rules::clip(2, 1) == 1.0F);
  CHECK(rules::clip(-2, 1) == -1.0F);
  CHECK(rules::clip(0.5F, 1) == 0.5F);
  CHECK(rules::clip(3, 0) == 0.0F);
  CHECK(std::isnan(rules::clip(std::nanf(""), 1)));
}

TEST_CASE("many steps follow the float64 recurrences of PyTorch") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  constexpr double rate = 0.01, beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;
  auto const gradients = tessera_tests::random_floats(random, 200);

  float plain = 0.5F, adaptive = 0.5F, adaptive_sum = 0, weight = 0.5F, moment1 = 0, moment2 = 0;
  double plain_exact = 0.5, adaptive_exact = 0.5, adaptive_sum_exact = 0, exact = 0.5, m = 0, v = 0;
  double power1 = 1, power2 = 1;
  for (float const g : gradients) {
    plain = rules::sgd(plain, g, static_cast<float>(rate));
    plain_exact -= rate * g;

    adaptive = rules::adagrad(adaptive, adaptive_sum, g, static_cast<float>(rate), 1e-10F);
    adaptive_sum_exact += double{g} * g;
    adaptive_exact -= rate * g / (std::sqrt(adaptive_sum_exact) + 1e-10);

    power1 *= beta1;
    power2 *= beta2;
    weight = rules::adam(weight, moment1, moment2, g,
                         {static_cast<float>(rate), static_cast<float>(beta1), static_cast<float>(beta2), static_cast<float>(epsilon),
                          static_cast<float>(1 / (1 - power1)), static_cast<float>(1 / (1 - power2))});
    m = beta1 * m + (1 - beta1) * g;
    v = beta2 * v + (1 - beta2) * double{g} * g;
    exact -= rate / (1 - power1) * m / (std::sqrt(v) / std::sqrt(1 - power2) + epsilon);
  }
  CHECK(plain == doctest::Approx(plain_exact).epsilon(1e-4));
  CHECK(adaptive == doctest::Approx(adaptive_exact).epsilon(1e-4));
  CHECK(adaptive_sum == doctest::Approx(adaptive_sum_exact).epsilon(1e-5));
  CHECK(weight == doctest::Approx(exact).epsilon(1e-4));
  CHECK(moment2 == doctest::Approx(v).epsilon(1e-4));
}

TEST_CASE("a zero gradient moves nothing by itself") {
  float square_sum = 0, moment1 = 0, moment2 = 0;
  CHECK(rules::sgd(0.5F, 0.0F, 1.0F) == 0.5F);
  CHECK(rules::adagrad(0.5F, square_sum, 0.0F, 1.0F, 1e-10F) == 0.5F);
  CHECK(rules::adam(0.5F, moment1, moment2, 0.0F, {1.0F, 0.9F, 0.999F, 1e-8F, 10.0F, 1000.0F}) == 0.5F);
}
