// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

namespace click_tests {

inline double deviation(std::vector<double> const& x, double& mean) {
  double sum = 0, squares = 0;
  for (auto const v : x) sum += v;
  mean = sum / static_cast<double>(x.size());
  for (auto const v : x) squares += (v - mean) * (v - mean);
  return std::sqrt(squares / static_cast<double>(x.size()));
}

/// Numbers are standard normal.
inline void check_normal(std::vector<double> const& x) {
  double mean = 0, fourth = 0;
  CHECK(deviation(x, mean) == doctest::Approx(1).epsilon(0.02));
  CHECK(std::abs(mean) < 0.025);
  for (auto const v : x) fourth += v * v * v * v / static_cast<double>(x.size());
  CHECK(fourth == doctest::Approx(3).epsilon(0.1));
}

/// 40 ids, of which each came `often`, follow the Zipf law of exponent 0.8, but their order does not.
template <class Map>
void check_zipf(Map const& often, double tolerance) {
  REQUIRE(often.size() == 40);
  std::vector<double> counts;
  double norm = 0, total = 0;
  for (auto const& [id, count] : often) {
    counts.push_back(static_cast<double>(count));
    total += counts.back();
  }
  CHECK_FALSE(std::is_sorted(counts.rbegin(), counts.rend()));
  CHECK_FALSE(std::is_sorted(counts.begin(), counts.end()));
  std::sort(counts.rbegin(), counts.rend());
  for (int k = 1; k <= 40; ++k) norm += std::pow(k, -0.8);
  for (std::size_t k = 0; k < 40; ++k)
    CHECK(counts[k] == doctest::Approx(total * std::pow(static_cast<double>(k) + 1, -0.8) / norm).epsilon(tolerance));
}

/// Samples are clicked with the probability that their logits say, in each of ten groups of the logit, and base_rate of them are.
template <class Sample>
void check_labels(std::vector<Sample> all, double base_rate, double tolerance) {
  std::sort(all.begin(), all.end(), [](auto const& a, auto const& b) { return a.logit < b.logit; });
  auto const n = all.size();
  double total = 0;
  for (std::size_t group = 0; group < 10; ++group) {
    double expected = 0, variance = 0, clicked = 0;
    for (std::size_t i = group * n / 10; i < (group + 1) * n / 10; ++i) {
      auto const p = 1 / (1 + std::exp(-static_cast<double>(all[i].logit)));
      expected += p;
      variance += p * (1 - p);
      clicked += static_cast<double>(all[i].label);
    }
    CHECK(std::abs(clicked - expected) < 4.5 * std::sqrt(variance) + 1);
    total += clicked;
  }
  CHECK(total / static_cast<double>(n) == doctest::Approx(base_rate).epsilon(tolerance));
}

}  // namespace click_tests
