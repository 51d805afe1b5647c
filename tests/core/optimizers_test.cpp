// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-optimize: -O2
#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include <tessera/core/optimizers.hpp>

#include "driven_row.hpp"

namespace {

using tessera_tests::as_double;
using tessera_tests::compare_with;
using tessera_tests::driven_row;

struct wrong_gradient_of : tessera::sgd {
  float gradient_of(float gradient) const { return gradient; }
};
struct changing_gradient_of : tessera::sgd {
  float gradient_of(float gradient, float) { return gradient; }
};
struct doubles_gradients : tessera::sgd {
  float gradient_of(float gradient, float) const { return 2 * gradient; }
};
static_assert(!tessera::optimizer_policy<wrong_gradient_of> && !tessera::optimizer_policy<changing_gradient_of>,
              "a gradient_of that nobody could call is a mistake");
static_assert(tessera::optimizer_policy<doubles_gradients>);
struct unchecked {
  static constexpr int row_state = 0;
  static constexpr int element_state = 0;
  float begin_row(float*, tessera::row_gradient const&) const { return 1; }
  void update(float&, float*, std::int64_t, float, float) const {}
};
static_assert(!tessera::uses_sum_of_squares<tessera::adam> && !tessera::uses_sum_of_squares<doubles_gradients>);

}  // namespace

TEST_CASE("momentum_sgd: PyTorch's known answers by hand") {
  auto const after = [](tessera::momentum_sgd const& optimizer, std::vector<float> const& gradients) {
    driven_row<tessera::momentum_sgd> row(optimizer, {1});
    std::int64_t step = 0;
    for (auto const g : gradients) row.step({g}, ++step);
    return as_double(row.weights[0]);
  };
  // Buffers 1, 1.9, 2.71.
  CHECK(after({.learning_rate = 0.1F, .momentum = 0.9F}, {1, 1, 1}) == doctest::Approx(1 - 0.561).epsilon(1e-6));
  // The first buffer is the gradient itself: 1, 1.4, 1.76.
  CHECK(after({.learning_rate = 0.1F, .momentum = 0.9F, .dampening = 0.5F}, {1, 1, 1}) == doctest::Approx(1 - 0.416).epsilon(1e-6));
  // Steps of 1 + 0.9, then 1 + 0.9 * 1.9.
  CHECK(after({.learning_rate = 0.1F, .momentum = 0.9F, .nesterov = true}, {1, 1}) == doctest::Approx(1 - 0.461).epsilon(1e-6));
  CHECK(after({.learning_rate = 0.5F, .momentum = 0}, {1, -2}) == 1.5);
}

TEST_CASE("momentum_sgd: a row first touched later starts from an empty buffer") {
  driven_row<tessera::momentum_sgd> row({.learning_rate = 1, .momentum = 0.5F, .dampening = 0.25F}, {0});
  row.step({4}, 7);
  CHECK(row.weights == std::vector<float>{-3});
  CHECK(row.state == std::vector<float>{3});
}

TEST_CASE("momentum_sgd follows a float64 reference") {
  for (bool const nesterov : {false, true})
    compare_with(tessera::momentum_sgd{.learning_rate = 0.02F, .momentum = 0.75F, .nesterov = nesterov},
                 [nesterov, v = std::vector<double>(19)](auto& w, auto const& g, std::int64_t) mutable {
                   for (std::size_t c = 0; c < w.size(); ++c) {
                     v[c] = 0.75 * v[c] + as_double(g[c]);
                     w[c] -= as_double(0.02F) * (nesterov ? as_double(g[c]) + 0.75 * v[c] : v[c]);
                   }
                 });
}

TEST_CASE("ftrl: two steps by hand, from a weight of 0") {
  driven_row<tessera::ftrl> row({.learning_rate = 0.5F, .beta = 1}, {0});
  row.step({3}, 1);  // z = 3, n = 9, w = -3 / (4 / 0.5)
  CHECK(row.weights == std::vector<float>{-0.375F});
  CHECK(row.state == std::vector<float>{3, 9});
  row.step({4}, 2);  // sigma = 2 / 0.5: z = 3 + 4 + 1.5, n = 25, w = -8.5 / (6 / 0.5)
  CHECK(row.state == std::vector<float>{8.5F, 25});
  CHECK(row.weights[0] == doctest::Approx(-8.5 / 12).epsilon(1e-6));
}

TEST_CASE("ftrl: lambda1 gives exact zeros, lambda2 shrinks, both by hand") {
  driven_row<tessera::ftrl> row({.learning_rate = 0.5F, .beta = 1, .lambda1 = 2, .lambda2 = 3}, {0, 0, 0, 0});
  row.step({2, -2, 4, -4}, 1);
  // |z| <= lambda1 twice; then (4 - 2) / ((1 + 4) / 0.5 + 3).
  CHECK(row.weights[0] == 0.0F);
  CHECK(row.weights[1] == 0.0F);
  CHECK(row.weights[2] == doctest::Approx(-2.0 / 13).epsilon(1e-6));
  CHECK(row.weights[3] == doctest::Approx(2.0 / 13).epsilon(1e-6));
}

