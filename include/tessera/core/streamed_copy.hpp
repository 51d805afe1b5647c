// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstring>

#if defined(__SSE2__)
#include <immintrin.h>
#endif

#include <tessera/core/config.hpp>

namespace tessera::inline TESSERA_ABI {

namespace detail {

inline constexpr std::int64_t cache_line_bytes = 64;
/// A result of more bytes than this is not expected to be still in a cache when it is read.
inline constexpr std::int64_t streamed_bytes = std::int64_t{1} << 25;

/// Writes a whole line of memory, which is not read for it as it would be for a plain write, and takes no place in the caches.
/// @pre `to` starts a line. What is written is visible to other threads after `finish_streams`.
inline void stream_line(void* to, void const* from) noexcept {
#if defined(__AVX512F__)
  _mm512_stream_si512(static_cast<__m512i*>(to), _mm512_loadu_si512(from));
#elif defined(__SSE2__)
  for (int i = 0; i < 4; ++i) _mm_stream_si128(static_cast<__m128i*>(to) + i, _mm_loadu_si128(static_cast<__m128i const*>(from) + i));
#else
  std::memcpy(to, from, cache_line_bytes);
#endif
}

inline void finish_streams() noexcept {
#if defined(__SSE2__)
  _mm_sfence();
#endif
}

/// memcpy by `stream_line`, where it can; `finish_streams` follows.
inline void streamed_copy(void* to, void const* from, std::int64_t bytes) noexcept {
  auto* target = static_cast<char*>(to);
  auto const* source = static_cast<char const*>(from);
  auto const head = static_cast<std::int64_t>(-reinterpret_cast<std::uintptr_t>(target) % cache_line_bytes);
  if (bytes < head + cache_line_bytes) return void(std::memcpy(target, source, static_cast<std::size_t>(bytes)));
  if (head > 0) std::memcpy(target, source, static_cast<std::size_t>(head));
  auto at = head;
  for (; at + cache_line_bytes <= bytes; at += cache_line_bytes) stream_line(target + at, source + at);
  if (at < bytes) std::memcpy(target + at, source + at, static_cast<std::size_t>(bytes - at));
}

}  // namespace detail

}  // namespace tessera::inline TESSERA_ABI
