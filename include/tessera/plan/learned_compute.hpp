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
#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>
#include <tessera/nn/gemm.hpp>
#include <tessera/plan/cost_interval.hpp>
#include <tessera/plan/cost_networks.hpp>
#include <tessera/plan/dense_network.hpp>
#include <tessera/plan/fit_cost_network.hpp>
#include <tessera/plan/network_samples.hpp>
#include <tessera/plan/shard_features.hpp>
#include <tessera/plan/table_profile.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// The measured shards of a device, as a network learns from them.
struct compute_cost_sample {
  std::vector<table_profile> shards;
  double cost_ms = 0;
};

/// What a device's tables cost in a step, learned from measurements by one network or several. A shard has a representation, those of all
/// networks side by side; the cost is a function of the sum of the representations.
class learned_compute {
 public:
  /// Joins what was fitted. `unit_ms` is what the networks give costs in.
  /// @throws tessera::error invalid_argument for no networks, a unit that is not above 0, and networks of other widths than the features;
  /// and as `dense_network`.
  learned_compute(shard_features features, feature_statistics statistics, std::vector<sum_network> networks, double unit_ms,
                  cost_interval interval)
      : features_(features), statistics_(std::move(statistics)), networks_(std::move(networks)), unit_ms_(unit_ms), interval_(interval) {
    auto const width = static_cast<std::int64_t>(shard_feature_names(features).size());
    if (networks_.empty()) throw error(errc::invalid_argument, "learned_compute: no networks", {{"networks", 0}});
    if (!(unit_ms > 0) || !std::isfinite(unit_ms))
      throw error(errc::invalid_argument, "learned_compute: a unit that is not above 0", {{"unit_ms", unit_ms}});
    if (statistics_.width() != width || statistics_.deviations.size() != statistics_.means.size())
      throw error(errc::invalid_argument, "learned_compute: statistics of other features",
                  {{"features", width}, {"statistics", statistics_.width()}});
    std::vector<float> const zeros(static_cast<std::size_t>(networks_[0].representation_width()));
    for (auto const& network : networks_) {
      if (network.input_width() != width || network.representation_width() != networks_[0].representation_width())
        throw error(errc::invalid_argument, "learned_compute: a network of other features or another representation",
                    {{"features", width}, {"input width", network.input_width()}, {"representation", network.representation_width()}});
      rows_.push_back(detail::dense_network_of(network.row_layers(), true));
      heads_.push_back(detail::dense_network_of(network.head_layers(), false));
      of_nothing_.push_back(network.empty_is_free() ? head(heads_.size() - 1, zeros.data()) : 0.0F);
    }
  }

  shard_features features() const noexcept { return features_; }
  feature_statistics const& statistics() const noexcept { return statistics_; }
  std::vector<sum_network> const& networks() const noexcept { return networks_; }
  double unit_ms() const noexcept { return unit_ms_; }
  cost_interval const& interval() const noexcept { return interval_; }

  /// The floats of a shard's representation.
  std::int64_t representation_width() const noexcept {
    return networks_[0].representation_width() * static_cast<std::int64_t>(networks_.size());
  }

  /// Writes the representations of shards, (shards, representation_width()).
  void represent(vector_view<table_profile const> shards, matrix_view<float> to) const noexcept(!checks_indices) {
    float features[most_features];
    auto const width = networks_[0].representation_width();
    for (std::int64_t s = 0; s < shards.size(); ++s) {
      vector_view<float> const row(features, statistics_.width());
      write_shard_features(features_, shards[s], row);
      statistics_.normalise(row);
      for (std::size_t n = 0; n < rows_.size(); ++n) rows_[n](features, to.row(s) + static_cast<std::int64_t>(n) * width);
    }
  }

  /// The cost of a device in milliseconds from the sum of its shards' representations (representation_width(),): the mean over networks.
  double cost_ms(vector_view<float const> sum) const noexcept {
    auto const width = networks_[0].representation_width();
    double total = 0;
    for (std::size_t n = 0; n < heads_.size(); ++n)
      total += static_cast<double>(head(n, sum.data() + static_cast<std::int64_t>(n) * width) - of_nothing_[n]);
    return total / static_cast<double>(heads_.size()) * unit_ms_;
  }
  /// As above, with how far the networks disagree.
  predicted_cost predict_sum(vector_view<float const> sum) const {
    auto const width = networks_[0].representation_width();
    std::vector<double> each;
    for (std::size_t n = 0; n < heads_.size(); ++n)
      each.push_back(static_cast<double>(head(n, sum.data() + static_cast<std::int64_t>(n) * width) - of_nothing_[n]) * unit_ms_);
    return joined_prediction(each);
  }
  /// The cost of a device with these shards, by a fresh sum.
  predicted_cost predict(vector_view<table_profile const> shards) const {
    auto const width = representation_width();
    std::vector<float> each(static_cast<std::size_t>(shards.size() * width)), sum(static_cast<std::size_t>(width));
    matrix_view<float> const representations(each.data(), shards.size(), width);
    represent(shards, representations);
    for (std::int64_t s = 0; s < shards.size(); ++s)
      for (std::int64_t i = 0; i < width; ++i) sum[static_cast<std::size_t>(i)] += representations(s, i);
    return predict_sum(sum);
  }

 private:
  static constexpr std::int64_t most_features = 32;

