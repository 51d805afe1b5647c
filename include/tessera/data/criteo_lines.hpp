// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <limits>

#include <tessera/data/sample_schema.hpp>
#include <tessera/data/separators.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

namespace detail {

// Writes where the tabs of [at, end) stand, from `at`, until there are `wanted` or a few more; false: there are not so many in `most` bytes.
// @pre room for wanted + 64.
bool find_tabs(char const* at, char const* end, std::int64_t wanted, std::int64_t most, std::uint32_t* out) noexcept;

// Where the values of a field go, by row; nowhere where both are null.
struct field_target {
  float* number = nullptr;
  std::int64_t* id = nullptr;
};

// Several lines of Criteo's layout at once, without a branch that depends on the values: the tabs first, then each field's last eight
// characters as a word, then the words of a column side by side. What this does not know (longer fields, fractions, bad lines) it leaves
// to the parser that takes a field at a time.
class criteo_line_group {
 public:
  static constexpr std::int64_t lines = 16;
  // Text that must stand before the first line.
  static constexpr std::int64_t bytes_before = 8;
  static constexpr std::int64_t integers = 13, categories = 26, fields = 1 + integers + categories;

  // Reads the lines at `at`; returns where the next one begins, or null: they are not all that simple, and what was written means nothing.
  // `targets`: of all fields; the label has a number, categories have none.
  // @pre behind them begins another line; `bytes_before` bytes stand before `at`.
  char const* parse(char const* at, char const* end, field_target const* targets, std::int64_t row) noexcept;

 private:
  static constexpr std::int64_t tabs_a_line = fields - 1;
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
                     std::uint64_t& lengths) noexcept;

  // By a mask: compilers make no vector code of a choice between floats that were computed.
  static float chosen(bool first, float a, float b) noexcept {
    auto const mask = 0U - static_cast<std::uint32_t>(first);
    return std::bit_cast<float>((std::bit_cast<std::uint32_t>(a) & mask) | (std::bit_cast<std::uint32_t>(b) & ~mask));
  }
  static std::int64_t chosen(bool first, std::int64_t a, std::int64_t b) noexcept { return first ? a : b; }

  // Bits of what ended a line within a field that nobody wants: other fields have but digits.
  static std::uint64_t line_ends(std::uint64_t const* words) noexcept {
    std::uint64_t ends = 0;
    for (std::int64_t i = 0; i < lines; ++i) {
      auto const differs = words[i] ^ every_byte('\n');
      ends |= (differs - every_byte(1)) & ~differs & every_byte(0x80);
    }
    return ends;
  }

  // Bits of what was no decimal digit.
  template <class T>
  static std::uint64_t decode_integers(std::uint64_t const* words, T* out, T none) noexcept {
    std::uint64_t bad = 0;
    for (std::int64_t i = 0; i < lines; ++i) {
      auto const word = words[i];
      bool const missing = word == missing_word;
      auto const digits = word ^ every_byte('0');
      bad |= missing ? 0 : (digits + every_byte(0x80 - 10)) & every_byte(0x80);
      auto const two = (digits * 10 + (digits >> 8)) & 0x00ff00ff00ff00ff;
      auto const four = (two * 100 + (two >> 16)) & 0x0000ffff0000ffff;
      auto const eight = static_cast<std::uint32_t>(four * 10000 + (four >> 32));
      out[i] = chosen(missing, none, static_cast<T>(static_cast<std::int32_t>(eight)));
    }
    return bad;
  }

  // Bits of what was no hexadecimal digit.
  static std::uint64_t decode_categories(std::uint64_t const* words, std::int64_t* out) noexcept;

  alignas(64) std::uint64_t words_[tabs_a_line][lines];
  std::uint32_t tabs_[lines * tabs_a_line + 1 + 64];
  std::uint8_t negative_[lines * integers];  // integer * lines + line
  std::int64_t negatives_ = 0;
};

}  // namespace detail

}  // namespace TESSERA_ABI
}  // namespace tessera

#if !TESSERA_COMPILED
#include <tessera/data/criteo_lines.ipp>
#endif