TEST_CASE("ftrl: what becomes of an initial weight at its first update") {
  auto const first = [](tessera::ftrl const& optimizer, float weight, float gradient) {
    driven_row<tessera::ftrl> row(optimizer, {weight});
    row.step({gradient}, 1);
    return as_double(row.weights[0]);
  };
  // Kept wholly without beta, where the step is the learning rate, as Adagrad's first.
  CHECK(first({.learning_rate = 0.1F, .beta = 0}, 0.5F, 3) == doctest::Approx(0.4).epsilon(1e-6));
  CHECK(first({.learning_rate = 0.1F, .beta = 0}, 0.5F, -1e-3F) == doctest::Approx(0.6).epsilon(1e-6));
  // To |g| / (beta + |g| + lambda2 * learning_rate) otherwise.
  CHECK(first({.learning_rate = 0.1F, .beta = 1, .lambda2 = 20}, 0.5F, 3) == doctest::Approx(0.5 * 3 / 6 - 0.1 * 3 / 6).epsilon(1e-6));
  CHECK(first({.learning_rate = 0.1F, .beta = 1}, 0.5F, 0) == 0);
  CHECK(first({.learning_rate = 0.1F, .beta = 0}, 0.5F, 0) == 0);
  CHECK(std::isnan(first({}, 0.5F, std::nanf(""))));
  CHECK(std::isnan(first({}, std::nanf(""), 1)));
}

TEST_CASE("ftrl: each weight minimises what its name says") {
  // w = argmin g_1..t w + 1/2 sum sigma_s (w - w_s)^2 + beta / (2 alpha) w^2 + lambda1 |w| + lambda2 / 2 w^2, so that its subgradient
  // there is 0 (McMahan et al., section 3). sigma_1..t sums to sqrt(n) / alpha.
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  tessera::ftrl const optimizer{.learning_rate = 0.25F, .beta = 0.5F, .lambda1 = 0.75F, .lambda2 = 0.125F};
  int zeros = 0;
  for (int trial = 0; trial < 40; ++trial) {
    driven_row<tessera::ftrl> row(optimizer, tessera_tests::random_floats(random, 1));
    double gradients = 0, squares = 0, pulls = 0, sigmas = 0;
    for (std::int64_t step = 1; step <= 30; ++step) {
      auto const g = tessera_tests::random_floats(random, 1);
      double const x = as_double(g[0]), before = as_double(row.weights[0]);
      double const sigma = (std::sqrt(squares + x * x) - std::sqrt(squares)) / 0.25;
      gradients += x;
      squares += x * x;
      sigmas += sigma;
      pulls += sigma * before;
      row.step(g, step);
      double const w = as_double(row.weights[0]);
      double const smooth = gradients + sigmas * w - pulls + (0.5 / 0.25 + 0.125) * w;
      if (w == 0) {
        ++zeros;
        CHECK(std::abs(smooth) <= 0.75 + 1e-4);
      } else {
        CHECK(std::abs(smooth + (w > 0 ? 0.75 : -0.75)) < 2e-4);
      }
    }
  }
  CHECK(zeros > 20);
  CHECK(zeros < 1180);
}

TEST_CASE("learning rates and initial states are read and set by name") {
  tessera::adam moments;
  tessera::set_learning_rate(moments, 0.5F);
  CHECK(moments.learning_rate == 0.5F);
  CHECK(tessera::learning_rate_of(moments) == 0.5F);
  CHECK(tessera::learning_rate_of(tessera::ftrl{.learning_rate = 3}) == 3);
  CHECK(tessera::initial_state_of(tessera::adagrad{.initial_state = 0.25F}) == 0.25F);
  CHECK(tessera::initial_state_of(moments) == 0);
}

TEST_CASE("check_optimizer names policy, option and value of what learns nothing") {
  auto const nan = std::nanf("");
  auto const refuses = [](auto const& optimizer, char const* option, float value) {
    CAPTURE(option);
    CAPTURE(value);
    try {
      tessera::check_optimizer(optimizer);
      FAIL("taken");
    } catch (tessera::error const& e) {
      CHECK(e.code() == tessera::errc::invalid_argument);
      CHECK(e.sentence().starts_with(tessera::optimizer_name_of(optimizer)));
      CHECK(e.value(option) == tessera::error_value(option, value).value);
    }
  };
  for (float const bad : {nan, -0.1F, HUGE_VALF}) {
    refuses(tessera::sgd{bad}, "learning_rate", bad);
    refuses(tessera::momentum_sgd{.learning_rate = bad}, "learning_rate", bad);
    refuses(tessera::adagrad{.learning_rate = bad}, "learning_rate", bad);
    refuses(tessera::adagrad{.epsilon = bad}, "epsilon", bad);
    refuses(tessera::adagrad{.initial_state = bad}, "initial_state", bad);
    refuses(tessera::adam{.learning_rate = bad}, "learning_rate", bad);
    refuses(tessera::adam{.epsilon = bad}, "epsilon", bad);
    refuses(tessera::ftrl{.learning_rate = bad}, "learning_rate", bad);
    refuses(tessera::ftrl{.beta = bad}, "beta", bad);
    refuses(tessera::ftrl{.lambda1 = bad}, "lambda1", bad);
    refuses(tessera::ftrl{.lambda2 = bad}, "lambda2", bad);
  }
  for (float const bad : {nan, -0.1F, 1.0F}) {
    refuses(tessera::momentum_sgd{.momentum = bad}, "momentum", bad);
    refuses(tessera::momentum_sgd{.dampening = bad}, "dampening", bad);
    refuses(tessera::adam{.beta1 = bad}, "beta1", bad);
    refuses(tessera::adam{.beta2 = bad}, "beta2", bad);
  }
  refuses(tessera::ftrl{.learning_rate = 0}, "learning_rate", 0);
  // The ends that are taken, and a policy that checks nothing.
  tessera::check_optimizer(tessera::sgd{0});
  tessera::check_optimizer(tessera::momentum_sgd{.learning_rate = 0, .momentum = 0});
  tessera::check_optimizer(tessera::adagrad{.learning_rate = 0, .epsilon = 0});
  tessera::check_optimizer(tessera::adam{.learning_rate = 0, .beta1 = 0, .beta2 = 0, .epsilon = 0});
  tessera::check_optimizer(tessera::ftrl{.beta = 0});
  tessera::check_optimizer(unchecked{});
}
