// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/nn/loss.hpp>

#include "nn_harness.hpp"

namespace tessera_tests {

/// Cross entropy by its definition, in long double, with the tails' probabilities from the side that does not cancel.
inline double reference_cross_entropy(double logit, double label) {
  auto const x = static_cast<long double>(logit);
  auto const log_sigmoid = [](long double z) { return z > 0 ? -std::log1p(std::exp(-z)) : z - std::log1p(std::exp(z)); };
  auto const y = static_cast<long double>(label);
  return static_cast<double>(-(y * log_sigmoid(x) + (1 - y) * log_sigmoid(-x)));
}
inline double reference_sigmoid(double x) { return static_cast<double>(1 / (1 + std::exp(-static_cast<long double>(x)))); }

/// What the losses must show on every execution.
template <class Harness>
void loss_suite() {
  Harness harness;
  auto const seed = draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);

  struct outcome {
    double loss;
    std::vector<float> gradient;
  };
  auto const compute = [&](auto const& loss, std::vector<float> const& predictions, std::vector<float> const& targets) {
    auto const there_p = harness.put(predictions), there_t = harness.put(targets);
    auto there_g = harness.put(std::vector<float>(predictions.size(), std::nanf("")));
    auto const value = loss(harness.exec(), there_p, there_t, there_g);
    return outcome{value, harness.get(there_g)};
  };
  auto const in_place = [&](auto const& loss, std::vector<float> const& predictions, std::vector<float> const& targets) {
    auto there_p = harness.put(predictions);
    auto const there_t = harness.put(targets);
    auto const value = loss(harness.exec(), there_p, there_t, there_p);
    return outcome{value, harness.get(there_p)};
  };
  auto const random_labels = [&](std::size_t n) {
    std::vector<float> labels(n);
    for (auto& label : labels) label = static_cast<float>(random() % 5) / 4;  // soft labels too
    return labels;
  };

  SUBCASE("losses and gradients match a double reference, in place too") {
    for (auto const n : std::vector<std::size_t>{1, 2, 511, 512, 513, 5000}) {
      CAPTURE(n);
      auto predictions = random_floats(random, n);
      for (auto& p : predictions) p *= 5;
      auto const targets = random_labels(n);
      double cross_entropy = 0, squares = 0;
      std::vector<double> cross_entropy_gradient, squares_gradient;
      for (std::size_t i = 0; i < n; ++i) {
        auto const p = static_cast<double>(predictions[i]), t = static_cast<double>(targets[i]), count = static_cast<double>(n);
        cross_entropy += reference_cross_entropy(p, t) / count;
        squares += (p - t) * (p - t) / count;
        cross_entropy_gradient.push_back((reference_sigmoid(p) - t));
        squares_gradient.push_back(2 * (p - t));
      }
      auto const times_n = [n](std::vector<float> gradient) {
        for (auto& g : gradient) g *= static_cast<float>(n);
        return gradient;
      };
      auto const bce = compute(tessera::bce_with_logits, predictions, targets);
      CHECK(bce.loss == doctest::Approx(cross_entropy).epsilon(1e-12));
      CHECK(worst_difference(times_n(bce.gradient), cross_entropy_gradient) < 1e-6);
      auto const mse = compute(tessera::mean_squared_error, predictions, targets);
      CHECK(mse.loss == doctest::Approx(squares).epsilon(1e-6));
      CHECK(worst_difference(times_n(mse.gradient), squares_gradient) < 1e-6);

      auto const bce_in_place = in_place(tessera::bce_with_logits, predictions, targets);
      auto const mse_in_place = in_place(tessera::mean_squared_error, predictions, targets);
      CHECK(bce_in_place.loss == bce.loss);
      CHECK(mse_in_place.loss == mse.loss);
      CHECK(same_bits(bce_in_place.gradient, bce.gradient));
      CHECK(same_bits(mse_in_place.gradient, mse.gradient));
    }
  }

  SUBCASE("gradients match central differences of the reference") {
    auto const predictions = random_floats(random, 20);
    auto const targets = random_labels(20);
    auto const bce = compute(tessera::bce_with_logits, predictions, targets);
    auto const mse = compute(tessera::mean_squared_error, predictions, targets);
    for (std::size_t i = 0; i < 20; ++i) {
      auto x = static_cast<double>(predictions[i]);
      auto const t = static_cast<double>(targets[i]);
      auto const slope = numeric_derivative(
          x, [&] { return reference_cross_entropy(x, t) / 20; }, 1e-5);
      CHECK(static_cast<double>(bce.gradient[i]) == doctest::Approx(slope).epsilon(1e-5));
      auto const square_slope = numeric_derivative(
          x, [&] { return (x - t) * (x - t) / 20; }, 1e-5);
      CHECK(static_cast<double>(mse.gradient[i]) == doctest::Approx(square_slope).epsilon(1e-5));
    }
  }

