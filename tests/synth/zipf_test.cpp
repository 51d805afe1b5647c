// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-labels: values
#include <tessera/synth/zipf.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "random.hpp"
#include "temporary_folder.hpp"

using tessera::zipf_distribution;

namespace {

std::vector<double> probabilities(std::int64_t count, double exponent) {
  std::vector<double> p;
  double sum = 0;
  for (std::int64_t k = 1; k <= count; ++k) {
    p.push_back(std::pow(static_cast<double>(k), -exponent));
    sum += p.back();
  }
  for (auto& x : p) x /= sum;
  return p;
}

}  // namespace

TEST_CASE("zipf_distribution: ranks come as often as the law says, at every exponent") {
  std::mt19937_64 random(20);  // fixed: the bounds below hold but for one seed in thousands
  std::uniform_real_distribution<double> uniform;
  constexpr int draws = 100'000;
  for (double const exponent : {0.0, 0.3, 0.999999, 1.0, 1.0 + 1e-12, 1.05, 2.0, 5.0})
    for (std::int64_t const count : {1, 2, 3, 10, 1000}) {
      CAPTURE(exponent);
      CAPTURE(count);
      auto const p = probabilities(count, exponent);
      zipf_distribution const zipf(count, exponent);
      CHECK(zipf.count() == count);
      CHECK(zipf.exponent() == exponent);
      std::vector<int> hits(static_cast<std::size_t>(count));
      int trials = 0;
      double sum = 0;
      for (int i = 0; i < draws; ++i) {
        auto const rank = zipf([&] {
          ++trials;
          return uniform(random);
        });
        if (rank < 0 || rank >= count) FAIL("a rank out of range: ", rank);
        ++hits[static_cast<std::size_t>(rank)];
        sum += static_cast<double>(rank);
      }
      CHECK(trials < 1.2 * draws);
      // Ranks that are expected fewer than ten times are counted together.
      double chi_squared = 0, rest_expected = 0, rest_hits = 0, mean = 0, second = 0;
      int cells = 0;
      for (std::size_t k = 0; k < p.size(); ++k) {
        auto const expected = draws * p[k];
        mean += static_cast<double>(k) * p[k];
        second += static_cast<double>(k * k) * p[k];
        if (expected < 10) {
          rest_expected += expected;
          rest_hits += hits[k];
          continue;
        }
        chi_squared += (hits[k] - expected) * (hits[k] - expected) / expected;
        ++cells;
      }
      if (rest_expected > 0) chi_squared += (rest_hits - rest_expected) * (rest_hits - rest_expected) / rest_expected;
      CHECK(chi_squared < cells + 5 * std::sqrt(2.0 * cells) + 10);
      CHECK(std::abs(sum / draws - mean) <= 5 * std::sqrt((second - mean * mean) / draws) + 1e-12);
    }
}

TEST_CASE("zipf_distribution: large counts and the ends of the uniform numbers") {
  for (double const exponent : {0.0, 0.5, 1.0, 1.05, 3.0, 64.0})
    for (std::int64_t const count : {std::int64_t{1}, std::int64_t{7}, std::int64_t{1} << 40, std::int64_t{1} << 48}) {
      CAPTURE(exponent);
      CAPTURE(count);
      zipf_distribution const zipf(count, exponent);
      for (double const first : {0.0, 0x1p-53, 0.5, 1 - 0x1p-53}) {
        int draws = 0;
        auto const rank = zipf([&] { return draws++ == 0 ? first : 0.75; });
        CHECK(rank >= 0);
        CHECK(rank < count);
      }
      // The last of the uniform numbers belongs to the first rank.
      CHECK(zipf([] { return 1 - 0x1p-53; }) == 0);
    }
  // The mass of the first rank in a large set: 1 / (generalised) harmonic number.
  std::mt19937_64 random(3);
  std::uniform_real_distribution<double> uniform;
  zipf_distribution const zipf(std::int64_t{1} << 40, 1.0);
  int first = 0;
  for (int i = 0; i < 100'000; ++i) first += zipf([&] { return uniform(random); }) == 0;
  auto const expected = 1 / (40 * std::log(2.0) + 0.5772156649);
  CHECK(first / 1e5 == doctest::Approx(expected).epsilon(0.08));
}

TEST_CASE("zipf_distribution: what cannot be is named") {
  using tessera_tests::error_of;
  for (std::int64_t const count : {std::int64_t{0}, std::int64_t{-3}, (std::int64_t{1} << 48) + 1}) {
    auto const e = error_of([&] { zipf_distribution(count, 1); });
    CHECK(e.code() == tessera::errc::invalid_argument);
    CHECK(e.value("count") == std::to_string(count));
  }
  for (double const exponent : {-0.1, 64.5, std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()})
    CHECK(error_of([&] { zipf_distribution(10, exponent); }).code() == tessera::errc::invalid_argument);
}
