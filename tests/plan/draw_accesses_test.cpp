// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <random>
#include <set>
#include <vector>

#include <tessera/plan/draw_accesses.hpp>

#include "random.hpp"

namespace draw_accesses_test {

using tessera::detail::access_bins;
using tessera::detail::draw_access_counts;
using tessera::detail::draw_distinct_rows;
using tessera::detail::random_sequence;

namespace {

using shares = std::array<double, access_bins>;

int bin_of(std::int64_t count) {
  int bin = 0;
  while (bin < access_bins - 1 && count > std::int64_t{1} << bin) ++bin;
  return bin;
}

shares shares_of(std::vector<std::int64_t> const& counts) {
  shares result{};
  for (auto const count : counts) result[static_cast<std::size_t>(bin_of(count))] += 1 / static_cast<double>(counts.size());
  return result;
}

std::int64_t sum_of(std::vector<std::int64_t> const& counts) { return std::accumulate(counts.begin(), counts.end(), std::int64_t{0}); }

}  // namespace

TEST_CASE("draw_access_counts: bins and accesses are those of counts of any law") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  for (int repeat = 0; repeat < 30; ++repeat) {
    CAPTURE(repeat);
    // Powers of a uniform number: few are frequent, many are rare, more or less so. Now and then one count alone.
    std::vector<std::int64_t> counts;
    auto const most = std::uniform_real_distribution<double>(0, 17)(random), bend = std::uniform_real_distribution<double>(1, 6)(random);
    for (int i = 0; i < 3000; ++i)
      counts.push_back(static_cast<std::int64_t>(std::exp2(most * std::pow(std::uniform_real_distribution<double>()(random), bend))));
    if (repeat % 5 == 0) counts.assign(3000, std::uniform_int_distribution<std::int64_t>(1, 100)(random));
    auto const expected = shares_of(counts);
    random_sequence sequence(tessera::random_seed(seed), static_cast<std::uint64_t>(repeat), 0);
    auto const drawn = draw_access_counts(sequence, expected, 1'000'000'000, sum_of(counts));
    CHECK(sum_of(drawn) == sum_of(counts));
    CHECK(*std::min_element(drawn.begin(), drawn.end()) >= 1);
    auto const found = shares_of(drawn);
    for (std::size_t b = 0; b < expected.size(); ++b) {
      CAPTURE(b);
      CHECK(std::fabs(found[b] - expected[b]) < 0.03);
    }
  }
}

TEST_CASE("draw_access_counts: few accesses, few rows, no bins") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  for (int repeat = 0; repeat < 300; ++repeat) {
    CAPTURE(repeat);
    random_sequence sequence(tessera::random_seed(seed), static_cast<std::uint64_t>(repeat), 0);
    shares bins{};
    if (repeat % 7 != 0)
      for (auto& share : bins) share = std::pow(std::uniform_real_distribution<double>()(random), 5);
    auto const rows = std::uniform_int_distribution<std::int64_t>(1, 50)(random),
               accesses = std::uniform_int_distribution<std::int64_t>(0, 3000)(random) / (repeat % 3 == 0 ? 100 : 1);
    auto const drawn = draw_access_counts(sequence, bins, rows, accesses);
    CHECK(sum_of(drawn) == accesses);
    CHECK(static_cast<std::int64_t>(drawn.size()) <= rows);
    for (auto const count : drawn) CHECK(count >= 1);
  }
}

TEST_CASE("draw_distinct_rows: distinct, in range, the last row among them, each as likely as another") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::vector<int> hits(20);
  for (std::uint64_t repeat = 0; repeat < 4000; ++repeat)
    for (std::int64_t const count : {0, 1, 5, 19, 20}) {
      random_sequence sequence(tessera::random_seed(seed), repeat, static_cast<std::uint32_t>(count));
      auto const drawn = draw_distinct_rows(sequence, 20, count);
      CHECK(static_cast<std::int64_t>(drawn.size()) == count);
      std::set<std::int64_t> const distinct(drawn.begin(), drawn.end());
      CHECK(distinct.size() == drawn.size());
      if (count == 0) continue;
      CHECK(*distinct.begin() >= 0);
      CHECK(*distinct.rbegin() == 19);
      if (count == 5)
        for (auto const row : drawn) ++hits[static_cast<std::size_t>(row)];
    }
  // Row 19 is always there; others share four places: 4000 * 4 / 19 = 842, six deviations to either side.
  CHECK(hits[19] == 4000);
  for (std::size_t row = 0; row < 19; ++row) {
    CAPTURE(row);
    CHECK(std::abs(hits[row] - 842) < 160);
  }
}

}  // namespace draw_accesses_test
