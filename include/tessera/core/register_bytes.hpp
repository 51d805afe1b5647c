// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/config.hpp>

namespace tessera {
inline namespace TESSERA_ABI {
namespace detail {

// Bytes of the widest vector register that the compiler may use. It makes far slower code of a longer vector than of several of this size.
#if defined(__AVX512F__)
inline constexpr int register_bytes = 64;
#elif defined(__AVX__)
inline constexpr int register_bytes = 32;
#else
inline constexpr int register_bytes = 16;
#endif

}  // namespace detail
}  // namespace TESSERA_ABI
}  // namespace tessera
