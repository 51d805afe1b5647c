// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/core/error.hpp>
#include <tessera/core/radix_sort.hpp>

#include "../support/random.hpp"
#include "../support/sanitizers.hpp"

namespace radix_sort_tests {

struct pair_value {
  std::int32_t position;
  float weight;
  friend bool operator==(pair_value const&, pair_value const&) = default;
};

/// The bits [begin, end) of a key, as they order it.
template <class Key>
std::uint64_t compared_bits(Key key, tessera::radix_bits bits) {
  auto u = static_cast<std::uint64_t>(static_cast<std::make_unsigned_t<Key>>(key));
  int const width = 8 * static_cast<int>(sizeof(Key));
  if (std::is_signed_v<Key>) u ^= std::uint64_t{1} << (width - 1);
  int const end = std::min(bits.end_bit, width);
  if (end < 64) u &= (std::uint64_t{1} << end) - 1;
  return bits.begin_bit < 64 ? u >> bits.begin_bit : 0;
}

/// Sorts keys with their positions as values, and compares with std::stable_sort.
template <class Key, class Harness>
void check_stable(Harness const& harness, std::vector<Key> const& keys, tessera::radix_bits bits = {}) {
  std::vector<std::int64_t> positions(keys.size());
  std::iota(positions.begin(), positions.end(), 0);
  auto expected = positions;
  std::stable_sort(expected.begin(), expected.end(), [&](std::int64_t a, std::int64_t b) {
    return compared_bits(keys[static_cast<std::size_t>(a)], bits) < compared_bits(keys[static_cast<std::size_t>(b)], bits);
  });
  auto const [sorted, values] = harness.sort(keys, positions, bits);
  std::vector<Key> expected_keys;
  for (auto const p : expected) expected_keys.push_back(keys[static_cast<std::size_t>(p)]);
  CHECK((sorted == expected_keys));
  CHECK((values == expected));
}

}  // namespace radix_sort_tests

/// What every execution must show. `harness.sort(keys, values, bits) -> {keys, values}`.
template <class Harness>
void radix_sort_suite(Harness const& harness) {
  using radix_sort_tests::check_stable;
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  auto const draw = [&]<class Key>(Key, std::size_t size) {
    return tessera_tests::random_integers<Key>(random, size, std::numeric_limits<Key>::min(), std::numeric_limits<Key>::max());
  };

  SUBCASE("every size") {
    for (std::size_t const size : {0U, 1U, 2U, 3U, 1000U, 65'535U, 65'536U, 65'537U, 300'000U}) {
      CAPTURE(size);
      check_stable(harness, draw(std::int32_t{}, size));
    }
  }
  SUBCASE("every width") {
    for (std::size_t const size : {1000U, 70'000U}) {
      CAPTURE(size);
      check_stable(harness, draw(std::uint8_t{}, size));
      check_stable(harness, draw(std::int8_t{}, size));
      check_stable(harness, draw(std::int16_t{}, size));
      check_stable(harness, draw(std::uint32_t{}, size));
      check_stable(harness, draw(std::int64_t{}, size));
      check_stable(harness, draw(std::uint64_t{}, size));
    }
  }
  SUBCASE("few distinct keys, negative ones first, keep their order") {
    for (std::size_t const size : {500U, 140'000U}) {
      CAPTURE(size);
      check_stable(harness, tessera_tests::random_integers<std::int64_t>(random, size, -3, 3));
      check_stable(harness, std::vector<std::int64_t>(size, -7));
      check_stable(harness, std::vector<std::uint8_t>(size, 255));
    }
    auto const [keys, values] = harness.sort(std::vector<std::int32_t>{1, -1, 0, std::numeric_limits<std::int32_t>::min(), -1},
                                             std::vector<char>{'a', 'b', 'c', 'd', 'e'}, tessera::radix_bits{});
    CHECK(keys == std::vector<std::int32_t>{std::numeric_limits<std::int32_t>::min(), -1, -1, 0, 1});
    CHECK(values == std::vector<char>{'d', 'b', 'e', 'c', 'a'});
  }
  SUBCASE("only the given bits are compared") {
    for (std::size_t const size : {900U, 70'001U}) {
      auto const keys = draw(std::uint64_t{}, size);
      auto const small = draw(std::uint8_t{}, size);
      for (tessera::radix_bits const bits :
           {tessera::radix_bits{0, 0}, {0, 1}, {0, 17}, {3, 14}, {5, 5}, {40, 64}, {63, 64}, {64, 64}, {8, 1000}}) {
        CAPTURE(bits.begin_bit);
        CAPTURE(bits.end_bit);
        if (tessera_tests::under_sanitizer && size > 1000 && bits.begin_bit != 3) continue;
        check_stable(harness, keys, bits);
        if (bits.begin_bit <= 8) check_stable(harness, small, bits);
      }
      // Keys known to be small: the bits above say nothing.
      check_stable(harness, tessera_tests::random_integers<std::int64_t>(random, size, 0, 999), {.begin_bit = 0, .end_bit = 10});
    }
  }
  SUBCASE("values of any plain type follow their keys") {
    for (std::size_t const size : {100U, 80'000U}) {
      auto const keys = tessera_tests::random_integers<std::int32_t>(random, size, -1000, 1000);
      std::vector<std::pair<std::int32_t, radix_sort_tests::pair_value>> expected;
      std::vector<radix_sort_tests::pair_value> values;
      for (std::size_t i = 0; i < size; ++i) {
        values.push_back({static_cast<std::int32_t>(i), 0.5F * static_cast<float>(i)});
        expected.emplace_back(keys[i], values[i]);
      }
      std::stable_sort(expected.begin(), expected.end(), [](auto const& a, auto const& b) { return a.first < b.first; });
      auto const sorted = harness.sort(keys, values, tessera::radix_bits{});
      bool same = true;
      for (std::size_t i = 0; i < size; ++i) same = same && sorted.first[i] == expected[i].first && sorted.second[i] == expected[i].second;
      CHECK(same);
    }
  }
  SUBCASE("what does not fit is refused") {
    CHECK_THROWS_WITH_AS(harness.sort(std::vector<int>(3), std::vector<int>(2), tessera::radix_bits{}),
                         "radix_sort_pairs: one value a key (keys 3, values 2)", tessera::error);
    for (auto const& [begin, end] : {std::pair(-1, 5), {6, 5}, {33, 64}, {0, -1}}) {
      try {
        harness.sort(std::vector<int>(3), std::vector<int>(3), tessera::radix_bits{.begin_bit = begin, .end_bit = end});
        FAIL("accepted ", begin, " to ", end);
      } catch (tessera::error const& e) {
        CHECK(e.code() == tessera::errc::invalid_argument);
        CHECK(e.value("begin_bit") == std::to_string(begin));
        CHECK(e.value("end_bit") == std::to_string(std::min(end, 32)));
      }
    }
  }
}
