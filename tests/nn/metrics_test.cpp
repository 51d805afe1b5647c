// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-labels: threads
#include <tessera/nn/metrics.hpp>

#include <cmath>
#include <new>
#include <vector>

#include "hosts.hpp"
#include "random.hpp"

namespace {

using tessera::click_metrics;
using tessera_tests::serial_host;

struct samples {
  std::vector<float> logits, labels;
};

samples random_samples(std::mt19937_64& random, std::size_t n) {
  samples result{tessera_tests::random_floats(random, n), std::vector<float>(n)};
  for (auto& label : result.labels) label = random() % 3 == 0 ? 1.0F : 0.0F;
  return result;
}

TEST_CASE("click_metrics match their definitions") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  serial_host host;
  auto const s = random_samples(random, 3000);
  click_metrics metrics;
  metrics.add(host.exec(), s.logits, s.labels);
  double loss = 0, predicted = 0, clicks = 0;
  for (std::size_t i = 0; i < s.logits.size(); ++i) {
    auto const p = 1 / (1 + std::exp(-static_cast<double>(s.logits[i])));
    auto const y = static_cast<double>(s.labels[i]);
    loss -= y * std::log(p) + (1 - y) * std::log(1 - p);
    predicted += p;
    clicks += y;
  }
  auto const rate = clicks / 3000;
  CHECK(metrics.samples() == 3000);
  CHECK(metrics.base_rate() == rate);
  CHECK(metrics.log_loss() == doctest::Approx(loss / 3000).epsilon(1e-9));
  CHECK(metrics.calibration() == doctest::Approx(predicted / clicks).epsilon(1e-9));
  CHECK(metrics.normalised_entropy() ==
        doctest::Approx(loss / 3000 / -(rate * std::log(rate) + (1 - rate) * std::log(1 - rate))).epsilon(1e-9));

  SUBCASE("predicting the base rate has a normalised entropy and a calibration of 1") {
    click_metrics constant;
    constant.add(host.exec(), std::vector<float>(3000, static_cast<float>(std::log(rate / (1 - rate)))), s.labels);
    CHECK(constant.normalised_entropy() == doctest::Approx(1).epsilon(1e-6));
    CHECK(constant.calibration() == doctest::Approx(1).epsilon(1e-6));
  }
  SUBCASE("parts merged are the whole") {
    for (std::int64_t const at : {0, 1, 1000, 1511, 3000}) {
      click_metrics merged, second;
      tessera::vector_view<float const> const logits(s.logits), labels(s.labels);
      merged.add(host.exec(), logits.slice(0, at), labels.slice(0, at));
      second.add(host.exec(), logits.slice(at, 3000 - at), labels.slice(at, 3000 - at));
      merged.merge(second);
      CHECK(merged.samples() == 3000);
      CHECK(merged.base_rate() == rate);
      CHECK(merged.log_loss() == doctest::Approx(metrics.log_loss()).epsilon(1e-12));
      CHECK(merged.calibration() == doctest::Approx(metrics.calibration()).epsilon(1e-12));
      CHECK(merged.normalised_entropy() == doctest::Approx(metrics.normalised_entropy()).epsilon(1e-12));
    }
  }
}

TEST_CASE("click_metrics: 1, 2 and 4 threads give the same bits") {
  std::mt19937_64 random(1);
  auto const s = random_samples(random, 5000);
  double first = 0;
  tessera_tests::for_each_host([&](tessera::host_exec const& exec, auto&) {
    click_metrics metrics;
    metrics.add(exec, s.logits, s.labels);
    if (first == 0) first = metrics.normalised_entropy();
    CHECK(metrics.normalised_entropy() == first);
  });
}

TEST_CASE("click_metrics at the edges") {
  serial_host host;
  click_metrics metrics;
  auto const add = [&](std::vector<float> const& logits, std::vector<float> const& labels) { metrics.add(host.exec(), logits, labels); };

  SUBCASE("without samples all is NaN") {
    add({}, {});
    CHECK(metrics.samples() == 0);
    for (double const value : {metrics.base_rate(), metrics.log_loss(), metrics.normalised_entropy(), metrics.calibration()})
      CHECK(std::isnan(value));
  }
  SUBCASE("all labels positive") {
    add({0, 0}, {1, 1});
    CHECK(metrics.base_rate() == 1);
    CHECK(metrics.log_loss() == doctest::Approx(std::log(2.0)));
    CHECK(metrics.calibration() == doctest::Approx(0.5));
    CHECK(std::isnan(metrics.normalised_entropy()));
  }
  SUBCASE("all labels negative") {
    add({0, 0}, {0, 0});
    CHECK(metrics.base_rate() == 0);
    CHECK(metrics.calibration() == HUGE_VAL);
    CHECK(std::isnan(metrics.normalised_entropy()));
  }
  SUBCASE("extreme logits") {
    add({1e4F, -1e4F, 1e4F, -1e4F}, {1, 0, 0, 1});
    CHECK(metrics.log_loss() == 5000);
    CHECK(metrics.calibration() == 1);
  }
  SUBCASE("sizes that differ are refused, nothing is added") {
    CHECK_THROWS_AS(add({0, 0}, {1}), tessera::error);
    CHECK(metrics.samples() == 0);
  }
  SUBCASE("when memory runs out nothing is added") {
    add({1, 2, 3}, {1, 0, 1});
    auto const loss = metrics.log_loss(), calibration = metrics.calibration();
    bool added = false;
    for (std::int64_t allowed = 0; !added; ++allowed) {
      host.memory().fail_after(allowed);
      try {
        add({5}, {0});
        added = true;
      } catch (std::bad_alloc const&) {
        CHECK(metrics.samples() == 3);
        CHECK(metrics.log_loss() == loss);
        CHECK(metrics.calibration() == calibration);
      }
    }
    CHECK(metrics.samples() == 4);
  }
}

}  // namespace
