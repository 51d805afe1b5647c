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

TEST_CASE("write_floats: every value to its place, streamed or not, and nothing around") {
  alignas(64) float to[16 + 64 + 16];
  for (bool const stream : {false, true}) {
    for (auto& x : to) x = -1;
    tessera::detail::write_floats<64>(to + 16, stream, [](int i) { return static_cast<float>(3 * i); });
    tessera::detail::write_floats<4>(to, stream, [](int i) { return static_cast<float>(i + 1000); });  // no whole line
    tessera::detail::finish_streams();
    std::size_t wrong = 0;
    for (int i = 0; i < 96; ++i)
      wrong += to[i] != (i < 4 ? static_cast<float>(i + 1000) : i < 16 || i >= 80 ? -1.0F : static_cast<float>(3 * (i - 16)));
    CHECK(wrong == 0);
  }
}

TEST_CASE("exceeds_caches counts all results, starts_lines looks at every row") {
  using tessera::detail::exceeds_caches;
  using tessera::detail::starts_lines;
  alignas(64) float data[64] = {};
  constexpr auto most = tessera::detail::streamed_bytes / 4;
  std::vector<tessera::matrix_view<float>> results{{data, most / 64, 64}};
  CHECK_FALSE(exceeds_caches(results));
  results.push_back({data, 1, 1});
  CHECK(exceeds_caches(results));
  CHECK_FALSE(exceeds_caches({}));
  CHECK(starts_lines({data, 2, 16, 32}));
  CHECK(starts_lines({data + 16, 2, 3, 16}));
  CHECK_FALSE(starts_lines({data + 1, 2, 16, 32}));
  CHECK_FALSE(starts_lines({data, 2, 16, 24}));
}
