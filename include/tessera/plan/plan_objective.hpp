// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <limits>
#include <string_view>

#include <tessera/core/config.hpp>
#include <tessera/plan/cost_model.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// What a search makes small.
enum class plan_objective {
  cost,             ///< `plan_cost`, as DreamShard's and NeuroShard's: the time of a step whose stages follow each other
  compute_balance,  ///< 1 - the least computation of a device / the largest: as AutoShard's
  /// The largest of all devices' computations, backward and forward exchanges: the time between two steps of a trainer whose stages work on
  /// different batches at once. A forward exchange counts with its wait for the last device, as in `device_costs`.
  slowest_stage,
};

/// Its name, as above.
constexpr std::string_view name(plan_objective objective) noexcept {
  if (objective == plan_objective::compute_balance) return "compute_balance";
  return objective == plan_objective::slowest_stage ? "slowest_stage" : "cost";
}

namespace detail {

// What a device adds to an objective.
inline float load_of(device_costs const& costs, std::size_t d, plan_objective objective) {
  if (objective == plan_objective::compute_balance) return costs.compute[d];
  if (objective == plan_objective::cost) return costs.compute[d] + costs.backward[d] + costs.forward[d];
  return std::max({costs.compute[d], costs.backward[d], costs.forward[d]});
}

}  // namespace detail

/// The value of an objective of a plan with these costs.
inline float objective_of(device_costs const& costs, plan_objective objective) {
  auto least = std::numeric_limits<float>::infinity(), most = -least;
  for (std::size_t d = 0; d < costs.compute.size(); ++d) {
    auto const load = detail::load_of(costs, d, objective);
    least = std::min(least, load);
    most = std::max(most, load);
  }
  if (objective == plan_objective::compute_balance) return most > 0 ? 1 - least / most : 0;
  return most;
}

}  // namespace TESSERA_ABI
}  // namespace tessera
