// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <limits>

#include <tessera/core/config.hpp>

namespace tessera {
inline namespace TESSERA_ABI {
namespace detail {

/// The incomplete beta function I_x(a, b), regularised: by its continued fraction, with Lentz's method. @pre a, b > 0, 0 <= x <= 1
inline double incomplete_beta(double a, double b, double x) {
  if (x <= 0 || x >= 1) return x <= 0 ? 0 : 1;
  if (x > (a + 1) / (a + b + 2)) return 1 - incomplete_beta(b, a, 1 - x);  // where the fraction converges fast
  constexpr double tiny = 1e-300, close = 1e-15;
  auto const front = std::exp(std::lgamma(a + b) - std::lgamma(a) - std::lgamma(b) + a * std::log(x) + b * std::log1p(-x)) / a;
  auto const away_from_zero = [](double value) { return std::abs(value) < tiny ? tiny : value; };
  double c = 1, d = 1 / away_from_zero(1 - (a + b) * x / (a + 1)), fraction = d;
  for (int m = 1; m < 1000; ++m) {
    auto const even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m));
    d = 1 / away_from_zero(1 + even * d);
    c = away_from_zero(1 + even / c);
    fraction *= d * c;
    auto const odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1));
    d = 1 / away_from_zero(1 + odd * d);
    c = away_from_zero(1 + odd / c);
    fraction *= d * c;
    if (std::abs(d * c - 1) < close) break;
  }
  return front * fraction;
}

/// The t that a variable of Student's distribution stays below in absolute value with so much probability. @pre 0 <= confidence < 1,
/// degrees >= 1
inline double student_t_bound(double confidence, double degrees) {
  // The share outside (-t, t) is I_x(degrees / 2, 1 / 2) with x = degrees / (degrees + t t), which falls as t grows.
  auto const outside = [&](double t) { return incomplete_beta(degrees / 2, 0.5, degrees / (degrees + t * t)); };
  double low = 0, high = 1;
  while (outside(high) > 1 - confidence && high < std::numeric_limits<double>::max() / 4) high *= 2;
  for (int step = 0; step < 200 && high - low > 1e-12 * high; ++step) {
    auto const middle = low + (high - low) / 2;
    (outside(middle) > 1 - confidence ? low : high) = middle;
  }
  return high;
}

}  // namespace detail
}  // namespace TESSERA_ABI
}  // namespace tessera
