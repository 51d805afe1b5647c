// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/config.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

namespace detail {

/// The same pointer, of which the compiler knows nothing. A loop over rows then takes one row after the other, each in SIMD registers.
/// Without it, g++ 12 works on two rows at once and gathers their elements one by one.
template <class T>
T* opaque(T* first) noexcept {
  asm volatile("" : "+r"(first));
  return first;
}

}  // namespace detail

}  // namespace TESSERA_ABI
}  // namespace tessera
