// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-optimize: -O2
#include "loss_suite.hpp"

namespace {

TEST_CASE("losses on the host") { tessera_tests::loss_suite<tessera_tests::nn_host<tessera_tests::naive_gemm>>(); }

TEST_CASE("losses: 1, 2 and 4 threads give the same bits") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  auto const predictions = tessera_tests::random_floats(random, 10'000);
  auto targets = tessera_tests::random_floats(random, 10'000);
  for (auto& t : targets) t = std::min(std::fabs(t), 1.0F);
  auto weights = tessera_tests::random_floats(random, 10'000);
  for (auto& w : weights) w = std::fabs(w);
  double first_bce = 0, first_mse = 0;
  std::vector<float> first_gradient;
  tessera_tests::for_each_host([&](tessera::host_exec const& exec, auto&) {
    std::vector<float> gradient(predictions.size()), other(predictions.size());
    auto const bce = tessera::bce_with_logits(exec, predictions, targets, gradient, weights);
    auto const mse = tessera::mean_squared_error(exec, predictions, targets, other, weights);
    gradient.insert(gradient.end(), other.begin(), other.end());
    tessera::sigmoid_forward(exec, predictions, other);
    gradient.insert(gradient.end(), other.begin(), other.end());
    if (first_gradient.empty()) {
      first_bce = bce;
      first_mse = mse;
      first_gradient = gradient;
    }
    CHECK(bce == first_bce);
    CHECK(mse == first_mse);
    CHECK(tessera_tests::same_bits(gradient, first_gradient));
  });
}

TEST_CASE("losses: one element") {
  CHECK(tessera::sigmoid(0) == 0.5F);
  CHECK(tessera::sigmoid(-100) > 0);
  CHECK(tessera::sigmoid(-1e4F) == 0);
  CHECK(tessera::sigmoid(1e4F) == 1);
  CHECK(tessera::logistic_loss(0, 1) == doctest::Approx(std::log(2.0)));
  CHECK(tessera::logistic_loss(-1e308, 1) == doctest::Approx(1e308));
  CHECK(tessera::logistic_loss(1e308, 1) == 0);
  CHECK(std::isnan(tessera::logistic_loss(HUGE_VAL, 1)));
  CHECK(std::isnan(tessera::logistic_loss(-HUGE_VAL, 0)));
}

}  // namespace
