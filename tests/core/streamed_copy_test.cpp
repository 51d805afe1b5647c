// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <random>
#include <vector>

#include <tessera/core/streamed_copy.hpp>

#include "../support/random.hpp"

namespace {

using bytes = std::vector<std::uint8_t>;

// Each to its place behind the one before, with a byte between them that nobody may touch.
std::size_t wrong_bytes(std::mt19937_64& random, bytes const& from, std::vector<std::size_t> const& lengths, std::size_t shift) {
  bytes to(shift + std::accumulate(lengths.begin(), lengths.end(), lengths.size() + 64), 99), expected = to;
  {
    tessera::detail::streamed_copies streams;
    auto place = shift;
    for (auto const length : lengths) {
      auto const source = random() % (from.size() - length + 1);
      std::copy_n(from.data() + source, length, expected.data() + place);
      streams.add(to.data() + place, from.data() + source, static_cast<std::int64_t>(length));
      place += length + 1;
    }
  }
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < to.size(); ++i) wrong += to[i] != expected[i];
  return wrong;
}

}  // namespace

TEST_CASE("streamed_copies: every length to every place of a line, and nothing around") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  auto const from = tessera_tests::random_integers<std::uint8_t>(random, 512, 0, 255);
  std::size_t wrong = 0;
  for (std::size_t length = 0; length <= 260; ++length)
    for (std::size_t shift = 0; shift < 64; ++shift) wrong += wrong_bytes(random, from, {length}, shift);
  CHECK(wrong == 0);
}

TEST_CASE("streamed_copies: any number of any lengths, taken in turn") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  auto const from = tessera_tests::random_integers<std::uint8_t>(random, 60'000, 0, 255);
  for (int round = 0; round < 200; ++round) {
    std::vector<std::size_t> lengths(random() % 40);
    auto const longest = std::size_t{1} << (random() % 16);
    for (auto& length : lengths) length = random() % (longest + 1);
    REQUIRE(wrong_bytes(random, from, lengths, random() % 64) == 0);
  }
}
