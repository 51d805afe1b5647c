// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// TESSERA_TEST_ASAN, TESSERA_TEST_TSAN: 1 in a build with the address or the thread sanitizer, else 0. g++ and clang each have their own way to say it.
#if defined(__has_feature)
#define TESSERA_TEST_ASAN __has_feature(address_sanitizer)
#define TESSERA_TEST_TSAN __has_feature(thread_sanitizer)
#else
#ifdef __SANITIZE_ADDRESS__
#define TESSERA_TEST_ASAN 1
#else
#define TESSERA_TEST_ASAN 0
#endif
#ifdef __SANITIZE_THREAD__
#define TESSERA_TEST_TSAN 1
#else
#define TESSERA_TEST_TSAN 0
#endif
#endif

namespace tessera_tests {
/// What a suite repeats for other sizes it repeats less under a sanitizer: who finds a fault at all finds it there.
inline constexpr bool under_asan = TESSERA_TEST_ASAN, under_tsan = TESSERA_TEST_TSAN, under_sanitizer = under_asan || under_tsan;

/// How often a suite repeats what it draws at random, and how much of it: under a sanitizer an eighth, but once.
template <class Count>
constexpr Count fewer(Count count) {
  return under_sanitizer && count >= 8 ? count / 8 : under_sanitizer && count > 0 ? 1 : count;
}
}  // namespace tessera_tests
