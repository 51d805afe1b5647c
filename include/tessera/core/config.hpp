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

/// 1 in what links `tessera::compiled`, whose target defines it: headers then declare the functions and
/// instances of templates that it holds, and do not define them.
#ifndef TESSERA_COMPILED
#define TESSERA_COMPILED 0
#endif
/// Before each definition in an `.ipp`. A header includes its `.ipp` at its end; with the library, one file of compiled/ does.
#if TESSERA_COMPILED
#define TESSERA_INLINE
#else
#define TESSERA_INLINE inline
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

#if TESSERA_COMPILED

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__)
#define TESSERA_INSTRUCTION_SET avx512
#elif defined(__AVX2__) && defined(__FMA__)
#define TESSERA_INSTRUCTION_SET avx2_fma
#elif defined(__AVX__)
#define TESSERA_INSTRUCTION_SET avx
#elif defined(__SSE4_2__)
#define TESSERA_INSTRUCTION_SET sse4_2
#elif defined(__SSE2__)
#define TESSERA_INSTRUCTION_SET sse2
#elif defined(__ARM_FEATURE_SVE)
#define TESSERA_INSTRUCTION_SET sve
#else
#define TESSERA_INSTRUCTION_SET its_processor
#endif

// Also where the linker drops what nobody refers to.
#if defined(__has_cpp_attribute) && !defined(__CUDACC__)
#if __has_cpp_attribute(gnu::retain)
#define TESSERA_KEPT [[gnu::used, gnu::retain]]
#endif
#endif
#ifndef TESSERA_KEPT
#define TESSERA_KEPT [[gnu::used]]
#endif

#define TESSERA_BUILD_NAME_OF(major, minor, patch, set) compiled_as_version_##major##_##minor##_##patch##_for_##set
#define TESSERA_BUILD_NAME(major, minor, patch, set) TESSERA_BUILD_NAME_OF(major, minor, patch, set)
#define TESSERA_THIS_BUILD TESSERA_BUILD_NAME(TESSERA_VERSION_MAJOR, TESSERA_VERSION_MINOR, TESSERA_VERSION_PATCH, TESSERA_INSTRUCTION_SET)

namespace tessera {
inline namespace TESSERA_ABI {

/// Of the library, in compiled/build.cpp.
extern int const TESSERA_THIS_BUILD;

namespace {
/// Keeps objects that were compiled otherwise apart from `tessera::compiled`: each object asks the library for a symbol that is named as the object was
/// compiled. Where versions, checked builds or instruction sets differ, the linker does not find it, and its message names it.
TESSERA_KEPT int const* const tessera_build = &TESSERA_THIS_BUILD;
}  // namespace

}  // namespace TESSERA_ABI
}  // namespace tessera

#endif
