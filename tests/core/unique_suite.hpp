// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include <tessera/core/unique.hpp>

#include "../support/random.hpp"
#include "../support/sanitizers.hpp"

namespace unique_tests {

template <class Key, class Harness>
void check_unique(Harness const& harness, std::vector<Key> const& keys, tessera::radix_bits bits = {}) {
  std::set<Key> const expected(keys.begin(), keys.end());
  auto const [distinct, inverse] = harness.unique(keys, bits);
  CHECK((distinct == std::vector<Key>(expected.begin(), expected.end())));
  REQUIRE(inverse.size() == keys.size());
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    auto const which = static_cast<std::size_t>(inverse[i]);
    wrong += which >= distinct.size() || distinct[which] != keys[i];
  }
  CHECK(wrong == 0);
}

}  // namespace unique_tests

/// What every execution must show. `harness.unique(keys, bits) -> {distinct, inverse}`.
template <class Harness>
void unique_suite(Harness const& harness) {
  using unique_tests::check_unique;
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);

  SUBCASE("by hand") {
    auto const [distinct, inverse] = harness.unique(std::vector<std::int64_t>{5, -2, 5, 9, -2, 5}, tessera::radix_bits{});
    CHECK(distinct == std::vector<std::int64_t>{-2, 5, 9});
    CHECK(inverse == std::vector<std::int64_t>{1, 0, 1, 2, 0, 1});
  }
  SUBCASE("every size, with few and with many repeats") {
    for (std::size_t const size : {0U, 1U, 2U, 100U, 16'383U, 16'384U, 16'385U, 70'000U})
      for (std::int64_t const most : {std::int64_t{0}, std::int64_t{10}, std::int64_t{20'000}, std::numeric_limits<std::int64_t>::max()}) {
        CAPTURE(size);
        CAPTURE(most);
        check_unique(harness, tessera_tests::random_integers<std::int64_t>(random, size, -most, most));
      }
  }
  SUBCASE("more keys than a cache holds the inverse of") {
    check_unique(harness, tessera_tests::random_integers<std::int32_t>(random, (std::size_t{1} << 20) + 777, 0, 5'000));
  }
  SUBCASE("runs of one key longer than a piece, and all keys distinct") {
    std::vector<std::int32_t> keys(50'000, 8);
    keys[0] = 9;
    keys[49'999] = 7;
    check_unique(harness, keys);
    for (std::size_t i = 0; i < keys.size(); ++i) keys[i] = static_cast<std::int32_t>(i) * 7919 % 50'000;
    check_unique(harness, keys);
  }
  SUBCASE("parts of every kind: few values, few keys, many bits, one key in most places, bits that only a few keys have") {
    constexpr auto largest = std::numeric_limits<std::int64_t>::max();
    std::size_t const n = tessera_tests::under_sanitizer ? 40'000 : 150'000;
    auto const few = tessera_tests::random_integers<std::int64_t>(random, 2'000, -largest, largest);
    std::vector<std::int64_t> keys(n);
    for (auto& key : keys) key = few[random() % few.size()];
    check_unique(harness, keys);
    for (std::int64_t const most : {std::int64_t{1}, std::int64_t{5'000}, std::int64_t{1} << 40, largest}) {
      CAPTURE(most);
      keys = tessera_tests::random_integers<std::int64_t>(random, n, 0, most);
      check_unique(harness, keys);
      for (std::size_t i = 0; i < n; i += 1 + random() % 2) keys[i] = most / 3;
      check_unique(harness, keys);
      keys[n / 2] = -largest;
      check_unique(harness, keys);
    }
    auto narrow = tessera_tests::random_integers<std::int32_t>(random, n, -1'000'000, 1'000'000);
    narrow[0] = std::numeric_limits<std::int32_t>::max();
    check_unique(harness, narrow);
    check_unique(harness, tessera_tests::random_integers<std::uint16_t>(random, n, 0, 65'535));
    // Keys that share their lower bits, too.
    for (auto& key : keys) key = static_cast<std::int64_t>(random() << 20 >> 1);
    check_unique(harness, keys);
  }
  SUBCASE("unsigned keys, and keys of known range") {
    check_unique(harness, tessera_tests::random_integers<std::uint8_t>(random, 3000, 0, 255));
    check_unique(harness, tessera_tests::random_integers<std::uint64_t>(random, 3000, ~std::uint64_t{0} - 100, ~std::uint64_t{0}));
    check_unique(harness, tessera_tests::random_integers<std::int64_t>(random, 30'000, 0, 1023), {.begin_bit = 0, .end_bit = 10});
  }
}
