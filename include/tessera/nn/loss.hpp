// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <math.h>  // for host and device alike

#include <cstdint>
#include <limits>
#include <string>

#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/for_each_index.hpp>
#include <tessera/core/piece_list.hpp>
#include <tessera/core/view.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// 1 / (1 + e^-x), exact at both ends.
TESSERA_HOST_DEVICE inline float sigmoid(float x) noexcept {
  float const e = expf(-fabsf(x));
  return (x >= 0 ? 1.0F : e) / (1.0F + e);
}

/// -log of the likelihood of a label in [0, 1] under sigmoid(logit): finite for every finite logit, infinite or NaN for any other.
TESSERA_HOST_DEVICE inline double logistic_loss(double logit, double label) noexcept {
  return fmax(logit, 0.0) - logit * label + log1p(exp(-fabs(logit)));
}

/// The sum of weights that `bce_with_logits` divides by: the number of samples where `weights` are empty. Both are (samples,).
/// @throws tessera::error shape_mismatch and invalid_argument, for labels and weights that `bce_with_logits` refuses.
double bce_weight(host_exec const& exec, vector_view<float const> labels, vector_view<float const> weights);

/// Returns the mean binary cross entropy of sigmoid(logits), and writes its gradient by the logits: (sigmoid(logit) - label) / n.
///
/// All are (n,); labels are in [0, 1]; `gradient` may be `logits`. `weights`, unless empty, make it the weighted mean: the sum of weight *
/// loss over the sum of weights. Each gradient is then multiplied by its weight, and divided by the sum of the weights in place of n. A
/// sample of weight 0 counts nothing, whatever its logit and label. Sums are of double, by fixed pieces. The loss is 0 for an empty batch
/// or one without weight.
/// @post weights of 1 give the bits of no weights
/// @throws tessera::error shape_mismatch. invalid_argument, naming the position, for a weight that is negative or not finite, and for a
/// label outside [0, 1] whose weight counts. NaN is outside, too. invalid_argument also for a sum of weights above the largest float, or
/// below the least normal one but not 0. Nothing has been written then.
double bce_with_logits(host_exec const& exec, vector_view<float const> logits, vector_view<float const> labels, vector_view<float> gradient,
                       vector_view<float const> weights = {});

/// Does the same for a part of a batch: `total_weight`, the sum of weights of the whole, takes the place of the part's own sum. So parts give
/// the whole batch's gradient, and losses that add up to its mean. @throws tessera::error as above, also for such a total_weight.
double bce_of_part(host_exec const& exec, vector_view<float const> logits, vector_view<float const> labels, vector_view<float> gradient,
                   vector_view<float const> weights, double total_weight);

/// Returns the mean squared error, and writes its gradient 2 (prediction - label) / n. Arguments, weights and errors are those of
/// `bce_with_logits`; labels have any value.
double mean_squared_error(host_exec const& exec, vector_view<float const> predictions, vector_view<float const> labels,
                          vector_view<float> gradient, vector_view<float const> weights = {});

/// Returns the weighted sum of the binary cross entropies of several tasks that share their samples, and writes its gradient. A label that
/// is NaN is missing: it contributes nothing and counts nothing.
///
/// Logits, labels and gradient (samples, tasks) have any row strides; `gradient` may be `logits`. `task_weights` (tasks,), or empty for 1
/// each. `losses` (tasks,) get each task's mean over its labels, without its weight; 0 for a task without labels. A task's gradient is task
/// weight * (sigmoid(logit) - label) / the number of its labels. Sums are of double, by fixed pieces.
/// @post one task without weight and missing labels gives the bits of `bce_with_logits`
/// @throws tessera::error shape_mismatch. invalid_argument for a task's weight that is negative or not finite. invalid_argument also,
/// naming position and task, for a label that is neither NaN nor in [0, 1]. Then nothing has been written.
double multi_task_bce(host_exec const& exec, matrix_view<float const> logits, matrix_view<float const> labels,
                      vector_view<float const> task_weights, matrix_view<float> gradient, vector_view<double> losses);

