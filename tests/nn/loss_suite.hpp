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
    auto const value = loss(harness.exec(), there_p, there_t, there_g, {});
    return outcome{value, harness.get(there_g)};
  };
  auto const in_place = [&](auto const& loss, std::vector<float> const& predictions, std::vector<float> const& targets) {
    auto there_p = harness.put(predictions);
    auto const there_t = harness.put(targets);
    auto const value = loss(harness.exec(), there_p, there_t, there_p, {});
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

  // A loss with weights, and how it is checked: the weighted mean of the loss of each prediction.
  auto const weighted = [&](auto const& loss, std::vector<float> const& predictions, std::vector<float> const& targets,
                            std::vector<float> const& weights) {
    auto const there_p = harness.put(predictions), there_t = harness.put(targets), there_w = harness.put(weights);
    auto there_g = harness.put(std::vector<float>(predictions.size(), std::nanf("")));
    auto const value = loss(harness.exec(), there_p, there_t, there_g, there_w);
    return outcome{value, harness.get(there_g)};
  };
  auto const check_weighted = [&](auto const& loss, auto const& reference) {
    for (auto const n : std::vector<std::size_t>{1, 2, 513, 5000}) {
      CAPTURE(n);
      auto const predictions = random_floats(random, n), targets = random_labels(n);
      auto weights = random_floats(random, n);
      for (auto& w : weights) w = random() % 4 == 0 ? 0 : std::fabs(w) + 0.01F;
      weights[0] = 2;
      double sum = 0, total = 0;
      for (std::size_t i = 0; i < n; ++i) total += static_cast<double>(weights[i]);
      std::vector<double> slopes;
      for (std::size_t i = 0; i < n; ++i) {
        auto p = static_cast<double>(predictions[i]);
        auto const t = static_cast<double>(targets[i]), w = static_cast<double>(weights[i]);
        sum += w * reference(p, t);
        slopes.push_back(w * numeric_derivative(
                                 p, [&] { return reference(p, t); }, 1e-5));
      }
      auto const result = weighted(loss, predictions, targets, weights);
      CHECK(result.loss == doctest::Approx(sum / total).epsilon(1e-6));
      auto gradient = result.gradient;
      for (auto& g : gradient) g *= static_cast<float>(total);
      CHECK(worst_difference(gradient, slopes) < 1e-5);

      // Weights of 1 change no bit, a power of two scales both means alike.
      auto const plain = compute(loss, predictions, targets), ones = weighted(loss, predictions, targets, std::vector<float>(n, 1.0F));
      CHECK(ones.loss == plain.loss);
      CHECK(same_bits(ones.gradient, plain.gradient));
      for (auto& w : weights) w *= 4;
      auto const scaled = weighted(loss, predictions, targets, weights);
      CHECK(scaled.loss == result.loss);
      CHECK(same_bits(scaled.gradient, result.gradient));
    }
    // Weight 0 silences what is not finite, and a whole batch of it costs nothing.
    auto const silenced = weighted(loss, {0.5F, std::nanf(""), HUGE_VALF}, {1, 1, std::nanf("")}, {3, 0, 0});
    auto const alone = compute(loss, {0.5F}, {1});
    CHECK(silenced.loss == doctest::Approx(alone.loss).epsilon(1e-7));
    CHECK(silenced.gradient[0] == doctest::Approx(alone.gradient[0]));
    CHECK(silenced.gradient[1] == 0);
    CHECK(silenced.gradient[2] == 0);
    auto const nothing = weighted(loss, {1, 2}, {0, 1}, {0, 0});
    CHECK(nothing.loss == 0);
    CHECK(nothing.gradient == std::vector<float>{0, 0});
    CHECK(weighted(loss, {}, {}, {}).loss == 0);

    for (float const bad : {-1.0F, -1e-30F, HUGE_VALF, std::nanf("")}) {
      std::vector<float> weights(1000, 1.0F);
      weights[700] = bad;
      auto gradient = harness.put(std::vector<float>(1000, 7.0F));
      auto const there = harness.put(std::vector<float>(1000, 0.5F)), there_weights = harness.put(weights);
      try {
        loss(harness.exec(), there, there, gradient, there_weights);
        FAIL("a weight was taken: ", bad);
      } catch (tessera::error const& e) {
        CHECK(e.code() == tessera::errc::invalid_argument);
        CHECK(e.value("position") == "700");
      }
      CHECK(harness.get(gradient) == std::vector<float>(1000, 7.0F));
    }

    // Sums of weights that a float can turn over, and those that it cannot.
    for (float const size : {1.2e-38F, 3.4e38F}) {
      auto const one = weighted(loss, {0.5F, 2.0F}, {1, 0}, {size, 0});
      CHECK(one.loss == doctest::Approx(alone.loss).epsilon(1e-6));
      CHECK(one.gradient[0] == doctest::Approx(alone.gradient[0]).epsilon(1e-5));
    }
    for (float const size : {1e-45F, 1e-39F, 2e38F}) {
      auto gradient = harness.put(std::vector<float>{7, 7});
      auto const there = harness.put(std::vector<float>{0.5F, 0.5F}), there_weights = harness.put(std::vector<float>{size, size});
      try {
        loss(harness.exec(), there, there, gradient, there_weights);
        FAIL("weights were taken: ", size);
      } catch (tessera::error const& e) {
        CHECK(e.code() == tessera::errc::invalid_argument);
        CHECK(std::stod(std::string(e.value("sum"))) == doctest::Approx(2 * static_cast<double>(size)));
      }
      CHECK(harness.get(gradient) == std::vector<float>{7, 7});
    }
    auto const three = harness.put(std::vector<float>(3)), four = harness.put(std::vector<float>(4));
    auto gradient = harness.put(std::vector<float>(3));
    try {
      loss(harness.exec(), three, three, gradient, four);
      FAIL("weights of another size were taken");
    } catch (tessera::error const& e) {
      CHECK(e.code() == tessera::errc::shape_mismatch);
      CHECK(e.value("weights") == "4");
    }
  };
  SUBCASE("weighted cross entropy is the weighted mean") { check_weighted(tessera::bce_with_logits, reference_cross_entropy); }
  SUBCASE("weighted squared error is the weighted mean") {
    check_weighted(tessera::mean_squared_error, [](double p, double t) { return (p - t) * (p - t); });
  }

  SUBCASE("several tasks: each the mean over its labels, NaN is none") {
    for (std::int64_t const samples : {1, 2, 513, 1500})
      for (std::int64_t const tasks : {1, 2, 7}) {
        CAPTURE(samples);
        CAPTURE(tasks);
        strided_floats const logits(random, samples, tasks, 2);
        strided_floats labels(samples, tasks, 1), gradient(samples, tasks, 3);
        std::vector<float> task_weights;
        std::vector<double> expected_losses;
        doubles expected_gradient(samples, tasks);
        double expected = 0;
        for (std::int64_t t = 0; t < tasks; ++t) {
          double count = 0, sum = 0;
          for (std::int64_t s = 0; s < samples; ++s) {
            bool const missing = t == 3 || random() % 3 == 0;  // task 3 has none
            if (missing) continue;
            labels.at(s, t) = static_cast<float>(random() % 5) / 4;
            sum += reference_cross_entropy(static_cast<double>(logits.at(s, t)), static_cast<double>(labels.at(s, t)));
            ++count;
          }
          task_weights.push_back(static_cast<float>(t) * 0.75F);  // the first has none
          auto const weight = static_cast<double>(task_weights.back());
          for (std::int64_t s = 0; s < samples; ++s)
            if (!std::isnan(labels.at(s, t)))
              expected_gradient.at(s, t) =
                  weight / count * (reference_sigmoid(static_cast<double>(logits.at(s, t))) - static_cast<double>(labels.at(s, t)));
          expected_losses.push_back(count > 0 ? sum / count : 0);
          expected += weight * expected_losses.back();
        }
        auto const there_logits = harness.put(logits.storage), there_labels = harness.put(labels.storage);
        auto there_gradient = harness.put(gradient.storage), there_both = harness.put(logits.storage);
        std::vector<double> losses(static_cast<std::size_t>(tasks), -1.0), again = losses;
        auto const total = tessera::multi_task_bce(harness.exec(), logits.in(there_logits.data()), labels.in(there_labels.data()),
                                                   task_weights, gradient.in(there_gradient.data()), losses);
        gradient.storage = harness.get(there_gradient);
        CHECK(total == doctest::Approx(expected).epsilon(1e-7));
        for (std::size_t t = 0; t < losses.size(); ++t) CHECK(losses[t] == doctest::Approx(expected_losses[t]).epsilon(1e-12));
        CHECK(worst_difference(gradient, expected_gradient) < 1e-6);
        CHECK(gradient.gaps_intact());

        // No weights are weights of 1, and the gradient may take the logits' place.
        CHECK(tessera::multi_task_bce(harness.exec(), logits.in(there_logits.data()), labels.in(there_labels.data()),
                                      std::vector<float>(static_cast<std::size_t>(tasks), 1.0F), gradient.in(there_gradient.data()),
                                      losses) == tessera::multi_task_bce(harness.exec(), logits.in(there_both.data()),
                                                                         labels.in(there_labels.data()), {}, logits.in(there_both.data()),
                                                                         again));
        CHECK(losses == again);
        auto both = logits;
        gradient.storage = harness.get(there_gradient);
        both.storage = harness.get(there_both);
        CHECK(worst_difference(both, doubles(gradient)) == 0);
      }
  }

  SUBCASE("labels that are no probability are refused, and nothing is written") {
    for (float const bad : {-1e-6F, 1.5F, -1.0F, HUGE_VALF, std::nanf("")}) {
      CAPTURE(bad);
      std::vector<float> labels(1200, 1.0F);
      labels[701] = bad;
      auto const there = harness.put(labels);
      auto gradient = harness.put(std::vector<float>(1200, 7.0F));
      std::vector<double> losses(2, 5.0);
      auto const refused = [&](auto const& call, char const* position, char const* task) {
        try {
          call();
          FAIL("a label was taken");
        } catch (tessera::error const& e) {
          CHECK(e.code() == tessera::errc::invalid_argument);
          CHECK(e.value("position") == position);
          CHECK(e.value("task") == task);
          CHECK(std::string(e.value("label")) == std::string(tessera::error_value("", bad).value));
        }
        CHECK(harness.get(gradient) == std::vector<float>(1200, 7.0F));
        CHECK(losses == std::vector<double>(2, 5.0));
      };
      refused([&] { tessera::bce_with_logits(harness.exec(), there, there, gradient); }, "701", "0");
      auto const both = tessera::matrix_view<float const>(there.data(), 600, 2);
      auto const call = [&] { tessera::multi_task_bce(harness.exec(), both, both, {}, {gradient.data(), 600, 2}, losses); };
      if (std::isnan(bad))
        call();  // missing
      else
        refused(call, "350", "1");
    }
    // A squared error has targets, not labels.
    CHECK(compute(tessera::mean_squared_error, {1}, {3}).loss == 4);
  }

  SUBCASE("one task is bce_with_logits, to the bit") {
    auto const logits = random_floats(random, 3000), labels = random_labels(3000);
    auto const plain = compute(tessera::bce_with_logits, logits, labels);
    auto const there_logits = harness.put(logits), there_labels = harness.put(labels);
    auto there_gradient = harness.put(logits);
    double loss = 0;
    auto const total = tessera::multi_task_bce(harness.exec(), tessera::matrix_view<float const>(there_logits.data(), 3000, 1),
                                               tessera::matrix_view<float const>(there_labels.data(), 3000, 1), {},
                                               {there_gradient.data(), 3000, 1}, tessera::vector_view<double>(&loss, 1));
    CHECK(loss == plain.loss);
    CHECK(total == plain.loss);
    CHECK(same_bits(harness.get(there_gradient), plain.gradient));
  }

  SUBCASE("several tasks: what does not fit is refused; an empty batch costs nothing") {
    auto there = harness.put(std::vector<float>(64, 1));
    std::vector<double> losses(3, 5.0);
    auto const matrix = [&](std::int64_t rows, std::int64_t columns) { return tessera::matrix_view<float>(there.data(), rows, columns); };
    using doubles_view = tessera::vector_view<double>;
    auto const refused = [&](auto logits, auto labels, std::vector<float> const& weights, auto gradient, doubles_view out) {
      try {
        tessera::multi_task_bce(harness.exec(), logits, labels, weights, gradient, out);
      } catch (tessera::error const& e) {
        return e.code();
      }
      return tessera::errc::io_error;
    };
    auto const m = matrix(4, 3);
    CHECK(refused(m, matrix(4, 2), {}, m, losses) == tessera::errc::shape_mismatch);
    CHECK(refused(m, matrix(3, 3), {}, m, losses) == tessera::errc::shape_mismatch);
    CHECK(refused(m, m, {}, matrix(4, 2), losses) == tessera::errc::shape_mismatch);
    CHECK(refused(m, m, {1, 1}, m, losses) == tessera::errc::shape_mismatch);
    CHECK(refused(m, m, {}, m, doubles_view(losses).slice(0, 2)) == tessera::errc::shape_mismatch);
    CHECK(refused(m, m, {1, -1, 1}, m, losses) == tessera::errc::invalid_argument);
    CHECK(refused(m, m, {1, 1, std::nanf("")}, m, losses) == tessera::errc::invalid_argument);
    CHECK(losses == std::vector<double>(3, 5.0));
    CHECK(tessera::multi_task_bce(harness.exec(), matrix(0, 3), matrix(0, 3), {}, matrix(0, 3), losses) == 0);
    CHECK(losses == std::vector<double>(3, 0.0));
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
