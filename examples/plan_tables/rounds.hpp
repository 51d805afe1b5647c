// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include <tessera/plan/measuring_clock.hpp>

#include "measured.hpp"

namespace plan_tables {

/// What rounds measured: the values of each device, in ms, (devices, rounds). @pre one round or more, here and below
using per_device = std::vector<std::vector<double>>;

/// The median of each device's rounds (devices,).
inline std::vector<double> medians(per_device const& values) {
  std::vector<double> result;
  for (auto const& of_device : values) result.push_back(tessera::detail::median_of(of_device));
  return result;
}

/// The least of each device's rounds (devices,).
inline std::vector<double> least(per_device const& values) {
  std::vector<double> result;
  for (auto const& of_device : values) result.push_back(*std::min_element(of_device.begin(), of_device.end()));
  return result;
}

/// All devices' values of a round (devices,).
inline std::vector<double> of_round(per_device const& values, std::size_t round) {
  std::vector<double> result;
  for (auto const& of_device : values) result.push_back(of_device[round]);
  return result;
}

/// The round in which the slowest device, with its step and both exchanges, is fastest.
inline std::size_t fastest_round(per_device const& compute, per_device const& backward, per_device const& forward) {
  std::size_t fastest = 0;
  auto fastest_ms = std::numeric_limits<double>::infinity();
  for (std::size_t round = 0; round < backward[0].size(); ++round) {
    double slowest = 0;
    for (std::size_t d = 0; d < compute.size(); ++d)
      slowest = std::max(slowest, compute[d][round] + backward[d][round] + forward[d][round]);
    if (slowest < fastest_ms) fastest_ms = slowest, fastest = round;
  }
  return fastest;
}

/// What counts of rounds: of all stages the fastest round, or each stage's medians.
inline measured_costs costs_of_rounds(per_device const& compute, per_device const& backward, per_device const& forward, bool fastest) {
  measured_costs costs(static_cast<std::int64_t>(compute.size()));
  if (fastest) {
    auto const round = fastest_round(compute, backward, forward);
    costs.compute = of_round(compute, round), costs.backward = of_round(backward, round), costs.forward = of_round(forward, round);
  } else {
    costs.compute = medians(compute), costs.backward = medians(backward), costs.forward = medians(forward);
  }
  return costs;
}

}  // namespace plan_tables
