// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>
#include <tessera/nn/metrics.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// Predicted clicks beside seen clicks, in equal bins of the predicted probability: what a reliability diagram draws. Mergeable.
class calibration_curve {
 public:
  /// The samples of one bin.
  struct bin {
    std::int64_t samples = 0;
    double predicted = 0;  ///< sum of the probabilities
    double clicks = 0;     ///< sum of the labels

    /// The mean predicted probability of the bin's samples; `mean_clicks` is their mean label. NaN without samples.
    double mean_predicted() const noexcept { return detail::ratio(predicted, static_cast<double>(samples)); }
    /// The mean label of the bin's samples; NaN without any.
    double mean_clicks() const noexcept { return detail::ratio(clicks, static_cast<double>(samples)); }
  };

  /// @throws tessera::error invalid_argument unless 1 <= bins <= 2^20.
  explicit calibration_curve(std::int64_t bins = 20) {
    if (bins < 1 || bins > 1 << 20) throw error(errc::invalid_argument, "calibration_curve: number of bins", {{"bins", bins}});
    bins_.resize(static_cast<std::size_t>(bins));
  }

  /// Adds samples: `logits` (n,), not NaN; `labels` (n,) in [0, 1]. Sums are of double, in order.
  /// @throws tessera::error shape_mismatch; invalid_argument naming the first other value.
  void add(vector_view<float const> logits, vector_view<float const> labels) {
    detail::check_samples("calibration_curve", logits.size(), labels.size(), 0);
    for (std::int64_t i = 0; i < logits.size(); ++i) {
      if (std::isnan(logits[i])) throw error(errc::invalid_argument, "calibration_curve: a logit is not a number", {{"position", i}});
      detail::check_label("calibration_curve", labels[i], i);
    }
    for (std::int64_t i = 0; i < logits.size(); ++i) {
      auto const probability = 1.0 / (1.0 + std::exp(-static_cast<double>(logits[i])));
      auto const at = static_cast<std::size_t>(probability * static_cast<double>(bins_.size()));
      auto& to = bins_[at < bins_.size() ? at : bins_.size() - 1];
      ++to.samples;
      to.predicted += probability;
      to.clicks += static_cast<double>(labels[i]);
    }
    samples_ += logits.size();
  }
  /// Adds the samples of `other`. @throws tessera::error shape_mismatch when the numbers of bins differ.
  void merge(calibration_curve const& other) {
    if (bins_.size() != other.bins_.size())
      throw error(errc::shape_mismatch, "calibration_curve: numbers of bins differ",
                  {{"this", bins_.size()}, {"other", other.bins_.size()}});
    for (std::size_t i = 0; i < bins_.size(); ++i) {
      bins_[i].samples += other.bins_[i].samples;
      bins_[i].predicted += other.bins_[i].predicted;
      bins_[i].clicks += other.bins_[i].clicks;
    }
    samples_ += other.samples_;
  }
  void clear() noexcept {
    for (auto& b : bins_) b = {};
    samples_ = 0;
  }

  std::int64_t samples() const noexcept { return samples_; }
  /// The bins: bin b holds probabilities in [b / bins, (b + 1) / bins), the last one 1, too.
  std::vector<bin> const& bins() const noexcept { return bins_; }

  /// The expected calibration error: the mean distance between predicted and seen rate, bins weighted by their samples. NaN without
  /// samples. Source: Naeini, Cooper, Hauskrecht, "Obtaining well calibrated probabilities using Bayesian binning", AAAI 2015.
  double expected_error() const noexcept {
    double sum = 0;
    for (auto const& b : bins_) sum += std::abs(b.predicted - b.clicks);
    return detail::ratio(sum, static_cast<double>(samples_));
  }

 private:
  std::vector<bin> bins_;
  std::int64_t samples_ = 0;
};
static_assert(metric<calibration_curve>);

}  // namespace TESSERA_ABI
}  // namespace tessera
