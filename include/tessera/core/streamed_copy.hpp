// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#if defined(__AVX512F__)
#include <immintrin.h>
#elif defined(__SSE2__)
#include <emmintrin.h>
#endif

#include <tessera/core/config.hpp>
#include <tessera/core/view.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

namespace detail {

inline constexpr std::int64_t cache_line_bytes = 64;
/// A result of more bytes than this is not expected to be still in a cache when it is read.
inline constexpr std::int64_t streamed_bytes = std::int64_t{1} << 25;

/// Writes a whole line of memory past the caches, without reading it first as a plain write would. Other threads see it after
/// `finish_streams`.
/// @pre `to` starts a line
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

/// Whether results together exceed what is expected to be still in a cache when they are read.
inline bool exceeds_caches(vector_view<matrix_view<float> const> results) noexcept {
  std::int64_t values = 0;
  for (auto const& m : results) values += m.rows() * m.columns();
  return values > streamed_bytes / static_cast<std::int64_t>(sizeof(float));
}
inline constexpr int line_floats = cache_line_bytes / sizeof(float);

/// Whether every row starts a line.
inline bool starts_lines(matrix_view<float> m) noexcept {
  return reinterpret_cast<std::uintptr_t>(m.data()) % cache_line_bytes == 0 && m.stride() % line_floats == 0;
}

/// Writes to[i] = value(i) for i of [0, Width). Where `stream` is set, whole lines go past the caches, and `finish_streams` must follow.
template <int Width, class Value>
[[gnu::always_inline]] inline void write_floats(float* __restrict to, bool stream, Value const& value) noexcept {
  if constexpr (Width % line_floats == 0) {
    if (stream) {
      for (int first = 0; first < Width; first += line_floats) {
        float line[std::size_t{line_floats}];
        for (int i = 0; i < line_floats; ++i) line[i] = value(first + i);
        stream_line(to + first, line);
      }
      return;
    }
  }
  for (int i = 0; i < Width; ++i) to[i] = value(i);
}

/// Copies ranges past the caches, several at once and a few lines of each in turn. Memory serves streams on many pages faster than one
/// stream after the other. The destructor completes all writes and makes them visible to other threads.
/// @pre sources do not change until then
class streamed_copies {
 public:
  streamed_copies() noexcept = default;
  streamed_copies(streamed_copies const&) = delete;
  streamed_copies& operator=(streamed_copies const&) = delete;
  ~streamed_copies() {
    for (int i = 0; i < count_; ++i) copy_lines(ranges_[i], 0, ranges_[i].lines);
    finish_streams();
  }

  void add(void* to, void const* from, std::int64_t bytes) noexcept {
    auto* target = static_cast<char*>(to);
    auto const* source = static_cast<char const*>(from);
    auto const head = std::min(bytes, static_cast<std::int64_t>(-reinterpret_cast<std::uintptr_t>(target) % cache_line_bytes));
    auto const whole = (bytes - head) / cache_line_bytes * cache_line_bytes, tail = bytes - head - whole;
    if (head > 0) std::memcpy(target, source, static_cast<std::size_t>(head));
    if (tail > 0) std::memcpy(target + head + whole, source + head + whole, static_cast<std::size_t>(tail));
    for (auto at = head; at < head + whole; at += range_bytes) {
      ranges_[count_++] = {target + at, source + at, std::min(range_bytes, head + whole - at) / cache_line_bytes};
      if (count_ == most_ranges) advance();
    }
  }

 private:
  static constexpr std::int64_t range_bytes = 16384, lines_per_turn = 4;
  static constexpr int most_ranges = 8;
  struct range {
    char* to;
    char const* from;
    std::int64_t lines;
  };

  static void copy_lines(range const& r, std::int64_t first, std::int64_t last) noexcept {
    for (auto line = first; line < last; ++line) stream_line(r.to + line * cache_line_bytes, r.from + line * cache_line_bytes);
  }

  // All ranges until one, at least, is done.
  void advance() noexcept {
    auto least = ranges_[0].lines;
    for (auto const& r : ranges_) least = std::min(least, r.lines);
    auto const done = least / lines_per_turn * lines_per_turn;
    for (std::int64_t line = 0; line < done; line += lines_per_turn)
      for (auto const& r : ranges_) copy_lines(r, line, line + lines_per_turn);
    count_ = 0;
    for (auto const& r : ranges_) {
      if (r.lines - done < lines_per_turn)
        copy_lines(r, done, r.lines);
      else
        ranges_[count_++] = {r.to + done * cache_line_bytes, r.from + done * cache_line_bytes, r.lines - done};
    }
  }

  range ranges_[most_ranges];
  int count_ = 0;
};

}  // namespace detail

}  // namespace TESSERA_ABI
}  // namespace tessera
