// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

namespace tessera_tests {

/// Of two lists of as many numbers, else the test fails. NaN where a NaN stands in one of them alone.
inline double largest_difference(std::vector<float> const& a, std::vector<float> const& b) {
  REQUIRE(a.size() == b.size());
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    auto const difference = std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
    if (std::isnan(a[i]) != std::isnan(b[i])) return difference;
    largest = std::max(largest, difference);
  }
  return largest;
}

}  // namespace tessera_tests
