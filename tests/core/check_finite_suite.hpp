// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <tessera/core/check_finite.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/row_formats.hpp>

#include "../support/random.hpp"

namespace check_finite_tests {

template <class T>
T as(double value) {
  if constexpr (std::is_same_v<T, double>)
    return value;
  else
    return tessera::round_to<T>(static_cast<float>(value));
}

template <class F>
tessera::error refusal(F const& f) {
  try {
    f();
  } catch (tessera::error const& e) {
    return e;
  }
  FAIL("nothing was refused");
  return tessera::error(tessera::errc::io_error, "");
}

}  // namespace check_finite_tests

/// What every execution must show of elements T. `harness.check(what, values)`, `harness.check(what, values, rows, columns, stride)`.
template <class T, class Harness>
void check_finite_suite(Harness const& harness) {
  using check_finite_tests::as;
  using check_finite_tests::refusal;
  constexpr double infinity = std::numeric_limits<double>::infinity();
  std::string const infinite = std::is_same_v<T, tessera::float8_e4m3> ? "nan" : "inf";  // which has no infinity

  SUBCASE("what, where and the value of the first") {
    auto const seed = tessera_tests::draw_seed();
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    std::vector<T> values;
    for (auto const x : tessera_tests::random_floats(random, 100'003)) values.push_back(as<T>(static_cast<double>(x)));
    harness.check("gradients", values);
    auto first = std::int64_t{100'003};
    for (auto const place : tessera_tests::random_integers<std::int64_t>(random, 3, 0, 100'002)) {
      values[static_cast<std::size_t>(place)] = as<T>(std::nan(""));
      first = std::min(first, place);
      auto const e = refusal([&] { harness.check("gradients", values); });
      CHECK(e.code() == tessera::errc::invalid_argument);
      CHECK(e.sentence() == "gradients: a value is not finite");
      CHECK(e.value("index") == std::to_string(first));
      CHECK(e.value("value").find("nan") != std::string_view::npos);
    }
    values.assign(values.size(), T{});
    values.back() = as<T>(-infinity);
    CHECK(std::string(refusal([&] { harness.check("rows", values); }).what()) ==
          "rows: a value is not finite (index 100002, value -" + infinite + ")");
  }
  SUBCASE("of a matrix row and column; what lies between the rows is not looked at") {
    std::vector<T> values(4 * 5, as<T>(infinity));
    for (std::size_t r = 0; r < 4; ++r)
      for (std::size_t c = 0; c < 3; ++c) values[5 * r + c] = as<T>(1);
    harness.check("row", values, 4, 3, 5);
    values[3 * 5 + 1] = as<T>(-infinity);
    values[2 * 5 + 2] = as<T>(std::nan(""));
    auto e = refusal([&] { harness.check("logits", values, 4, 3, 5); });
    CHECK(e.value("row") == "2");
    CHECK(e.value("column") == "2");
    values[2 * 5 + 2] = T{};
    e = refusal([&] { harness.check("logits", values, 4, 3, 5); });
    CHECK(std::string(e.what()) == "logits: a value is not finite (row 3, column 1, value -" + infinite + ")");
    e = refusal([&] { harness.check("dense", values, 4, 5, 5); });
    CHECK(std::string(e.what()) == "dense: a value is not finite (row 0, column 3, value " + infinite + ")");
  }
  SUBCASE("nothing") {
    harness.check("none", std::vector<T>());
    harness.check("none", std::vector<T>(), 0, 0, 0);
    harness.check("none", std::vector<T>(), 3, 0, 0);
  }
}
