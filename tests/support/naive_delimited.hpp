// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <bit>
#include <cctype>
#include <cerrno>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <optional>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include <tessera/data/delimited_layout.hpp>
#include <tessera/data/hash_text.hpp>

/// A plain second parser of delimited text, by streams and strings.
namespace naive {

/// What it makes of a text: samples, or the first line (from 1) that is none, and which field of it.
template <class Sample>
struct outcome {
  std::vector<Sample> samples{};
  std::int64_t bad_line = 0;
  std::string bad_field{};
};

inline bool is_digits(std::string const& text) { return !text.empty() && text.find_first_not_of("0123456789") == std::string::npos; }
inline std::string without_sign(std::string const& text) { return text.substr(!text.empty() && text[0] == '-' ? 1 : 0); }

inline std::optional<float> number_of(std::string const& text) {
  auto rest = without_sign(text);
  std::string lower = rest;
  for (auto& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  if (lower == "nan") return std::numeric_limits<float>::quiet_NaN();
  auto const e = rest.find_first_of("eE");
  auto mantissa = rest.substr(0, e);
  if (e != std::string::npos) {
    auto exponent = rest.substr(e + 1);
    if (!exponent.empty() && (exponent[0] == '-' || exponent[0] == '+')) exponent.erase(0, 1);
    if (!is_digits(exponent)) return std::nullopt;
  }
  if (auto const point = mantissa.find('.'); point != std::string::npos) mantissa.erase(point, 1);
  if (!is_digits(mantissa)) return std::nullopt;
  auto const value = std::strtof(text.c_str(), nullptr);
  if (std::isinf(value)) return std::nullopt;
  return value;
}

inline std::optional<std::int64_t> integer_of(std::string const& text) {
  if (!is_digits(without_sign(text))) return std::nullopt;
  errno = 0;
  auto const value = std::strtoll(text.c_str(), nullptr, 10);
  if (errno == ERANGE) return std::nullopt;
  return value;
}

inline std::optional<std::int64_t> id_of(std::string const& text, tessera::id_format format) {
  auto const decimal = integer_of(text);
  bool const fits = decimal && *decimal != tessera::missing_id;
  switch (format) {
    case tessera::id_format::text: break;
    case tessera::id_format::automatic:
      if (fits) return decimal;
      break;
    case tessera::id_format::decimal: return fits ? decimal : std::nullopt;
    case tessera::id_format::hexadecimal: {
      if (text.size() > 16 || text.find_first_not_of("0123456789abcdefABCDEF") != std::string::npos) return std::nullopt;
      auto const value = std::strtoull(text.c_str(), nullptr, 16);
      if (value >> 63 != 0) return std::nullopt;
      return static_cast<std::int64_t>(value);
    }
  }
  return tessera::hash_text(text);
}

/// The fields of a line, at most `most`; false: a quote of the last one is wrong.
inline bool split(std::string const& line, tessera::delimited_layout const& layout, std::size_t most, std::vector<std::string>& fields) {
  std::size_t at = 0;
  for (;;) {
    auto& field = fields.emplace_back();
    if (layout.quotes && at < line.size() && line[at] == '"') {
      for (++at;; ++at) {
        if (at >= line.size()) return false;
        if (line[at] == '"') {
          if (at + 1 < line.size() && line[at + 1] == '"')
            ++at;
          else
            break;
        }
        field += line[at];
      }
      ++at;
      if (at < line.size() && line[at] != layout.delimiter) return false;
    } else {
      while (at < line.size() && line[at] != layout.delimiter) field += line[at++];
    }
    if (at >= line.size()) return true;
    ++at;
    if (fields.size() == most) {
      fields.emplace_back();  // there is more
      return true;
    }
  }
}

/// Puts the fields of a line into a sample, which has the members of sample_tests::sample; returns which is bad, or no name.
template <class Sample>
std::string sample_of(std::vector<std::string> const& names, std::vector<std::string> const& fields, tessera::sample_schema const& schema,
                      tessera::delimited_layout const& layout, Sample& out) {
  auto const is_missing = [&](std::string const& text) {
    return text.empty() || std::find(layout.missing.begin(), layout.missing.end(), text) != layout.missing.end();
  };
  auto const find = [](std::vector<std::string> const& columns, std::string const& name) -> std::optional<std::size_t> {
    auto const found = std::find(columns.begin(), columns.end(), name);
    if (found == columns.end()) return std::nullopt;
    return static_cast<std::size_t>(found - columns.begin());
  };
  out.dense.resize(schema.dense.size());
  out.sparse.resize(schema.sparse.size());
  out.other_labels.resize(schema.other_labels.size());
  for (std::size_t f = 0; f < names.size(); ++f) {
    auto const& name = names[f];
    auto const& text = fields[f];
    auto const number = number_of(text);
    auto const needed = [&](std::uint32_t& to) {
      if (is_missing(text) || !number || std::isnan(*number)) return false;
      to = std::bit_cast<std::uint32_t>(*number);
      return true;
    };
    auto const needed_integer = [&](std::int64_t& to) {
      auto const value = integer_of(text);
      if (is_missing(text) || !value) return false;
      to = *value;
      return true;
    };
    if (name == schema.label && !needed(out.label)) return name;
    if (name == schema.weight && !needed(out.weight)) return name;
    if (name == schema.session) {
      if (is_missing(text)) return name;
      auto const value = integer_of(text);
      out.session = value ? *value : tessera::hash_text(text);
    }
    if (name == schema.time && !needed_integer(out.time)) return name;
    if (auto const c = find(schema.other_labels, name))
      if (!needed(out.other_labels[*c])) return name;
    if (auto const c = find(schema.dense, name)) {
      if (!is_missing(text) && !number) return name;
      out.dense[*c] = std::bit_cast<std::uint32_t>(is_missing(text) ? std::numeric_limits<float>::quiet_NaN() : *number);
    }
    if (auto const c = find(schema.sparse, name)) {
      auto& ids = out.sparse[*c];
      bool const single = schema.is_single(name);
      if (is_missing(text)) {
        if (single) ids = {tessera::missing_id};
        continue;
      }
      std::istringstream parts(text + (single ? "" : std::string(1, layout.list_separator)));
      for (std::string part; single ? (ids.empty() && (part = text, true)) : !!std::getline(parts, part, layout.list_separator);) {
        auto const id = id_of(part, layout.format(name));
        if ((!single && is_missing(part)) || !id) return name;
        ids.push_back(*id);
      }
    }
  }
  return {};
}

/// Line by line, by streams and strings.
template <class Sample>
outcome<Sample> parse(std::string const& text, tessera::sample_schema const& schema, tessera::delimited_layout const& layout) {
  outcome<Sample> result;
  std::istringstream lines(text);
  auto names = layout.columns;
  for (std::string line; std::getline(lines, line);) {
    ++result.bad_line;
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (result.bad_line == 1 && line.starts_with("\xef\xbb\xbf")) {
      line.erase(0, 3);
      if (!layout.header && text.size() == 3) break;  // a mark alone is no line
    }
    if (layout.header && result.bad_line == 1) {
      split(line, layout, std::numeric_limits<std::size_t>::max(), names);
      continue;
    }
    std::vector<std::string> fields;
    if (!split(line, layout, names.size(), fields)) {
      result.bad_field = names[fields.size() - 1];
      return result;
    }
    if (fields.size() < names.size()) {
      result.bad_field = names[fields.size()];
      return result;
    }
    if (fields.size() > names.size()) {
      result.bad_field = "field " + std::to_string(names.size() + 1);
      return result;
    }
    Sample s;
    result.bad_field = sample_of(names, fields, schema, layout, s);
    if (!result.bad_field.empty()) return result;
    result.samples.push_back(s);
  }
  result.bad_line = 0;
  return result;
}

}  // namespace naive
