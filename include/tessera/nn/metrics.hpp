// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>
#include <tessera/nn/loss.hpp>

namespace tessera::inline TESSERA_ABI {

/// Log loss, normalised entropy and calibration of probabilities given as logits. Mergeable: adding two halves and merging gives the
/// same counts as adding the whole.
class click_metrics {
 public:
  /// `logits` (n,), `labels` (n,) in [0, 1]. Summed in double by fixed pieces. @throws tessera::error shape_mismatch.
  void add(host_exec const& exec, vector_view<float const> logits, vector_view<float const> labels) {
    detail::check_loss("click_metrics", logits.size(), labels.size(), logits.size());
    auto const sum = [&](auto const& of) { return detail::elementwise_loss_impl<host_exec>::run(exec, logits.size(), of); };
    auto const loss = sum([&](std::int64_t i) { return logistic_loss(logits[i], labels[i]); });
    auto const predicted = sum([&](std::int64_t i) { return 1.0 / (1.0 + std::exp(-static_cast<double>(logits[i]))); });
    auto const positives = sum([&](std::int64_t i) { return static_cast<double>(labels[i]); });
    loss_ += loss;  // only now: when memory runs out above, nothing has been added
    predicted_ += predicted;
    positives_ += positives;
    samples_ += logits.size();
  }
  void merge(click_metrics const& other) noexcept {
    loss_ += other.loss_;
    predicted_ += other.predicted_;
    positives_ += other.positives_;
    samples_ += other.samples_;
  }

  std::int64_t samples() const noexcept { return samples_; }
  /// Share of positive labels; NaN without samples, like all below.
  double base_rate() const noexcept { return positives_ / static_cast<double>(samples_); }
  /// Mean cross entropy, in nats.
  double log_loss() const noexcept { return loss_ / static_cast<double>(samples_); }
  /// Log loss over the entropy of the base rate (He et al., "Practical lessons from predicting clicks on ads at Facebook", 2014).
  /// NaN when all labels are the same.
  double normalised_entropy() const noexcept {
    auto const p = base_rate();
    if (!(p > 0 && p < 1)) return std::numeric_limits<double>::quiet_NaN();
    return log_loss() / -(p * std::log(p) + (1 - p) * std::log1p(-p));
  }
  /// Clicks predicted over clicks seen; infinite when none was seen.
  double calibration() const noexcept { return predicted_ / positives_; }

 private:
  double loss_ = 0;
  double predicted_ = 0;
  double positives_ = 0;
  std::int64_t samples_ = 0;
};

}  // namespace tessera::inline TESSERA_ABI
