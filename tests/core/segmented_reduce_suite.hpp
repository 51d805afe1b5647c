// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include <tessera/core/segmented_reduce.hpp>

#include "../support/random.hpp"

/// What every execution must show. `harness.reduce(values, offsets, initial, op) -> out`, one element a segment, of the initial value's type.
template <class Harness>
void segmented_reduce_suite(Harness const& harness) {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  auto const offsets_of = [](std::vector<std::int64_t> const& lengths) {
    std::vector<std::int64_t> offsets{0};
    for (auto const length : lengths) offsets.push_back(offsets.back() + length);
    return offsets;
  };
  using list = std::vector<std::int64_t>;
  constexpr auto lowest = std::numeric_limits<float>::lowest();

  SUBCASE("no segments, no values") {
    CHECK(harness.reduce(list{}, list{0}, std::int64_t{0}, tessera::plus{}).empty());
    CHECK(harness.reduce(list{}, list{0, 0, 0}, std::int64_t{7}, tessera::plus{}) == list{7, 7});
  }
  SUBCASE("by hand, from an offset that is not 0") {
    list const values{100, 1, 2, 3, 100};
    CHECK(harness.reduce(values, list{1, 3, 3, 4}, std::int64_t{10}, tessera::plus{}) == list{13, 10, 13});
    CHECK(harness.reduce(values, std::vector<std::int32_t>{1, 3, 3, 4}, std::int64_t{2}, tessera::maximum{}) == list{2, 2, 3});
  }
  SUBCASE("sums match a double reference") {
    for (std::size_t const segments : {1U, 1023U, 1024U, 1025U, 5000U}) {
      CAPTURE(segments);
      auto const offsets = offsets_of(tessera_tests::random_lengths(random, segments, 4));
      auto const values = tessera_tests::random_floats(random, static_cast<std::size_t>(offsets.back()));
      auto const sums = harness.reduce(values, offsets, 0.0F, tessera::plus{});
      auto const greatest = harness.reduce(values, offsets, lowest, tessera::maximum{});
      REQUIRE(sums.size() == segments);
      double worst = 0;
      std::size_t wrong = 0;
      for (std::size_t i = 0; i < segments; ++i) {
        double sum = 0;
        float most = lowest;
        for (auto k = offsets[i]; k < offsets[i + 1]; ++k) {
          sum += values[static_cast<std::size_t>(k)];
          most = std::max(most, values[static_cast<std::size_t>(k)]);
        }
        worst = std::max(worst, std::abs(sums[i] - sum));
        wrong += greatest[i] != most;
      }
      CHECK(worst < 1e-5);
      CHECK(wrong == 0);
    }
  }
  SUBCASE("one segment much longer than the others folds in index order") {
    auto const values = tessera_tests::random_floats(random, 100'000);
    float sum = 0.5F;
    for (auto i = std::size_t{3}; i + 2 < values.size(); ++i) sum += values[i];
    CHECK(harness.reduce(values, list{0, 3, 99'998, 100'000}, 0.5F, tessera::plus{})[1] == sum);
  }
  SUBCASE("narrow values fold in the result's type") {
    std::vector<std::uint8_t> const values(1000, 255);
    CHECK(harness.reduce(values, list{0, 1000}, std::int64_t{0}, tessera::plus{}) == list{255'000});
    CHECK(harness.reduce(values, list{0, 1000}, std::uint8_t{0}, tessera::plus{})[0] == static_cast<std::uint8_t>(255'000));
  }
  SUBCASE("integers of every length, skewed lengths, and many empty segments in a row") {
    auto const check = [&]<class T, class Result>(T, Result initial, list const& lengths) {
      auto const offsets = offsets_of(lengths);
      auto const values = tessera_tests::random_integers<T>(random, static_cast<std::size_t>(offsets.back()), -100, 100);
      auto const sums = harness.reduce(values, offsets, initial, tessera::plus{});
      auto const greatest = harness.reduce(values, offsets, initial, tessera::maximum{});
      REQUIRE(sums.size() == lengths.size());
      std::size_t wrong = 0;
      for (std::size_t i = 0; i < lengths.size(); ++i) {
        auto sum = static_cast<std::int64_t>(initial), most = sum;
        for (auto k = offsets[i]; k < offsets[i + 1]; ++k) {
          auto const value = static_cast<std::int64_t>(values[static_cast<std::size_t>(k)]);
          sum += value;
          most = std::max(most, value);
        }
        wrong += sums[i] != static_cast<Result>(sum) || greatest[i] != static_cast<Result>(most);
      }
      CHECK(wrong == 0);
    };
    for (std::size_t const segments : {1U, 2U, 255U, 256U, 257U, 3000U}) {
      CAPTURE(segments);
      auto lengths = tessera_tests::random_lengths(random, segments, 9);
      check(std::int64_t{}, std::int64_t{-3}, lengths);
      check(std::int8_t{}, std::int32_t{5}, lengths);
      check(std::int32_t{}, std::int16_t{0}, lengths);
      lengths[segments / 2] = 40'000;
      check(std::int32_t{}, std::int64_t{-90}, lengths);
      check(std::int16_t{}, std::int32_t{0}, lengths);
    }
    list sparse(20'000, 0);
    for (std::size_t i = 0; i < sparse.size(); i += 1 + random() % 4000) sparse[i] = 1 + static_cast<std::int64_t>(random() % 3);
    check(std::int32_t{}, std::int64_t{1}, sparse);
    check(std::int64_t{}, std::int32_t{-200}, sparse);
  }
  SUBCASE("extremes of the types, and maxima of NaN, fold as written") {
    constexpr auto least = std::numeric_limits<std::int64_t>::min(), most = std::numeric_limits<std::int64_t>::max();
    CHECK(harness.reduce(list{least, least, 5, most}, list{0, 2, 3, 4}, least, tessera::maximum{}) == list{least, 5, most});
    CHECK(harness.reduce(std::vector<std::uint32_t>{~0U, ~0U}, list{0, 2}, std::uint32_t{3}, tessera::plus{})[0] == 1);
    CHECK(harness.reduce(list{most, least, 1}, list{0, 3}, std::int64_t{0}, tessera::plus{})[0] == 0);
    constexpr auto nan = std::numeric_limits<float>::quiet_NaN();
    auto const greatest = harness.reduce(std::vector<float>{1, nan, 2, nan}, list{0, 2, 4}, lowest, tessera::maximum{});
    CHECK(greatest == std::vector<float>{1, 2});
    CHECK(std::isnan(harness.reduce(std::vector<float>{1}, list{0, 1}, nan, tessera::maximum{})[0]));
  }
  SUBCASE("float sums have the bits of the fold in index order") {
    for (std::size_t const segments : {1U, 700U, 3000U}) {
      CAPTURE(segments);
      auto lengths = tessera_tests::random_lengths(random, segments, 12);
      lengths[segments / 3] = 9'001;
      auto const offsets = offsets_of(lengths);
      auto const values = tessera_tests::random_floats(random, static_cast<std::size_t>(offsets.back()));
      std::vector<float> expected;
      for (std::size_t i = 0; i < segments; ++i) {
        float sum = 0.125F;
        for (auto k = offsets[i]; k < offsets[i + 1]; ++k) sum += values[static_cast<std::size_t>(k)];
        expected.push_back(sum);
      }
      CHECK(harness.reduce(values, offsets, 0.125F, tessera::plus{}) == expected);
    }
  }
}
