// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include <tessera/core/config.hpp>
#include <tessera/core/float_bits.hpp>

/// The formats that the elements of an embedding row are stored in. Arithmetic is done in float; these functions cross the border, without
/// a branch, in integer arithmetic alone where the mode of the floating-point unit (flush to zero) could matter, so that a loop over a row
/// runs in vectors and host and device agree bit by bit.
namespace tessera::inline TESSERA_ABI {

/// IEEE 754 binary16: 5 bits of exponent, 10 of fraction; up to 65504, subnormal below 2^-14, in steps of 2^-24 there.
struct float16 {
  std::uint16_t bits;
  friend constexpr bool operator==(float16 const&, float16 const&) = default;  // of the bits
};

/// The upper half of a float: 8 bits of exponent, 7 of fraction.
struct bfloat16 {
  std::uint16_t bits;
  friend constexpr bool operator==(bfloat16 const&, bfloat16 const&) = default;  // of the bits
};
static_assert(sizeof(float16) == 2 && sizeof(bfloat16) == 2 && std::is_trivially_copyable_v<float16> &&
              std::is_trivially_copyable_v<bfloat16>);

/// What the elements of a row can be stored as.
template <class E>
concept row_element = std::same_as<E, float> || std::same_as<E, float16> || std::same_as<E, bfloat16>;

/// The format's name in files: that of safetensors.
template <row_element E>
inline constexpr std::string_view dtype_name = std::same_as<E, float>     ? "F32"
                                               : std::same_as<E, float16> ? "F16"
                                                                          : "BF16";

namespace detail {

inline constexpr std::uint32_t float_magnitude = 0x7FFFFFFF;
inline constexpr std::uint32_t float_infinity = 0x7F800000;
// Floats of note to float16: its least normal number 2^-14, and the least number that no longer rounds to its largest, 65520.
inline constexpr std::uint32_t float16_least_normal = 113U << 23;
inline constexpr std::uint32_t float16_overflow = 0x477FF000;
inline constexpr std::uint32_t float16_rebias = 112U << 23;  // between the exponents of one value in both

// The sixteen bits of a float's upper half, after what rounding added below. A NaN keeps its upper bits and turns quiet.
TESSERA_HOST_DEVICE constexpr bfloat16 bfloat16_of(std::uint32_t bits, std::uint32_t rounded) noexcept {
  bool const nan = (bits & float_magnitude) > float_infinity;
  return {static_cast<std::uint16_t>(select(nan, bits | 0x400000, rounded) >> 16)};
}

// Puts a finite result, by magnitude, together with sign, infinity and NaN.
TESSERA_HOST_DEVICE constexpr float16 float16_of(std::uint32_t bits, std::uint32_t finite) noexcept {
  auto const magnitude = bits & float_magnitude;
  auto const special = select(magnitude > float_infinity, 0x7E00U | (magnitude >> 13 & 0x3FF), 0x7C00U);
  return {static_cast<std::uint16_t>((bits >> 16 & 0x8000) | select(magnitude >= float_infinity, special, finite))};
}

}  // namespace detail

/// The value, exactly; a NaN keeps sign and payload.
TESSERA_HOST_DEVICE constexpr float to_float(float value) noexcept { return value; }
TESSERA_HOST_DEVICE constexpr float to_float(bfloat16 value) noexcept { return detail::float_of_bits(std::uint32_t{value.bits} << 16); }
TESSERA_HOST_DEVICE constexpr float to_float(float16 value) noexcept {
  auto const shifted = (std::uint32_t{value.bits} & 0x7FFF) << 13;
  auto const normal = shifted + detail::float16_rebias;
  // A subnormal f 2^-24 is what stands above 2^-14 once the exponent of 2^-14 is written before f.
  auto const subnormal = detail::float_bits(detail::float_of_bits(shifted + detail::float16_least_normal) -
                                            detail::float_of_bits(detail::float16_least_normal));
  auto const special = shifted + 2 * detail::float16_rebias;  // infinity and NaN
  auto const magnitude = detail::select(shifted < 0x400U << 13, subnormal, detail::select(shifted < 0x7C00U << 13, normal, special));
  return detail::float_of_bits(magnitude | (std::uint32_t{value.bits} & 0x8000) << 16);
}

/// The nearest value of the format, of two equally near the even one; past the largest, infinity, as IEEE 754 has it. Infinity stays, NaN
/// stays NaN.
template <row_element E>
TESSERA_HOST_DEVICE constexpr E round_to(float value) noexcept {
  if constexpr (std::same_as<E, float>) {
    return value;
  } else if constexpr (std::same_as<E, bfloat16>) {
    auto const bits = detail::float_bits(value);
    return detail::bfloat16_of(bits, bits + 0x7FFF + (bits >> 16 & 1));
  } else {
    auto const bits = detail::float_bits(value);
    auto const magnitude = bits & detail::float_magnitude;
    auto const normal = (magnitude - detail::float16_rebias + 0xFFF + (magnitude >> 13 & 1)) >> 13;
    // 0.5 has steps of 2^-24, so that the addition rounds to them.
    auto const small = detail::select(magnitude < detail::float16_least_normal, magnitude, 0);
    auto const subnormal = detail::float_bits(detail::float_of_bits(small) + 0.5F) - detail::float_bits(0.5F);
    auto const finite = detail::select(magnitude < detail::float16_least_normal, subnormal, normal);
    return detail::float16_of(bits, detail::select(magnitude < detail::float16_overflow, finite, 0x7C00));
  }
}

/// Stochastic rounding: one of the two neighbours, the upper with the probability of the value's distance from the lower (to within 2^-31
/// of it for subnormal float16, exactly else), so that what is rounded away again and again survives in the mean. `random`: 32 uniform bits.
/// A value of the format stays as it is; a finite value past the largest becomes the largest; infinity stays, NaN stays NaN.
/// Source: Gupta, Agrawal, Gopalakrishnan, Narayanan, "Deep learning with limited numerical precision", ICML 2015, section 3.
template <row_element E>
TESSERA_HOST_DEVICE constexpr E round_to(float value, std::uint32_t random) noexcept {
  if constexpr (std::same_as<E, float>) {
    return value;
  } else if constexpr (std::same_as<E, bfloat16>) {
    auto const bits = detail::float_bits(value);
    auto const magnitude = bits & detail::float_magnitude;
    auto const rounded = bits + detail::select(magnitude < 0x7F7F0000, random & 0xFFFF, 0);  // at the largest, cut off instead
    return detail::bfloat16_of(bits, rounded);
  } else {
    auto const bits = detail::float_bits(value);
    auto const magnitude = bits & detail::float_magnitude;
    auto const normal = (magnitude - detail::float16_rebias + (random & 0x1FFF)) >> 13;
    // In steps of 2^-24: whole ones, and the fraction of one against the random number, both in units of 2^-31.
    auto const small = detail::select(magnitude < detail::float16_least_normal, magnitude, 0);
    auto const steps = detail::float_of_bits(small) * 0x1p24F;
    auto const whole = static_cast<std::int32_t>(steps);
    auto const fraction = static_cast<std::int32_t>((steps - static_cast<float>(whole)) * 0x1p31F);
    auto const subnormal = static_cast<std::uint32_t>(whole + static_cast<std::int32_t>(static_cast<std::int32_t>(random >> 1) < fraction));
    auto const finite = detail::select(magnitude < detail::float16_least_normal, subnormal, normal);
    return detail::float16_of(bits, detail::select(magnitude < 0x477FE000, finite, 0x7BFF));
  }
}

}  // namespace tessera::inline TESSERA_ABI
