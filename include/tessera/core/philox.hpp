// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <tessera/core/config.hpp>
#include <tessera/core/types.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// Four random words at once.
struct random_block {
  std::uint32_t word[4];
  TESSERA_HOST_DEVICE constexpr std::uint32_t operator[](int i) const noexcept { return word[i]; }
};

/// Philox4x32-10: the random block number `counter` of the stream `key`. It is a pure function, so that any element of any stream costs the
/// same on any device. Source: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
TESSERA_HOST_DEVICE constexpr random_block philox(random_block counter, std::uint32_t key0, std::uint32_t key1) noexcept {
  for (int round = 0; round < 10; ++round) {
    auto const product0 = std::uint64_t{0xD2511F53} * counter.word[0];
    auto const product1 = std::uint64_t{0xCD9E8D57} * counter.word[2];
    counter = {{static_cast<std::uint32_t>(product1 >> 32) ^ counter.word[1] ^ key0, static_cast<std::uint32_t>(product1),
                static_cast<std::uint32_t>(product0 >> 32) ^ counter.word[3] ^ key1, static_cast<std::uint32_t>(product0)}};
    key0 += 0x9E3779B9;
    key1 += 0xBB67AE85;
  }
  return counter;
}

/// Block `index` of the sub-stream (a, b) of a seed. `b`, below 2^32, says what the words are for; `a` says for which row, block or epoch.
TESSERA_HOST_DEVICE constexpr random_block philox(random_seed seed, std::uint64_t a, std::uint32_t b, std::uint32_t index) noexcept {
  return philox({{static_cast<std::uint32_t>(a), static_cast<std::uint32_t>(a >> 32), index, b}}, static_cast<std::uint32_t>(seed.value),
                static_cast<std::uint32_t>(seed.value >> 32));
}

/// Uniform in [0, 1), a multiple of 2^-24, so exact in float.
TESSERA_HOST_DEVICE constexpr float uniform(std::uint32_t word) noexcept { return static_cast<float>(word >> 8) * 0x1p-24F; }

/// Uniform in [-bound, bound).
TESSERA_HOST_DEVICE constexpr float uniform_symmetric(std::uint32_t word, float bound) noexcept {
  return (2.0F * uniform(word) - 1.0F) * bound;
}

/// Uniform in [0, n), without bias beyond n / 2^64. @pre n > 0.
TESSERA_HOST_DEVICE constexpr std::uint64_t uniform_below(std::uint32_t high, std::uint32_t low, std::uint64_t n) noexcept {
  auto const x = std::uint64_t{high} << 32 | low;
  // The high word of the 128-bit product x * n, in 64-bit arithmetic.
  auto const x0 = x & 0xFFFFFFFF, x1 = x >> 32, n0 = n & 0xFFFFFFFF, n1 = n >> 32;
  auto const middle = x1 * n0 + (x0 * n0 >> 32);
  return x1 * n1 + (middle >> 32) + ((x0 * n1 + (middle & 0xFFFFFFFF)) >> 32);
}

}  // namespace TESSERA_ABI
}  // namespace tessera
