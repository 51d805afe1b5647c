// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstdint>

#include <tessera/core/config.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// Divides by a constant divisor without division instructions. Source: Granlund and Montgomery, "Division by invariant integers using
/// multiplication", PLDI 1994, figure 4.1.
class fixed_divisor {
 public:
  /// @pre 1 <= divisor < 2^63
  explicit fixed_divisor(std::uint64_t divisor) noexcept : divisor_(divisor) {
    auto const bits = std::bit_width(divisor - 1);
    reciprocal_ = static_cast<std::uint64_t>((wide{(std::uint64_t{1} << bits) - divisor} << 64) / divisor + 1);
    first_shift_ = bits > 0 ? 1 : 0;
    second_shift_ = static_cast<int>(bits) - first_shift_;
  }

  /// n / divisor.
  TESSERA_HOST_DEVICE constexpr std::uint64_t quotient(std::uint64_t n) const noexcept {
    auto const upper = static_cast<std::uint64_t>(wide{reciprocal_} * n >> 64);
    return (upper + ((n - upper) >> first_shift_)) >> second_shift_;
  }
  /// n % divisor.
  TESSERA_HOST_DEVICE constexpr std::uint64_t remainder(std::uint64_t n) const noexcept { return n - quotient(n) * divisor_; }

 private:
  __extension__ typedef unsigned __int128 wide;  // nvcc reads no __extension__ before "using"

  std::uint64_t divisor_, reciprocal_;
  int first_shift_, second_shift_;
};

}  // namespace TESSERA_ABI
}  // namespace tessera
