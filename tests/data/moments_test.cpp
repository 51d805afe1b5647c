// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include <tessera/data/moments.hpp>

#include "random.hpp"

namespace moments_test {

namespace {

tessera::moments moments_of(std::vector<double> const& numbers) {
  tessera::moments result;
  for (auto const x : numbers) result.add(x);
  return result;
}

}  // namespace

TEST_CASE("moments: of nothing, of one number, of equal ones") {
  CHECK(tessera::moments{}.mean() == 0);
  CHECK(tessera::moments{}.variance() == 0);
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> uniform(-3, 3);
  for (int repeat = 0; repeat < 200; ++repeat) {
    auto const x = std::ldexp(uniform(random), static_cast<int>(random() % 60) - 30);
    auto const found = moments_of(std::vector<double>(1 + random() % 1000, x));
    CHECK(found.mean() == x);
    CHECK(found.variance() == 0);
  }
}

TEST_CASE("moments: a small deviation beside a large mean") {
  std::vector<double> numbers;
  for (int i = 0; i < 1000; ++i) numbers.push_back(1e15 + i % 2);
  CHECK(moments_of(numbers).mean() == 1e15 + 0.5);
  CHECK(moments_of(numbers).variance() == 0.25);
}

TEST_CASE("moments: those of a two-pass sum, and the same in parts") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  std::lognormal_distribution<double> draw(2, 1.5);
  for (std::size_t const count : {2U, 3U, 10U, 1000U, 30'000U}) {
    std::vector<double> numbers(count);
    for (auto& x : numbers) x = draw(random);
    long double mean = 0, deviations = 0;
    for (auto const x : numbers) mean += x;
    mean /= static_cast<long double>(count);
    for (auto const x : numbers) deviations += (x - mean) * (x - mean);
    auto const whole = moments_of(numbers);
    CHECK(whole.count == static_cast<std::int64_t>(count));
    CHECK(whole.mean() == doctest::Approx(static_cast<double>(mean)).epsilon(1e-15));
    CHECK(whole.variance() == doctest::Approx(static_cast<double>(deviations / static_cast<long double>(count))).epsilon(1e-13));
    auto const cut = numbers.begin() + static_cast<std::int64_t>(random() % count);
    auto merged = moments_of({cut, numbers.end()});
    merged.merge(moments_of({numbers.begin(), cut}));
    CHECK(merged == whole);
    CHECK(merged.mean() == whole.mean());
    CHECK(merged.variance() == whole.variance());
  }
}

}  // namespace moments_test
