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
}
