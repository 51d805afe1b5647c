// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include <tessera/core/id_map.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// Returns the id of a text, 0 … 2^63 - 1: the same on every machine and in every run. Among n different texts two have the same id with a
/// probability of about n² / 2^64, unless somebody constructs them for that.
inline std::int64_t hash_text(std::string_view text) noexcept {
  constexpr std::uint64_t odd = 0x9E3779B97F4A7C15;
  auto const word_at = [text](std::size_t first, std::size_t bytes) {
    std::uint64_t word = 0;
    for (std::size_t i = 0; i < bytes; ++i) word |= std::uint64_t{static_cast<unsigned char>(text[first + i])} << (8 * i);
    return word;
  };
  auto bits = (text.size() + 1) * odd;
  std::size_t done = 0;
  for (; text.size() - done >= 8; done += 8) bits = mix_bits(bits ^ word_at(done, 8)) + odd;
  return static_cast<std::int64_t>(mix_bits(bits ^ word_at(done, text.size() - done)) >> 1);
}

}  // namespace TESSERA_ABI
}  // namespace tessera
