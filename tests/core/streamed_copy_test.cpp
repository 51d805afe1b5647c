// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include <tessera/core/streamed_copy.hpp>

#include "../support/random.hpp"

TEST_CASE("streamed_copy: every length from and to every place of a line, and nothing around") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  auto const from = tessera_tests::random_integers<std::uint8_t>(random, 512, 0, 255);
  std::size_t wrong = 0;
  for (std::size_t length = 0; length <= 260; ++length)
    for (std::size_t shift = 0; shift < 64; ++shift) {
      std::vector<std::uint8_t> to(400, 99);
      auto const source = random() % 64;
      tessera::detail::streamed_copy(to.data() + shift, from.data() + source, static_cast<std::int64_t>(length));
      tessera::detail::finish_streams();
      for (std::size_t i = 0; i < to.size(); ++i) wrong += to[i] != (i >= shift && i < shift + length ? from[source + i - shift] : 99);
    }
  CHECK(wrong == 0);
}