/// Computes probabilities = sigmoid(logits); both (n,), perhaps the same memory. @throws tessera::error shape_mismatch.
inline void sigmoid_forward(host_exec const& exec, vector_view<float const> logits, vector_view<float> probabilities);

/// Turns the gradient by the probabilities into that by the logits, in place; both (n,). @throws tessera::error shape_mismatch.
void sigmoid_backward(host_exec const& exec, vector_view<float const> probabilities, vector_view<float> gradient);

namespace detail {

inline constexpr std::int64_t loss_piece = 512;

// At least 0, finite.
constexpr bool is_weight(float weight) noexcept { return weight >= 0 && weight <= std::numeric_limits<float>::max(); }

constexpr bool is_missing(float label) noexcept { return label != label; }

// Outside, one over it is infinite or 0 as a float.
void check_weight_sum(char const* loss, double sum);

// A sample that does not count may have any label.
template <class Counts>
void check_loss_labels(host_exec const& exec, char const* loss, matrix_view<float const> labels, Counts const& counts) {
  for_each_index(exec, labels.rows(), loss_piece, [=](std::int64_t s) {
    for (std::int64_t t = 0; t < labels.columns(); ++t)
      if (counts(s, t) && !(labels(s, t) >= 0 && labels(s, t) <= 1))
        throw error(errc::invalid_argument, std::string(loss) + ": a label outside [0, 1]",
                    {{"position", s}, {"task", t}, {"label", labels(s, t)}});
  });
}

void check_loss(char const* loss, std::int64_t predictions, std::int64_t labels, std::int64_t gradient);

// The sum of weights, each of which is checked; n where there are none. A part of a batch may have any sum.
double sum_of_weights(host_exec const& exec, char const* loss, vector_view<float const> weights, std::int64_t n);

// What a weighted mean divides by.
double weight_sum(host_exec const& exec, char const* loss, vector_view<float const> weights, std::int64_t n);

// One prediction's part of a weighted cross entropy, and its gradient. A weight of 0 silences even a logit or label that is not finite.
inline double weighted_bce(float logit, float label, float weight, float scale, float& gradient) noexcept {
  if (weight == 0) {
    gradient = 0;
    return 0;
  }
  auto const loss = logistic_loss(static_cast<double>(logit), static_cast<double>(label));  // before the write: gradient may be the logit
  gradient = (sigmoid(logit) - label) * (weight * scale);
  return static_cast<double>(weight) * loss;
}

inline double weighted_square(float prediction, float label, float weight, float scale, float& gradient) noexcept {
  if (weight == 0) {
    gradient = 0;
    return 0;
  }
  auto const difference = prediction - label;
  gradient = difference * (weight * scale);
  return static_cast<double>(weight) * (static_cast<double>(difference) * static_cast<double>(difference));
}

inline void check_bce_labels(host_exec const& exec, char const* loss, vector_view<float const> labels, vector_view<float const> weights) {
  check_loss_labels(exec, loss, {labels.data(), labels.size(), 1},
                    [=](std::int64_t i, std::int64_t) { return weights.empty() || weights[i] != 0; });
}

double bce(host_exec const& exec, vector_view<float const> logits, vector_view<float const> labels, vector_view<float> gradient,
           vector_view<float const> weights, double total);

void check_multi_task(matrix_view<float const> logits, matrix_view<float const> labels, vector_view<float const> task_weights,
                      matrix_view<float const> gradient, vector_view<double const> losses);

}  // namespace detail

inline void sigmoid_forward(host_exec const& exec, vector_view<float const> logits, vector_view<float> probabilities) {
  detail::check_loss("sigmoid_forward", logits.size(), probabilities.size(), logits.size());
  for_each_index(exec, logits.size(), detail::loss_piece, [=](std::int64_t i) { probabilities[i] = sigmoid(logits[i]); });
}

}  // namespace TESSERA_ABI
}  // namespace tessera

#if !TESSERA_COMPILED
#include <tessera/nn/loss.ipp>
#endif
