// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <tessera/nn/metrics.hpp>

#include <cmath>
#include <cstdint>
#include <new>
#include <string>
#include <string_view>
#include <vector>

#include "hosts.hpp"
#include "random.hpp"
#include "temporary_folder.hpp"

namespace {

using tessera::click_metrics;
using tessera::errc;
using tessera::regression_metrics;
using tessera::threshold_metrics;
using tessera_tests::error_of;
using tessera_tests::serial_host;

using floats = std::vector<float>;

struct samples {
  std::vector<float> logits, labels, weights;
};

samples random_samples(std::mt19937_64& random, std::size_t n) {
  samples result{tessera_tests::random_floats(random, n), std::vector<float>(n), std::vector<float>(n)};
  for (auto& label : result.labels) label = random() % 3 == 0 ? 1.0F : 0.0F;
  for (auto& weight : result.weights) weight = static_cast<float>(random() % 5) / 3;  // some are 0
  return result;
}

/// Whether an addition is refused by that value, and has changed nothing.
template <class Metric>
bool refused(Metric& metric, std::vector<float> const& logits, std::vector<float> const& labels, std::vector<float> const& weights,
             errc code, std::string_view name, std::string_view value) {
  serial_host host;
  auto const before = metric.samples();
  auto const e = error_of([&] { metric.add(host.exec(), logits, labels, weights); });
  return e.code() == code && e.value(name) == value && metric.samples() == before;
}

TEST_CASE("click_metrics match their definitions, with and without weights") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  serial_host host;
  auto const s = random_samples(random, 3000);
  for (bool const weighted : {false, true}) {
    CAPTURE(weighted);
    click_metrics metrics;
    metrics.add(host.exec(), s.logits, s.labels, weighted ? s.weights : floats{});
    double weights = 0, loss = 0, predicted = 0, clicks = 0;
    for (std::size_t i = 0; i < s.logits.size(); ++i) {
      auto const w = weighted ? static_cast<double>(s.weights[i]) : 1.0;
      auto const p = 1 / (1 + std::exp(-static_cast<double>(s.logits[i])));
      auto const y = static_cast<double>(s.labels[i]);
      weights += w;
      loss -= w * (y * std::log(p) + (1 - y) * std::log(1 - p));
      predicted += w * p;
      clicks += w * y;
    }
    auto const rate = clicks / weights;
    CHECK(metrics.samples() == 3000);
    CHECK(metrics.weight() == doctest::Approx(weights).epsilon(1e-12));
    CHECK(metrics.base_rate() == doctest::Approx(rate).epsilon(1e-12));
    CHECK(metrics.log_loss() == doctest::Approx(loss / weights).epsilon(1e-9));
    CHECK(metrics.calibration() == doctest::Approx(predicted / clicks).epsilon(1e-9));
    CHECK(metrics.normalised_entropy() ==
          doctest::Approx(loss / weights / -(rate * std::log(rate) + (1 - rate) * std::log(1 - rate))).epsilon(1e-9));
    metrics.clear();
    CHECK(metrics.samples() == 0);
    CHECK(std::isnan(metrics.log_loss()));
  }
}

TEST_CASE("click_metrics of samples and of their parts") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  serial_host host;
  auto const s = random_samples(random, 3000);
  click_metrics metrics;
  metrics.add(host.exec(), s.logits, s.labels);
  auto const rate = metrics.base_rate();

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

TEST_CASE("click_metrics: a weight is that many samples") {
  serial_host host;
  click_metrics weighted, repeated;
  weighted.add(host.exec(), floats{0.5F, -1, 2, 3}, floats{1, 0, 0.25F, 1}, floats{3, 1, 2, 0});
  repeated.add(host.exec(), floats{0.5F, 0.5F, 0.5F, -1, 2, 2}, floats{1, 1, 1, 0, 0.25F, 0.25F});
  CHECK(weighted.samples() == 4);
  CHECK(weighted.weight() == 6);
  CHECK(weighted.base_rate() == repeated.base_rate());
  CHECK(weighted.log_loss() == doctest::Approx(repeated.log_loss()).epsilon(1e-14));
  CHECK(weighted.calibration() == doctest::Approx(repeated.calibration()).epsilon(1e-14));
}

