// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>
#include <tessera/nn/gemm.hpp>
#include <tessera/plan/cost_networks.hpp>
#include <tessera/plan/fit_cost_network.hpp>
#include <tessera/plan/learned_compute.hpp>
#include <tessera/plan/learned_exchange.hpp>
#include <tessera/plan/measure_exchange.hpp>
#include <tessera/plan/network_samples.hpp>
#include <tessera/plan/published_cost.hpp>
#include <tessera/plan/shard_features.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

namespace detail {

inline feature_scaling scaling_of(feature_statistics const& statistics) {
  return {{statistics.means.begin(), statistics.means.end()}, {statistics.deviations.begin(), statistics.deviations.end()}};
}

}  // namespace detail

/// The published computation network, fitted by `fit_learned_compute` with `compute_fit_options::published()`.
/// @throws tessera::error invalid_argument for a model of other features, of several networks, of another unit than milliseconds, or of
/// empty devices that are free.
inline computation_network computation_network_of(learned_compute const& fitted) {
  auto const& network = fitted.networks()[0];
  if (fitted.features() != shard_features::published || fitted.networks().size() != 1 || fitted.unit_ms() != 1 || network.empty_is_free())
    throw error(errc::invalid_argument, "computation_network_of: a model that is not as published",
                {{"features", name(fitted.features())},
                 {"networks", fitted.networks().size()},
                 {"unit_ms", fitted.unit_ms()},
                 {"empty devices are free", network.empty_is_free() ? 1 : 0}});
  return {detail::scaling_of(fitted.statistics()), detail::dense_network_of(network.row_layers(), true),
          detail::dense_network_of(network.head_layers(), false)};
}

/// Trains the published network of exchanges on those of one number of devices, and keeps the best start. It reads the dims of all devices,
/// and in the forward their starts behind them. With `computation_network_of` it makes a `published_cost`.
/// Source: Zha et al., "Pre-train and Search", MLSys 2023, Figure 5 and Appendix C.
/// @throws tessera::error invalid_argument for no samples; shape_mismatch, naming the sample, for one of another number of devices than the
/// first; and as `fit_cost_networks`.
template <gemm_policy Gemm>
fitted_cost<exchange_network> fit_published_exchange(host_exec const& exec, Gemm const& gemm, exchange_way way,
                                                     vector_view<exchange_cost_sample const> measured, fit_options const& options = {},
                                                     std::vector<std::int64_t> const& hidden = {128, 64, 32, 16}) {
  if (measured.empty()) throw error(errc::invalid_argument, "fit_published_exchange: no samples", {{"samples", 0}});
  auto const devices = static_cast<std::int64_t>(measured[0].exchange.dims.size());
  network_samples samples(devices * (way == exchange_way::forward ? 2 : 1));
  for (std::int64_t s = 0; s < measured.size(); ++s) {
    auto const& of = measured[s];
    for (auto const found : {of.exchange.dims.size(), of.exchange.start_ms.size(), of.cost_ms.size()})
      if (static_cast<std::int64_t>(found) != devices)
        throw error(errc::shape_mismatch, "fit_published_exchange: a sample of another number of devices",
                    {{"sample", s}, {"devices", found}, {"expected", devices}});
    std::vector<float> row(of.exchange.dims.begin(), of.exchange.dims.end());
    if (way == exchange_way::forward) row.insert(row.end(), of.exchange.start_ms.begin(), of.exchange.start_ms.end());
    samples.add(row, std::vector<float>(of.cost_ms.begin(), of.cost_ms.end()));
  }
  auto statistics = feature_statistics::of({samples.features.data(), samples.rows(), samples.width});
  for (std::int64_t r = 0; r < samples.rows(); ++r) statistics.normalise({samples.features.data() + r * samples.width, samples.width});
  std::vector<std::int64_t> widths{samples.width};
  widths.insert(widths.end(), hidden.begin(), hidden.end());
  widths.push_back(devices);
  auto fitted = fit_cost_networks(
      exec, gemm, samples,
      [&](random_seed seed) {
        return row_network(exec, {widths, seed});
      },
      options);
  return {{detail::scaling_of(statistics), detail::dense_network_of(fitted.networks.front().layers(), false)},
          std::move(fitted.reports),
          std::move(fitted.split)};
}

}  // namespace TESSERA_ABI
}  // namespace tessera
