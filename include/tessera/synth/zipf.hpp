// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// Draws ranks 0 … count - 1 with probability proportional to (1 + rank)^-exponent, so that rank 0 is the most frequent.
///
/// The law is exact for every exponent, among them 0 (uniform) and 1. An object has constant size, and a draw takes fewer than 1.2 trials in
/// the mean. An object never changes, so any number of threads may use it. Source: Hörmann, Derflinger, "Rejection-inversion to generate
/// variates from monotone discrete distributions", ACM TOMACS 6(3), 1996.
class zipf_distribution {
 public:
  /// The largest count.
  static constexpr std::int64_t most_ranks = std::int64_t{1} << 48;
  /// The largest exponent.
  static constexpr double most_exponent = 64;

  /// Makes the law of `count` ranks.
  /// @throws tessera::error invalid_argument unless 1 <= count <= most_ranks and 0 <= exponent <= most_exponent.
  zipf_distribution(std::int64_t count, double exponent) : count_(count), exponent_(exponent) {
    if (count < 1 || count > most_ranks)
      throw error(errc::invalid_argument, "zipf_distribution: number of ranks", {{"count", count}, {"least", 1}, {"most", most_ranks}});
    if (!(exponent >= 0 && exponent <= most_exponent))
      throw error(errc::invalid_argument, "zipf_distribution: exponent", {{"exponent", exponent}, {"least", 0}, {"most", most_exponent}});
    least_ = area_to(1.5) - 1;
    most_ = area_to(static_cast<double>(count) + 0.5);
    sure_distance_ = 2 - inverse_area(area_to(2.5) - weight(2));
  }

  /// Returns how many ranks there are.
  std::int64_t count() const noexcept { return count_; }
  /// Returns the exponent.
  double exponent() const noexcept { return exponent_; }

  /// Draws a rank. `uniform()` returns independent doubles in [0, 1); each trial calls it once.
  template <class Uniform>
  std::int64_t operator()(Uniform&& uniform) const {
    for (;;) {
      auto const area = most_ + uniform() * (least_ - most_);
      auto const x = inverse_area(area);
      auto const nearest = std::clamp(std::floor(x + 0.5), 1.0, static_cast<double>(count_));
      // Below the distance every x is under its bar; beyond, the bar's own area decides.
      if (nearest - x <= sure_distance_ || area >= area_to(nearest + 0.5) - weight(nearest)) return static_cast<std::int64_t>(nearest) - 1;
    }
  }

 private:
  double weight(double x) const noexcept { return std::exp(-exponent_ * std::log(x)); }

  // The integral of weight from 1 to x, written so that nothing cancels near exponent 1.
  double area_to(double x) const noexcept {
    auto const logarithm = std::log(x);
    auto const t = (1 - exponent_) * logarithm;
    return logarithm * (std::abs(t) < 1e-8 ? 1 + t / 2 : std::expm1(t) / t);
  }
  double inverse_area(double area) const noexcept {
    auto const t = std::max((1 - exponent_) * area, -1.0);
    return std::exp(area * (std::abs(t) < 1e-8 ? 1 - t / 2 : std::log1p(t) / t));
  }

  std::int64_t count_;
  double exponent_;
  double least_ = 0;  // area at which the first rank's bar begins
  double most_ = 0;   // area at which the last rank's ends
  double sure_distance_ = 0;
};

}  // namespace TESSERA_ABI
}  // namespace tessera
