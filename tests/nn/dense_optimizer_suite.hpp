// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/optimizer_adaptors.hpp>
#include <tessera/nn/dense_optimizer.hpp>

#include "nn_harness.hpp"

namespace tessera_tests {

/// One parameter in double, by the formulas of PyTorch's documentation of torch.optim.SGD, Adagrad and Adam.
struct reference_sgd {
  double learning_rate;
  void step(double& weight, double gradient) { weight -= learning_rate * gradient; }
};
struct reference_adagrad {
  double learning_rate, epsilon, sum;
  void step(double& weight, double gradient) {
    sum += gradient * gradient;
    weight -= learning_rate * gradient / (std::sqrt(sum) + epsilon);
  }
};
struct reference_adam {
  double learning_rate, beta1, beta2, epsilon;
  double moment1 = 0, moment2 = 0;
  int t = 0;
  void step(double& weight, double gradient) {
    ++t;
    moment1 = beta1 * moment1 + (1 - beta1) * gradient;
    moment2 = beta2 * moment2 + (1 - beta2) * gradient * gradient;
    auto const corrected1 = moment1 / (1 - std::pow(beta1, t));
    auto const corrected2 = moment2 / (1 - std::pow(beta2, t));
    weight -= learning_rate * corrected1 / (std::sqrt(corrected2) + epsilon);
  }
};

struct reference_momentum {
  double learning_rate, momentum, dampening;
  bool nesterov;
  double buffer = 0;
  int t = 0;
  void step(double& weight, double gradient) {
    buffer = ++t == 1 ? gradient : momentum * buffer + (1 - dampening) * gradient;
    weight -= learning_rate * (nesterov ? gradient + momentum * buffer : buffer);
  }
};
/// McMahan et al., KDD 2013, algorithm 1, with a weight that need not start at 0.
struct reference_ftrl {
  double alpha, beta, lambda1, lambda2;
  double z = 0, n = 0;
  void step(double& weight, double gradient) {
    double const sigma = (std::sqrt(n + gradient * gradient) - std::sqrt(n)) / alpha;
    z += gradient - sigma * weight;
    n += gradient * gradient;
    weight = std::abs(z) <= lambda1 ? 0 : -(z - (z > 0 ? lambda1 : -lambda1)) / ((beta + std::sqrt(n)) / alpha + lambda2);
  }
};
/// Any of them after PyTorch's weight_decay and a clip of each element; and after the decay of AdamW.
template <class Reference>
struct reference_decayed {
  Reference reference;
  double decay, limit, shrink;
  void step(double& weight, double gradient) {
    double const changed = std::max(-limit, std::min(limit, gradient + decay * weight));
    weight *= shrink;
    reference.step(weight, changed);
  }
};

/// What `dense_update` must show on every execution.
template <class Harness>
void dense_optimizer_suite() {
  Harness harness;
  auto const seed = draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);

  auto const follows = [&](auto const& optimizer, auto const& reference, std::size_t n) {
    auto const initial = random_floats(random, n);
    auto there = harness.put(initial);
    std::vector<double> expected(initial.begin(), initial.end());
    std::vector references(n, reference);
    tessera::dense_optimizer_state state(harness.exec(), static_cast<std::int64_t>(n), optimizer);
    for (int step = 1; step <= 50; ++step) {
      auto gradient = random_floats(random, n);
      for (std::size_t i = 0; i < n; ++i) {
        if (i % 7 == 0) gradient[i] = 0;
        if (i % 5 == 0) gradient[i] *= 1e-3F;
        references[i].step(expected[i], static_cast<double>(gradient[i]));
      }
      auto const there_gradient = harness.put(gradient);
      tessera::dense_update(harness.exec(), there, there_gradient, state, optimizer);
      REQUIRE(state.steps() == tessera::step_count{step});
      REQUIRE(worst_difference(harness.get(there), expected) < 1e-5);
    }
  };

