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
inline double bce_weight(host_exec const& exec, vector_view<float const> labels, vector_view<float const> weights);

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
inline double bce_with_logits(host_exec const& exec, vector_view<float const> logits, vector_view<float const> labels,
                              vector_view<float> gradient, vector_view<float const> weights = {});

/// Does the same for a part of a batch: `total_weight`, the sum of weights of the whole, takes the place of the part's own sum. So parts give
/// the whole batch's gradient, and losses that add up to its mean. @throws tessera::error as above, also for such a total_weight.
inline double bce_of_part(host_exec const& exec, vector_view<float const> logits, vector_view<float const> labels,
                          vector_view<float> gradient, vector_view<float const> weights, double total_weight);

/// Returns the mean squared error, and writes its gradient 2 (prediction - label) / n. Arguments, weights and errors are those of
/// `bce_with_logits`; labels have any value.
inline double mean_squared_error(host_exec const& exec, vector_view<float const> predictions, vector_view<float const> labels,
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
inline double multi_task_bce(host_exec const& exec, matrix_view<float const> logits, matrix_view<float const> labels,
                             vector_view<float const> task_weights, matrix_view<float> gradient, vector_view<double> losses);

/// Computes probabilities = sigmoid(logits); both (n,), perhaps the same memory. @throws tessera::error shape_mismatch.
inline void sigmoid_forward(host_exec const& exec, vector_view<float const> logits, vector_view<float> probabilities);

/// Turns the gradient by the probabilities into that by the logits, in place; both (n,). @throws tessera::error shape_mismatch.
inline void sigmoid_backward(host_exec const& exec, vector_view<float const> probabilities, vector_view<float> gradient);

namespace detail {

inline constexpr std::int64_t loss_piece = 512;

// At least 0, finite.
constexpr bool is_weight(float weight) noexcept { return weight >= 0 && weight <= std::numeric_limits<float>::max(); }

constexpr bool is_missing(float label) noexcept { return label != label; }

// Outside, one over it is infinite or 0 as a float.
inline void check_weight_sum(char const* loss, double sum) {
  constexpr auto least = static_cast<double>(std::numeric_limits<float>::min()),
                 most = static_cast<double>(std::numeric_limits<float>::max());
  if (sum != 0 && !(sum >= least && sum <= most))
    throw error(errc::invalid_argument, std::string(loss) + ": weights whose sum is too small or too large for a float",
                {{"sum", sum}, {"least", least}, {"most", most}});
}

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

inline void check_loss(char const* loss, std::int64_t predictions, std::int64_t labels, std::int64_t gradient) {
  if (predictions != labels || predictions != gradient)
    throw error(errc::shape_mismatch, std::string(loss) + ": predictions, labels and gradient differ in size",
                {{"predictions", predictions}, {"labels", labels}, {"gradient", gradient}});
}

// The sum of weights, each of which is checked; n where there are none. A part of a batch may have any sum.
inline double sum_of_weights(host_exec const& exec, char const* loss, vector_view<float const> weights, std::int64_t n) {
  if (weights.empty()) return static_cast<double>(n);
  if (weights.size() != n)
    throw error(errc::shape_mismatch, std::string(loss) + ": one weight a prediction", {{"weights", weights.size()}, {"predictions", n}});
  return sum_by_pieces(exec, weights.size(), loss_piece, [=](std::int64_t i) {
    if (!is_weight(weights[i]))
      throw error(errc::invalid_argument, std::string(loss) + ": a weight that is negative or not finite",
                  {{"position", i}, {"weight", weights[i]}});
    return static_cast<double>(weights[i]);
  });
}

// What a weighted mean divides by.
inline double weight_sum(host_exec const& exec, char const* loss, vector_view<float const> weights, std::int64_t n) {
  auto const sum = sum_of_weights(exec, loss, weights, n);
  check_weight_sum(loss, sum);
  return sum;
}

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

inline double bce(host_exec const& exec, vector_view<float const> logits, vector_view<float const> labels, vector_view<float> gradient,
                  vector_view<float const> weights, double total) {
  check_bce_labels(exec, "bce_with_logits", labels, weights);
  float const scale = 1.0F / static_cast<float>(total);
  auto const sum = sum_by_pieces(exec, logits.size(), loss_piece, [=](std::int64_t i) {
    return weighted_bce(logits[i], labels[i], weights.empty() ? 1.0F : weights[i], scale, gradient[i]);
  });
  return total > 0 ? sum / total : 0;
}

inline void check_multi_task(matrix_view<float const> logits, matrix_view<float const> labels, vector_view<float const> task_weights,
                             matrix_view<float const> gradient, vector_view<double const> losses) {
  for (auto const other : {labels, gradient})
    if (other.rows() != logits.rows() || other.columns() != logits.columns())
      throw error(
          errc::shape_mismatch, "multi_task_bce: logits, labels and gradient differ in shape",
          {{"logits rows", logits.rows()}, {"logits columns", logits.columns()}, {"rows", other.rows()}, {"columns", other.columns()}});
  auto const tasks = logits.columns();
  if (losses.size() != tasks || (!task_weights.empty() && task_weights.size() != tasks))
    throw error(errc::shape_mismatch, "multi_task_bce: one weight and one loss a task",
                {{"tasks", tasks}, {"weights", task_weights.size()}, {"losses", losses.size()}});
  for (std::int64_t t = 0; t < task_weights.size(); ++t)
    if (!is_weight(task_weights[t]))
      throw error(errc::invalid_argument, "multi_task_bce: a task's weight that is negative or not finite",
                  {{"task", t}, {"weight", task_weights[t]}});
}

}  // namespace detail

inline double bce_weight(host_exec const& exec, vector_view<float const> labels, vector_view<float const> weights) {
  auto const total = detail::weight_sum(exec, "bce_weight", weights, labels.size());
  detail::check_bce_labels(exec, "bce_weight", labels, weights);
  return total;
}

inline double bce_with_logits(host_exec const& exec, vector_view<float const> logits, vector_view<float const> labels,
                              vector_view<float> gradient, vector_view<float const> weights) {
  detail::check_loss("bce_with_logits", logits.size(), labels.size(), gradient.size());
  return detail::bce(exec, logits, labels, gradient, weights, detail::weight_sum(exec, "bce_with_logits", weights, logits.size()));
}

inline double bce_of_part(host_exec const& exec, vector_view<float const> logits, vector_view<float const> labels,
                          vector_view<float> gradient, vector_view<float const> weights, double total_weight) {
  detail::check_loss("bce_of_part", logits.size(), labels.size(), gradient.size());
  detail::sum_of_weights(exec, "bce_of_part", weights, logits.size());
  detail::check_weight_sum("bce_of_part", total_weight);
  return detail::bce(exec, logits, labels, gradient, weights, total_weight);
}

inline double mean_squared_error(host_exec const& exec, vector_view<float const> predictions, vector_view<float const> labels,
                                 vector_view<float> gradient, vector_view<float const> weights) {
  detail::check_loss("mean_squared_error", predictions.size(), labels.size(), gradient.size());
  auto const total = detail::weight_sum(exec, "mean_squared_error", weights, predictions.size());
  float const scale = 2.0F / static_cast<float>(total);
  auto const sum = sum_by_pieces(exec, predictions.size(), detail::loss_piece, [=](std::int64_t i) {
    return detail::weighted_square(predictions[i], labels[i], weights.empty() ? 1.0F : weights[i], scale, gradient[i]);
  });
  return total > 0 ? sum / total : 0;
}

inline double multi_task_bce(host_exec const& exec, matrix_view<float const> logits, matrix_view<float const> labels,
                             vector_view<float const> task_weights, matrix_view<float> gradient, vector_view<double> losses) {
  detail::check_multi_task(logits, labels, task_weights, gradient, losses);
  detail::check_loss_labels(exec, "multi_task_bce", labels,
                            [=](std::int64_t s, std::int64_t t) { return !detail::is_missing(labels(s, t)); });
  auto const samples = logits.rows();
  double total = 0;
  for (std::int64_t t = 0; t < logits.columns(); ++t) {
    auto const count =
        sum_by_pieces(exec, samples, detail::loss_piece, [=](std::int64_t s) { return detail::is_missing(labels(s, t)) ? 0.0 : 1.0; });
    float const task_weight = task_weights.empty() ? 1.0F : task_weights[t];
    float const scale = task_weight * (1.0F / static_cast<float>(count));
    auto const sum = sum_by_pieces(exec, samples, detail::loss_piece, [=](std::int64_t s) {
      return detail::weighted_bce(logits(s, t), labels(s, t), detail::is_missing(labels(s, t)) ? 0.0F : 1.0F, scale, gradient(s, t));
    });
    losses[t] = count > 0 ? sum / count : 0;
    total += static_cast<double>(task_weight) * losses[t];
  }
  return total;
}

inline void sigmoid_forward(host_exec const& exec, vector_view<float const> logits, vector_view<float> probabilities) {
  detail::check_loss("sigmoid_forward", logits.size(), probabilities.size(), logits.size());
  for_each_index(exec, logits.size(), detail::loss_piece, [=](std::int64_t i) { probabilities[i] = sigmoid(logits[i]); });
}

inline void sigmoid_backward(host_exec const& exec, vector_view<float const> probabilities, vector_view<float> gradient) {
  detail::check_loss("sigmoid_backward", probabilities.size(), gradient.size(), gradient.size());
  for_each_index(exec, gradient.size(), detail::loss_piece,
                 [=](std::int64_t i) { gradient[i] *= probabilities[i] * (1.0F - probabilities[i]); });
}

}  // namespace TESSERA_ABI
}  // namespace tessera
