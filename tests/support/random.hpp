// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <doctest/doctest.h>

#include <cstdint>
#include <cstdlib>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

namespace tessera_tests {

/// A new seed every run, or TESSERA_TEST_SEED from the environment. Show it on failure, in the scope of the checks:
/// `auto const seed = tessera_tests::draw_seed(); CAPTURE(seed); std::mt19937_64 random(seed);`
inline std::uint64_t draw_seed() {
  if (char const* const text = std::getenv("TESSERA_TEST_SEED")) return std::stoull(text);
  std::random_device device;
  return std::uint64_t{device()} << 32 | device();
}

/// Uniform integers in [least, most].
template <class T>
std::vector<T> random_integers(std::mt19937_64& random, std::size_t count, T least, T most) {
  std::vector<T> values(count);
  // The standard leaves the distribution undefined for 8-bit types.
  if constexpr (std::is_signed_v<T>) {
    std::uniform_int_distribution<std::int64_t> draw(least, most);
    for (auto& value : values) value = static_cast<T>(draw(random));
  } else {
    std::uniform_int_distribution<std::uint64_t> draw(least, most);
    for (auto& value : values) value = static_cast<T>(draw(random));
  }
  return values;
}

/// Standard normal floats.
inline std::vector<float> random_floats(std::mt19937_64& random, std::size_t count) {
  std::normal_distribution<float> draw;
  std::vector<float> values(count);
  for (auto& value : values) value = draw(random);
  return values;
}

/// Row lengths with the given mean, many of them 0.
inline std::vector<std::int64_t> random_lengths(std::mt19937_64& random, std::size_t rows, double mean) {
  std::poisson_distribution<std::int64_t> draw(mean);
  std::bernoulli_distribution empty(0.2);
  std::vector<std::int64_t> lengths(rows);
  for (auto& length : lengths) length = empty(random) ? 0 : draw(random);
  return lengths;
}

}  // namespace tessera_tests
