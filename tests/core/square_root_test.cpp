// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-optimize: -O2
#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include <tessera/core/square_root.hpp>

#include "random.hpp"

namespace {

// The double root rounded to float is the correctly rounded float root: 53 bits are more than 2 * 24 + 2.
float correct(float x) { return static_cast<float>(std::sqrt(static_cast<double>(x))); }

}  // namespace

TEST_CASE("square_root is the correctly rounded root of every significand") {
  int wrong = 0;
  std::vector<float> x(1 << 12), root(1 << 12);
  for (std::uint32_t bits = 0x3F800000; bits < 0x40800000; bits += 1 << 12) {  // [1, 4)
    for (std::uint32_t i = 0; i < 1 << 12; ++i) x[i] = std::bit_cast<float>(bits + i);
    for (std::size_t i = 0; i < 1 << 12; ++i) root[i] = tessera::square_root(x[i]);  // as vectors, where the compiler likes
    for (std::size_t i = 0; i < 1 << 12; ++i) wrong += root[i] != correct(x[i]);
  }
  CHECK(wrong == 0);
}

TEST_CASE("square_root of any exponent, subnormal numbers too") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  int wrong = 0;
  for (auto const bits : tessera_tests::random_integers<std::uint32_t>(random, 500'000, 1, 0x7F7FFFFF)) {
    float volatile const x = std::bit_cast<float>(bits);
    wrong += tessera::square_root(x) != correct(x);
  }
  for (std::uint32_t bits = 1; bits < 1 << 16; ++bits)
    wrong += tessera::square_root(std::bit_cast<float>(bits)) != correct(std::bit_cast<float>(bits));
  for (std::uint32_t exponent = 0; exponent < 255; ++exponent)
    for (std::uint32_t const below : {0U, 1U}) {
      float const x = std::bit_cast<float>((exponent << 23) + (1 << 22) - below);
      wrong += tessera::square_root(x) != correct(x);
    }
  CHECK(wrong == 0);
}

TEST_CASE("square_root of what is no positive number") {
  float volatile zero = 0, minus_zero = -0.0F, infinity = HUGE_VALF, nan = std::nanf(""), negative = -1, most_negative = -HUGE_VALF;
  CHECK(std::bit_cast<std::uint32_t>(tessera::square_root(zero)) == 0);
  CHECK(std::bit_cast<std::uint32_t>(tessera::square_root(minus_zero)) == 0x80000000);
  CHECK(tessera::square_root(infinity) == HUGE_VALF);
  CHECK(tessera::square_root(std::numeric_limits<float>::max()) == correct(std::numeric_limits<float>::max()));
  CHECK(std::isnan(tessera::square_root(nan)));
  CHECK(std::isnan(tessera::square_root(negative)));
  CHECK(std::isnan(tessera::square_root(most_negative)));
  CHECK(tessera::square_root(4.0F) == 2.0F);
}
