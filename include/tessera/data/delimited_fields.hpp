// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <system_error>

#include <tessera/data/delimited_layout.hpp>
#include <tessera/data/hash_text.hpp>
#include <tessera/data/sample_schema.hpp>
#include <tessera/data/separators.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

namespace detail {

// These return what is wrong with a text as a sentence, or null. They write only where nothing is wrong.

char const* read_long_number(std::string_view text, float& value) noexcept;

char const* read_number(std::string_view text, float& value) noexcept;

char const* read_integer(std::string_view text, std::int64_t& value) noexcept;

// The value of a hexadecimal digit; 0xff for other characters.
inline constexpr auto hex_digit = [] {
  std::array<std::uint8_t, 256> value{};
  value.fill(0xff);
  for (std::uint8_t i = 0; i < 10; ++i) value[static_cast<std::size_t>('0' + i)] = i;
  for (std::uint8_t i = 0; i < 6; ++i) {
    value[static_cast<std::size_t>('a' + i)] = static_cast<std::uint8_t>(10 + i);
    value[static_cast<std::size_t>('A' + i)] = static_cast<std::uint8_t>(10 + i);
  }
  return value;
}();

inline char const* read_hexadecimal(std::string_view text, std::int64_t& value) noexcept {
  std::uint64_t read = 0;
  std::uint8_t seen = 0;
  for (auto const c : text) {
    auto const digit = hex_digit[static_cast<unsigned char>(c)];
    seen |= digit;
    read = read << 4 | (digit & 15U);
  }
  if (seen > 15) return "not a hexadecimal id";
  if (text.size() > 16 || read >> 63 != 0) return "a hexadecimal id of more than 63 bits";
  value = static_cast<std::int64_t>(read);
  return nullptr;
}

// @pre the text is not empty.
inline char const* read_id(std::string_view text, id_format format, std::int64_t& value) noexcept {
  switch (format) {
    case id_format::text: value = hash_text(text); return nullptr;
    case id_format::hexadecimal: return read_hexadecimal(text, value);
    case id_format::decimal:
      if (auto const* const fault = read_integer(text, value)) return fault;
      return value == missing_id ? "an integer beyond 64 bits" : nullptr;
    case id_format::automatic: break;
  }
  if (read_integer(text, value) != nullptr || value == missing_id) value = hash_text(text);
  return nullptr;
}

// Takes a text's lines apart, a field at a time.
class delimited_lines {
 public:
  delimited_lines(char const* at, char const* end, char delimiter, bool quotes) noexcept
      : scan_(at, end, delimiter), at_(at), end_(end), quotes_(quotes) {}

  char const* at() const noexcept { return at_; }
  void move_to(char const* at) noexcept {
    at_ = at;
    scan_.move_to(at);
  }

  // Calls f(field, text) for the fields of the line that begins at `at()`, as long as f returns null, and moves behind the line. Returns
  // what f returned, or what is wrong with the line; `at()` then means nothing. The text lives until f returns.
  template <class F>
  char const* next(std::int64_t fields, F const& f) {
    for (std::int64_t field = 0; field < fields; ++field) {
      auto const* const begin = at_;
      auto const* stop = scan_.next();
      std::string_view text;
      if (quotes_ && begin != end_ && *begin == '"') {
        if (auto const* const wrong = unquote(begin, stop, text)) return wrong;
      } else {
        text = {begin, static_cast<std::size_t>(stop - begin)};
        if (ends_line(stop) && text.ends_with('\r')) text.remove_suffix(1);
      }
      at_ = stop == end_ ? end_ : stop + 1;
      if (auto const* const wrong = f(field, text)) return wrong;
      if (ends_line(stop) != (field + 1 == fields)) return ends_line(stop) ? too_few : too_many;
    }
    return nullptr;
  }

  static constexpr char const* too_few = "fewer fields than columns";
  static constexpr char const* too_many = "more fields than columns";

 private:
  bool ends_line(char const* at) const noexcept { return at == end_ || *at == '\n'; }

  // `stop`: the end of the field.
  char const* unquote(char const* begin, char const*& stop, std::string_view& text);

  separator_scan scan_;
  char const* at_;
  char const* end_;
  bool quotes_;
  std::string plain_;  // the last field without its doubled quotes
};

// At most 64 characters, all of them printable.
std::string printable(std::string_view text);

}  // namespace detail

}  // namespace TESSERA_ABI
}  // namespace tessera

#if !TESSERA_COMPILED
#include <tessera/data/delimited_fields.ipp>
#endif