  SUBCASE("extreme logits stay exact") {
    std::vector<float> const logits{1e4F, 1e4F, -1e4F, -1e4F, 3e38F, -3e38F, 90, -90, 0, -0.0F};
    std::vector<float> const labels{1, 0, 1, 0, 0, 0, 0, 1, 1, 0};
    std::vector<double> const losses{0, 1e4, 1e4, 0, static_cast<double>(3e38F), 0, 90, 90, std::log(2.0), std::log(2.0)};
    std::vector<double> const slopes{0, 1, -1, 0, 1, 0, 1, -1, -0.5, 0.5};
    for (std::size_t i = 0; i < logits.size(); ++i) {
      CAPTURE(i);
      auto const one = compute(tessera::bce_with_logits, {logits[i]}, {labels[i]});
      CHECK(one.loss == doctest::Approx(losses[i]).epsilon(1e-14));
      CHECK(static_cast<double>(one.gradient[0]) == doctest::Approx(slopes[i]).epsilon(1e-7));
    }
    CHECK(compute(tessera::bce_with_logits, {logits}, {labels}).loss > 1e37);
  }

  SUBCASE("a logit that is not finite shows in the loss") {
    for (float const logit : {HUGE_VALF, -HUGE_VALF, std::nanf("")})
      for (float const label : {0.0F, 1.0F}) {
        auto const result = compute(tessera::bce_with_logits, {0, logit, 0}, {0, label, 1});
        CHECK_FALSE(std::isfinite(result.loss));
        CHECK(std::isfinite(result.gradient[0]));
        CHECK(std::isnan(result.gradient[1]) == std::isnan(logit));
      }
  }

  SUBCASE("an empty batch costs nothing") {
    CHECK(compute(tessera::bce_with_logits, {}, {}).loss == 0);
    CHECK(compute(tessera::mean_squared_error, {}, {}).loss == 0);
  }

  SUBCASE("sigmoid forward and backward, in place") {
    std::vector<float> logits = random_floats(random, 1500);
    for (auto& x : logits) x *= 10;
    logits.insert(logits.end(), {0, 1e4F, -1e4F, HUGE_VALF, -HUGE_VALF, std::nanf("")});
    auto there = harness.put(logits);
    tessera::sigmoid_forward(harness.exec(), there, there);
    auto const probabilities = harness.get(there);
    auto const slopes_in = random_floats(random, logits.size());
    auto there_slopes = harness.put(slopes_in);
    tessera::sigmoid_backward(harness.exec(), there, there_slopes);
    auto const slopes = harness.get(there_slopes);
    for (std::size_t i = 0; i < 1500; ++i) {
      auto x = static_cast<double>(logits[i]);
      REQUIRE(static_cast<double>(probabilities[i]) == doctest::Approx(reference_sigmoid(x)).epsilon(1e-6));
      auto const slope = numeric_derivative(
          x, [&] { return reference_sigmoid(x); }, 1e-5);
      REQUIRE(static_cast<double>(slopes[i]) == doctest::Approx(slope * static_cast<double>(slopes_in[i])).epsilon(1e-5));
    }
    std::vector<float> const ends{0.5F, 1, 0, 1, 0};
    for (std::size_t i = 0; i < ends.size(); ++i) CHECK(probabilities[1500 + i] == ends[i]);
    CHECK(std::isnan(probabilities[1505]));
  }

  SUBCASE("sizes that differ are refused") {
    auto a = harness.put(std::vector<float>(3)), b = harness.put(std::vector<float>(4));
    CHECK_THROWS_AS(tessera::bce_with_logits(harness.exec(), a, b, a), tessera::error);
    CHECK_THROWS_AS(tessera::bce_with_logits(harness.exec(), a, a, b), tessera::error);
    CHECK_THROWS_AS(tessera::mean_squared_error(harness.exec(), b, a, b), tessera::error);
    CHECK_THROWS_AS(tessera::mean_squared_error(harness.exec(), a, a, b), tessera::error);
    CHECK_THROWS_AS(tessera::sigmoid_forward(harness.exec(), a, b), tessera::error);
    CHECK_THROWS_AS(tessera::sigmoid_backward(harness.exec(), a, b), tessera::error);
  }
}

}  // namespace tessera_tests