  SUBCASE("50 steps follow PyTorch's formulas in double") {
    for (auto const n : std::vector<std::size_t>{1, 37, 20'000}) {
      if (under_sanitizer && n > 1000) continue;
      CAPTURE(n);
      follows(tessera::sgd{0.1F}, reference_sgd{0.1}, n);
      follows(tessera::adagrad{.learning_rate = 0.05F}, reference_adagrad{0.05, 1e-10, 0}, n);
      follows(tessera::adagrad{.learning_rate = 0.05F, .epsilon = 1e-3F, .initial_state = 0.25F}, reference_adagrad{0.05, 1e-3, 0.25}, n);
      follows(tessera::adam{}, reference_adam{1e-3, 0.9, 0.999, 1e-8}, n);
      follows(tessera::adam{.learning_rate = 0.01F, .beta1 = 0.5F, .beta2 = 0.9F, .epsilon = 1e-4F}, reference_adam{0.01, 0.5, 0.9, 1e-4},
              n);
      follows(tessera::momentum_sgd{.learning_rate = 0.01F}, reference_momentum{0.01, 0.9, 0, false}, n);
      follows(tessera::momentum_sgd{.learning_rate = 0.01F, .momentum = 0.5F, .dampening = 0.25F},
              reference_momentum{0.01, 0.5, 0.25, false}, n);
      follows(tessera::momentum_sgd{.learning_rate = 0.01F, .nesterov = true}, reference_momentum{0.01, 0.9, 0, true}, n);
      follows(tessera::ftrl{.learning_rate = 0.05F}, reference_ftrl{0.05, 1, 0, 0}, n);
      follows(tessera::ftrl{.learning_rate = 0.05F, .beta = 0.5F, .lambda2 = 2}, reference_ftrl{0.05, 0.5, 0, 2}, n);
    }
  }

  SUBCASE("50 steps with decay and clipping around an optimizer") {
    using namespace tessera;
    std::size_t const n = 1000;
    follows(with_value_clipping{with_weight_decay{adam{}, 0.25F}, 10.0F},
            reference_decayed<reference_adam>{{1e-3, 0.9, 0.999, 1e-8}, 0.25, 10, 1}, n);
    follows(with_weight_decay{with_value_clipping{momentum_sgd{.learning_rate = 0.01F}, 0.5F}, 0.25F},
            reference_decayed<reference_momentum>{{0.01, 0.9, 0, false}, 0.25, 0.5, 1}, n);
    follows(with_decoupled_weight_decay{with_value_clipping{adagrad{.learning_rate = 0.05F, .epsilon = 1e-3F}, 0.75F}, 0.5F},
            reference_decayed<reference_adagrad>{{0.05, 1e-3, 0}, 0, 0.75, 1 - 0.05 * 0.5}, n);
  }

  SUBCASE("ftrl: as in float64, elements are exactly 0 or far from it") {
    auto const initial = random_floats(random, 500), gradient = random_floats(random, 500);
    auto there = harness.put(initial);
    auto const there_gradient = harness.put(gradient);
    tessera::ftrl const optimizer{.learning_rate = 0.5F, .beta = 0.5F, .lambda1 = 1};
    tessera::dense_optimizer_state state(harness.exec(), 500, optimizer);
    tessera::dense_update(harness.exec(), there, there_gradient, state, optimizer);
    auto const moved = harness.get(there);
    int zeros = 0, wrong = 0;
    for (std::size_t i = 0; i < 500; ++i) {
      auto const g = static_cast<double>(gradient[i]), z = g - std::abs(g) / 0.5 * static_cast<double>(initial[i]);
      if (std::abs(std::abs(z) - 1) < 1e-5) continue;
      zeros += moved[i] == 0;
      wrong += (std::abs(z) < 1) != (moved[i] == 0);
    }
    CHECK(wrong == 0);
    CHECK(zeros > 0);
    CHECK(zeros < 500);
  }

  SUBCASE("a step past 2^20: Adam's corrections are 1, not NaN") {
    auto there = harness.put(std::vector<float>{1});
    auto const there_gradient = harness.put(std::vector<float>{1});
    tessera::adam const optimizer{.learning_rate = 0.5F, .beta1 = 0, .beta2 = 0.5F};
    tessera::dense_optimizer_state state(harness.exec(), 1, optimizer);
    state.set_steps(tessera::step_count{1 << 20});
    tessera::dense_update(harness.exec(), there, there_gradient, state, optimizer);
    CHECK(harness.get(there)[0] == doctest::Approx(1 - 0.5 / std::sqrt(0.5)).epsilon(1e-6));
  }

  SUBCASE("Adam's first step moves every parameter by the learning rate against the sign of its gradient") {
    std::vector<float> const gradient{1, -1, 1e-3F, -250, 0, 1e4F};
    auto there = harness.put(std::vector<float>(gradient.size()));
    auto const there_gradient = harness.put(gradient);
    tessera::adam const optimizer{.learning_rate = 0.25F};
    tessera::dense_optimizer_state state(harness.exec(), 6, optimizer);
    tessera::dense_update(harness.exec(), there, there_gradient, state, optimizer);
    auto const moved = harness.get(there);
    for (std::size_t i = 0; i < moved.size(); ++i)
      CHECK(moved[i] == doctest::Approx(gradient[i] == 0 ? 0 : gradient[i] > 0 ? -0.25 : 0.25).epsilon(2e-5));
  }

  SUBCASE("known answers") {
    auto const after = [&](auto const& optimizer, std::vector<float> const& gradients) {
      auto there = harness.put(std::vector<float>{1});
      tessera::dense_optimizer_state state(harness.exec(), 1, optimizer);
      for (auto const g : gradients) {
        auto const there_gradient = harness.put(std::vector<float>{g});
        tessera::dense_update(harness.exec(), there, there_gradient, state, optimizer);
      }
      return static_cast<double>(harness.get(there)[0]);
    };
    CHECK(after(tessera::sgd{0.5F}, {0.25F, -1}) == 1.375);
    CHECK(after(tessera::adagrad{.learning_rate = 0.5F}, {3, 4}) == doctest::Approx(1 - 0.5 - 0.5 * 4 / 5).epsilon(1e-6));
    // By hand, g = 1 twice: both corrected moments are 1, so each step moves by 0.1.
    CHECK(after(tessera::adam{.learning_rate = 0.1F, .beta1 = 0.5F, .beta2 = 0.5F}, {1, 1}) == doctest::Approx(0.8).epsilon(1e-6));
    // g = 1, then 0: both corrected moments are 0.25 / 0.75, so the second step is 0.1 sqrt(1 / 3).
    CHECK(after(tessera::adam{.learning_rate = 0.1F, .beta1 = 0.5F, .beta2 = 0.5F}, {1, 0}) ==
          doctest::Approx(0.9 - 0.1 * std::sqrt(1.0 / 3)).epsilon(1e-6));
  }

  SUBCASE("a state is one plane of all parameters after the other") {
    std::vector<float> const gradient{1, 2, 3};
    auto there = harness.put(std::vector<float>(3));
    auto const there_gradient = harness.put(gradient);
    tessera::adam const adam{.beta1 = 0.5F, .beta2 = 0.75F};
    tessera::dense_optimizer_state state(harness.exec(), 3, adam);
    CHECK(harness.get(state.planes()) == std::vector<float>(6));
    tessera::dense_update(harness.exec(), there, there_gradient, state, adam);
    CHECK(harness.get(state.planes()) == std::vector<float>{0.5F, 1, 1.5F, 0.25F, 1, 2.25F});
    tessera::adagrad const adagrad{.initial_state = 0.5F};
    tessera::dense_optimizer_state sums(harness.exec(), 3, adagrad);
    CHECK(harness.get(sums.planes()) == std::vector<float>(3, 0.5F));
    tessera::dense_update(harness.exec(), there, there_gradient, sums, adagrad);
    CHECK(harness.get(sums.planes()) == std::vector<float>{1.5F, 4.5F, 9.5F});
    CHECK(tessera::dense_optimizer_state(harness.exec(), 3, tessera::sgd{}).planes().empty());
  }

  SUBCASE("what does not fit is refused: nothing moves, no step is counted") {
    auto there = harness.put(std::vector<float>(4, 1));
    auto const good = harness.put(std::vector<float>(4, 1)), wrong = harness.put(std::vector<float>(3, 1));
    tessera::dense_optimizer_state state(harness.exec(), 4, tessera::adam{});
    tessera::dense_optimizer_state small(harness.exec(), 3, tessera::adam{});
    tessera::dense_optimizer_state none;
    auto const refused = [&](auto const& gradient, tessera::dense_optimizer_state& s, auto const& optimizer) {
      try {
        tessera::dense_update(harness.exec(), there, gradient, s, optimizer);
      } catch (tessera::error const& e) {
        return e.code() == tessera::errc::shape_mismatch && s.steps() == tessera::step_count{0} &&
               harness.get(there) == std::vector<float>(4, 1);
      }
      return false;
    };
    CHECK(refused(wrong, state, tessera::adam{}));
    CHECK(refused(good, small, tessera::adam{}));
    CHECK(refused(good, none, tessera::sgd{}));
    CHECK(refused(good, state, tessera::adagrad{}));
    CHECK(refused(good, state, tessera::sgd{}));
    CHECK_FALSE(refused(good, state, tessera::adam{}));
    tessera::dense_optimizer_state sums(harness.exec(), 4, tessera::adagrad{});  // of the same shape as velocities
    CHECK_THROWS_WITH_AS(tessera::dense_update(harness.exec(), there, good, sums, tessera::momentum_sgd{}),
                         "dense_update: the optimizer state is of another kind (built for adagrad, optimizer momentum_sgd)",
                         tessera::error);
    CHECK(sums.steps().value == 0);
    auto const before = harness.get(there);
    CHECK_THROWS_AS(tessera::dense_update(harness.exec(), there, good, state, tessera::adam{.beta1 = 1}), tessera::error);
    CHECK(harness.get(there) == before);
    CHECK(state.steps() == tessera::step_count{1});
    CHECK_THROWS_AS(tessera::dense_optimizer_state(harness.exec(), 4, tessera::adagrad{.initial_state = -1}), tessera::error);
  }

  SUBCASE("no parameters: the step counts") {
    tessera::dense_optimizer_state state(harness.exec(), 0, tessera::adam{});
    auto there = harness.put(std::vector<float>{});
    tessera::dense_update(harness.exec(), there, there, state, tessera::adam{});
    CHECK(state.steps() == tessera::step_count{1});
  }
}

}  // namespace tessera_tests
