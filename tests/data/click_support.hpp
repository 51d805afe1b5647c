// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <optional>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include <stdlib.h>

#include <tessera/core/execution.hpp>
#include <tessera/data/raw_rows.hpp>

#include "counting_memory.hpp"
#include "random.hpp"
#include "temporary_folder.hpp"

namespace click_tests {

/// A temporary folder to write logs into.
struct temporary_folder : tessera_tests::temporary_folder {
  std::string path(std::string const& name) const { return file(name); }
  std::string write(std::string const& name, std::string const& text) const {
    std::ofstream out(path(name), std::ios::binary);  // in place: whoever has the file open sees it change
    out << text;
    out.close();
    REQUIRE(out.good());
    return path(name);
  }
};

/// A team, its memory, and the execution over both.
struct host {
  tessera::thread_pool pool;
  tessera_tests::counting_memory memory;
  tessera::host_exec exec;

  explicit host(int threads = 1) : pool(threads), exec(pool, memory) {}
};

/// A sample as the naive parser sees it.
struct click {
  float label = 0;
  std::array<std::int32_t, 13> integers{};
  std::array<std::int64_t, 26> categories{};

  bool operator==(click const&) const = default;
};

inline std::vector<click> samples_of(tessera::raw_rows_view rows) {
  std::vector<click> result(static_cast<std::size_t>(rows.size()));
  for (std::int64_t i = 0; i < rows.size(); ++i) {
    auto& s = result[static_cast<std::size_t>(i)];
    s.label = rows.labels[i];
    for (std::int64_t c = 0; c < 13; ++c) s.integers[static_cast<std::size_t>(c)] = rows.integers(c, i);
    for (std::int64_t c = 0; c < 26; ++c) s.categories[static_cast<std::size_t>(c)] = rows.categories(c, i);
  }
  return result;
}

/// What the layout's description says, by streams and strings. Nothing: some line (from 1, in `bad_line`) is refused.
inline std::optional<std::vector<click>> naive_parse(std::string const& text, std::int64_t& bad_line) {
  std::vector<click> result;
  std::istringstream lines(text);
  bad_line = 0;
  for (std::string line; std::getline(lines, line);) {
    ++bad_line;
    if (!line.empty() && line.back() == '\r') line.pop_back();
    std::vector<std::string> fields;
    std::istringstream split(line + '\t');
    for (std::string field; std::getline(split, field, '\t');) fields.push_back(field);
    if (fields.size() != 40) return std::nullopt;
    click s;
    if (fields[0] != "0" && fields[0] != "1") return std::nullopt;
    s.label = fields[0] == "1" ? 1.0F : 0.0F;
    for (std::size_t i = 0; i < 13; ++i) {
      auto const& field = fields[1 + i];
      s.integers[i] = tessera::click_layout::missing_integer;
      if (field.empty()) continue;
      auto const digits = field[0] == '-' ? field.substr(1) : field;
      if (digits.empty() || digits.find_first_not_of("0123456789") != std::string::npos) return std::nullopt;
      long double const value = std::stold(field);
      if (value > 2147483647.0L || value < -2147483647.0L) return std::nullopt;
      s.integers[i] = static_cast<std::int32_t>(value);
    }
    for (std::size_t i = 0; i < 26; ++i) {
      auto const& field = fields[14 + i];
      s.categories[i] = tessera::click_layout::missing_category;
      if (field.empty()) continue;
      if (field.size() > 8 || field.find_first_not_of("0123456789abcdefABCDEF") != std::string::npos) return std::nullopt;
      s.categories[i] = std::stoll(field, nullptr, 16);
    }
    result.push_back(s);
  }
  return result;
}

/// How a random log looks.
struct log_shape {
  int rows = 100;
  int distinct_values = 20;    // in every column
  double missing = 0.2;        // of the fields
  bool odd_spellings = false;  // short and upper-case categories, leading zeros, negative and extreme integers
  std::string newline = "\n";
  bool final_newline = true;
  std::vector<int> empty_columns{};  // 1 … 39

  log_shape() = default;
};

inline std::string random_log(std::mt19937_64& random, log_shape const& shape) {
  auto const below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  auto const spell = [&](int column) -> std::string {
    char text[32];
    int const value = below(shape.distinct_values);
    if (column <= 13) {
      if (!shape.odd_spellings || below(3) > 0) return std::to_string(value);
      switch (below(5)) {
        case 0: return "2147483647";
        case 1: return "-2147483647";
        case 2: return "-" + std::to_string(value);
        case 3: return "-0";
        default: return "0000" + std::to_string(value);
      }
    }
    auto const bits = (static_cast<unsigned>(value) * 40503U + static_cast<unsigned>(column)) * 2654435761U;
    char const* const format = !shape.odd_spellings ? "%08x" : below(2) == 0 ? "%08X" : "%x";
    std::snprintf(text, sizeof text, format, shape.odd_spellings ? bits >> below(32) : bits);
    return text;
  };
  std::string text;
  for (int row = 0; row < shape.rows; ++row) {
    text += below(4) == 0 ? '1' : '0';
    for (int column = 1; column < 40; ++column) {
      text += '\t';
      bool const empty = std::find(shape.empty_columns.begin(), shape.empty_columns.end(), column) != shape.empty_columns.end();
      if (!empty && below(1000) >= static_cast<int>(1000 * shape.missing)) text += spell(column);
    }
    if (row + 1 < shape.rows || shape.final_newline) text += shape.newline;
  }
  return text;
}

/// `count` lines of 64 bytes each, newline included; line i has i as its first integer and nothing else.
inline std::string lines_of_64_bytes(int count) {
  std::string text;
  for (int i = 0; i < count; ++i) {
    auto const digits = std::to_string(i);
    text += "0\t" + std::string(23 - digits.size(), '0') + digits + std::string(38, '\t') + "\n";
  }
  return text;
}

/// The error that f throws; fails the test when it throws none.
template <class F>
tessera::error thrown_by(F const& f) {
  try {
    f();
  } catch (tessera::error const& e) {
    return e;
  }
  FAIL("no error was thrown");
  return {tessera::errc::invalid_argument, "none"};
}

}  // namespace click_tests
