// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <math.h>  // for host and device alike

#include <cstdint>
#include <string>

#include <tessera/core/buffer.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/for_each_index.hpp>
#include <tessera/core/view.hpp>

namespace tessera::inline TESSERA_ABI {

/// 1 / (1 + e^-x), exact at both ends.
TESSERA_HOST_DEVICE inline float sigmoid(float x) noexcept {
  float const e = expf(-fabsf(x));
  return (x >= 0 ? 1.0F : e) / (1.0F + e);
}

/// -log of the likelihood of a label in [0, 1] under sigmoid(logit), finite for every finite logit, infinite or NaN for any other.
TESSERA_HOST_DEVICE inline double logistic_loss(double logit, double label) noexcept {
  return fmax(logit, 0.0) - logit * label + log1p(exp(-fabs(logit)));
}

namespace detail {

inline constexpr std::int64_t loss_piece = 512;

template <class Exec>
struct elementwise_loss_impl {
  static_assert(dependent_false<Exec>, "loss: no back end for this execution; for CUDA include <tessera/nn/loss.cuh>");
};

// Sums `loss(i)` by fixed pieces, in double; `loss` also writes the gradient.
template <>
struct elementwise_loss_impl<host_exec> {
  template <class Loss>
  static double run(host_exec const& exec, std::int64_t n, Loss const& loss) {
    buffer<double> sums(exec, divide_up(n, loss_piece));
    for_each_piece(exec, n, loss_piece, [&](std::int64_t first, std::int64_t last) {
      double sum = 0;
      for (auto i = first; i < last; ++i) sum += loss(i);
      sums[first / loss_piece] = sum;
    });
    double total = 0;
    for (auto const sum : sums) total += sum;
    return total;
  }
};

inline void check_loss(char const* loss, std::int64_t predictions, std::int64_t targets, std::int64_t gradient) {
  if (predictions != targets || predictions != gradient)
    throw error(errc::shape_mismatch, std::string(loss) + ": predictions, targets and gradient differ in size",
                {{"predictions", predictions}, {"targets", targets}, {"gradient", gradient}});
}

struct bce_with_logits_fn {
  template <execution Exec>
  double operator()(Exec const& exec, vector_view<float const> logits, vector_view<float const> labels, vector_view<float> gradient) const {
    check_loss("bce_with_logits", logits.size(), labels.size(), gradient.size());
    if (logits.empty()) return 0;
    auto const n = static_cast<double>(logits.size());
    float const scale = 1.0F / static_cast<float>(logits.size());
    return elementwise_loss_impl<Exec>::run(exec, logits.size(),
                                            [&](std::int64_t i) {
                                              auto const loss =
                                                  logistic_loss(logits[i], labels[i]);  // before the write: gradient may be logits
                                              gradient[i] = (sigmoid(logits[i]) - labels[i]) * scale;
                                              return loss;
                                            }) /
           n;
  }
};

struct mean_squared_error_fn {
  template <execution Exec>
  double operator()(Exec const& exec, vector_view<float const> predictions, vector_view<float const> targets,
                    vector_view<float> gradient) const {
    check_loss("mean_squared_error", predictions.size(), targets.size(), gradient.size());
    if (predictions.empty()) return 0;
    auto const n = static_cast<double>(predictions.size());
    float const scale = 2.0F / static_cast<float>(predictions.size());
    return elementwise_loss_impl<Exec>::run(exec, predictions.size(),
                                            [&](std::int64_t i) {
                                              auto const difference = predictions[i] - targets[i];
                                              gradient[i] = difference * scale;
                                              return static_cast<double>(difference) * static_cast<double>(difference);
                                            }) /
           n;
  }
};

struct sigmoid_forward_fn {
  template <execution Exec>
  void operator()(Exec const& exec, vector_view<float const> logits, vector_view<float> probabilities) const {
    check_loss("sigmoid_forward", logits.size(), probabilities.size(), logits.size());
    for_each_index(exec, logits.size(), loss_piece, [=](std::int64_t i) { probabilities[i] = sigmoid(logits[i]); });
  }
};

struct sigmoid_backward_fn {
  template <execution Exec>
  void operator()(Exec const& exec, vector_view<float const> probabilities, vector_view<float> gradient) const {
    check_loss("sigmoid_backward", probabilities.size(), gradient.size(), gradient.size());
    for_each_index(exec, gradient.size(), loss_piece, [=](std::int64_t i) { gradient[i] *= probabilities[i] * (1.0F - probabilities[i]); });
  }
};

}  // namespace detail

/// Mean binary cross entropy of sigmoid(logits), and its gradient by the logits: (sigmoid(logit) - label) / n.
///
/// `bce_with_logits(exec, logits, labels, gradient) -> mean loss`: all (n,); labels in [0, 1]; `gradient` may be `logits`. Summed in double
/// by fixed pieces. 0 for an empty batch. @throws tessera::error shape_mismatch.
inline constexpr detail::bce_with_logits_fn bce_with_logits{};

/// Mean squared error and its gradient 2 (prediction - target) / n; arguments and errors as `bce_with_logits`.
inline constexpr detail::mean_squared_error_fn mean_squared_error{};

/// probabilities = sigmoid(logits); both (n,), may be the same memory.
inline constexpr detail::sigmoid_forward_fn sigmoid_forward{};

/// Turns the gradient by the probabilities into that by the logits, in place; both (n,).
inline constexpr detail::sigmoid_backward_fn sigmoid_backward{};

}  // namespace tessera::inline TESSERA_ABI
