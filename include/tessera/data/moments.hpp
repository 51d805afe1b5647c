// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>

#include <tessera/core/exact_sum.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// Count, mean and variance of finite numbers. Sums are exact, so that neither order nor parts change a bit of the result.
struct moments {
  std::int64_t count = 0;
  exact_sum sum{};      ///< of the numbers
  exact_sum squares{};  ///< the sum of the numbers' squares

  /// Adds a number. @pre it is finite
  void add(double x) noexcept {
    ++count;
    sum.add(x);
    squares.add_product(x, x);
  }

  /// @post equal to the moments of the numbers of both
  void merge(moments const& other) noexcept {
    count += other.count;
    sum.merge(other.sum);
    squares.merge(other.squares);
  }

  /// The mean of the numbers, within rounding of the last bit; 0 without numbers.
  double mean() const { return mean_parts()[0]; }

  /// The mean squared deviation of all the numbers, not of a sample; exactly 0 where they are equal, and without numbers.
  double variance() const {
    if (count == 0) return 0;
    // The sum of (x - mean)^2 = x^2 - 2 mean x + mean^2, in which the mean has twice a double's bits.
    auto deviations = squares;
    auto const n = static_cast<double>(count);
    auto const mean = mean_parts();
    for (auto const a : mean) {
      for (auto const part : sum.parts()) deviations.add_product(-2 * a, part);
      for (auto const b : mean) {
        auto const product = a * b;
        deviations.add_product(n, product);
        deviations.add_product(n, std::fma(a, b, -product));
      }
    }
    return std::max(0.0, deviations.value()) / n;
  }

  friend bool operator==(moments const&, moments const&) = default;

 private:
  // The mean, and what is left of it: together with twice a double's bits.
  std::array<double, 2> mean_parts() const {
    if (count == 0) return {0, 0};
    auto const n = static_cast<double>(count);
    auto const nearly = sum.value() / n;
    auto rest = sum;
    rest.add_product(-nearly, n);
    auto const correction = rest.value() / n, mean = nearly + correction;
    return {mean, correction - (mean - nearly)};
  }
};

}  // namespace TESSERA_ABI
}  // namespace tessera
