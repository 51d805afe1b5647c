// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/plan/sample_log_file.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

namespace detail {

TESSERA_INLINE std::string joined_text(std::vector<std::string> const& parts, char separator) {
  std::string text;
  for (auto const& part : parts) (text.empty() ? text : text += separator) += part;
  return text;
}

TESSERA_INLINE std::vector<std::string> split_text(std::string_view text, char separator) {
  std::vector<std::string> parts;
  if (text.empty()) return parts;
  for (std::size_t first = 0;;) {
    auto const end = text.find(separator, first);
    parts.emplace_back(text.substr(first, end - first));
    if (end == text.npos) return parts;
    first = end + 1;
  }
}

TESSERA_INLINE std::string line_with_checksum(std::vector<std::string> const& fields) {
  auto text = joined_text(fields, ',') + ',';
  char digits[10];
  std::snprintf(digits, sizeof digits, "%08x\n", crc32_of(std::string_view(text)));
  return text += digits;
}

TESSERA_INLINE void take_checksum(std::string const& what, std::string const& file, std::int64_t line, std::vector<std::string>& fields,
                                  std::size_t count) {
  if (fields.size() != count + 1)
    throw error(errc::corrupt_file, what + ": another number of fields",
                {{"file", file}, {"line", line}, {"fields", fields.size()}, {"expected", count + 1}});
  auto const found = std::move(fields.back());
  fields.pop_back();
  auto const whole = line_with_checksum(fields);
  auto const expected = whole.substr(whole.size() - 9, 8);
  if (found != expected)
    throw error(errc::corrupt_file, what + ": a line was altered",
                {{"file", file}, {"line", line}, {"field", "crc32"}, {"found", found}, {"expected", expected}});
}

TESSERA_INLINE void log_line::refuse(errc code, char const* why, std::size_t field, std::string const& expected) const {
  std::vector<error_value> values{{"file", file}, {"line", number}, {"field", names[field]}, {"found", fields[field]}};
  if (!expected.empty()) values.emplace_back("expected", expected);
  throw error(code, why, std::move(values));
}

TESSERA_INLINE std::vector<double> log_line::times(std::size_t field, std::size_t count) const {
  std::vector<double> result;
  for (auto const& text : split_text(fields[field], ' ')) {
    double value = 0;
    auto const [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (failure != std::errc{} || end != text.data() + text.size() || !(value >= 0) || !std::isfinite(value))
      refuse(errc::parse_error, "samples: not a time", field, "a finite number from 0");
    result.push_back(value);
  }
  if (result.size() != count) refuse(errc::parse_error, "samples: another number of times", field, std::to_string(count));
  return result;
}

TESSERA_INLINE void sample_log::expect_head(std::string const& path, std::string const& text, std::string const& head) {
  if (text.starts_with(head)) return;
  auto const expected = split_text(head, '\n'), found = split_text(text, '\n');
  for (std::size_t line = 0; line < 2; ++line)
    if (line >= found.size() || found[line] != expected[line])
      throw error(errc::incompatible, "samples: a file of other samples",
                  {{"file", path}, {"line", line + 1}, {"expected", expected[line]}, {"found", line < found.size() ? found[line] : ""}});
}

TESSERA_INLINE log_line sample_log::checked_line(std::string const& path, std::int64_t number, std::vector<std::string> const& names,
                                                 std::string const& text) {
  log_line line{path, number, names, split_text(text, ',')};
  take_checksum("samples", path, number, line.fields, names.size());
  return line;
}

}  // namespace detail

}  // namespace TESSERA_ABI
}  // namespace tessera
