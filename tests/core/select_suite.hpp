// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include <tessera/core/error.hpp>
#include <tessera/core/select.hpp>

#include "../support/random.hpp"

namespace select_tests {

struct pair_value {
  std::int32_t position;
  float weight;
  friend bool operator==(pair_value const&, pair_value const&) = default;
};

template <class T, class Flag, class Harness>
void check_selected(Harness const& harness, std::vector<T> const& values, std::vector<Flag> const& flags) {
  std::vector<T> expected;
  for (std::size_t i = 0; i < values.size(); ++i)
    if (flags[i] != 0) expected.push_back(values[i]);
  CHECK((harness.select(values, flags, values.size()) == expected));
}

}  // namespace select_tests

/// What every execution must show. `harness.select(values, flags, room) -> the selected`.
template <class Harness>
void select_suite(Harness const& harness) {
  using select_tests::check_selected;
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);

  SUBCASE("by hand: any flag but 0 selects") {
    CHECK(harness.select(std::vector<std::int64_t>{5, 6, 7, 8, 9}, std::vector<std::int32_t>{0, 2, -1, 0, 1 << 20}, 5) ==
          std::vector<std::int64_t>{6, 7, 9});
  }
  SUBCASE("every size, from none to all") {
    for (std::size_t const size : {0U, 1U, 2U, 255U, 1000U, 32'767U, 32'768U, 32'769U, 65'536U, 150'001U})
      for (std::uint64_t const of_16 : {0U, 1U, 8U, 15U, 16U}) {
        CAPTURE(size);
        CAPTURE(of_16);
        std::vector<std::uint8_t> flags(size);
        for (auto& flag : flags) flag = random() % 16 < of_16 ? 255 : 0;
        check_selected(harness, tessera_tests::random_integers<std::int64_t>(random, size, INT64_MIN, INT64_MAX), flags);
        check_selected(harness, tessera_tests::random_integers<std::int32_t>(random, size, INT32_MIN, INT32_MAX), flags);
      }
  }
  SUBCASE("one at each end") {
    std::vector<std::int64_t> values(100'000, 3), flags(100'000);
    values.front() = 1, flags.front() = 1;
    values.back() = 2, flags.back() = INT64_MIN;
    check_selected(harness, values, flags);
  }
  SUBCASE("values of any plain type") {
    std::size_t const size = 40'000;
    auto const flags = tessera_tests::random_integers<std::int8_t>(random, size, -1, 1);
    std::vector<select_tests::pair_value> pairs;
    for (std::size_t i = 0; i < size; ++i) pairs.push_back({static_cast<std::int32_t>(i), 0.25F * static_cast<float>(i)});
    check_selected(harness, pairs, flags);
    check_selected(harness, tessera_tests::random_integers<std::uint8_t>(random, size, 0, 255), flags);
  }
  SUBCASE("what does not fit is refused") {
    std::vector<std::int64_t> const three(3);
    CHECK_THROWS_WITH_AS(harness.select(three, std::vector<std::uint8_t>(2), 3),
                         "select_flagged: one flag a value, and room for all (values 3, flags 2, out 3)", tessera::error);
    CHECK_THROWS_WITH_AS(harness.select(three, std::vector<std::uint8_t>(3), 2),
                         "select_flagged: one flag a value, and room for all (values 3, flags 3, out 2)", tessera::error);
  }
}
