// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <tessera/core/error.hpp>
#include <tessera/core/view.hpp>
#include <tessera/plan/cost_interval.hpp>
#include <tessera/plan/found_plan.hpp>
#include <tessera/plan/learned_cost.hpp>
#include <tessera/plan/table_profile.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// What the embeddings of a step cost a device, in milliseconds.
struct step_costs {
  double compute_ms = 0;   ///< lookups, backwards and updates
  double backward_ms = 0;  ///< the exchange of gradients
  double forward_ms = 0;   ///< the exchange of vectors

  double total_ms() const noexcept { return compute_ms + backward_ms + forward_ms; }
  friend bool operator==(step_costs const&, step_costs const&) = default;
};

/// What was predicted of a plan, and by which model.
struct plan_prediction {
  std::string model;               ///< its digest: `learned_cost_digest`, `published_cost_digest`, or another of digits and letters
  std::string machine;             ///< on which the model was measured; empty: it does not say
  std::int64_t batch_samples = 0;  ///< of a step, on all devices together
  double relative_error = 0;       ///< that the model states of itself, in parts of a cost (`stated_error`); 0: it states none
  std::vector<step_costs> devices;
  std::vector<std::int64_t> bytes;  ///< that each device takes, (devices,)
  /// Those of all tables' rows, as profiles name them; empty: tables differ, or it does not say.
  std::string optimizer = {}, row_format = {};

  /// The largest total of a device.
  double cost_ms() const noexcept {
    double most = 0;
    for (auto const& device : devices) most = std::max(most, device.total_ms());
    return most;
  }
  friend bool operator==(plan_prediction const&, plan_prediction const&) = default;
};

/// The error that a model states: nine of ten held-out measurements were within this part of their cost, in the worst of its three parts, where
/// networks agree. 0 for a model that was fitted to too few measurements to say.
inline double stated_error(learned_cost const& cost) noexcept {
  auto const of = [](cost_interval const& interval) { return interval.factor * interval.relative_noise; };
  return std::max({of(cost.compute.interval()), of(cost.forward.interval()), of(cost.backward.interval())});
}

/// What a search predicted of a plan by the model of this digest. A step has as many samples as `batch_samples_of` says. A cost below 0, as
/// networks may say of a device with next to nothing, is 0 here.
inline plan_prediction prediction_of(found_plan const& found, std::string model, std::string machine = {}, double relative_error = 0) {
  auto const of_all = [&](std::string table_profile::*field) {
    auto const& tables = found.tables;
    auto const is_first = [&](table_profile const& table) { return table.*field == tables[0].*field; };
    return !tables.empty() && std::all_of(tables.begin(), tables.end(), is_first) ? tables[0].*field : std::string();
  };
  plan_prediction result{std::move(model),
                         std::move(machine),
                         batch_samples_of(found.tables),
                         relative_error,
                         {},
                         found.bytes,
                         of_all(&table_profile::optimizer),
                         of_all(&table_profile::row_format)};
  for (std::size_t d = 0; d < found.costs.compute.size(); ++d)
    result.devices.push_back({std::max(0.0, static_cast<double>(found.costs.compute[d])),
                              std::max(0.0, static_cast<double>(found.costs.backward[d])),
                              std::max(0.0, static_cast<double>(found.costs.forward[d]))});
  return result;
}

/// How far predictions were from what was measured: the largest |measured - predicted| / predicted of a device's total. A device of which
/// nothing was predicted, 0 milliseconds, is left out. @throws tessera::error shape_mismatch for other numbers of devices.
inline double prediction_error(vector_view<step_costs const> predicted, vector_view<step_costs const> measured) {
  if (predicted.size() != measured.size())
    throw error(errc::shape_mismatch, "prediction_error: one measurement a device",
                {{"predicted", predicted.size()}, {"measured", measured.size()}});
  double most = 0;
  for (std::int64_t d = 0; d < predicted.size(); ++d)
    if (auto const total = predicted[d].total_ms(); total > 0) most = std::max(most, std::fabs(measured[d].total_ms() - total) / total);
  return most;
}

}  // namespace TESSERA_ABI
}  // namespace tessera
