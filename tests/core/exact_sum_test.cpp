// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include <tessera/core/exact_sum.hpp>

#include "random.hpp"

namespace {

tessera::exact_sum sum_of(std::vector<double> const& numbers) {
  tessera::exact_sum sum;
  for (auto const x : numbers) sum.add(x);
  return sum;
}

std::vector<double> numbers_of_all_sizes(std::mt19937_64& random, std::size_t count) {
  std::uniform_real_distribution<double> mantissa(-2, 2);
  std::uniform_int_distribution<int> exponent(-1074, 1000);
  std::vector<double> numbers(count);
  for (auto& x : numbers) x = std::ldexp(mantissa(random), exponent(random));
  return numbers;
}

constexpr double least = std::numeric_limits<double>::denorm_min(), largest = std::numeric_limits<double>::max(),
                 infinite = std::numeric_limits<double>::infinity();

}  // namespace

TEST_CASE("exact_sum: small numbers behind large ones are not lost, and what cancels leaves the rest") {
  CHECK(sum_of({}).value() == 0);
  CHECK(sum_of({-0.0}).value() == 0);
  CHECK(sum_of({1e300, 1, -1e300}).value() == 1);
  CHECK(sum_of({largest, least, -largest}).value() == least);
  CHECK(sum_of({-largest, -least, largest}).value() == -least);
  CHECK(sum_of({least, least, least}).value() == 3 * least);
  CHECK(sum_of({largest, largest, -largest}).value() == largest);
  CHECK(sum_of({largest, largest}).value() == infinite);
  CHECK(sum_of({-largest, -largest}).value() == -infinite);
}

TEST_CASE("exact_sum: the nearest double, and the even one of two") {
  auto const ulp = std::ldexp(1.0, -52);
  CHECK(sum_of({1, ulp / 2}).value() == 1);
  CHECK(sum_of({1 + ulp, ulp / 2}).value() == 1 + 2 * ulp);
  CHECK(sum_of({1, ulp / 2, least}).value() == 1 + ulp);
  CHECK(sum_of({-1, -ulp / 2, -least}).value() == -1 - ulp);
  CHECK(sum_of({1 + ulp, ulp / 2, -least}).value() == 1 + ulp);
}

TEST_CASE("exact_sum: infinities and NaN") {
  CHECK(sum_of({1, infinite}).value() == infinite);
  CHECK(std::isnan(sum_of({infinite, 1, -infinite}).value()));
  CHECK(std::isnan(sum_of({std::nan(""), 1}).value()));
  CHECK(sum_of({infinite, 1}).parts() == std::vector<double>{infinite});
}

TEST_CASE("exact_sum: order, parts and how it is saved change nothing") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  for (int repeat = 0; repeat < 20; ++repeat) {
    auto numbers = numbers_of_all_sizes(random, 1 + random() % 500);
    auto const whole = sum_of(numbers);
    std::shuffle(numbers.begin(), numbers.end(), random);
    CHECK(sum_of(numbers) == whole);
    auto const cut = numbers.begin() + static_cast<std::int64_t>(random() % numbers.size());
    auto merged = sum_of({numbers.begin(), cut});
    merged.merge(sum_of({cut, numbers.end()}));
    CHECK(merged == whole);
    CHECK(merged.value() == whole.value());
    CHECK(sum_of(whole.parts()) == whole);
    for (auto const x : numbers) merged.add(-x);
    CHECK(merged.value() == 0);
    CHECK(merged == tessera::exact_sum{});
  }
}

TEST_CASE("exact_sum: integers and products against 128-bit integers") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  __extension__ typedef __int128 wide;
  std::uniform_int_distribution<std::int64_t> integers(-(std::int64_t{1} << 53), std::int64_t{1} << 53);
  tessera::exact_sum sum, products;
  wide expected = 0, expected_products = 0;
  for (int i = 0; i < 100'000; ++i) {
    auto const a = integers(random), b = integers(random);
    sum.add(static_cast<double>(a));
    expected += a;
    products.add_product(static_cast<double>(a), static_cast<double>(b));
    expected_products += wide{a} * b;
  }
  CHECK(sum.value() == static_cast<double>(expected));
  CHECK(products.value() == static_cast<double>(expected_products));
  products.add(-static_cast<double>(expected_products));
  CHECK(products.value() == static_cast<double>(expected_products - static_cast<wide>(static_cast<double>(expected_products))));
}
