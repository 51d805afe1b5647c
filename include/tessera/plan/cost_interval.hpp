// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>
#include <tessera/nn/gemm.hpp>
#include <tessera/plan/cost_networks.hpp>
#include <tessera/plan/fit_cost_network.hpp>
#include <tessera/plan/network_samples.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// What several networks say of one cost.
struct predicted_cost {
  double mean = 0;
  double spread = 0;  ///< standard deviation over the networks; 0 for one network

  friend bool operator==(predicted_cost const&, predicted_cost const&) = default;
};

/// The mean of some predictions of one cost, and their standard deviation, that of n - 1. @pre at least one
inline predicted_cost joined_prediction(vector_view<double const> predictions) noexcept(!checks_indices) {
  auto const n = static_cast<double>(predictions.size());
  double sum = 0, squares = 0;
  for (auto const one : predictions) sum += one;
  auto const mean = sum / n;
  for (auto const one : predictions) squares += (one - mean) * (one - mean);
  return {mean, predictions.size() > 1 ? std::sqrt(squares / (n - 1)) : 0.0};
}

/// Predicts the targets of some samples by several networks, as `predict_samples`.
template <cost_network Network, gemm_policy Gemm>
std::vector<predicted_cost> predict_by_all(host_exec const& exec, Gemm const& gemm, std::vector<Network> const& networks,
                                           network_samples const& samples, vector_view<std::int64_t const> which) {
  std::vector<std::vector<float>> each(networks.size());
  for (std::size_t n = 0; n < networks.size(); ++n) predict_samples(exec, gemm, networks[n], samples, which, each[n]);
  std::vector<predicted_cost> result;
  std::vector<double> of_one(networks.size());
  for (std::size_t i = 0; !each.empty() && i < each[0].size(); ++i) {
    for (std::size_t n = 0; n < networks.size(); ++n) of_one[n] = static_cast<double>(each[n][i]);
    result.push_back(joined_prediction(of_one));
  }
  return result;
}

/// How wide an interval around a prediction is that a measurement falls into nine times of ten. The width is that of the networks' spread
/// and of a noise in proportion to the cost, times a factor that held-out measurements decided.
/// Source: Lei et al., "Distribution-free predictive inference for regression", JASA 113, 2018, section 5.2.
struct cost_interval {
  double relative_noise = 0;  ///< of a measurement, in parts of the cost
  double factor = 0;          ///< of the root of both squares

  double half_width(predicted_cost const& cost) const noexcept {
    return factor * std::sqrt(cost.spread * cost.spread + relative_noise * relative_noise * cost.mean * cost.mean);
  }
  bool covers(predicted_cost const& cost, double measured) const noexcept { return std::fabs(measured - cost.mean) <= half_width(cost); }

  /// The interval that covers the share `coverage` of measurements like these, which the networks were not trained on.
  /// @post a further measurement of the same kind is covered with at least that probability
  /// @throws tessera::error shape_mismatch; invalid_argument for fewer than 10 measurements, or a coverage outside (0, 1).
  static cost_interval of(vector_view<predicted_cost const> predicted, vector_view<float const> measured, double coverage = 0.9) {
    auto const n = predicted.size();
    if (measured.size() != n)
      throw error(errc::shape_mismatch, "cost_interval: one measurement a prediction",
                  {{"predictions", n}, {"measurements", measured.size()}});
    if (n < 10) throw error(errc::invalid_argument, "cost_interval: too few measurements", {{"measurements", n}, {"least", 10}});
    if (!(coverage > 0 && coverage < 1))
      throw error(errc::invalid_argument, "cost_interval: coverage outside (0, 1)", {{"coverage", coverage}});
    cost_interval result{0, 1};
    double squares = 0, means = 0;
    for (std::int64_t i = 0; i < n; ++i) {
      squares += std::pow(static_cast<double>(measured[i]) - predicted[i].mean, 2);
      means += predicted[i].mean * predicted[i].mean;
    }
    // Never 0, so that every prediction but 0 has a width to be scaled.
    result.relative_noise = std::max(std::sqrt(squares / std::max(means, std::numeric_limits<double>::min())), 1e-9);
    std::vector<double> scores;
    for (std::int64_t i = 0; i < n; ++i)
      scores.push_back(std::fabs(static_cast<double>(measured[i]) - predicted[i].mean) /
                       std::max(result.half_width(predicted[i]), std::numeric_limits<double>::min()));
    auto const place = std::min(static_cast<std::int64_t>(std::ceil(coverage * static_cast<double>(n + 1))), n) - 1;
    std::nth_element(scores.begin(), scores.begin() + place, scores.end());
    result.factor = scores[static_cast<std::size_t>(place)];
    return result;
  }

  friend bool operator==(cost_interval const&, cost_interval const&) = default;
};

}  // namespace TESSERA_ABI
}  // namespace tessera
