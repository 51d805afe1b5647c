// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <charconv>
#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace examples {
namespace detail {

/// Text as it stands between tags or in an attribute.
inline std::string html_text(std::string_view text) {
  std::string result;
  for (char const c : text) switch (c) {
      case '&': result += "&amp;"; break;
      case '<': result += "&lt;"; break;
      case '>': result += "&gt;"; break;
      case '"': result += "&quot;"; break;
      default: result += c;
    }
  return result;
}

// A number with a point, whatever the program's locale; |value| <= 1e300.
inline std::string number_text(double value, std::chars_format format, int precision) {
  char digits[400];
  return {digits, std::to_chars(digits, digits + sizeof digits, value, format, precision).ptr};
}

inline std::string short_number(double value) {
  auto const of = [](double part, char const* unit) { return number_text(part, std::chars_format::general, 4) + unit; };
  auto const size = std::abs(value);
  return size >= 1e9 ? of(value / 1e9, "G") : size >= 1e6 ? of(value / 1e6, "M") : size >= 1e4 ? of(value / 1e3, "k") : of(value, "");
}

/// Round numbers from `least` to `most`, about `count` of them: steps of 1, 2 or 5 times a power of ten.
inline std::vector<double> axis_ticks(double least, double most, int count) {
  auto const raw = (most - least) / count;
  auto const power = std::pow(10.0, std::floor(std::log10(raw)));
  auto const step = power * (raw / power <= 1.5 ? 1 : raw / power <= 3.5 ? 2 : raw / power <= 7.5 ? 5 : 10);
  std::vector<double> ticks;
  for (auto i = static_cast<std::int64_t>(std::ceil(least / step - 1e-9)); static_cast<double>(i) * step <= most + 1e-9 * step; ++i)
    ticks.push_back(static_cast<double>(i) * step);
  return ticks;
}

}  // namespace detail
}  // namespace examples