TEST_CASE("click_metrics: 1, 2 and 4 threads give the same bits") {
  std::mt19937_64 random(1);
  auto const s = random_samples(random, 5000);
  double first = 0;
  tessera_tests::for_each_host([&](tessera::host_exec const& exec, auto&) {
    click_metrics metrics;
    metrics.add(exec, s.logits, s.labels, s.weights);
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
    for (double const value : {metrics.base_rate(), metrics.log_loss(), metrics.normalised_entropy(), metrics.calibration()}) {
      CHECK(std::isnan(value));
      CHECK_FALSE(std::signbit(value));  // which a print would show
    }
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
  SUBCASE("bad samples are refused, nothing is added") {
    auto const nan = std::nanf("");
    CHECK(refused(metrics, {0, 0}, {1}, {}, errc::shape_mismatch, "labels", "1"));
    CHECK(refused(metrics, {0, 0}, {1, 1}, {1}, errc::shape_mismatch, "weights", "1"));
    CHECK(refused(metrics, {}, {}, {1}, errc::shape_mismatch, "weights", "1"));
    CHECK(refused(metrics, {0, nan}, {1, 1}, {}, errc::invalid_argument, "position", "1"));
    CHECK(refused(metrics, {0, HUGE_VALF}, {1, 1}, {}, errc::invalid_argument, "logit", "inf"));
    CHECK(refused(metrics, {0, 0}, {1.5F, 1}, {}, errc::invalid_argument, "label", "1.5"));
    CHECK(refused(metrics, {0, 0}, {1, -1}, {}, errc::invalid_argument, "position", "1"));
    CHECK(refused(metrics, {0, 0}, {1, nan}, {}, errc::invalid_argument, "position", "1"));
    CHECK(refused(metrics, {0, 0}, {1, 1}, {1, -2}, errc::invalid_argument, "weight", "-2"));
    CHECK(refused(metrics, {0, 0}, {1, 1}, {nan, 1}, errc::invalid_argument, "position", "0"));
    CHECK(refused(metrics, {0, 0}, {1, 1}, {HUGE_VALF, 1}, errc::invalid_argument, "position", "0"));
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

TEST_CASE("threshold_metrics match their definitions") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  auto const s = random_samples(random, 2000);
  for (double const threshold : {0.5, 0.3, 0.9}) {
    CAPTURE(threshold);
    double right = 0, all = 0, decided = 0, found = 0, positives = 0;
    for (std::size_t i = 0; i < s.logits.size(); ++i) {
      auto const w = static_cast<double>(s.weights[i]);
      bool const positive = s.labels[i] == 1, is_decided = 1 / (1 + std::exp(-static_cast<double>(s.logits[i]))) >= threshold;
      all += w;
      right += positive == is_decided ? w : 0;
      decided += is_decided ? w : 0;
      positives += positive ? w : 0;
      found += positive && is_decided ? w : 0;
    }
    double first = -1;
    tessera_tests::for_each_host([&](tessera::host_exec const& exec, auto&) {
      threshold_metrics whole(threshold), merged(threshold), second(threshold);
      whole.add(exec, s.logits, s.labels, s.weights);
      CHECK(whole.accuracy() == doctest::Approx(right / all).epsilon(1e-12));
      CHECK(whole.precision() == doctest::Approx(found / decided).epsilon(1e-12));
      CHECK(whole.recall() == doctest::Approx(found / positives).epsilon(1e-12));
      if (first < 0) first = whole.precision();
      CHECK(whole.precision() == first);
      tessera::vector_view<float const> const logits(s.logits), labels(s.labels), weights(s.weights);
      merged.add(exec, logits.slice(0, 700), labels.slice(0, 700), weights.slice(0, 700));
      second.add(exec, logits.slice(700, 1300), labels.slice(700, 1300), weights.slice(700, 1300));
      merged.merge(second);
      CHECK(merged.samples() == 2000);
      CHECK(merged.accuracy() == doctest::Approx(whole.accuracy()).epsilon(1e-12));
      CHECK(merged.recall() == doctest::Approx(whole.recall()).epsilon(1e-12));
      merged.clear();
      CHECK(merged.samples() == 0);
      CHECK(std::isnan(merged.accuracy()));
    });
  }
}

TEST_CASE("threshold_metrics at the edges") {
  serial_host host;
  SUBCASE("by hand: the threshold itself decides positive, part of a label counts as that part") {
    threshold_metrics metrics;
    metrics.add(host.exec(), floats{0, -1e-30F, 1, HUGE_VALF, -HUGE_VALF}, floats{1, 1, 0, 0.25F, 0});
    CHECK(metrics.accuracy() == (1 + 0.25 + 1) / 5.0);
    CHECK(metrics.precision() == 1.25 / 3);
    CHECK(metrics.recall() == 1.25 / 2.25);
  }
  SUBCASE("always and never") {
    threshold_metrics always(0), never(1);
    for (auto* const metrics : {&always, &never}) metrics->add(host.exec(), floats{-100, 100}, floats{0, 1});
    CHECK(always.recall() == 1);
    CHECK(always.accuracy() == 0.5);
    CHECK(never.recall() == 0);
    CHECK(std::isnan(never.precision()));
  }
  SUBCASE("no positives") {
    threshold_metrics metrics;
    metrics.add(host.exec(), floats{-1}, floats{0});
    CHECK(metrics.accuracy() == 1);
    CHECK(std::isnan(metrics.recall()));
  }
  SUBCASE("refusals") {
    threshold_metrics metrics;
    CHECK(refused(metrics, {0, 0}, {1}, {}, errc::shape_mismatch, "labels", "1"));
    CHECK(refused(metrics, {0, std::nanf("")}, {1, 1}, {}, errc::invalid_argument, "position", "1"));
    CHECK(refused(metrics, {0, 0}, {1, 2}, {}, errc::invalid_argument, "label", "2"));
    CHECK(refused(metrics, {0, 0}, {1, 1}, {1, -1}, errc::invalid_argument, "weight", "-1"));
    for (double const threshold : {-0.1, 1.5, std::nan("")}) CHECK_THROWS_AS(threshold_metrics{threshold}, tessera::error);
    threshold_metrics const other(0.25);
    CHECK(error_of([&] { metrics.merge(other); }).value("this") == "0");
  }
}

TEST_CASE("regression_metrics match their definitions") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  auto const s = random_samples(random, 1500);
  auto const targets = tessera_tests::random_floats(random, 1500);
  double weights = 0, square = 0, absolute = 0;
  for (std::size_t i = 0; i < s.logits.size(); ++i) {
    auto const w = static_cast<double>(s.weights[i]), d = static_cast<double>(s.logits[i]) - static_cast<double>(targets[i]);
    weights += w;
    square += w * d * d;
    absolute += w * std::fabs(d);
  }
  double first = -1;
  tessera_tests::for_each_host([&](tessera::host_exec const& exec, auto&) {
    regression_metrics whole, merged, second;
    CHECK(std::isnan(whole.mean_squared_error()));
    CHECK_FALSE(std::signbit(whole.mean_squared_error()));
    whole.add(exec, s.logits, targets, s.weights);
    CHECK(whole.mean_squared_error() == doctest::Approx(square / weights).epsilon(1e-12));
    CHECK(whole.mean_absolute_error() == doctest::Approx(absolute / weights).epsilon(1e-12));
    if (first < 0) first = whole.mean_squared_error();
    CHECK(whole.mean_squared_error() == first);
    tessera::vector_view<float const> const a(s.logits), b(targets), w(s.weights);
    merged.add(exec, a.slice(0, 999), b.slice(0, 999), w.slice(0, 999));
    second.add(exec, a.slice(999, 501), b.slice(999, 501), w.slice(999, 501));
    merged.merge(second);
    CHECK(merged.samples() == 1500);
    CHECK(merged.mean_squared_error() == doctest::Approx(first).epsilon(1e-12));
    CHECK(merged.mean_absolute_error() == doctest::Approx(whole.mean_absolute_error()).epsilon(1e-12));
  });
  regression_metrics metrics;
  CHECK(refused(metrics, {0, 0}, {1}, {}, errc::shape_mismatch, "labels", "1"));
  CHECK(refused(metrics, {0, HUGE_VALF}, {1, HUGE_VALF}, {}, errc::invalid_argument, "position", "1"));
  CHECK(refused(metrics, {0, 0}, {1, 1}, {1, -1}, errc::invalid_argument, "weight", "-1"));
}

}  // namespace
