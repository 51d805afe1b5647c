// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/error.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

TESSERA_INLINE error::error(errc code, std::string_view sentence, std::vector<error_value> values)
    : std::runtime_error(text(sentence, values)),
      code_(code),
      sentence_size_(sentence.size()),
      values_(std::make_shared<std::vector<error_value> const>(std::move(values))) {}

TESSERA_INLINE std::string error::text(std::string_view sentence, std::vector<error_value> const& values) {
  std::string result(sentence);
  char const* separator = " (";
  for (auto const& v : values) {
    append_shown(v.name, result.append(separator));
    append_shown(v.value, result.append(" "));
    separator = ", ";
  }
  if (!values.empty()) result += ")";
  return result;
}

TESSERA_INLINE void error::append_shown(std::string_view text, std::string& to) {
  constexpr char const* digits = "0123456789abcdef";
  for (char const c : text) {
    auto const byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte != 0x7f)
      to += c;
    else
      to.append("\\x").append({digits[byte >> 4], digits[byte & 15]});
  }
}

}  // namespace TESSERA_ABI
}  // namespace tessera
