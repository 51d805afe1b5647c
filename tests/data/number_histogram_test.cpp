// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <tessera/data/number_histogram.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "hosts.hpp"
#include "random.hpp"

namespace number_histogram_tests {

using namespace tessera;

constexpr auto infinity = std::numeric_limits<float>::infinity();

// Against the sorted numbers: towards 0, by less than 1/128.
void check_quantiles(number_histogram const& histogram, std::vector<float> numbers) {
  std::sort(numbers.begin(), numbers.end());
  REQUIRE(histogram.count() == static_cast<std::int64_t>(numbers.size()));
  CHECK(histogram.least() == numbers.front());
  CHECK(histogram.largest() == numbers.back());
  for (double const share : {0.0, 0.001, 0.01, 0.25, 0.5, 0.75, 0.9, 0.99, 0.999, 1.0}) {
    CAPTURE(share);
    auto const rank = static_cast<std::size_t>(std::max(1.0, std::ceil(share * static_cast<double>(numbers.size()))));
    auto const exact = numbers[rank - 1];
    auto const found = histogram.quantile(share);
    CAPTURE(exact);
    CAPTURE(found);
    CHECK((std::signbit(found) == std::signbit(exact) || found == 0));
    CHECK(std::abs(found) <= std::abs(exact));
    if (std::isinf(exact)) {
      CHECK(found == exact);
    } else {
      CHECK(std::abs(exact) - std::abs(found) <= std::abs(exact) / 128 + std::ldexp(1.0F, -133));
    }
  }
}

TEST_CASE("number_histogram: quantiles of random numbers, in parts as a whole") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  tessera_tests::serial_host host;
  auto const exec = host.exec();
  auto numbers = tessera_tests::random_floats(random, 3000);
  SUBCASE("normal") {}
  SUBCASE("of all magnitudes") {
    for (auto& x : numbers) x = std::ldexp(x, static_cast<int>(random() % 200) - 100);
  }
  SUBCASE("with infinite, zero and denormal ones") {
    for (std::size_t i = 0; i < numbers.size(); i += 10) {
      numbers[i] = infinity;
      numbers[i + 1] = -infinity;
      numbers[i + 2] = 0;
      numbers[i + 3] = -0.0F;
      numbers[i + 4] = std::numeric_limits<float>::denorm_min();
    }
  }
  SUBCASE("negative ones") {
    for (auto& x : numbers) x = -std::abs(x);
  }
  number_histogram whole, first, second;
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    whole.add(exec, numbers[i]);
    (i % 3 == 0 ? first : second).add(exec, numbers[i]);
  }
  check_quantiles(whole, numbers);
  first.merge(exec, second);
  first.merge(exec, number_histogram());
  check_quantiles(first, numbers);
  for (int i = 0; i <= 100; ++i) CHECK(first.quantile(i / 100.0) == whole.quantile(i / 100.0));
}

TEST_CASE("number_histogram: integers below 256 are exact") {
  tessera_tests::serial_host host;
  number_histogram histogram;
  for (int i = -255; i < 256; ++i) histogram.add(host.exec(), static_cast<float>(i), 2);
  for (int i = -255; i < 256; ++i) CHECK(histogram.quantile((i + 255.75) / 511) == static_cast<float>(i));
  CHECK(histogram.count() == 2 * 511);
}

TEST_CASE("number_histogram: one number, and none") {
  tessera_tests::serial_host host;
  number_histogram histogram;
  CHECK(histogram.count() == 0);
  CHECK(histogram.bytes() == 0);
  histogram.add(host.exec(), 5, 0);
  CHECK(histogram.count() == 0);
  histogram.add(host.exec(), 1.999F);
  for (double const share : {0.0, 0.5, 1.0}) CHECK(histogram.quantile(share) == 1.999F);
}

}  // namespace number_histogram_tests
