// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <set>
#include <tuple>

#include <tessera/core/philox.hpp>

#include "../support/random.hpp"

using tessera::philox;
using tessera::random_block;
using tessera::random_seed;

static constexpr bool same(random_block a, random_block b) { return a[0] == b[0] && a[1] == b[1] && a[2] == b[2] && a[3] == b[3]; }

// The known answers that its authors ship with Random123.
static_assert(same(philox({{0, 0, 0, 0}}, 0, 0), {{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}}));
static_assert(same(philox({{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}}, 0xffffffff, 0xffffffff),
                   {{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}}));
static_assert(same(philox({{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}}, 0xa4093822, 0x299f31d0),
                   {{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}}));

TEST_CASE("philox gives the known answers at run time too") {
  std::uint32_t volatile zero = 0;
  CHECK(same(philox({{zero, zero, zero, zero}}, zero, zero), {{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}}));
}

TEST_CASE("a sub-stream's numbers are a counter and a key") {
  random_seed const seed(0x299f31d0a4093822);
  CHECK(same(philox(seed, 0x85a308d3243f6a88, 0x03707344, 0x13198a2e), {{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}}));
}

TEST_CASE("seed, sub-stream and index each choose other numbers") {
  std::set<std::tuple<std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t>> seen;
  int drawn = 0;
  for (std::uint64_t const seed : {0ULL, 1ULL, 1ULL << 32, ~0ULL})
    for (std::uint64_t const a : {0ULL, 1ULL, 1ULL << 32, ~0ULL})
      for (std::uint32_t const b : {0U, 1U, ~0U})
        for (std::uint32_t const index : {0U, 1U, ~0U}) {
          auto const block = philox(random_seed(seed), a, b, index);
          seen.emplace(block[0], block[1], block[2], block[3]);
          ++drawn;
        }
  CHECK(seen.size() == static_cast<std::size_t>(drawn));
}

TEST_CASE("uniform numbers have the moments of their distribution") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  constexpr int blocks = 250'000;
  constexpr double n = 4.0 * blocks;
  double sum = 0, squares = 0, products = 0, symmetric_sum = 0;
  int counts[16] = {};
  for (std::uint32_t i = 0; i < blocks; ++i) {
    auto const block = philox(random_seed(seed), i % 7, 3, i);
    float const first = tessera::uniform(block[0]);
    for (int k = 0; k < 4; ++k) {
      float const u = tessera::uniform(block[k]);
      if (u < 0 || u >= 1) FAIL("outside [0, 1): ", u);
      float const s = tessera::uniform_symmetric(block[k], 0.25F);
      if (s < -0.25F || s >= 0.25F) FAIL("outside [-0.25, 0.25): ", s);
      ++counts[static_cast<int>(u * 16)];
      sum += u;
      squares += double{u} * u;
      symmetric_sum += s;
    }
    products += double{first} * tessera::uniform(block[1]);
  }
  // Six standard deviations: wrong once in 10^9 runs.
  CHECK(std::abs(sum / n - 0.5) < 6 * std::sqrt(1.0 / 12 / n));
  CHECK(std::abs(squares / n - 1.0 / 3) < 6 * std::sqrt(4.0 / 45 / n));
  CHECK(std::abs(symmetric_sum / n) < 6 * 0.5 * std::sqrt(1.0 / 12 / n));
  CHECK(std::abs(products / blocks - 0.25) < 6 * std::sqrt((1.0 / 9 - 1.0 / 16) / blocks));
  for (int const count : counts) CHECK(std::abs(count - n / 16) < 6 * std::sqrt(n / 16 * 15 / 16));
}

TEST_CASE("uniform reaches its ends exactly") {
  CHECK(tessera::uniform(0) == 0.0F);
  CHECK(tessera::uniform(255) == 0.0F);
  CHECK(tessera::uniform(256) == 0x1p-24F);
  CHECK(tessera::uniform(0xFFFFFFFF) == 1.0F - 0x1p-24F);
  for (float const bound : {1.0F, 0.1F, 3.0F, 1e30F, 1e-30F}) {
    CHECK(tessera::uniform_symmetric(0, bound) == -bound);
    CHECK(tessera::uniform_symmetric(0xFFFFFFFF, bound) < bound);
    CHECK(tessera::uniform_symmetric(0x80000000, bound) == 0.0F);
  }
}

TEST_CASE("uniform_below is the high word of a product") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  auto const check = [](std::uint64_t x, std::uint64_t n) {
    auto const below = tessera::uniform_below(static_cast<std::uint32_t>(x >> 32), static_cast<std::uint32_t>(x), n);
    __extension__ using wide = unsigned __int128;
    if (below != static_cast<std::uint64_t>(static_cast<wide>(x) * n >> 64) || below >= n) FAIL("x ", x, ", n ", n, ": ", below);
  };
  std::uint64_t const edges[] = {
      0, 1, 2, 3, 0xFFFFFFFF, 0x100000000, 0x100000001, std::uint64_t{1} << 63, ~std::uint64_t{0} - 1, ~std::uint64_t{0}};
  for (auto const x : edges)
    for (auto const n : edges)
      if (n > 0) check(x, n);
  for (int i = 0; i < 100'000; ++i) {
    auto const x = random() >> random() % 64, n = random() >> random() % 64;
    if (n > 0) check(x, n);
  }
  int counts[6] = {};
  for (std::uint32_t i = 0; i < 60'000; ++i) {
    auto const block = philox(random_seed(seed), 1, 2, i);
    ++counts[tessera::uniform_below(block[0], block[1], 6)];
  }
  for (int const count : counts) CHECK(std::abs(count - 10'000) < 6 * std::sqrt(60'000.0 / 6 * 5 / 6));
}
