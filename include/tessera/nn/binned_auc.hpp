// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <math.h>  // for host and device alike

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include <tessera/core/buffer.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>
#include <tessera/nn/metrics.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// The bin of a logit x: which of `bins` equal parts of (0, 1) holds 1/2 + x / (2 (8 + |x|)). It never decreases with x and needs no bounds
/// of x; infinite logits fall into the outermost bins. Bins stay narrow where clicks are rare: of 16,384 bins one is 0.001 wide at the
/// logit 0, 0.002 at -4 and 0.003 at -7. Equal parts of the probability would be 0.0002, 0.003 and 0.07 wide. @pre bins >= 1
TESSERA_HOST_DEVICE inline std::int64_t logit_bin(float logit, std::int64_t bins) noexcept {
  // In double the sum 8 + |x| is exact, or rounds by less than two floats differ: so the order of two floats never turns round.
  double const x = fmin(fmax(static_cast<double>(logit), -1e18), 1e18);
  double const part = 0.5 + 0.5 * (x / (8.0 + fabs(x)));
  auto const bin = static_cast<std::int64_t>(part * static_cast<double>(bins));
  return bin < bins ? bin : bins - 1;
}

/// The area under the ROC curve from histograms: memory does not grow with the samples. Pairs in one bin count half, so that the value
/// differs from the exact one by at most `error_bound()`. Mergeable.
/// @post without weights, or with integer ones, merged parts give the value of the whole exactly
class binned_auc {
 public:
  /// Allocates 16 bytes a bin from the heap, which no other call does. @throws tessera::error invalid_argument unless 1 <= bins <= 2^30.
  explicit binned_auc(std::int64_t bins = 1 << 14) : bins_(bins) {
    if (bins < 1 || bins > 1 << 30) throw error(errc::invalid_argument, "binned_auc: number of bins", {{"bins", bins}});
    weights_.resize(2 * static_cast<std::size_t>(bins));
  }

  /// Adds samples. `logits` (n,), not NaN; probabilities would share few bins. `labels` (n,), 0 or 1. `weights` (n,), finite and not
  /// negative, or empty for 1 each. Sums are in the order of the samples. Workspace: 4 bytes a sample from `exec`'s memory.
  /// @throws tessera::error shape_mismatch; invalid_argument naming the first other value.
  void add(host_exec const& exec, vector_view<float const> logits, vector_view<float const> labels, vector_view<float const> weights = {}) {
    detail::check_samples("binned_auc", logits.size(), labels.size(), weights.size());
    buffer<std::uint32_t> slots(exec, logits.size());
    for_each_piece(exec, logits.size(), detail::samples_per_sum, [&](std::int64_t first, std::int64_t last) {
      for (auto i = first; i < last; ++i) {
        if (std::isnan(logits[i])) throw error(errc::invalid_argument, "binned_auc: a logit is not a number", {{"position", i}});
        if (labels[i] != 0 && labels[i] != 1)
          throw error(errc::invalid_argument, "binned_auc: a label is neither 0 nor 1", {{"position", i}, {"label", labels[i]}});
        detail::sample_weight("binned_auc", weights, i);
        slots[i] = static_cast<std::uint32_t>(2 * logit_bin(logits[i], bins_) + (labels[i] != 0));
      }
    });
    for (std::int64_t i = 0; i < logits.size(); ++i) weights_[slots[i]] += weights.empty() ? 1.0 : static_cast<double>(weights[i]);
    samples_ += logits.size();
  }
  /// Adds the samples of `other`. @throws tessera::error shape_mismatch when the numbers of bins differ.
  void merge(binned_auc const& other) {
    if (bins_ != other.bins_)
      throw error(errc::shape_mismatch, "binned_auc: numbers of bins differ", {{"this", bins_}, {"other", other.bins_}});
    for (std::size_t i = 0; i < weights_.size(); ++i) weights_[i] += other.weights_[i];
    samples_ += other.samples_;
  }
  void clear() noexcept {
    std::fill(weights_.begin(), weights_.end(), 0.0);
    samples_ = 0;
  }

  std::int64_t samples() const noexcept { return samples_; }
  /// The number of bins.
  std::int64_t bins() const noexcept { return bins_; }
  std::size_t bytes() const noexcept { return weights_.capacity() * sizeof(weights_[0]); }

  /// The AUC: the share of (positive, negative) pairs, by the product of their weights, in which the positive scores higher. Pairs in one
  /// bin count half. It is NaN unless both labels have weight.
  double value() const noexcept {
    auto const of = count();
    return (of.ordered + of.tied / 2) / of.all;
  }
  /// Half the share of pairs in one bin. For any scores |value() - the exact AUC| is at most this, rounding apart. NaN where value() is.
  double error_bound() const noexcept {
    auto const of = count();
    return of.tied / 2 / of.all;
  }

 private:
  struct pairs {
    double ordered, tied, all;  // all is NaN where there is none
  };
  pairs count() const noexcept {
    double positives = 0, negatives = 0, ordered = 0, tied = 0;
    for (std::size_t i = 0; i < weights_.size(); i += 2) {
      ordered += weights_[i + 1] * negatives;
      tied += weights_[i + 1] * weights_[i];
      negatives += weights_[i];
      positives += weights_[i + 1];
    }
    auto const all = positives * negatives;
    return {ordered, tied, all > 0 ? all : std::numeric_limits<double>::quiet_NaN()};
  }

  std::int64_t bins_;
  std::vector<double> weights_;  // (bins, 2): of the negatives and of the positives
  std::int64_t samples_ = 0;
};
static_assert(metric<binned_auc>);

}  // namespace TESSERA_ABI
}  // namespace tessera
