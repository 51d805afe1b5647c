// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <utility>
#include <vector>

#include <tessera/core/error.hpp>
#include <tessera/core/run_length_encode.hpp>

#include "../support/random.hpp"

namespace run_length_encode_tests {

template <class T, class Harness>
void check_runs(Harness const& harness, std::vector<T> const& values) {
  std::vector<T> runs;
  std::vector<std::int64_t> offsets;
  for (std::size_t i = 0; i < values.size(); ++i)
    if (i == 0 || values[i] != values[i - 1]) {
      runs.push_back(values[i]);
      offsets.push_back(static_cast<std::int64_t>(i));
    }
  offsets.push_back(static_cast<std::int64_t>(values.size()));
  auto const encoded = harness.encode(values, values.size(), values.size() + 1);
  CHECK((encoded.first == runs));
  CHECK((encoded.second == offsets));
}

}  // namespace run_length_encode_tests

/// What every execution must show. `harness.encode(values, room for runs, room for offsets) -> {runs, offsets}`.
template <class Harness>
void run_length_encode_suite(Harness const& harness) {
  using run_length_encode_tests::check_runs;
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  using list = std::vector<std::int64_t>;

  SUBCASE("by hand") {
    CHECK(harness.encode(list{7, 7, -1, 7, 7, 7, 0}, 7, 8) == std::pair(list{7, -1, 7, 0}, list{0, 2, 3, 6, 7}));
    CHECK(harness.encode(list{}, 0, 1) == std::pair(list{}, list{0}));
  }
  SUBCASE("every size, with long and with short runs") {
    for (std::size_t const size : {0U, 1U, 2U, 255U, 256U, 257U, 32'767U, 32'768U, 32'769U, 65'535U, 65'536U, 65'537U, 150'001U})
      for (std::uint64_t const mean : {1U, 2U, 20U, 1000U, 1'000'000U}) {
        CAPTURE(size);
        CAPTURE(mean);
        list values(size);
        std::int64_t value = 0;
        for (auto& v : values) v = value += random() % mean == 0 ? 1 : 0;
        check_runs(harness, values);
      }
  }
  SUBCASE("all equal, all distinct, extremes of the types") {
    check_runs(harness, list(70'000, std::numeric_limits<std::int64_t>::min()));
    list distinct(70'000);
    for (std::size_t i = 0; i < distinct.size(); ++i) distinct[i] = -static_cast<std::int64_t>(i);
    check_runs(harness, distinct);
    check_runs(harness, std::vector<std::uint64_t>{0, ~std::uint64_t{0}, ~std::uint64_t{0}, 0});
    check_runs(harness, tessera_tests::random_integers<std::uint8_t>(random, 70'000, 254, 255));
    check_runs(harness, tessera_tests::random_integers<std::int16_t>(random, 1000, -32'768, -32'767));
    check_runs(harness, std::vector<float>{0.0F, -0.0F, 1.5F, 1.5F, -1.5F});
  }
  SUBCASE("what does not fit is refused") {
    CHECK_THROWS_WITH_AS(harness.encode(list(3), 2, 4),
                         "run_length_encode: room for as many runs as values, and one offset more (values 3, runs 2, offsets 4)",
                         tessera::error);
    CHECK_THROWS_WITH_AS(harness.encode(list(3), 3, 3),
                         "run_length_encode: room for as many runs as values, and one offset more (values 3, runs 3, offsets 3)",
                         tessera::error);
  }
}
