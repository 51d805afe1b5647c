// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-labels: values
#include <tessera/synth/alias_table.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "random.hpp"
#include "temporary_folder.hpp"

namespace {

using tessera::alias_table;
using tessera::errc;
using tessera_tests::error_of;

}  // namespace

TEST_CASE("alias_table: numbers come as often as their weights say") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  for (std::size_t const n : {1U, 2U, 7U, 64U, 300U}) {
    CAPTURE(n);
    std::vector<double> weights(n);
    for (auto& w : weights) w = random() % 4 == 0 ? 0 : std::exp(3.0 * static_cast<double>(random() % 1000) / 1000);
    weights[n / 2] += 1;
    double sum = 0;
    for (auto const w : weights) sum += w;
    alias_table const table(weights);
    CHECK(table.size() == static_cast<std::int64_t>(n));
    CHECK(table.bytes() == 8 * n);
    std::vector<double> drawn(n, 0);
    constexpr double draws = 400'000;
    for (int i = 0; i < static_cast<int>(draws); ++i) {
      auto const number = table(random());
      ++drawn.at(static_cast<std::size_t>(number));
    }
    for (std::size_t i = 0; i < n; ++i) {
      auto const p = weights[i] / sum;
      CHECK(std::abs(drawn[i] - draws * p) <= 6.5 * std::sqrt(draws * p * (1 - p)) + 1e-9);
      if (weights[i] == 0) CHECK(drawn[i] == 0);
    }
  }
}

TEST_CASE("alias_table: the extreme words draw numbers of the table") {
  alias_table const table({0.25, 0, 0.75});
  for (std::uint64_t const bits : {std::uint64_t{0}, ~std::uint64_t{0}, std::uint64_t{0xFFFFFFFF}, std::uint64_t{0xFFFFFFFF} << 32}) {
    auto const number = table(bits);
    CHECK((number == 0 || number == 2));
  }
}

TEST_CASE("alias_table: weights that it refuses") {
  auto const refused = [](std::vector<double> weights) { return error_of([&] { alias_table const table(weights); }); };
  CHECK(refused({}).code() == errc::invalid_argument);
  CHECK(refused({}).value("weights") == "0");
  CHECK(refused({1, -1}).value("number") == "1");
  CHECK(refused({1, std::numeric_limits<double>::quiet_NaN()}).value("number") == "1");
  CHECK(refused({0, 0}).value("sum") == "0");
  CHECK(refused({1, std::numeric_limits<double>::infinity()}).sentence() == "alias_table: sum of weights");
}
