// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <concepts>
#include <cstdint>
#include <limits>
#include <string>

#include <tessera/core/buffer.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// What is known of the samples seen so far. `add(…)` takes samples, each metric its own arguments; it adds all, or nothing when it throws.
/// `merge(other)` adds the samples of another of the same kind. `clear()` forgets all and keeps the memory; `samples()` counts. A copy of
/// an empty metric is an empty one with the same options.
template <class M>
concept metric = std::copyable<M> && requires(M& m, M const& other) {
  m.merge(other);
  m.clear();
  { other.samples() } -> std::same_as<std::int64_t>;
};

namespace detail {

void check_samples(char const* metric, std::int64_t predictions, std::int64_t labels, std::int64_t weights);

inline void check_label(char const* metric, float label, std::int64_t position) {
  if (!(label >= 0 && label <= 1))
    throw error(errc::invalid_argument, std::string(metric) + ": a label is outside [0, 1]", {{"position", position}, {"label", label}});
}

// The weight of a sample: 1 where there are no weights.
double sample_weight(char const* metric, vector_view<float const> weights, std::int64_t i);

// 0 / 0 may have a sign, which printing shows; this NaN has none.
inline double ratio(double part, double whole) noexcept {
  return part == 0 && whole == 0 ? std::numeric_limits<double>::quiet_NaN() : part / whole;
}

inline constexpr std::int64_t samples_per_sum = 512;

// One pass by fixed pieces: `add(sums, i)` adds sample i to the sums of its piece; the pieces are joined in order.
template <class Sums, class Add>
Sums sum_samples(host_exec const& exec, std::int64_t n, Add const& add) {
  buffer<Sums> pieces(exec, divide_up(n, samples_per_sum));
  for_each_piece(exec, n, samples_per_sum, [&](std::int64_t first, std::int64_t last) {
    Sums sums{};
    for (auto i = first; i < last; ++i) add(sums, i);
    pieces[first / samples_per_sum] = sums;
  });
  Sums total{};
  for (auto const& sums : pieces) total += sums;
  return total;
}

}  // namespace detail

/// Log loss, normalised entropy and calibration of probabilities, which are given as logits. Sums are of double, by fixed pieces: the
/// number of threads changes no bit. Another cut into batches, or merged parts, change only the rounding.
class click_metrics {
 public:
  /// Adds samples: `logits` (n,), finite; `labels` (n,) in [0, 1]; `weights` (n,), finite and not negative, or empty for 1 each.
  /// @throws tessera::error shape_mismatch; invalid_argument naming the first other value.
  void add(host_exec const& exec, vector_view<float const> logits, vector_view<float const> labels, vector_view<float const> weights = {});
  void merge(click_metrics const& other) noexcept {
    sums_ += other.sums_;
    samples_ += other.samples_;
  }
  void clear() noexcept { *this = {}; }

  std::int64_t samples() const noexcept { return samples_; }
  /// The sum of the weights.
  double weight() const noexcept { return sums_.weight; }
  /// The share of positive labels, by weight; NaN without samples, as the values below.
  double base_rate() const noexcept { return detail::ratio(sums_.positives, sums_.weight); }
  /// The mean cross entropy, in nats.
  double log_loss() const noexcept { return detail::ratio(sums_.loss, sums_.weight); }
  /// The log loss over the entropy of the base rate; NaN when all labels are the same. Source: He et al., "Practical lessons from
  /// predicting clicks on ads at Facebook", 2014.
  double normalised_entropy() const noexcept {
    auto const p = base_rate();
    if (!(p > 0 && p < 1)) return std::numeric_limits<double>::quiet_NaN();
    return log_loss() / -(p * std::log(p) + (1 - p) * std::log1p(-p));
  }
  /// Predicted clicks over seen clicks; infinite when none was seen.
  double calibration() const noexcept { return detail::ratio(sums_.predicted, sums_.positives); }

