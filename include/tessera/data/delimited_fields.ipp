// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/data/delimited_fields.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

namespace detail {

TESSERA_INLINE char const* read_long_number(std::string_view text, float& value) noexcept {
  auto const* const end = text.data() + text.size();
  float read = 0;
  auto const [at, fault] = std::from_chars(text.data(), end, read);
  if (fault == std::errc::result_out_of_range) {
    // Also said of numbers so small that they become 0.
    double wide = 0;
    auto const again = std::from_chars(text.data(), end, wide);
    bool const is_small = again.ec == std::errc() ? std::abs(wide) < 1 : text.find("e-") != text.npos || text.find("E-") != text.npos;
    if (!is_small) return "a number beyond floating point of 32 bits";
    read = static_cast<float>(wide);
  } else if (fault != std::errc()) {
    return "not a number";
  }
  if (at != end || text.ends_with(')')) return "not a number";  // no "nan(…)"
  if (std::isinf(read)) return "a number that is not finite";
  value = std::isnan(read) ? std::numeric_limits<float>::quiet_NaN() : read;
  return nullptr;
}

TESSERA_INLINE char const* read_number(std::string_view text, float& value) noexcept {
  // Few digits and a point, as most numbers have: both are exact as floats, so their quotient is rounded once.
  constexpr std::array<float, 11> powers{1e0F, 1e1F, 1e2F, 1e3F, 1e4F, 1e5F, 1e6F, 1e7F, 1e8F, 1e9F, 1e10F};
  constexpr std::size_t longest = 11;
  if (text.size() > longest) return read_long_number(text, value);
  std::size_t at = 0;
  bool const negative = !text.empty() && text[0] == '-';
  at += negative;
  std::uint64_t digits = 0;
  auto const first = at;
  auto const take_digits = [&] {
    for (; at < text.size(); ++at) {
      auto const digit = static_cast<unsigned char>(text[at] - '0');
      if (digit > 9) break;
      digits = 10 * digits + digit;
    }
  };
  take_digits();
  auto const whole = at - first;
  std::size_t fraction = 0;
  if (at < text.size() && text[at] == '.') {
    auto const point = at++;
    take_digits();
    fraction = at - point - 1;
  }
  if (at != text.size() || whole + fraction == 0 || digits > 1U << 24) return read_long_number(text, value);
  auto const magnitude = static_cast<float>(digits) / powers[fraction];
  value = negative ? -magnitude : magnitude;
  return nullptr;
}

TESSERA_INLINE char const* read_integer(std::string_view text, std::int64_t& value) noexcept {
  constexpr std::size_t longest = 18;  // a sign and digits that no integer of 64 bits is too short for
  if (text.size() <= longest) {
    bool const negative = !text.empty() && text[0] == '-';
    std::size_t at = negative;
    if (at == text.size()) return "not an integer";
    std::int64_t magnitude = 0;
    for (; at < text.size(); ++at) {
      auto const digit = static_cast<unsigned char>(text[at] - '0');
      if (digit > 9) return "not an integer";
      magnitude = 10 * magnitude + digit;
    }
    value = negative ? -magnitude : magnitude;
    return nullptr;
  }
  auto const* const end = text.data() + text.size();
  std::int64_t read = 0;
  auto const [at, fault] = std::from_chars(text.data(), end, read);
  if (at != end || fault == std::errc::invalid_argument) return "not an integer";
  if (fault != std::errc()) return "an integer beyond 64 bits";
  value = read;
  return nullptr;
}

TESSERA_INLINE char const* delimited_lines::unquote(char const* begin, char const*& stop, std::string_view& text) {
  bool doubled = false;
  auto const* at = begin + 1;
  for (;; ++at) {
    if (ends_line(at)) return "a quote that is not closed";
    if (*at != '"') continue;
    if (at + 1 == end_ || at[1] != '"') break;
    doubled = true;
    ++at;
  }
  text = {begin + 1, static_cast<std::size_t>(at - begin - 1)};
  scan_.move_to(at + 1);
  stop = scan_.next();
  auto const behind = stop - at - 1;
  if (behind > 1 || (behind == 1 && !(at[1] == '\r' && ends_line(stop)))) return "text behind a closing quote";
  if (doubled) {
    plain_.clear();
    for (std::size_t i = 0; i < text.size(); ++i) {
      plain_ += text[i];
      i += text[i] == '"';
    }
    text = plain_;
  }
  return nullptr;
}

TESSERA_INLINE std::string printable(std::string_view text) {
  constexpr std::size_t most = 64;
  constexpr char const* digits = "0123456789abcdef";
  std::string result = "\"";
  for (auto const c : text.substr(0, most)) {
    auto const byte = static_cast<unsigned char>(c);
    if (c == '\t') {
      result += "\\t";
    } else if (byte < 0x20 || byte > 0x7e) {
      result += {'\\', 'x', digits[byte >> 4], digits[byte & 15]};
    } else {
      result += c;
    }
  }
  return result + (text.size() > most ? "\"..." : "\"");
}

}  // namespace detail

}  // namespace TESSERA_ABI
}  // namespace tessera
