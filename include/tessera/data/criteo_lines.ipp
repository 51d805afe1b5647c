// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/data/criteo_lines.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

namespace detail {

TESSERA_INLINE bool find_tabs(char const* at, char const* end, std::int64_t wanted, std::int64_t most, std::uint32_t* out) noexcept {
  std::int64_t found = 0;
  for (std::int64_t base = 0; found < wanted; base += 64) {
    auto const left = end - at - base;
    if (left <= 0 || base >= most) return false;
    auto const* block = at + base;
    char last[64] = {};
    if (left < 64) block = static_cast<char const*>(std::memcpy(last, block, static_cast<std::size_t>(left)));
    auto bits = bits_equal(block, '\t');
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

TESSERA_INLINE char const* criteo_line_group::parse(char const* at, char const* end, field_target const* targets,
                                                    std::int64_t row) noexcept {
  if constexpr (std::endian::native != std::endian::little) return nullptr;
  if (!find_tabs(at, end, lines * tabs_a_line + 1, most_bytes, tabs_)) return nullptr;
  negatives_ = 0;
  std::uint64_t above_seven_bits = 0, lengths = 0;
  std::int64_t start = 0;
  for (std::int64_t line = 0; line < lines; ++line) {
    start = split(at, start, line, targets[0].number[row + line], above_seven_bits, lengths);
    if (start < 0) return nullptr;
  }
  if ((above_seven_bits & every_byte(0x80)) != 0 || lengths > 15) return nullptr;
  std::uint64_t bad = 0;
  for (std::int64_t i = 0; i < integers; ++i) {
    auto const& target = targets[1 + i];
    if (target.number != nullptr) bad |= decode_integers(words_[i], target.number + row, std::numeric_limits<float>::quiet_NaN());
    if (target.id != nullptr) bad |= decode_integers(words_[i], target.id + row, missing_id);
    if (target.number == nullptr && target.id == nullptr) bad |= line_ends(words_[i]);
  }
  for (auto i = integers; i < tabs_a_line; ++i) {
    auto* const ids = targets[1 + i].id;
    bad |= ids != nullptr ? decode_categories(words_[i], ids + row) : line_ends(words_[i]);
  }
  if (bad != 0) return nullptr;
  for (std::int64_t n = 0; n < negatives_; ++n) {
    auto const& target = targets[1 + negative_[n] / lines];
    auto const line = row + negative_[n] % lines;
    if (target.number != nullptr) target.number[line] = -target.number[line];
    if (target.id != nullptr) target.id[line] = -target.id[line];
  }
  return at + start;
}

TESSERA_INLINE std::int64_t criteo_line_group::split(char const* at, std::int64_t start, std::int64_t line, float& label,
                                                     std::uint64_t& seen, std::uint64_t& lengths) noexcept {
  auto const* const tabs = tabs_ + line * tabs_a_line;
  auto const digit = static_cast<unsigned char>(at[start] - '0');
  if (digit > 1 || tabs[0] != start + 1) return -1;
  label = digit;
  std::int64_t begin = start + 2;
  for (std::int64_t i = 0; i < integers; ++i) {
    std::int64_t const end = tabs[1 + i];
    if (at[begin] == '-') {
      if (++begin == end) return -1;
      negative_[negatives_++] = static_cast<std::uint8_t>(i * lines + line);
    }
    words_[i][line] = word_of(at, begin, end, seen, lengths);
    begin = end + 1;
  }
  for (std::int64_t i = integers; i < tabs_a_line - 1; ++i) {
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

TESSERA_INLINE std::uint64_t criteo_line_group::decode_categories(std::uint64_t const* words, std::int64_t* out) noexcept {
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
    out[i] = missing ? missing_id : static_cast<std::int64_t>(eight);
  }
  return bad;
}

}  // namespace detail

}  // namespace TESSERA_ABI
}  // namespace tessera
