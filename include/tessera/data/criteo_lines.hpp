// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>

#include <tessera/core/view.hpp>
#include <tessera/data/raw_rows.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

namespace detail {

constexpr std::uint64_t every_byte(std::uint8_t byte) noexcept { return 0x0101010101010101 * std::uint64_t{byte}; }

inline std::uint64_t load_word(char const* at) noexcept {
  std::uint64_t word = 0;
  std::memcpy(&word, at, sizeof word);
  return word;
}

// Bit i: whether at[i] is a tab, of 64 characters.
inline std::uint64_t tab_bits_by_words(char const* at) noexcept {
  std::uint64_t bits = 0;
  for (int i = 0; i < 64; i += 8) {
    auto const differs = load_word(at + i) ^ every_byte('\t');
    auto const equal = ~(((differs & every_byte(0x7f)) + every_byte(0x7f)) | differs | every_byte(0x7f)) >> 7;
    bits |= (equal * 0x0102040810204080 >> 56) << i;
  }
  return bits;
}

inline std::uint64_t tab_bits(char const* at) noexcept {
#if defined(__SSE2__)
  std::uint64_t bits = 0;
  for (int i = 0; i < 64; i += 16) {
    auto const some = _mm_loadu_si128(reinterpret_cast<__m128i const*>(at + i));
    auto const equal = static_cast<std::uint32_t>(_mm_movemask_epi8(_mm_cmpeq_epi8(some, _mm_set1_epi8('\t'))));
    bits |= std::uint64_t{equal} << i;
  }
  return bits;
#else
  return tab_bits_by_words(at);
#endif
}

// Writes where the tabs of [at, end) stand, from `at`, until there are `wanted` or a few more; false: there are not so many in `most` bytes.
// @pre room for wanted + 64.
inline bool find_tabs(char const* at, char const* end, std::int64_t wanted, std::int64_t most, std::uint32_t* out) noexcept {
  std::int64_t found = 0;
  for (std::int64_t base = 0; found < wanted; base += 64) {
    auto const left = end - at - base;
    if (left <= 0 || base >= most) return false;
    auto const* block = at + base;
    char last[64] = {};
    if (left < 64) block = static_cast<char const*>(std::memcpy(last, block, static_cast<std::size_t>(left)));
    auto bits = tab_bits(block);
    auto const count = std::popcount(bits);
    // In eights: a loop that ended with the last tab would be a branch that nobody can predict.
    for (int i = 0; i < count; i += 8)
      for (int j = 0; j < 8; ++j) {
        out[found + i + j] = static_cast<std::uint32_t>(base + std::countr_zero(bits));
        bits &= bits - 1;
      }
    found += count;
  }
  return true;
}

// Several lines of Criteo's layout at once, without a branch that depends on the values: the tabs first, then each field's last eight
// characters as a word, then the words of a column side by side. What this does not know (longer fields, bad lines) it leaves to the
// scanner that takes a character at a time.
class criteo_line_group {
 public:
  static constexpr std::int64_t lines = 16;
  // Text that must stand before the first line.
  static constexpr std::int64_t bytes_before = 8;

  // Reads the lines at `at`; returns where the next one begins, or null: they are not all that simple, and what was written means nothing.
  // @pre behind them begins another line; `bytes_before` bytes stand before `at`.
  char const* parse(char const* at, char const* end, float* labels, matrix_view<std::int32_t> integers,
                    matrix_view<std::int64_t> categories, std::int64_t row) noexcept {
    if constexpr (std::endian::native != std::endian::little) return nullptr;
    if (!find_tabs(at, end, lines * tabs_a_line + 1, most_bytes, tabs_)) return nullptr;
    negatives_ = 0;
    std::uint64_t above_seven_bits = 0, lengths = 0;
    std::int64_t start = 0;
    for (std::int64_t line = 0; line < lines; ++line) {
      start = split(at, start, line, labels[row + line], above_seven_bits, lengths);
      if (start < 0) return nullptr;
    }
    if ((above_seven_bits & every_byte(0x80)) != 0 || lengths > 15) return nullptr;
    std::uint64_t bad = 0;
    for (std::int64_t i = 0; i < click_layout::integers; ++i) bad |= decode_integers(words_[i], integers.row(i) + row);
    for (std::int64_t c = 0; c < click_layout::categories; ++c)
      bad |= decode_categories(words_[click_layout::integers + c], categories.row(c) + row);
    if (bad != 0) return nullptr;
    for (std::int64_t n = 0; n < negatives_; ++n) {
      auto& value = integers(negative_[n] / lines, row + negative_[n] % lines);
      value = -value;
    }
    return at + start;
  }

 private:
  static constexpr std::int64_t tabs_a_line = click_layout::fields - 1;
  static constexpr std::int64_t most_bytes = 1 << 14;
  static constexpr std::uint64_t missing_word = ~std::uint64_t{0};

