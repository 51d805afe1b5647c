// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <tessera/core/fixed_divisor.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <random>
#include <vector>

#include "random.hpp"

TEST_CASE("fixed_divisor: quotients and remainders as by the processor") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  constexpr auto most = ~std::uint64_t{0};
  std::vector<std::uint64_t> divisors{1, 2, 3, 5, 7, 641, (std::uint64_t{1} << 32) - 1, std::uint64_t{1} << 32, most / 2, most / 2 - 1};
  for (int i = 0; i < 300; ++i) divisors.push_back((random() >> (1 + random() % 62)) | 1);
  for (auto const divisor : divisors) {
    CAPTURE(divisor);
    tessera::fixed_divisor const by(divisor);
    std::vector<std::uint64_t> numbers{0, 1, divisor - 1, divisor, divisor + 1, most, most - 1, most / divisor * divisor};
    for (int i = 0; i < 100; ++i) {
      numbers.push_back(random() >> (random() % 63));
      numbers.push_back(random() / divisor * divisor - 1);
    }
    std::size_t wrong = 0;
    for (auto const n : numbers) wrong += by.quotient(n) != n / divisor || by.remainder(n) != n % divisor;
    CHECK(wrong == 0);
  }
}
