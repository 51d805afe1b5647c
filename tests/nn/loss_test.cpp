// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-optimize: -O2, sanitizers -O0
#include <numeric>

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

TEST_CASE("bce_of_part: parts of a batch, by the weight of the whole, give its gradient and its loss") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  tessera_tests::serial_host host;
  auto const exec = host.exec();
  constexpr std::int64_t n = 700;
  auto const logits = tessera_tests::random_floats(random, n);
  std::vector<float> labels(n), weights(n);
  for (auto& label : labels) label = static_cast<float>(random() % 2);
  for (auto& weight : weights) weight = static_cast<float>(random() % 5);
  std::vector<float> whole(n), parts(n);
  auto const loss = tessera::bce_with_logits(exec, logits, labels, whole, weights);
  auto const total = tessera::bce_weight(exec, labels, weights);
  CHECK(total == std::accumulate(weights.begin(), weights.end(), 0.0));
  CHECK(tessera::bce_weight(exec, labels, {}) == n);
  double sum = 0;
  for (std::int64_t first = 0, size = 0; first < n; first += size) {
    size = std::min<std::int64_t>(static_cast<std::int64_t>(random() % 300), n - first);
    auto const part = [&](auto& of) { return tessera::vector_view<std::remove_reference_t<decltype(*of.data())>>(of).slice(first, size); };
    sum += tessera::bce_of_part(exec, part(logits), part(labels), part(parts), part(weights), total);
  }
  CHECK(parts == whole);
  CHECK(std::fabs(sum - loss) < 1e-12);
  CHECK_THROWS_AS(tessera::bce_of_part(exec, logits, labels, parts, weights, 1e-40), tessera::error);
  CHECK_THROWS_AS(tessera::bce_of_part(exec, logits, labels, parts, weights, -1), tessera::error);
  CHECK_THROWS_AS(tessera::bce_of_part(exec, logits, labels, parts, weights, std::nan("")), tessera::error);
  CHECK(parts == whole);
}
