// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstdint>
#include <type_traits>

#include <tessera/core/config.hpp>
#include <tessera/core/float_bits.hpp>

/// The formats that the elements of an embedding row are stored in. Arithmetic is done in float, and these functions convert. They have no
/// branch. Where the mode of the floating-point unit (flush to zero) could matter, they use integer arithmetic alone. A loop over a row so
/// runs in vectors, and host and device agree bit by bit.
namespace tessera {
inline namespace TESSERA_ABI {

/// IEEE 754 binary16: 5 bits of exponent, 10 of fraction; up to 65504, subnormal below 2^-14, there in steps of 2^-24.
struct float16 {
  std::uint16_t bits;
  friend constexpr bool operator==(float16 const&, float16 const&) = default;  // of the bits
};

/// The upper half of a float: 8 bits of exponent, 7 of fraction.
struct bfloat16 {
  std::uint16_t bits;
  friend constexpr bool operator==(bfloat16 const&, bfloat16 const&) = default;  // of the bits
};

/// Float8 E4M3: 4 bits of exponent, 3 of fraction; up to 448, subnormal below 2^-6, there in steps of 2^-9. It has no infinity: finite
/// values past the largest become the largest, and infinity becomes NaN. Source: Open Compute Project, "OCP 8-bit floating point
/// specification (OFP8)", revision 1.0, 2023.
struct float8_e4m3 {
  std::uint8_t bits;
  friend constexpr bool operator==(float8_e4m3 const&, float8_e4m3 const&) = default;  // of the bits
};

/// Float8 E5M2, the upper half of a float16: 5 bits of exponent, 2 of fraction. Numbers go up to 57344; below 2^-14 numbers are subnormal,
/// in steps of 2^-16. Source: as above.
struct float8_e5m2 {
  std::uint8_t bits;
  friend constexpr bool operator==(float8_e5m2 const&, float8_e5m2 const&) = default;  // of the bits
};

/// A number of steps, -127 … 127, of a size that the elements of a row share: see `row_scale`.
struct scaled_int8 {
  std::int8_t steps;
  friend constexpr bool operator==(scaled_int8 const&, scaled_int8 const&) = default;
};
static_assert(sizeof(float16) == 2 && sizeof(bfloat16) == 2 && sizeof(float8_e4m3) == 1 && sizeof(float8_e5m2) == 1 &&
              sizeof(scaled_int8) == 1);

/// Elements that stand for a value by themselves.
template <class E>
concept float_element = std::same_as<E, float> || std::same_as<E, float16> || std::same_as<E, bfloat16> || std::same_as<E, float8_e4m3> ||
    std::same_as<E, float8_e5m2>;

/// The types that the elements of a row can be stored as.
template <class E>
concept row_element = float_element<E> || std::same_as<E, scaled_int8>;

namespace detail {

inline constexpr std::uint32_t float_magnitude = 0x7FFFFFFF;
inline constexpr std::uint32_t float_infinity = 0x7F800000;

/// The magnitude as bits, which order numbers as their magnitudes do; infinity is above all numbers, NaN above that.
TESSERA_HOST_DEVICE constexpr std::uint32_t magnitude_of(float value) noexcept { return float_bits(value) & float_magnitude; }

// The sixteen bits of a float's upper half, after what rounding added below. A NaN keeps its upper bits and turns quiet.
TESSERA_HOST_DEVICE constexpr bfloat16 bfloat16_of(std::uint32_t bits, std::uint32_t rounded) noexcept {
  bool const nan = (bits & float_magnitude) > float_infinity;
  return {static_cast<std::uint16_t>(select(nan, bits | 0x400000, rounded) >> 16)};
}

// So many steps, not negative and below 2^31, to one of the two whole numbers beside them.
TESSERA_HOST_DEVICE constexpr std::uint32_t stochastic_steps(float steps, std::uint32_t random) noexcept {
  auto const whole = static_cast<std::int32_t>(steps);
  auto const fraction = static_cast<std::int32_t>((steps - static_cast<float>(whole)) * 0x1p31F);
  return static_cast<std::uint32_t>(whole + static_cast<std::int32_t>(static_cast<std::int32_t>(random >> 1) < fraction));
}

// A format of fewer bits than float in exponent and fraction, its numbers as bits of magnitude.
template <int ExponentBits, int FractionBits, bool HasInfinity>
struct small_float {
  static constexpr int bias = (1 << (ExponentBits - 1)) - 1;
  static constexpr int dropped_bits = 23 - FractionBits;
  static constexpr std::uint32_t dropped = (1U << dropped_bits) - 1;
  static constexpr std::uint32_t magnitude = (1U << (ExponentBits + FractionBits)) - 1, fraction = (1U << FractionBits) - 1;
  static constexpr std::uint32_t first_special = HasInfinity ? magnitude - fraction : magnitude;  // infinity, or the one NaN
  static constexpr std::uint32_t largest = first_special - 1, past_largest = HasInfinity ? first_special : largest;
  // Between the exponents of one value in both; and as floats: the least normal number, the largest, and the least that rounds to a larger one.
  static constexpr std::uint32_t rebias = std::uint32_t{127 - bias} << 23, least_normal = rebias + (1U << 23);
  static constexpr std::uint32_t largest_float = (largest << dropped_bits) + rebias, overflow = largest_float + dropped / 2 + 1;
  static constexpr int subnormal_steps = bias - 1 + FractionBits;  // of 2 to the minus this

  static TESSERA_HOST_DEVICE constexpr float value_of(std::uint32_t bits) noexcept {
    auto const shifted = (bits & magnitude) << dropped_bits;
    auto const normal = shifted + rebias;
    // A subnormal is what stands above the least normal number once that one's exponent is written before its fraction.
    auto const subnormal = float_bits(float_of_bits(shifted + least_normal) - float_of_bits(least_normal));
    auto const special = HasInfinity ? shifted + 2 * rebias : 0x7FC00000;
    auto const finite = select(shifted <= fraction << dropped_bits, subnormal, normal);
    return float_of_bits(select(shifted < first_special << dropped_bits, finite, special) | (bits & (magnitude + 1)) << (31 - sign_bit));
  }

  static TESSERA_HOST_DEVICE constexpr std::uint32_t nearest(float value) noexcept {
    auto const bits = float_bits(value), of = bits & float_magnitude;
    auto const normal = (of - rebias + dropped / 2 + (of >> dropped_bits & 1)) >> dropped_bits;
    // This one has steps as subnormal numbers have, so that the addition rounds to them.
    constexpr std::uint32_t coarse = std::uint32_t{127 + 23 - subnormal_steps} << 23;
    auto const small = select(of < least_normal, of, 0);
    auto const subnormal = float_bits(float_of_bits(small) + float_of_bits(coarse)) - coarse;
    return signed_bits(bits, select(of < overflow, select(of < least_normal, subnormal, normal), past_largest));
  }

  static TESSERA_HOST_DEVICE constexpr std::uint32_t stochastic(float value, std::uint32_t random) noexcept {
    auto const bits = float_bits(value), of = bits & float_magnitude;
    auto const normal = (of - rebias + (random & dropped)) >> dropped_bits;
    auto const small = select(of < least_normal, of, 0);
    auto const subnormal = stochastic_steps(float_of_bits(small) * float_of_bits(std::uint32_t{127 + subnormal_steps} << 23), random);
    return signed_bits(bits, select(of < largest_float, select(of < least_normal, subnormal, normal), largest));
  }

 private:
  static constexpr int sign_bit = ExponentBits + FractionBits;

  // Puts a finite result, by magnitude, together with sign, infinity and NaN.
  static TESSERA_HOST_DEVICE constexpr std::uint32_t signed_bits(std::uint32_t bits, std::uint32_t finite) noexcept {
    auto const of = bits & float_magnitude;
    auto const nan = HasInfinity ? first_special | 1U << (FractionBits - 1) | (of >> dropped_bits & fraction) : first_special;
    return (bits >> (31 - sign_bit) & (magnitude + 1)) |
           select(of < float_infinity, finite, select(of > float_infinity, nan, first_special));
  }
};

template <float_element E>
struct small_float_of;
template <>
struct small_float_of<float16> : small_float<5, 10, true> {};
template <>
struct small_float_of<float8_e4m3> : small_float<4, 3, false> {};
template <>
struct small_float_of<float8_e5m2> : small_float<5, 2, true> {};

}  // namespace detail

/// The value, exactly; a NaN keeps its sign and, where the format has more than one NaN, its payload. @post round_to<E>(to_float(e)) == e
/// unless e is NaN
template <float_element E>
TESSERA_HOST_DEVICE constexpr float to_float(E value) noexcept {
  if constexpr (std::same_as<E, float>)
    return value;
  else if constexpr (std::same_as<E, bfloat16>)
    return detail::float_of_bits(std::uint32_t{value.bits} << 16);
  else
    return detail::small_float_of<E>::value_of(value.bits);
}

/// The nearest value of the format, of two equally near the even one. Past the largest it is infinity, as IEEE 754 has it, or the largest
/// where the format has no infinity. Infinity then becomes NaN. NaN stays NaN.
template <float_element E>
TESSERA_HOST_DEVICE constexpr E round_to(float value) noexcept {
  if constexpr (std::same_as<E, float>) {
    return value;
  } else if constexpr (std::same_as<E, bfloat16>) {
    auto const bits = detail::float_bits(value);
    return detail::bfloat16_of(bits, bits + 0x7FFF + (bits >> 16 & 1));
  } else {
    return {static_cast<decltype(E::bits)>(detail::small_float_of<E>::nearest(value))};
  }
}

/// Rounds stochastically to one of the two neighbours, so that small changes survive in the mean. The upper one has the probability of the
/// value's distance from the lower one. That is exact, or to within 2^-31 of it where small numbers come in equal steps. `random`: 32
/// uniform bits. A value of the format stays as it is. A finite value past the largest becomes the largest; infinity and NaN are as above.
/// Source: Gupta, Agrawal, Gopalakrishnan, Narayanan, "Deep learning with limited numerical precision", ICML 2015, section 3.
template <float_element E>
TESSERA_HOST_DEVICE constexpr E round_to(float value, std::uint32_t random) noexcept {
  if constexpr (std::same_as<E, float>) {
    return value;
  } else if constexpr (std::same_as<E, bfloat16>) {
    auto const bits = detail::float_bits(value);
    auto const magnitude = bits & detail::float_magnitude;
    auto const rounded = bits + detail::select(magnitude < 0x7F7F0000, random & 0xFFFF, 0);  // at the largest, cut off instead
    return detail::bfloat16_of(bits, rounded);
  } else {
    return {static_cast<decltype(E::bits)>(detail::small_float_of<E>::stochastic(value, random))};
  }
}

/// How the elements of a row are read and written: each by itself, or, for `scaled_int8`, in steps of a size that the row chose.
/// - `row_scale<E>::lead` elements before a row hold its scale. `extent(dim)` is the number of elements from one row to the next, with
///   those.
/// - `of(row)` is the scale of an existing row. `for_values(values, n)` is that of a row that will hold these. `covering(magnitude)` is
///   that of a row whose elements' magnitudes, as bits, are at most this.
/// - `value(element)`, `nearest(value)` and `stochastic(value, random)` are as `to_float` and `round_to`. @pre the scale covers the value
/// - `write_to(row)` writes the scale.
template <row_element E>
struct row_scale {
  static constexpr std::int64_t lead = 0;

  static TESSERA_HOST_DEVICE constexpr std::int64_t extent(std::int64_t dim) noexcept { return dim; }
  static TESSERA_HOST_DEVICE constexpr row_scale of(E const*) noexcept { return {}; }
  static TESSERA_HOST_DEVICE constexpr row_scale covering(std::uint32_t) noexcept { return {}; }
  static constexpr row_scale for_values(float const*, std::int64_t) noexcept { return {}; }
  TESSERA_HOST_DEVICE constexpr void write_to(E*) const noexcept {}

  TESSERA_HOST_DEVICE constexpr float value(E element) const noexcept { return to_float(element); }
  TESSERA_HOST_DEVICE constexpr E nearest(float value) const noexcept { return round_to<E>(value); }
  TESSERA_HOST_DEVICE constexpr E stochastic(float value, std::uint32_t random) const noexcept { return round_to<E>(value, random); }
};

/// The scale of a row of `scaled_int8`. The size of a step is the least power of two, 2^-126 at least, by which 127 steps cover the row.
/// Products with it are exact. Elements that did not change keep their value when the row takes a finer scale. A row with an infinite
/// element, with one past 127 * 2^121, or with NaN is NaN throughout. In memory a row is its scale, a float, then its steps, filled up to
/// whole fours. Source: for steps in powers of two, Open Compute Project, "OCP microscaling formats (MX) specification", 1.0, 2023; there
/// for 32 elements.
template <>
struct row_scale<scaled_int8> {
  static constexpr std::int64_t lead = sizeof(float);

  float step;

  static TESSERA_HOST_DEVICE constexpr std::int64_t extent(std::int64_t dim) noexcept { return lead + (dim + 3) / 4 * 4; }
  static TESSERA_HOST_DEVICE row_scale of(scaled_int8 const* row) noexcept { return {*reinterpret_cast<float_in_row const*>(row - lead)}; }
  static TESSERA_HOST_DEVICE constexpr row_scale covering(std::uint32_t magnitude) noexcept {
    constexpr auto largest = detail::float_bits(0x1.FCp127F);
    // A fraction above that of 127 = 1.984375 * 2^6 takes the next power.
    auto const exponent = (magnitude + 0x1FFFF) >> 23, least = detail::select(exponent > 6, exponent - 6, 1);
    return {detail::float_of_bits(detail::select(magnitude <= largest, least << 23, 0x7FC00000))};
  }
  static constexpr row_scale for_values(float const* values, std::int64_t n) noexcept {
    std::uint32_t largest = 0;
    for (std::int64_t i = 0; i < n; ++i) {
      auto const magnitude = detail::magnitude_of(values[i]);
      largest = magnitude > largest ? magnitude : largest;
    }
    return covering(largest);
  }
  TESSERA_HOST_DEVICE void write_to(scaled_int8* row) const noexcept { *reinterpret_cast<float_in_row*>(row - lead) = step; }

  TESSERA_HOST_DEVICE constexpr float value(scaled_int8 element) const noexcept { return static_cast<float>(element.steps) * step; }
  TESSERA_HOST_DEVICE constexpr scaled_int8 nearest(float value) const noexcept {
    constexpr float whole = 0x1p23F;  // floats from here on are whole numbers
    return with_sign(value, detail::float_bits(steps_of(value) + whole) - detail::float_bits(whole));
  }
  TESSERA_HOST_DEVICE constexpr scaled_int8 stochastic(float value, std::uint32_t random) const noexcept {
    return with_sign(value, detail::stochastic_steps(steps_of(value), random));
  }

 private:
  typedef float __attribute__((may_alias)) float_in_row;  // stands among elements

  // Of how many steps the magnitude is; 0 for what is no number or beyond the scale.
  TESSERA_HOST_DEVICE constexpr float steps_of(float value) const noexcept {
    auto const inverse = detail::float_of_bits((254U << 23) - detail::float_bits(step));  // of a power of two
    auto const steps = detail::float_bits(value * inverse) & detail::float_magnitude;
    return detail::float_of_bits(detail::select(steps <= detail::float_bits(127.0F), steps, 0));
  }
  static TESSERA_HOST_DEVICE constexpr scaled_int8 with_sign(float value, std::uint32_t steps) noexcept {
    auto const whole = static_cast<std::int32_t>(steps);
    return {static_cast<std::int8_t>(detail::float_bits(value) >> 31 == 0 ? whole : -whole)};
  }
};

namespace detail {

/// The row of a slot, of rows that lie in `memory` one after the other.
template <class Element>
TESSERA_HOST_DEVICE constexpr Element* row_at(Element* memory, std::int64_t slot, std::int64_t dim) noexcept {
  using scale = row_scale<std::remove_const_t<Element>>;
  return memory + (slot * scale::extent(dim) + scale::lead);
}

}  // namespace detail

/// `instance(how, Element)` for the elements that most rows have, of which tessera::compiled holds instances.
#define TESSERA_FOR_ROW_ELEMENTS(instance, how) \
  instance(how, float) instance(how, float16) instance(how, bfloat16) instance(how, scaled_int8)

}  // namespace TESSERA_ABI
}  // namespace tessera
