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
#include <string>
#include <utility>
#include <vector>

#include <tessera/core/error.hpp>
#include <tessera/core/scan.hpp>

#include "../support/random.hpp"

/// What every execution must show. `harness` moves vectors to where its execution reads them and back:
/// `exclusive_scan(in, initial) -> {out, sum}`, `exclusive_scan_in_place(values) -> {values, sum}`,
/// `lengths_to_offsets(lengths, number of offsets, Offset{}) -> offsets`.
template <class Harness>
void scan_suite(Harness&& harness) {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  auto const naive = [](auto const& in, auto sum) {
    std::vector<decltype(sum)> out;
    for (auto const value : in) {
      out.push_back(sum);
      sum = static_cast<decltype(sum)>(sum + value);
    }
    return std::pair(out, sum);
  };
  // Around the sizes at which a back end starts to work in parallel.
  std::size_t const sizes[] = {0, 1, 2, 3, 255, 256, 257, 1000, 32'767, 32'768, 32'769, 65'536, 65'537, 200'003};

  SUBCASE("integers of every size match the naive sums") {
    for (auto const size : sizes) {
      CAPTURE(size);
      auto const wide = tessera_tests::random_integers<std::int64_t>(random, size, -1'000'000'000'000, 1'000'000'000'000);
      CHECK(harness.exclusive_scan(wide, std::int64_t{-5}) == naive(wide, std::int64_t{-5}));
      auto const narrow = tessera_tests::random_integers<std::int32_t>(random, size, 0, std::numeric_limits<std::int32_t>::max());
      CHECK(harness.exclusive_scan(narrow, std::int64_t{0}) == naive(narrow, std::int64_t{0}));
    }
  }
  SUBCASE("in place") {
    for (auto const size : sizes) {
      CAPTURE(size);
      auto const values = tessera_tests::random_integers<std::int64_t>(random, size, -100, 100);
      CHECK(harness.exclusive_scan_in_place(values) == naive(values, std::int64_t{0}));
    }
  }
  SUBCASE("floats stay near the float64 sums") {
    auto const values = tessera_tests::random_floats(random, 100'003);
    auto const [out, sum] = harness.exclusive_scan(values, 0.5F);
    auto const [expected, expected_sum] = naive(values, 0.5);
    double worst = std::abs(sum - expected_sum);
    for (std::size_t i = 0; i < out.size(); ++i) worst = std::max(worst, std::abs(out[i] - expected[i]));
    CHECK(worst < 0.1);  // |sums| reach about 300; each of 10^5 roundings is below 2e-5, and they are independent
  }
  SUBCASE("lengths become offsets") {
    for (auto const size : sizes) {
      CAPTURE(size);
      auto const lengths = tessera_tests::random_lengths(random, size, 3);
      auto expected = naive(lengths, std::int64_t{0});
      expected.first.push_back(expected.second);
      CHECK(harness.lengths_to_offsets(lengths, size + 1, std::int64_t{}) == expected.first);
      std::vector<std::int32_t> const narrow(lengths.begin(), lengths.end());
      std::vector<std::int32_t> const narrow_expected(expected.first.begin(), expected.first.end());
      CHECK(harness.lengths_to_offsets(narrow, size + 1, std::int32_t{}) == narrow_expected);
    }
  }
  SUBCASE("lengths that cannot be are refused by row") {
    auto lengths = std::vector<std::int64_t>(50'000, 1);
    lengths[7] = -1;
    lengths[40'000] = -3;
    CHECK_THROWS_WITH_AS(harness.lengths_to_offsets(lengths, lengths.size() + 1, std::int64_t{}),
                         "lengths_to_offsets: negative length (row 7, length -1)", tessera::error);
  }
  SUBCASE("a sum past the type of the offsets is refused by row") {
    std::vector<std::int32_t> const fits{std::numeric_limits<std::int32_t>::max() - 1, 0, 1, 0};
    CHECK(harness.lengths_to_offsets(fits, 5, std::int32_t{}).back() == std::numeric_limits<std::int32_t>::max());
    std::vector<std::int32_t> const too_long{std::numeric_limits<std::int32_t>::max() - 1, 0, 2};
    CHECK_THROWS_WITH_AS(harness.lengths_to_offsets(too_long, 4, std::int32_t{}),
                         "lengths_to_offsets: the sum does not fit into an offset (row 2, length 2, largest offset 2147483647)",
                         tessera::error);
    std::vector<std::int64_t> const huge(3, std::numeric_limits<std::int64_t>::max() / 2);
    CHECK_THROWS_AS(harness.lengths_to_offsets(huge, 4, std::int64_t{}), tessera::error);
  }
  SUBCASE("one offset more than lengths") {
    for (std::size_t const offsets : {0U, 3U, 5U}) {
      try {
        harness.lengths_to_offsets(std::vector<std::int64_t>(3, 1), offsets, std::int64_t{});
        FAIL("accepted ", offsets);
      } catch (tessera::error const& e) {
        CHECK(e.code() == tessera::errc::shape_mismatch);
        CHECK(e.value("lengths") == "3");
        CHECK(e.value("offsets") == std::to_string(offsets));
      }
    }
  }
}