  float head(std::size_t n, float const* sum) const noexcept {
    float cost = 0;
    heads_[n](sum, &cost);
    return cost;
  }

  shard_features features_;
  feature_statistics statistics_;
  std::vector<sum_network> networks_;
  double unit_ms_;
  cost_interval interval_;
  std::vector<dense_network> rows_, heads_;
  std::vector<float> of_nothing_;
};

/// How a model of compute is fitted: the features and the widths of the networks. The defaults are the library's; `published()` are those of
/// the paper.
struct compute_fit_options {
  shard_features features = shard_features::logarithmic;
  std::vector<std::int64_t> hidden_of_rows{128};  ///< between the features and the representation
  std::int64_t representation = 32;
  std::vector<std::int64_t> hidden_of_head{64};
  bool empty_is_free = true;
  bool mean_is_unit = true;  ///< networks give costs in units of their mean; else in milliseconds
  fit_options fit{};

  static compute_fit_options published() {
    compute_fit_options options;
    options.features = shard_features::published;
    options.empty_is_free = options.mean_is_unit = false;
    return options;
  }
};

/// What a fit made, and how each start of it went; errors are in milliseconds squared.
template <class Model>
struct fitted_cost {
  Model model;
  std::vector<fit_report> reports;
  sample_split split;
};

namespace detail {

// Mean squared errors of networks that give costs in units, in milliseconds squared.
inline void scale_reports(std::vector<fit_report>& reports, double unit_ms) noexcept {
  for (auto& report : reports)
    for (auto* const value : {&report.training_error, &report.validation_error, &report.test_error}) *value *= unit_ms * unit_ms;
}

inline double mean_target(network_samples const& samples) {
  double sum = 0;
  for (auto const target : samples.targets) sum += static_cast<double>(target);
  auto const mean = samples.targets.empty() ? 0 : sum / static_cast<double>(samples.targets.size());
  if (!(mean > 0)) throw error(errc::invalid_argument, "learned costs: costs whose mean is not above 0", {{"mean_ms", mean}});
  return mean;
}

// The interval of the networks' validation samples, in the networks' unit; of fewer than ten measurements none.
template <class Network, class Gemm>
cost_interval interval_of(host_exec const& exec, Gemm const& gemm, fitted_networks<Network> const& fitted, network_samples const& samples) {
  auto const predicted = predict_by_all(exec, gemm, fitted.networks, samples, fitted.split.validation);
  std::vector<float> measured;
  for (auto const s : fitted.split.validation)
    for (auto t = samples.first_target[static_cast<std::size_t>(s)]; t < samples.first_target[static_cast<std::size_t>(s) + 1]; ++t)
      measured.push_back(samples.targets[static_cast<std::size_t>(t)]);
  return predicted.size() < 10 ? cost_interval{} : cost_interval::of(predicted, measured);
}

}  // namespace detail

/// Learns what combinations of shards cost on one device. The features' statistics are those of `pool`, or of all shards of the samples where
/// it is empty. A feature that is the same in all of them is ignored, but for the published ones. @throws tessera::error as `fit_cost_networks`; invalid_argument for costs whose mean is not above 0.
template <gemm_policy Gemm>
fitted_cost<learned_compute> fit_learned_compute(host_exec const& exec, Gemm const& gemm, vector_view<compute_cost_sample const> measured,
                                                 compute_fit_options const& options = {}, vector_view<table_profile const> pool = {}) {
  auto const width = static_cast<std::int64_t>(shard_feature_names(options.features).size());
  network_samples samples(width);
  std::vector<float> rows;
  for (auto const& sample : measured) {
    rows.resize(sample.shards.size() * static_cast<std::size_t>(width));
    for (std::size_t s = 0; s < sample.shards.size(); ++s)
      write_shard_features(options.features, sample.shards[s], {rows.data() + static_cast<std::int64_t>(s) * width, width});
    samples.add(rows, std::vector<float>{static_cast<float>(sample.cost_ms)});
  }
  auto statistics = pool.empty() ? feature_statistics::of({samples.features.data(), samples.rows(), width})
                                 : statistics_of_shards(options.features, pool);
  if (options.features != shard_features::published) statistics.ignore_constants();
  for (std::int64_t r = 0; r < samples.rows(); ++r) statistics.normalise({samples.features.data() + r * width, width});
  auto const unit_ms = options.mean_is_unit ? detail::mean_target(samples) : 1.0;
  for (auto& target : samples.targets) target = static_cast<float>(static_cast<double>(target) / unit_ms);
  std::vector<std::int64_t> of_rows{width}, of_head{options.representation};
  of_rows.insert(of_rows.end(), options.hidden_of_rows.begin(), options.hidden_of_rows.end());
  of_rows.push_back(options.representation);
  of_head.insert(of_head.end(), options.hidden_of_head.begin(), options.hidden_of_head.end());
  of_head.push_back(1);
  auto fitted = fit_cost_networks(
      exec, gemm, samples,
      [&](random_seed seed) {
        return sum_network(exec, {of_rows, of_head, options.empty_is_free, seed});
      },
      options.fit);
  auto const interval = detail::interval_of(exec, gemm, fitted, samples);
  detail::scale_reports(fitted.reports, unit_ms);
  return {learned_compute(options.features, std::move(statistics), std::move(fitted.networks), unit_ms, interval),
          std::move(fitted.reports), std::move(fitted.split)};
}

}  // namespace TESSERA_ABI
}  // namespace tessera
