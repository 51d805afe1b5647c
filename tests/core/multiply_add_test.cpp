// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-optimize: -O2
#include <doctest/doctest.h>

#include <cmath>
#include <random>
#include <vector>

#include <tessera/core/multiply_add.hpp>

#include "random.hpp"

TEST_CASE("multiply_add rounds as the machine's instruction does, in loops as alone") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  auto const a = tessera_tests::random_floats(random, 1000), b = tessera_tests::random_floats(random, 1000);
  auto const c = tessera_tests::random_floats(random, 1000);
  std::vector<float> together(1000);
  for (std::size_t i = 0; i < 1000; ++i) together[i] = tessera::multiply_add(a[i], b[i], c[i]);  // as vectors, where the compiler likes
  int wrong = 0, differs_from_exact = 0;
  for (std::size_t i = 0; i < 1000; ++i) {
    float volatile const x = a[i], y = b[i], z = c[i];  // one by one
    float volatile const product = x * y;
    float const fused = std::fmaf(x, y, z), rounded_twice = product + z;
    wrong += together[i] != fused && together[i] != rounded_twice;
    differs_from_exact += together[i] != fused;
    wrong += together[i] != tessera::multiply_add(x, y, z);
  }
  CHECK(wrong == 0);
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
  CHECK(differs_from_exact == 0);
#else
  CHECK(differs_from_exact > 0);
#endif
}
