// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <tessera/core/config.hpp>

/// Floats as their bits, for arithmetic without a branch on host and device alike.
namespace tessera {
inline namespace TESSERA_ABI {
namespace detail {

TESSERA_HOST_DEVICE constexpr std::uint32_t float_bits(float value) noexcept { return __builtin_bit_cast(std::uint32_t, value); }
TESSERA_HOST_DEVICE constexpr float float_of_bits(std::uint32_t bits) noexcept { return __builtin_bit_cast(float, bits); }

// `condition ? a : b` as arithmetic: g++ would turn the operator into a branch around floating-point work, and then vectorise nothing.
TESSERA_HOST_DEVICE constexpr std::uint32_t select(bool condition, std::uint32_t a, std::uint32_t b) noexcept {
  return b ^ ((a ^ b) & (0U - static_cast<std::uint32_t>(condition)));
}

}  // namespace detail
}  // namespace TESSERA_ABI
}  // namespace tessera