 private:
  struct sums {
    double weight = 0, loss = 0, predicted = 0, positives = 0;

    void operator+=(sums const& other) noexcept {
      weight += other.weight;
      loss += other.loss;
      predicted += other.predicted;
      positives += other.positives;
    }
  };

  sums sums_;
  std::int64_t samples_ = 0;
};
static_assert(metric<click_metrics>);

/// Accuracy, precision and recall of the decision "positive from this probability on". Sums are those of `click_metrics`.
class threshold_metrics {
 public:
  /// @throws tessera::error invalid_argument for a probability outside [0, 1].
  explicit threshold_metrics(double probability = 0.5) : logit_(std::log(probability / (1 - probability))) {
    if (!(probability >= 0 && probability <= 1))
      throw error(errc::invalid_argument, "threshold_metrics: the threshold is no probability", {{"probability", probability}});
  }

  /// Adds samples. Arguments and errors are those of `click_metrics`, but logits may be infinite. A label between 0 and 1 counts as
  /// positive by that share.
  void add(host_exec const& exec, vector_view<float const> logits, vector_view<float const> labels, vector_view<float const> weights = {});
  /// Adds the samples of `other`. @throws tessera::error invalid_argument when the thresholds differ.
  void merge(threshold_metrics const& other);
  void clear() noexcept {
    sums_ = {};
    samples_ = 0;
  }

  std::int64_t samples() const noexcept { return samples_; }
  /// The share of right decisions, by weight; NaN without samples.
  double accuracy() const noexcept {
    auto const right = sums_.true_positives + sums_.true_negatives;
    return detail::ratio(right, right + sums_.false_positives + sums_.false_negatives);
  }
  /// The share of positives among those decided positive; NaN when none was.
  double precision() const noexcept { return detail::ratio(sums_.true_positives, sums_.true_positives + sums_.false_positives); }
  /// The share of those decided positive among the positives; NaN when there are none.
  double recall() const noexcept { return detail::ratio(sums_.true_positives, sums_.true_positives + sums_.false_negatives); }

 private:
  struct sums {
    double true_positives = 0, false_positives = 0, true_negatives = 0, false_negatives = 0;

    void operator+=(sums const& other) noexcept {
      true_positives += other.true_positives;
      false_positives += other.false_positives;
      true_negatives += other.true_negatives;
      false_negatives += other.false_negatives;
    }
  };

  double logit_;
  sums sums_;
  std::int64_t samples_ = 0;
};
static_assert(metric<threshold_metrics>);

/// Mean squared and mean absolute error. Sums are those of `click_metrics`.
class regression_metrics {
 public:
  /// Adds samples: `predictions` (n,) and `labels` (n,), finite; `weights` and errors as `click_metrics`.
  void add(host_exec const& exec, vector_view<float const> predictions, vector_view<float const> labels,
           vector_view<float const> weights = {});
  void merge(regression_metrics const& other) noexcept {
    sums_ += other.sums_;
    samples_ += other.samples_;
  }
  void clear() noexcept { *this = {}; }

  std::int64_t samples() const noexcept { return samples_; }
  /// The mean squared error; `mean_absolute_error` is of the same samples. NaN without samples.
  double mean_squared_error() const noexcept { return detail::ratio(sums_.square, sums_.weight); }
  /// The mean absolute error; NaN without samples.
  double mean_absolute_error() const noexcept { return detail::ratio(sums_.absolute, sums_.weight); }

 private:
  struct sums {
    double weight = 0, square = 0, absolute = 0;

    void operator+=(sums const& other) noexcept {
      weight += other.weight;
      square += other.square;
      absolute += other.absolute;
    }
  };

  sums sums_;
  std::int64_t samples_ = 0;
};
static_assert(metric<regression_metrics>);

}  // namespace TESSERA_ABI
}  // namespace tessera

#if !TESSERA_COMPILED
#include <tessera/nn/metrics.ipp>
#endif
