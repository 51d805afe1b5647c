// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <tessera/core/config.hpp>
#include <tessera/core/float_bits.hpp>
#include <tessera/core/row_formats.hpp>

/// How the elements of one row of floats are encoded: the arithmetic of <tessera/comm/codec.hpp>, for host and device alike. It has no
/// branch, so that a loop over a row runs in vectors.
namespace tessera {
inline namespace TESSERA_ABI {
namespace detail {

/// The value, or, of its sign, the largest one that is to be sent where a finite value is past it. Infinities and NaN stay.
/// `largest`: a magnitude as bits.
TESSERA_HOST_DEVICE constexpr float saturated(float value, std::uint32_t largest) noexcept {
  auto const bits = float_bits(value), magnitude = bits & float_magnitude;
  bool const is_past = (magnitude > largest) & (magnitude < float_infinity);
  return float_of_bits(select(is_past, largest | (bits & ~float_magnitude), bits));
}

/// One kind of row on the wire: elements of type E, and before them, where `is_scaled`, a float that they share, its scale.
/// - `weighed(value)` is what the element counts for the scale. `covering(weight)` is the encoding of a row where this is the greatest.
/// - `of_scale(scale)` is the encoding of a row that came with this scale.
/// - `encode(value)` and `decode(element)` convert. The product of an element and a scale is exact. A sum with it so has the same bits
/// whether the compiler fuses the two or not.
/// Elements without a scale: fp32 as it is, fp16 and bf16 with finite values kept in range.
template <row_element E>
struct row_encoding {
  static_assert(sizeof(E) > 1);
  using element = E;
  static constexpr bool is_scaled = false;

  TESSERA_HOST_DEVICE constexpr E encode(float value) const noexcept {
    if constexpr (std::same_as<E, float>)
      return value;
    else
      return round_to<E>(saturated(value, largest));
  }
  TESSERA_HOST_DEVICE constexpr float decode(E element) const noexcept { return to_float(element); }

 private:
  static constexpr std::uint32_t largest = std::same_as<E, float16> ? float_bits(65504.0F) : float_bits(0x1.FEp127F);
};

/// Float8: the scale is the least power of two by which the format's largest number covers the row's finite elements. Products with it and
/// its inverse are exact. At the least scale, the format's smallest step is 2^-126: no result is a subnormal float.
template <row_element E>
  requires(float_element<E> && sizeof(E) == 1)
struct row_encoding<E> {
  using element = E;
  static constexpr bool is_scaled = true;

  float scale = 1, inverse = 1;

  TESSERA_HOST_DEVICE static constexpr std::uint32_t weighed(float value) noexcept {
    auto const magnitude = magnitude_of(value);
    return select(magnitude < float_infinity, magnitude, 0);
  }
  TESSERA_HOST_DEVICE static constexpr row_encoding covering(std::uint32_t weight) noexcept {
    auto const covered = select(weight < largest, weight, largest);
    auto const exponent = (covered + above_fraction) >> 23;  // the next one for a fraction above that of the format's largest number
    auto const bits = select(exponent > largest_exponent + least, exponent - largest_exponent, least) << 23;
    return {float_of_bits(bits), float_of_bits((254U << 23) - bits)};
  }
  TESSERA_HOST_DEVICE static constexpr row_encoding of_scale(float scale) noexcept { return {scale, 0}; }

  TESSERA_HOST_DEVICE constexpr E encode(float value) const noexcept { return round_to<E>(saturated(value, largest) * inverse); }
  TESSERA_HOST_DEVICE constexpr float decode(E element) const noexcept { return to_float(element) * scale; }

 private:
  using format = small_float_of<E>;
  // The largest float with as few bits of fraction: what rounds to more is infinite once it is decoded.
  static constexpr std::uint32_t largest = float_infinity - (format::dropped + 1);
  static constexpr std::uint32_t above_fraction = 0x7FFFFF - (format::largest_float & 0x7FFFFF);
  static constexpr std::uint32_t largest_exponent = (format::largest_float >> 23) - 127;
  static constexpr std::uint32_t least = 1 + std::uint32_t{format::subnormal_steps};
};

/// Int8: steps of a 127th of the row's largest magnitude, 2^-126 at least. The step is rounded up to 17 bits, so that its product with any
/// number of steps is exact. The step of a row with an infinity or NaN is NaN, and so the whole row.
template <>
struct row_encoding<scaled_int8> {
  using element = scaled_int8;
  static constexpr bool is_scaled = true;

  float scale = 1, inverse = 1;

  TESSERA_HOST_DEVICE static constexpr std::uint32_t weighed(float value) noexcept { return magnitude_of(value); }
  TESSERA_HOST_DEVICE static constexpr row_encoding covering(std::uint32_t weight) noexcept {
    auto const covered = select(weight < largest, weight, largest);
    // Rounded up by 2^-17 at least: with the errors of both products and the inverse, no element has more than 127 steps.
    auto const step = (float_bits(float_of_bits(covered) * (1.0F / 127)) + 0xFF) & ~0x7FU;
    auto const scale = float_of_bits(select(step > least, step, least));
    return {float_of_bits(select(weight < float_infinity, float_bits(scale), 0x7FC00000)), 1.0F / scale};
  }
  TESSERA_HOST_DEVICE static constexpr row_encoding of_scale(float scale) noexcept { return {scale, 0}; }

  TESSERA_HOST_DEVICE constexpr scaled_int8 encode(float value) const noexcept {
    return row_scale<scaled_int8>{1.0F}.nearest(saturated(value, largest) * inverse);
  }
  TESSERA_HOST_DEVICE constexpr float decode(scaled_int8 element) const noexcept { return row_scale<scaled_int8>{scale}.value(element); }

 private:
  static constexpr std::uint32_t largest = float_bits(0x1.FFp127F);  // 127 steps, rounded up, stay finite
  static constexpr std::uint32_t least = 1U << 23;
};

/// The bytes before a row's elements.
template <class Encoding>
inline constexpr std::int64_t encoded_lead = Encoding::is_scaled ? std::int64_t{sizeof(float)} : 0;

/// The bytes of a row of so many elements, a multiple of 4.
template <class Encoding>
TESSERA_HOST_DEVICE constexpr std::int64_t encoded_row_bytes(std::int64_t width) noexcept {
  constexpr auto each = static_cast<std::int64_t>(sizeof(typename Encoding::element));
  return width == 0 ? 0 : encoded_lead<Encoding> + (width * each + 3) / 4 * 4;
}

/// One row on the wire. @pre `first_byte` is aligned to 4 bytes
template <class Encoding, class Byte>
struct encoded_row {
  using element = std::conditional_t<std::is_const_v<Byte>, typename Encoding::element const, typename Encoding::element>;
  Byte* first_byte;

  TESSERA_HOST_DEVICE element* elements() const noexcept { return reinterpret_cast<element*>(first_byte + encoded_lead<Encoding>); }
  /// The elements with those that fill up the row, which are zeros.
  TESSERA_HOST_DEVICE static constexpr std::int64_t extent(std::int64_t width) noexcept {
    constexpr auto each = static_cast<std::int64_t>(sizeof(typename Encoding::element));
    return (width * each + 3) / 4 * 4 / each;
  }

  TESSERA_HOST_DEVICE void write_scale([[maybe_unused]] Encoding const& encoding) const noexcept {
    if constexpr (Encoding::is_scaled) *reinterpret_cast<float_in_row*>(first_byte) = encoding.scale;
  }
  TESSERA_HOST_DEVICE Encoding encoding() const noexcept {
    if constexpr (Encoding::is_scaled)
      return Encoding::of_scale(*reinterpret_cast<float_in_row const*>(first_byte));
    else
      return {};
  }

 private:
  typedef float __attribute__((may_alias)) float_in_row;  // stands among bytes
};

}  // namespace detail
}  // namespace TESSERA_ABI
}  // namespace tessera
