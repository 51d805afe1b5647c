// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/nn/loss.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

namespace detail {

TESSERA_INLINE void check_weight_sum(char const* loss, double sum) {
  constexpr auto least = static_cast<double>(std::numeric_limits<float>::min()),
                 most = static_cast<double>(std::numeric_limits<float>::max());
  if (sum != 0 && !(sum >= least && sum <= most))
    throw error(errc::invalid_argument, std::string(loss) + ": weights whose sum is too small or too large for a float",
                {{"sum", sum}, {"least", least}, {"most", most}});
}

TESSERA_INLINE void check_loss(char const* loss, std::int64_t predictions, std::int64_t labels, std::int64_t gradient) {
  if (predictions != labels || predictions != gradient)
    throw error(errc::shape_mismatch, std::string(loss) + ": predictions, labels and gradient differ in size",
                {{"predictions", predictions}, {"labels", labels}, {"gradient", gradient}});
}

TESSERA_INLINE double sum_of_weights(host_exec const& exec, char const* loss, vector_view<float const> weights, std::int64_t n) {
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

TESSERA_INLINE double weight_sum(host_exec const& exec, char const* loss, vector_view<float const> weights, std::int64_t n) {
  auto const sum = sum_of_weights(exec, loss, weights, n);
  check_weight_sum(loss, sum);
  return sum;
}

TESSERA_INLINE double bce(host_exec const& exec, vector_view<float const> logits, vector_view<float const> labels,
                          vector_view<float> gradient, vector_view<float const> weights, double total) {
  check_bce_labels(exec, "bce_with_logits", labels, weights);
  float const scale = 1.0F / static_cast<float>(total);
  auto const sum = sum_by_pieces(exec, logits.size(), loss_piece, [=](std::int64_t i) {
    return weighted_bce(logits[i], labels[i], weights.empty() ? 1.0F : weights[i], scale, gradient[i]);
  });
  return total > 0 ? sum / total : 0;
}

TESSERA_INLINE void check_multi_task(matrix_view<float const> logits, matrix_view<float const> labels,
                                     vector_view<float const> task_weights, matrix_view<float const> gradient,
                                     vector_view<double const> losses) {
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

TESSERA_INLINE double bce_weight(host_exec const& exec, vector_view<float const> labels, vector_view<float const> weights) {
  auto const total = detail::weight_sum(exec, "bce_weight", weights, labels.size());
  detail::check_bce_labels(exec, "bce_weight", labels, weights);
  return total;
}

TESSERA_INLINE double bce_with_logits(host_exec const& exec, vector_view<float const> logits, vector_view<float const> labels,
                                      vector_view<float> gradient, vector_view<float const> weights) {
  detail::check_loss("bce_with_logits", logits.size(), labels.size(), gradient.size());
  return detail::bce(exec, logits, labels, gradient, weights, detail::weight_sum(exec, "bce_with_logits", weights, logits.size()));
}

TESSERA_INLINE double bce_of_part(host_exec const& exec, vector_view<float const> logits, vector_view<float const> labels,
                                  vector_view<float> gradient, vector_view<float const> weights, double total_weight) {
  detail::check_loss("bce_of_part", logits.size(), labels.size(), gradient.size());
  detail::sum_of_weights(exec, "bce_of_part", weights, logits.size());
  detail::check_weight_sum("bce_of_part", total_weight);
  return detail::bce(exec, logits, labels, gradient, weights, total_weight);
}

TESSERA_INLINE double mean_squared_error(host_exec const& exec, vector_view<float const> predictions, vector_view<float const> labels,
                                         vector_view<float> gradient, vector_view<float const> weights) {
  detail::check_loss("mean_squared_error", predictions.size(), labels.size(), gradient.size());
  auto const total = detail::weight_sum(exec, "mean_squared_error", weights, predictions.size());
  float const scale = 2.0F / static_cast<float>(total);
  auto const sum = sum_by_pieces(exec, predictions.size(), detail::loss_piece, [=](std::int64_t i) {
    return detail::weighted_square(predictions[i], labels[i], weights.empty() ? 1.0F : weights[i], scale, gradient[i]);
  });
  return total > 0 ? sum / total : 0;
}

TESSERA_INLINE double multi_task_bce(host_exec const& exec, matrix_view<float const> logits, matrix_view<float const> labels,
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

TESSERA_INLINE void sigmoid_backward(host_exec const& exec, vector_view<float const> probabilities, vector_view<float> gradient) {
  detail::check_loss("sigmoid_backward", probabilities.size(), gradient.size(), gradient.size());
  for_each_index(exec, gradient.size(), detail::loss_piece,
                 [=](std::int64_t i) { gradient[i] *= probabilities[i] * (1.0F - probabilities[i]); });
}

}  // namespace TESSERA_ABI
}  // namespace tessera
