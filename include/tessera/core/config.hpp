// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#define TESSERA_VERSION_MAJOR 0
#define TESSERA_VERSION_MINOR 1
#define TESSERA_VERSION_PATCH 0

/// Marks a function that host and device share; `TESSERA_DEVICE` marks one that only threads of a device call, or of the stand-in for one.
#ifdef __CUDACC__
#define TESSERA_HOST_DEVICE __host__ __device__
#define TESSERA_DEVICE __device__
#else
#define TESSERA_HOST_DEVICE
#define TESSERA_DEVICE
#endif

/// Define it to 1 before the first include to check every contract, also at a cost. The default checks what costs little.
#ifndef TESSERA_CHECKED
#define TESSERA_CHECKED 0
#endif

// A checked and an unchecked build of one program link into one binary, so their inline functions must not share names.
#if TESSERA_CHECKED
#define TESSERA_ABI checked_abi
#else
#define TESSERA_ABI plain_abi
#endif

namespace tessera {
inline namespace TESSERA_ABI {

/// Whether this translation unit checks every contract.
inline constexpr bool checked = TESSERA_CHECKED != 0;

/// Whether this translation unit checks each index and extent; code for a device does not, as it cannot throw.
#ifdef __CUDA_ARCH__
inline constexpr bool checks_indices = false;
#else
inline constexpr bool checks_indices = checked;
#endif

namespace detail {
template <class...>
inline constexpr bool dependent_false = false;
}  // namespace detail

}  // namespace TESSERA_ABI
}  // namespace tessera
