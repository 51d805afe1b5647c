// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include <stdlib.h>

#include <tessera/core/execution.hpp>

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
