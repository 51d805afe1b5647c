// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#define TESSERA_VERSION_MAJOR 0
#define TESSERA_VERSION_MINOR 1
#define TESSERA_VERSION_PATCH 0

/// Marks a function that host and device share, and one that only the threads of a device call (elsewhere, what stands in for them).
#ifdef __CUDACC__
#define TESSERA_HOST_DEVICE __host__ __device__
#define TESSERA_DEVICE __device__
#else
#define TESSERA_HOST_DEVICE
#define TESSERA_DEVICE
#endif

/// Define to 1 before the first include for every contract check, however costly; the default checks what costs little.
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

/// Whether it checks each index and extent: a device has nobody to throw to.
#ifdef __CUDA_ARCH__
inline constexpr bool checks_indices = false;
#else
inline constexpr bool checks_indices = checked;
#endif

namespace detail {
template <class...>
inline constexpr bool dependent_false = false;
}

}  // namespace TESSERA_ABI
}  // namespace tessera
