// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>

#include <tessera/core/view.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

namespace detail {

constexpr std::uint64_t every_byte(std::uint8_t byte) noexcept { return 0x0101010101010101 * std::uint64_t{byte}; }

inline std::uint64_t load_word(char const* at) noexcept {
  std::uint64_t word = 0;
  std::memcpy(&word, at, sizeof word);
  return word;
}

// Bit i: whether at[i] is the wanted character, of 64 characters.
inline std::uint64_t bits_equal_by_words(char const* at, char wanted) noexcept {
  std::uint64_t bits = 0;
  for (int i = 0; i < 64; i += 8) {
    auto const differs = load_word(at + i) ^ every_byte(static_cast<std::uint8_t>(wanted));
    auto const equal = ~(((differs & every_byte(0x7f)) + every_byte(0x7f)) | differs | every_byte(0x7f)) >> 7;
    bits |= (equal * 0x0102040810204080 >> 56) << i;
  }
  return bits;
}

inline std::uint64_t bits_equal(char const* at, char wanted) noexcept {
#if defined(__SSE2__)
  std::uint64_t bits = 0;
  for (int i = 0; i < 64; i += 16) {
    auto const some = _mm_loadu_si128(reinterpret_cast<__m128i const*>(at + i));
    auto const equal = static_cast<std::uint32_t>(_mm_movemask_epi8(_mm_cmpeq_epi8(some, _mm_set1_epi8(wanted))));
    bits |= std::uint64_t{equal} << i;
  }
  return bits;
#else
  return bits_equal_by_words(at, wanted);
#endif
}

// Where fields and lines end, one after the other.
class separator_scan {
 public:
  separator_scan(char const* at, char const* end, char delimiter) noexcept : end_(end), delimiter_(delimiter) { move_to(at); }

  // The next delimiter or line's end; behind the last one the end of the text.
  char const* next() noexcept {
    while (bits_ == 0) {
      if (end_ - base_ <= 64) return end_;
      base_ += 64;
      load();
    }
    auto const* const found = base_ + std::countr_zero(bits_);
    bits_ &= bits_ - 1;
    return found;
  }

  // Goes on at `at`. @pre it is in the text, or its end.
  void move_to(char const* at) noexcept {
    base_ = at;
    load();
  }

 private:
  void load() noexcept {
    char last[64];
    auto const* block = base_;
    auto const left = end_ - base_;
    if (left < 64) {
      // What stands behind the text is the same as before it: nothing that ends a field.
      std::memset(last, 0, sizeof last);
      if (left > 0) std::memcpy(last, base_, static_cast<std::size_t>(left));
      block = last;
    }
    bits_ = bits_equal(block, delimiter_) | bits_equal(block, '\n');
  }

  char const* base_ = nullptr;
  char const* end_;
  std::uint64_t bits_ = 0;  // of the 64 characters at base_, those still to come
  char delimiter_;
};

inline std::int64_t count_newlines(vector_view<char const> text) noexcept {
  std::int64_t count = 0;
  // Runs that a byte can count, which compilers turn into vector code.
  for (std::int64_t first = 0; first < text.size(); first += 255 * 16) {
    auto const last = std::min<std::int64_t>(first + 255 * 16, text.size());
    std::uint8_t lanes[16] = {};
    auto i = first;
    for (; i + 16 <= last; i += 16)
      for (int lane = 0; lane < 16; ++lane) lanes[lane] = static_cast<std::uint8_t>(lanes[lane] + (text[i + lane] == '\n'));
    for (; i < last; ++i) count += text[i] == '\n';
    for (auto const lane : lanes) count += lane;
  }
  return count;
}

// Where the lines that begin in [first, last) stand in the text.
inline vector_view<char const> lines_beginning_in(vector_view<char const> text, std::int64_t first, std::int64_t last) noexcept {
  auto const after_newline = [&](std::int64_t from, std::int64_t to) {
    auto const* const found = from < to ? std::memchr(text.data() + from, '\n', static_cast<std::size_t>(to - from)) : nullptr;
    return found == nullptr ? std::int64_t{-1} : static_cast<char const*>(found) - text.data() + 1;
  };
  auto const begin = first == 0 ? 0 : after_newline(first - 1, last - 1);
  if (begin < 0) return {text.data() + first, 0};
  auto const end = after_newline(last - 1, text.size());
  return {text.data() + begin, (end < 0 ? text.size() : end) - begin};
}

}  // namespace detail

}  // namespace TESSERA_ABI
}  // namespace tessera
