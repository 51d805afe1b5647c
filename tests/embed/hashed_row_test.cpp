// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <tessera/embed/hashed_row.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include <random.hpp>

TEST_CASE("hashed_row: any id has a row, and ids of any kind spread evenly") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  using limits = std::numeric_limits<std::int64_t>;
  for (std::int64_t const rows : {std::int64_t{1}, std::int64_t{3}, std::int64_t{1000}, std::int64_t{1} << 40, limits::max()})
    for (auto const id :
         {limits::min(), std::int64_t{-1}, std::int64_t{0}, std::int64_t{1}, limits::max(), static_cast<std::int64_t>(random())}) {
      auto const row = tessera::hashed_row(id, rows);
      CHECK(row >= 0);
      CHECK(row < rows);
      CHECK(row == tessera::hashed_row(id, rows));
    }

  // Counts of ids in a row, of a mean of 2,000, are within seven standard deviations of it: ids that follow each other, that share low bits, and any.
  constexpr std::int64_t rows = 10, ids = 20'000;
  for (int const kind : {0, 1, 2}) {
    CAPTURE(kind);
    std::vector<double> counts(static_cast<std::size_t>(rows), 0);
    for (std::int64_t i = 0; i < ids; ++i) {
      auto const id = kind == 0 ? i : kind == 1 ? i * 4096 : static_cast<std::int64_t>(random());
      ++counts[static_cast<std::size_t>(tessera::hashed_row(id, rows))];
    }
    for (auto const count : counts) CHECK(std::fabs(count - 2000) < 7 * std::sqrt(2000 * 0.9));
  }
}

TEST_CASE("share_of_limit: shares are rounded up, cover the limit, and no limit stays none") {
  constexpr auto none = std::numeric_limits<std::int64_t>::max();
  CHECK(tessera::share_of_limit(none, 1, 10) == none);
  CHECK(tessera::share_of_limit(100, 10, 10) == 100);
  CHECK(tessera::share_of_limit(100, 0, 10) == 0);
  CHECK(tessera::share_of_limit(10, 1, 3) == 4);
  CHECK(tessera::share_of_limit(none - 1, none - 1, none - 1) == none - 1);  // whose product is past 64 bits
  std::int64_t sum = 0;
  for (std::int64_t const part : {1, 2, 4}) sum += tessera::share_of_limit(100, part, 7);
  CHECK(sum >= 100);
  CHECK(sum < 103);
}
