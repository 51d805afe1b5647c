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
#include <tessera/plan/layer_evaluator.hpp>
#include <tessera/plan/learned_compute.hpp>
#include <tessera/plan/learned_exchange.hpp>
#include <tessera/plan/measure_exchange.hpp>
#include <tessera/plan/network_samples.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// The published network of exchanges, of a fixed number of devices and one batch size: an MLP from the dims of all devices, and in the forward
/// their starts behind them, to the costs of all devices in milliseconds. Devices in another order may have other costs.
/// Source: Zha et al., "Pre-train and Search", MLSys 2023, Figure 5 and Appendix C.
class published_exchange {
 public:
  /// @throws tessera::error invalid_argument for networks and statistics of other numbers of devices.
  published_exchange(exchange_way way, feature_statistics statistics, row_network network)
      : way_(way), statistics_(std::move(statistics)), network_(std::move(network)), layers_(network_.layers(), activation::identity) {
    auto const expected = devices() * (way == exchange_way::forward ? 2 : 1);
    if (network_.input_width() != expected || statistics_.width() != expected || statistics_.deviations.size() != statistics_.means.size())
      throw error(
          errc::invalid_argument, "published_exchange: a network or statistics of another number of devices",
          {{"devices", devices()}, {"input width", network_.input_width()}, {"statistics", statistics_.width()}, {"expected", expected}});
  }

  exchange_way way() const noexcept { return way_; }
  std::int64_t devices() const noexcept { return network_.layers().output_width(); }
  feature_statistics const& statistics() const noexcept { return statistics_; }
  row_network const& network() const noexcept { return network_; }
  row_network& network() noexcept { return network_; }

  /// The costs of all devices in milliseconds, (devices,) each; `starts_ms` count in the forward alone.
  /// @pre as many columns, starts and places as devices
  void cost_ms(vector_view<float const> columns, vector_view<float const> starts_ms, vector_view<float> ms) const
      noexcept(!checks_indices) {
    float row[detail::layer_evaluator::most_width];
    vector_view<float> const features(row, statistics_.width());
    write_features(way_, columns, starts_ms, row);
    statistics_.normalise(features);
    layers_(row, ms.data());
  }

  /// Writes what the network reads, before it is normalised.
  static void write_features(exchange_way way, vector_view<float const> columns, vector_view<float const> starts_ms, float* to) noexcept {
    to = std::copy(columns.begin(), columns.end(), to);
    if (way == exchange_way::forward) std::copy(starts_ms.begin(), starts_ms.end(), to);
  }

 private:
  exchange_way way_;
  feature_statistics statistics_;
  row_network network_;
  detail::layer_evaluator layers_;
};

/// Trains the published network on exchanges of one number of devices, and keeps the best start.
/// @throws tessera::error invalid_argument for no samples; shape_mismatch, naming the sample, for one of another number of devices than the
/// first; and as `fit_cost_networks`.
template <gemm_policy Gemm>
fitted_cost<published_exchange> fit_published_exchange(host_exec const& exec, Gemm const& gemm, exchange_way way,
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
    std::vector<float> const columns(of.exchange.dims.begin(), of.exchange.dims.end()),
        starts(of.exchange.start_ms.begin(), of.exchange.start_ms.end());
    std::vector<float> row(static_cast<std::size_t>(samples.width));
    published_exchange::write_features(way, columns, starts, row.data());
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
  return {published_exchange(way, std::move(statistics), std::move(fitted.networks.front())), std::move(fitted.reports),
          std::move(fitted.split)};
}

}  // namespace TESSERA_ABI
}  // namespace tessera