  // By a field's length: its characters in the word that ends with it, and what stands in the place of the others.
  struct masks {
    std::uint64_t keep, fill;
  };
  static constexpr auto masks_of_length = [] {
    std::array<masks, 16> result{};
    result[0] = {0, missing_word};
    for (std::uint64_t n = 1; n < 16; ++n) {
      auto const keep = n < 8 ? ~std::uint64_t{0} << (64 - 8 * n) : ~std::uint64_t{0};
      result[n] = {keep, ~keep & every_byte('0')};
    }
    return result;
  }();

  // The field [begin, end) as eight digits. ORs its characters, and its length + 7, to what shows whether any was too much.
  static std::uint64_t word_of(char const* at, std::int64_t begin, std::int64_t end, std::uint64_t& seen, std::uint64_t& lengths) noexcept {
    auto const length = static_cast<std::uint64_t>(end - begin);
    auto const& masks = masks_of_length[length & 15];
    auto const word = load_word(at + end - 8) & masks.keep;
    seen |= word;
    lengths |= length + 7;
    return word | masks.fill;
  }

  // Reads the label and the fields' words of the line that begins at `start`; returns where the next one begins, or -1.
  std::int64_t split(char const* at, std::int64_t start, std::int64_t line, float& label, std::uint64_t& seen,
                     std::uint64_t& lengths) noexcept {
    auto const* const tabs = tabs_ + line * tabs_a_line;
    auto const digit = static_cast<unsigned char>(at[start] - '0');
    if (digit > 1 || tabs[0] != start + 1) return -1;
    label = digit;
    std::int64_t begin = start + 2;
    for (std::int64_t i = 0; i < click_layout::integers; ++i) {
      std::int64_t const end = tabs[1 + i];
      if (at[begin] == '-') {
        if (++begin == end) return -1;
        negative_[negatives_++] = static_cast<std::uint8_t>(i * lines + line);
      }
      words_[i][line] = word_of(at, begin, end, seen, lengths);
      begin = end + 1;
    }
    for (std::int64_t i = click_layout::integers; i < tabs_a_line - 1; ++i) {
      std::int64_t const end = tabs[1 + i];
      words_[i][line] = word_of(at, begin, end, seen, lengths);
      begin = end + 1;
    }
    auto const next = std::int64_t{tabs[tabs_a_line]} - 1;  // the next line's label
    auto end = next - 1;
    if (end < begin || at[end] != '\n') return -1;
    if (end > begin && at[end - 1] == '\r') --end;
    words_[tabs_a_line - 1][line] = word_of(at, begin, end, seen, lengths);
    return next;
  }

  // Bits of what was no decimal digit.
  static std::uint64_t decode_integers(std::uint64_t const* words, std::int32_t* out) noexcept {
    std::uint64_t bad = 0;
    for (std::int64_t i = 0; i < lines; ++i) {
      auto const word = words[i];
      bool const missing = word == missing_word;
      auto const digits = word ^ every_byte('0');
      bad |= missing ? 0 : (digits + every_byte(0x80 - 10)) & every_byte(0x80);
      auto const two = (digits * 10 + (digits >> 8)) & 0x00ff00ff00ff00ff;
      auto const four = (two * 100 + (two >> 16)) & 0x0000ffff0000ffff;
      auto const eight = static_cast<std::uint32_t>(four * 10000 + (four >> 32));
      out[i] = missing ? click_layout::missing_integer : static_cast<std::int32_t>(eight);
    }
    return bad;
  }

  // Bits of what was no hexadecimal digit.
  static std::uint64_t decode_categories(std::uint64_t const* words, std::int64_t* out) noexcept {
    std::uint64_t bad = 0;
    for (std::int64_t i = 0; i < lines; ++i) {
      auto const word = words[i];
      bool const missing = word == missing_word;
      // A sum's highest bit says whether a character is not below the first of a range, or past its last.
      auto const lower = word | every_byte(0x20);
      auto const decimal = (word + every_byte(0x80 - '0')) & ~(word + every_byte(0x80 - '9' - 1));
      auto const letter = (lower + every_byte(0x80 - 'a')) & ~(lower + every_byte(0x80 - 'f' - 1));
      bad |= missing ? 0 : ~(decimal | letter) & every_byte(0x80);
      auto const is_letter = (word >> 6) & every_byte(1);
      auto const digits = (word & every_byte(15)) + (is_letter << 3) + is_letter;
      auto const two = (digits << 4 | digits >> 8) & 0x00ff00ff00ff00ff;
      auto const four = (two << 8 | two >> 16) & 0x0000ffff0000ffff;
      auto const eight = (four << 16 | four >> 32) & 0xffffffff;
      out[i] = missing ? click_layout::missing_category : static_cast<std::int64_t>(eight);
    }
    return bad;
  }

  alignas(64) std::uint64_t words_[tabs_a_line][lines];
  std::uint32_t tabs_[lines * tabs_a_line + 1 + 64];
  std::uint8_t negative_[lines * click_layout::integers];  // integer * lines + line
  std::int64_t negatives_ = 0;
};

}  // namespace detail

}  // namespace TESSERA_ABI
}  // namespace tessera
