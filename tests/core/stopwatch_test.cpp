// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <chrono>

#include <tessera/core/stopwatch.hpp>

TEST_CASE("laps follow one another without a gap") {
  using clock = std::chrono::steady_clock;
  auto const before = clock::now();
  tessera::stopwatch watch;
  auto const begun = clock::now();
  double sum = 0;
  for (int i = 0; i < 100; ++i) {
    auto const lap = watch.lap();
    CHECK(lap >= 0);
    sum += lap;
  }
  auto const until = clock::now();
  while (clock::now() - until < std::chrono::milliseconds(1)) {
  }
  sum += watch.lap();
  auto const after = clock::now();
  auto const seconds = [](clock::duration d) { return std::chrono::duration<double>(d).count(); };
  CHECK(sum >= seconds(until - begun) + 0.001 - 1e-9);
  CHECK(sum <= seconds(after - before) + 1e-9);
}
