// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/nn/metrics.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

namespace detail {

TESSERA_INLINE void check_samples(char const* metric, std::int64_t predictions, std::int64_t labels, std::int64_t weights) {
  if (predictions != labels || (weights != 0 && weights != labels))
    throw error(errc::shape_mismatch, std::string(metric) + ": predictions, labels and weights differ in size",
                {{"predictions", predictions}, {"labels", labels}, {"weights", weights}});
}

TESSERA_INLINE double sample_weight(char const* metric, vector_view<float const> weights, std::int64_t i) {
  if (weights.empty()) return 1;
  if (!(weights[i] >= 0 && weights[i] <= std::numeric_limits<float>::max()))
    throw error(errc::invalid_argument, std::string(metric) + ": a weight is negative or not finite",
                {{"position", i}, {"weight", weights[i]}});
  return static_cast<double>(weights[i]);
}

}  // namespace detail

TESSERA_INLINE void click_metrics::add(host_exec const& exec, vector_view<float const> logits, vector_view<float const> labels,
                                       vector_view<float const> weights) {
  detail::check_samples("click_metrics", logits.size(), labels.size(), weights.size());
  sums_ += detail::sum_samples<sums>(exec, logits.size(), [=](sums& to, std::int64_t i) {
    if (!std::isfinite(logits[i]))
      throw error(errc::invalid_argument, "click_metrics: a logit is not finite", {{"position", i}, {"logit", logits[i]}});
    detail::check_label("click_metrics", labels[i], i);
    auto const weight = detail::sample_weight("click_metrics", weights, i);
    auto const logit = static_cast<double>(logits[i]), label = static_cast<double>(labels[i]);
    auto const e = std::exp(-std::fabs(logit));  // serves loss and probability, exact at both ends
    to.weight += weight;
    to.loss += weight * (std::fmax(logit, 0.0) - logit * label + std::log1p(e));
    to.predicted += weight * ((logit >= 0 ? 1.0 : e) / (1.0 + e));
    to.positives += weight * label;
  });
  samples_ += logits.size();
}

TESSERA_INLINE void threshold_metrics::add(host_exec const& exec, vector_view<float const> logits, vector_view<float const> labels,
                                           vector_view<float const> weights) {
  detail::check_samples("threshold_metrics", logits.size(), labels.size(), weights.size());
  sums_ += detail::sum_samples<sums>(exec, logits.size(), [=, threshold = logit_](sums& to, std::int64_t i) {
    if (std::isnan(logits[i])) throw error(errc::invalid_argument, "threshold_metrics: a logit is not a number", {{"position", i}});
    detail::check_label("threshold_metrics", labels[i], i);
    auto const weight = detail::sample_weight("threshold_metrics", weights, i);
    auto const positive = weight * static_cast<double>(labels[i]);
    bool const decided = static_cast<double>(logits[i]) >= threshold;
    (decided ? to.true_positives : to.false_negatives) += positive;
    (decided ? to.false_positives : to.true_negatives) += weight - positive;
  });
  samples_ += logits.size();
}

TESSERA_INLINE void threshold_metrics::merge(threshold_metrics const& other) {
  if (logit_ != other.logit_)
    throw error(errc::invalid_argument, "threshold_metrics: thresholds differ, as logits", {{"this", logit_}, {"other", other.logit_}});
  sums_ += other.sums_;
  samples_ += other.samples_;
}

TESSERA_INLINE void regression_metrics::add(host_exec const& exec, vector_view<float const> predictions, vector_view<float const> labels,
                                            vector_view<float const> weights) {
  detail::check_samples("regression_metrics", predictions.size(), labels.size(), weights.size());
  sums_ += detail::sum_samples<sums>(exec, predictions.size(), [=](sums& to, std::int64_t i) {
    auto const difference = static_cast<double>(predictions[i]) - static_cast<double>(labels[i]);
    if (!std::isfinite(difference))
      throw error(errc::invalid_argument, "regression_metrics: a prediction or label is not finite",
                  {{"position", i}, {"prediction", predictions[i]}, {"label", labels[i]}});
    auto const weight = detail::sample_weight("regression_metrics", weights, i);
    to.weight += weight;
    to.square += weight * difference * difference;
    to.absolute += weight * std::fabs(difference);
  });
  samples_ += predictions.size();
}

}  // namespace TESSERA_ABI
}  // namespace tessera
