// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0

// A plain second parser of Criteo's layout must accept the same texts, with the same values, and refuse the others at the same line and field:
// a text in memory, and the same as a file cut into blocks.
#include <tessera/data/criteo_tsv.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/core/thread_team.hpp>

#include "fuzz_support.hpp"

using fuzz::require;

namespace {

constexpr std::size_t integers = 13, categories = 26, fields = 1 + integers + categories;

struct sample {
  float label = 0;
  std::array<std::int32_t, integers> integer{};
  std::array<std::int64_t, categories> category{};

  friend bool operator==(sample const&, sample const&) = default;
};

struct bad_place {
  std::size_t line;  // from 1
  std::string field;

  friend bool operator==(bad_place const&, bad_place const&) = default;
};

struct outcome {
  std::vector<sample> samples;
  std::optional<bad_place> bad;
};

// The pieces between separators: one more than there are separators.
std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> pieces;
  for (;;) {
    auto const end = text.find(separator);
    pieces.push_back(text.substr(0, end));
    if (end == text.npos) return pieces;
    text.remove_prefix(end + 1);
  }
}

std::optional<std::int32_t> plain_integer(std::string_view digits) {
  if (digits.empty()) return -2147483647 - 1;  // missing
  bool const negative = digits[0] == '-';
  if (negative) digits.remove_prefix(1);
  if (digits.empty()) return std::nullopt;
  double value = 0;  // never rounds below the limit
  for (auto const c : digits) {
    if (c < '0' || c > '9') return std::nullopt;
    value = 10 * value + (c - '0');
  }
  if (value > 2147483647) return std::nullopt;
  return static_cast<std::int32_t>(negative ? -value : value);
}

std::optional<std::int64_t> plain_category(std::string_view digits) {
  if (digits.empty()) return -1;  // missing
  if (digits.size() > 8) return std::nullopt;
  std::int64_t value = 0;
  for (auto const c : digits) {
    if (c >= '0' && c <= '9')
      value = 16 * value + (c - '0');
    else if (c >= 'a' && c <= 'f')
      value = 16 * value + (c - 'a' + 10);
    else if (c >= 'A' && c <= 'F')
      value = 16 * value + (c - 'A' + 10);
    else
      return std::nullopt;
  }
  return value;
}

std::string field_name(std::size_t field) {
  if (field == 0) return "label";
  if (field <= integers) return "integer " + std::to_string(field);
  if (field < fields) return "category " + std::to_string(field - integers);
  return "field " + std::to_string(field + 1);
}

// The sample of a line, or which field is wrong.
std::optional<sample> plain_sample(std::string_view line, std::size_t& bad_field) {
  if (line.ends_with('\r')) line.remove_suffix(1);
  auto const texts = split(line, '\t');
  if (texts.size() != fields) {
    bad_field = std::min(texts.size(), fields);
    return std::nullopt;
  }
  sample result;
  for (std::size_t field = 0; field < fields; ++field) {
    bad_field = field;
    auto const& text = texts[field];
    if (field == 0) {
      if (text != "0" && text != "1") return std::nullopt;
      result.label = text == "1" ? 1.0F : 0.0F;
    } else if (field <= integers) {
      auto const value = plain_integer(text);
      if (!value) return std::nullopt;
      result.integer[field - 1] = *value;
    } else {
      auto const value = plain_category(text);
      if (!value) return std::nullopt;
      result.category[field - 1 - integers] = *value;
    }
  }
  return result;
}

outcome plain_parse(std::string_view text) {
  outcome result;
  auto lines = split(text, '\n');
  if (lines.back().empty()) lines.pop_back();  // behind the last newline there is no line
  for (std::size_t line = 0; line < lines.size(); ++line) {
    std::size_t field = 0;
    auto const found = plain_sample(lines[line], field);
    if (!found) {
      result.bad = {line + 1, field_name(field)};
      return result;
    }
    result.samples.push_back(*found);
  }
  return result;
}

void append(tessera::raw_rows_view rows, std::vector<sample>& out) {
  for (std::int64_t row = 0; row < rows.size(); ++row) {
    auto& to = out.emplace_back();
    to.label = rows.labels[row];
    for (std::size_t i = 0; i < integers; ++i) to.integer[i] = rows.integers(static_cast<std::int64_t>(i), row);
    for (std::size_t c = 0; c < categories; ++c) to.category[c] = rows.categories(static_cast<std::int64_t>(c), row);
  }
}

template <class F>
outcome outcome_of(std::string const& file, F const& parse) {
  outcome result;
  try {
    parse(result.samples);
  } catch (tessera::error const& e) {
    require(e.code() == tessera::errc::parse_error && e.value("file") == file, "a bad text is a parse error that names its file");
    result.bad = {std::stoull(std::string(e.value("line"))), std::string(e.value("field"))};
  }
  return result;
}

void compare(outcome const& found, outcome const& expected) {
  require(found.bad.has_value() == expected.bad.has_value(), "both parsers accept a text, or neither");
  require(found.bad == expected.bad, "both parsers refuse a text at the same line and field");
  if (!expected.bad) require(found.samples == expected.samples, "both parsers read the same values");
}

}  // namespace

// The first byte: how often the first line is there before the text itself, as lines are parsed by sixteens; the second: bytes a block. Two bytes of
// 255: so often that the text is above 64 KiB, which are parsed in pieces.
int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
  if (size < 2) return 0;
  auto const body = std::string(fuzz::text_of(data, size).substr(2));
  auto const first_line = body.substr(0, std::min(body.find('\n'), body.size() - 1) + 1);
  std::string text;
  if (first_line.ends_with('\n')) {
    auto const copies = data[0] == 255 && data[1] == 255 ? 70000 / first_line.size() : std::size_t{data[0]} % 64;
    for (std::size_t i = 0; i < copies; ++i) text += first_line;
  }
  text += body;

  tessera::serial_team team;
  tessera::system_memory memory;
  tessera::host_exec const exec(team, memory);
  auto const expected = plain_parse(text);

  // Without the zero behind it that a string has, so that reading past the end is seen.
  std::unique_ptr<char[]> const exact(new char[text.size()]);
  std::copy(text.begin(), text.end(), exact.get());
  auto const whole = outcome_of("text", [&](std::vector<sample>& out) {
    tessera::raw_rows rows;
    tessera::parse_criteo(exec, {exact.get(), static_cast<std::int64_t>(text.size())}, "text", rows);
    append(rows.view(), out);
  });
  compare(whole, expected);

  static fuzz::memory_file file;
  file.write(text);
  auto const by_blocks = outcome_of(file.path(), [&](std::vector<sample>& out) {
    tessera::line_blocks const blocks(file.path(), 64 + data[1] * std::int64_t{16});
    tessera::buffer<char> storage;
    tessera::raw_rows rows;
    for (std::int64_t block = 0; block < blocks.block_count(); ++block) {
      tessera::read_criteo(exec, blocks, block, storage, rows);
      append(rows.view(), out);
    }
  });
  compare(by_blocks, expected);
  return 0;
}
