// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <math.h>  // sqrtf for host and device alike

#include <cstdint>

#include <tessera/core/config.hpp>
#include <tessera/core/float_bits.hpp>
#include <tessera/core/multiply_add.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

namespace detail {

// A step of Newton's iteration for 1 / sqrt(2 * half): twice as many bits.
TESSERA_HOST_DEVICE inline float closer_reciprocal_root(float half, float guess) noexcept {
  return guess * multiply_add(-(half * guess), guess, 1.5F);
}

// Newton's iteration for 1 / sqrt(x) from its classic first guess, then one step for the root itself with the exact remainder (Markstein,
// "Computation of elementary functions on the IBM RISC System/6000 processor", 1990).
TESSERA_HOST_DEVICE inline float newton_square_root(float x) noexcept {
  auto const bits = float_bits(x);
  bool const tiny = bits < 27U << 23;  // below 2^-100 a remainder would be subnormal; 2^64 times as much has 2^32 times the root
  float const scaled = x * float_of_bits(select(tiny, 0x5F800000, 0x3F800000));
  float const half = 0.5F * scaled;
  float const guess = float_of_bits(0x5F375A86U - (float_bits(scaled) >> 1));
  // Three times, written out: a loop is in the way of vectors at -O2.
  float const reciprocal = closer_reciprocal_root(half, closer_reciprocal_root(half, closer_reciprocal_root(half, guess)));
  float const nearly = scaled * reciprocal;
  float const root = multiply_add(0.5F * reciprocal, multiply_add(-nearly, nearly, scaled), nearly);
  auto const result = float_bits(root * float_of_bits(select(tiny, 0x2F800000, 0x3F800000)));
  bool const positive_and_finite = bits - 1 < 0x7F7FFFFF;
  return float_of_bits(select(positive_and_finite, result, select(bits > 0x80000000, 0x7FC00000, bits)));
}

}  // namespace detail

/// sqrtf(x), the same float for every x, in a form that compilers vectorise. The library's function sets errno, so that with default flags
/// a loop that calls it stays scalar. Without fused multiply-add instructions this form gains nothing.
TESSERA_HOST_DEVICE inline float square_root(float x) noexcept {
#if (defined(__FMA__) || defined(__ARM_FEATURE_FMA)) && !defined(__NO_MATH_ERRNO__) && !defined(__CUDA_ARCH__)
  return detail::newton_square_root(x);
#else
  return sqrtf(x);
#endif
}

}  // namespace TESSERA_ABI
}  // namespace tessera
