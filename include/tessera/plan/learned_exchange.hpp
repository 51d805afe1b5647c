// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>
#include <tessera/nn/gemm.hpp>
#include <tessera/plan/cost_interval.hpp>
#include <tessera/plan/cost_networks.hpp>
#include <tessera/plan/dense_network.hpp>
#include <tessera/plan/exchange_features.hpp>
#include <tessera/plan/fit_cost_network.hpp>
#include <tessera/plan/learned_compute.hpp>
#include <tessera/plan/measure_exchange.hpp>
#include <tessera/plan/network_samples.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// The way of an exchange: vectors to their samples, or gradients back to their tables.
enum class exchange_way : std::uint8_t { forward, backward };

/// The name of a way, as a model's files have it.
constexpr std::string_view name(exchange_way way) noexcept { return way == exchange_way::forward ? "forward" : "backward"; }

/// A measured exchange of one way, as a network learns from it.
struct exchange_cost_sample {
  exchange_case exchange;
  std::vector<double> cost_ms;  ///< (devices,)
};

/// What an exchange costs each device, of any number of devices, learned from measurements by one set network or several. Devices in another
/// order have the same costs in that order.
class learned_exchange {
 public:
  /// Joins what was fitted. `unit_ms` is what the networks give costs in.
  /// @throws tessera::error invalid_argument for no networks, a unit that is not above 0, and networks of other widths than the features;
  /// and as `dense_network`.
  learned_exchange(feature_statistics statistics, std::vector<set_network> networks, double unit_ms, cost_interval interval)
      : statistics_(std::move(statistics)), networks_(std::move(networks)), unit_ms_(unit_ms), interval_(interval) {
    if (networks_.empty()) throw error(errc::invalid_argument, "learned_exchange: no networks", {{"networks", 0}});
    if (!(unit_ms > 0) || !std::isfinite(unit_ms))
      throw error(errc::invalid_argument, "learned_exchange: a unit that is not above 0", {{"unit_ms", unit_ms}});
    if (statistics_.width() != exchange_feature_count || statistics_.deviations.size() != statistics_.means.size())
      throw error(errc::invalid_argument, "learned_exchange: statistics of other features",
                  {{"features", exchange_feature_count}, {"statistics", statistics_.width()}});
    for (auto const& network : networks_) {
      if (network.input_width() != exchange_feature_count)
        throw error(errc::invalid_argument, "learned_exchange: a network of other features",
                    {{"features", exchange_feature_count}, {"input width", network.input_width()}});
      rows_.push_back(detail::dense_network_of(network.row_layers(), true));
      heads_.emplace_back(detail::dense_network_of(network.head_layers(), false));
    }
  }

  feature_statistics const& statistics() const noexcept { return statistics_; }
  std::vector<set_network> const& networks() const noexcept { return networks_; }
  double unit_ms() const noexcept { return unit_ms_; }
  cost_interval const& interval() const noexcept { return interval_; }

  /// The costs of all devices in milliseconds, the means over networks: `columns` and `ms` (devices,), `starts_ms` (devices,) or empty where
  /// all start together. @pre as many starts and places as columns
  void cost_ms(vector_view<float const> columns, vector_view<float const> starts_ms, std::int64_t batch_samples,
               vector_view<float> ms) const noexcept(!checks_indices) {
    std::fill(ms.begin(), ms.end(), 0.0F);
    visit(columns, starts_ms, batch_samples, [&](std::int64_t device, std::size_t, double cost) {
      ms[device] += static_cast<float>(cost / static_cast<double>(rows_.size()));
    });
  }
  /// As above, with how far the networks disagree. @throws tessera::error shape_mismatch for other than one start a device, or none.
  std::vector<predicted_cost> predict(vector_view<float const> columns, vector_view<float const> starts_ms,
                                      std::int64_t batch_samples) const {
    if (!starts_ms.empty() && starts_ms.size() != columns.size())
      throw error(errc::shape_mismatch, "learned_exchange: one start a device",
                  {{"devices", columns.size()}, {"starts", starts_ms.size()}});
    std::vector<double> each(static_cast<std::size_t>(columns.size()) * rows_.size());
    visit(columns, starts_ms, batch_samples,
          [&](std::int64_t device, std::size_t n, double cost) { each[static_cast<std::size_t>(device) * rows_.size() + n] = cost; });
    std::vector<predicted_cost> result;
    auto const networks = static_cast<std::int64_t>(rows_.size());
    for (std::int64_t d = 0; d < columns.size(); ++d) result.push_back(joined_prediction({each.data() + d * networks, networks}));
    return result;
  }

 private:
  static constexpr std::int64_t features = exchange_feature_count, most_representation = dense_network::most_width;

  // Gives a device's cost from its features, and from the mean and the largest of all representations. What the latter two add to the first layer is
  // the same for all devices: it is computed once.
  struct head_network {
    dense_network of_pooled, of_features;
    std::optional<dense_network> rest;  // the layers behind the first

    explicit head_network(dense_network const& whole)
        : of_pooled(part(whole.layers()[0], features, whole.inputs(), true)), of_features(part(whole.layers()[0], 0, features, false)) {
      if (whole.layers().size() > 1) rest.emplace(std::vector<dense_layer>(whole.layers().begin() + 1, whole.layers().end()));
    }

    float operator()(float const* of_device, float const* pooled_part) const noexcept {
      float first[dense_network::most_width], cost = 0;
      of_features(of_device, first);
      if (!rest) return first[0] + pooled_part[0];
      for (std::int64_t i = 0; i < of_features.outputs(); ++i) first[i] = std::max(first[i] + pooled_part[i], 0.0F);
      (*rest)(first, &cost);
      return cost;
    }

   private:
    // What inputs [begin, end) of a layer add.
    static dense_network part(dense_layer const& layer, std::int64_t begin, std::int64_t end, bool with_bias) {
      dense_layer some{end - begin, layer.outputs, {}, with_bias ? layer.bias : std::vector<float>(layer.bias.size())};
      for (std::int64_t o = 0; o < layer.outputs; ++o)
        some.weight.insert(some.weight.end(), layer.weight.begin() + o * layer.inputs + begin,
                           layer.weight.begin() + o * layer.inputs + end);
      return dense_network({std::move(some)});
    }
  };

  // Calls f(device, network, milliseconds) for all of them.
  template <class F>
  void visit(vector_view<float const> columns, vector_view<float const> starts_ms, std::int64_t batch_samples, F const& f) const {
    exchange_features const of(columns, starts_ms, batch_samples);
    float of_device[features], one[most_representation], pooled_part[dense_network::most_width];
    float pooled[2 * most_representation];  // the mean and the largest of all representations
    auto const write = [&](std::int64_t device) {
      of.write(device, of_device);
      statistics_.normalise({of_device, features});
    };
    for (std::size_t n = 0; n < rows_.size(); ++n) {
      auto const width = rows_[n].outputs();
      float *const mean = pooled, *const largest = mean + width;
      std::fill_n(mean, 2 * width, 0.0F);  // no representation is below 0, behind a ReLU
      for (std::int64_t d = 0; d < columns.size(); ++d) {
        write(d);
        rows_[n](of_device, one);
        for (std::int64_t i = 0; i < width; ++i) mean[i] += one[i], largest[i] = std::max(largest[i], one[i]);
      }
      for (std::int64_t i = 0; i < width; ++i) mean[i] *= 1.0F / static_cast<float>(columns.size());
      heads_[n].of_pooled(pooled, pooled_part);
      for (std::int64_t d = 0; d < columns.size(); ++d) {
        write(d);
        f(d, n, static_cast<double>(heads_[n](of_device, pooled_part)) * unit_ms_);
      }
    }
  }

  feature_statistics statistics_;
  std::vector<set_network> networks_;
  double unit_ms_;
  cost_interval interval_;
  std::vector<dense_network> rows_;
  std::vector<head_network> heads_;
};

/// How a model of exchanges is fitted.
struct exchange_fit_options {
  std::vector<std::int64_t> hidden_of_rows{64};  ///< between the features and the representation
  std::int64_t representation = 32;
  std::vector<std::int64_t> hidden_of_head{64, 32};
  fit_options fit{};
};

/// Learns what exchanges of one way cost, of any mixture of numbers of devices. A feature that is the same in all samples is ignored.
/// @throws tessera::error shape_mismatch for other than one cost and one start a device, naming the sample; and as `fit_cost_networks`.
template <gemm_policy Gemm>
fitted_cost<learned_exchange> fit_learned_exchange(host_exec const& exec, Gemm const& gemm, exchange_way way,
                                                   vector_view<exchange_cost_sample const> measured,
                                                   exchange_fit_options const& options = {}) {
  network_samples samples(exchange_feature_count);
  std::vector<float> features, costs;
  for (std::int64_t s = 0; s < measured.size(); ++s) {
    auto const& of = measured[s];
    if (of.cost_ms.size() != of.exchange.dims.size() || of.exchange.start_ms.size() != of.exchange.dims.size())
      throw error(
          errc::shape_mismatch, "fit_learned_exchange: one cost and one start a device",
          {{"sample", s}, {"devices", of.exchange.dims.size()}, {"costs", of.cost_ms.size()}, {"starts", of.exchange.start_ms.size()}});
    std::vector<float> const columns(of.exchange.dims.begin(), of.exchange.dims.end()),
        starts(of.exchange.start_ms.begin(), of.exchange.start_ms.end());
    write_exchange_features(columns, way == exchange_way::forward ? vector_view<float const>(starts) : vector_view<float const>{},
                            of.exchange.batch_samples, features);
    costs.assign(of.cost_ms.begin(), of.cost_ms.end());
    samples.add(features, costs);
  }
  auto statistics = feature_statistics::of({samples.features.data(), samples.rows(), exchange_feature_count});
  statistics.ignore_constants();
  for (std::int64_t r = 0; r < samples.rows(); ++r)
    statistics.normalise({samples.features.data() + r * exchange_feature_count, exchange_feature_count});
  auto const unit_ms = detail::mean_target(samples);
  for (auto& target : samples.targets) target = static_cast<float>(static_cast<double>(target) / unit_ms);
  std::vector<std::int64_t> of_rows{exchange_feature_count}, of_head{exchange_feature_count + 2 * options.representation};
  of_rows.insert(of_rows.end(), options.hidden_of_rows.begin(), options.hidden_of_rows.end());
  of_rows.push_back(options.representation);
  of_head.insert(of_head.end(), options.hidden_of_head.begin(), options.hidden_of_head.end());
  of_head.push_back(1);
  auto fitted = fit_cost_networks(
      exec, gemm, samples,
      [&](random_seed seed) {
        return set_network(exec, {of_rows, of_head, seed});
      },
      options.fit);
  auto const interval = detail::interval_of(exec, gemm, fitted, samples);
  detail::scale_reports(fitted.reports, unit_ms);
  return {learned_exchange(std::move(statistics), std::move(fitted.networks), unit_ms, interval), std::move(fitted.reports),
          std::move(fitted.split)};
}

}  // namespace TESSERA_ABI
}  // namespace tessera
