// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <tessera/nn/binned_auc.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstdint>
#include <limits>
#include <new>
#include <string_view>
#include <vector>

#include <tessera/nn/auc.hpp>

#include "hosts.hpp"
#include "random.hpp"
#include "temporary_folder.hpp"

namespace {

using tessera::binned_auc;
using tessera::logit_bin;
using tessera_tests::error_of;
using tessera_tests::serial_host;

using floats = std::vector<float>;

struct weighted_samples {
  floats logits, labels, weights;
};

/// Logits around `mean`, labels that follow them a little, weights that are no dyadic fractions.
weighted_samples random_weighted_samples(std::mt19937_64& random, std::size_t n, float mean = 0) {
  weighted_samples s{tessera_tests::random_floats(random, n), floats(n), floats(n)};
  for (std::size_t i = 0; i < n; ++i) {
    s.labels[i] = random() % 4 == 0 ? 1.0F : 0.0F;
    s.logits[i] = 2 * s.logits[i] + s.labels[i] + mean;
    s.weights[i] = static_cast<float>(random() % 7) / 3;
  }
  return s;
}

/// All pairs by the product of their weights, of scores that are any ordered type.
template <class Score>
double naive_auc(std::vector<Score> const& scores, floats const& labels, floats const& weights) {
  double wins = 0, pairs = 0;
  for (std::size_t i = 0; i < scores.size(); ++i)
    for (std::size_t j = 0; j < scores.size(); ++j)
      if (labels[i] == 1 && labels[j] == 0) {
        auto const weight = static_cast<double>(weights[i]) * static_cast<double>(weights[j]);
        wins += weight * (scores[i] > scores[j] ? 1 : scores[i] == scores[j] ? 0.5 : 0);
        pairs += weight;
      }
  return wins / pairs;
}

}  // namespace

TEST_CASE("logit_bin never decreases and covers all bins") {
  SUBCASE("by hand") {
    CHECK(logit_bin(0, 1) == 0);
    CHECK(logit_bin(0, 2) == 1);
    CHECK(logit_bin(-1e-6F, 16384) == 8191);
    CHECK(logit_bin(8, 8) == 6);  // 1/2 + 8 / (2 * 16) = 3/4
    CHECK(logit_bin(-8, 8) == 2);
    for (std::int64_t const bins : {1, 3, 16384}) {
      CHECK(logit_bin(-HUGE_VALF, bins) == 0);
      CHECK(logit_bin(HUGE_VALF, bins) == bins - 1);
      CHECK(logit_bin(-FLT_MAX, bins) == 0);
      CHECK(logit_bin(FLT_MAX, bins) == bins - 1);
    }
  }
  SUBCASE("neighbouring floats of every size, bins finer than floats") {
    auto const seed = tessera_tests::draw_seed();
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    for (int i = 0; i < 20000; ++i) {
      auto const x = std::ldexp(1.0F + static_cast<float>(random() % 1000000) / 1e6F, static_cast<int>(random() % 200) - 100);
      auto const next = std::nextafter(x, HUGE_VALF);
      std::int64_t const bins = std::int64_t{1} << (random() % 50);
      CHECK(logit_bin(x, bins) <= logit_bin(next, bins));
      CHECK(logit_bin(-next, bins) <= logit_bin(-x, bins));
    }
  }
}

TEST_CASE("binned_auc is the AUC of the bins, and within its bound of the exact one") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  serial_host host;
  for (std::size_t const n : {2U, 10U, 300U, 600U})
    for (std::int64_t const count : {1, 2, 7, 100, 16384}) {
      CAPTURE(n);
      CAPTURE(count);
      auto s = random_weighted_samples(random, n);
      s.labels[0] = 1;
      s.labels[1] = 0;
      s.weights[0] = s.weights[1] = 0.3F;
      binned_auc weighted(count), plain(count);
      weighted.add(host.exec(), s.logits, s.labels, s.weights);
      plain.add(host.exec(), s.logits, s.labels);
      CHECK(weighted.samples() == static_cast<std::int64_t>(n));
      std::vector<std::int64_t> bins;
      for (auto const logit : s.logits) bins.push_back(logit_bin(logit, count));
      floats const ones(n, 1.0F);
      CHECK(weighted.value() == doctest::Approx(naive_auc(bins, s.labels, s.weights)).epsilon(1e-12));
      CHECK(plain.value() == doctest::Approx(naive_auc(bins, s.labels, ones)).epsilon(1e-12));
      CHECK(std::fabs(weighted.value() - naive_auc(s.logits, s.labels, s.weights)) <= weighted.error_bound() + 1e-12);
      CHECK(std::fabs(plain.value() - naive_auc(s.logits, s.labels, ones)) <= plain.error_bound() + 1e-12);
      if (count == 1) {
        CHECK(plain.value() == 0.5);
        CHECK(plain.error_bound() == 0.5);
      }
    }
}

TEST_CASE("binned_auc beside exact_auc on many samples, clicks rare too") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  serial_host host;
  for (float const mean : {0.0F, -4.0F, -7.0F}) {
    auto const s = random_weighted_samples(random, 100000, mean);
    binned_auc binned;
    tessera::exact_auc exact;
    binned.add(host.exec(), s.logits, s.labels);
    exact.add(s.logits, s.labels);
    CHECK(binned.error_bound() < 0.001);
    CHECK(std::fabs(binned.value() - exact.value(host.exec())) <= binned.error_bound());
    CHECK(binned.value() == doctest::Approx(exact.value(host.exec())).epsilon(2e-5));
    CHECK(binned.bytes() == 16 * 16384);
  }
}

TEST_CASE("binned_auc: the bound is reached by the worst scores") {
  serial_host host;
  binned_auc metric(16);
  metric.add(host.exec(), floats{0, 1e-6F}, floats{0, 1});  // exactly 1, in one bin
  CHECK(metric.value() == 0.5);
  CHECK(metric.error_bound() == 0.5);
  binned_auc apart(16);
  apart.add(host.exec(), floats{-100, 100, -100}, floats{0, 1, 0});
  CHECK(apart.value() == 1);
  CHECK(apart.error_bound() == 0);
}

TEST_CASE("binned_auc: parts merged are the whole, exactly without weights; 1, 2 and 4 threads give the same bits") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  auto const s = random_weighted_samples(random, 5000);
  double first = -1, first_weighted = -1;
  tessera_tests::for_each_host([&](tessera::host_exec const& exec, tessera_tests::counting_memory& memory) {
    binned_auc whole(500), weighted(500), merged(500), merged_weighted(500);
    whole.add(exec, s.logits, s.labels);
    weighted.add(exec, s.logits, s.labels, s.weights);
    CHECK(memory.peak_bytes() == 4 * 5000);
    if (first < 0) {
      first = whole.value();
      first_weighted = weighted.value();
    }
    CHECK(whole.value() == first);
    CHECK(weighted.value() == first_weighted);
    tessera::vector_view<float const> const logits(s.logits), labels(s.labels), weights(s.weights);
    for (std::int64_t i = 0; i < 5000; i += 1250) {
      binned_auc part(500), weighted_part(500);
      part.add(exec, logits.slice(i, 1250), labels.slice(i, 1250));
      weighted_part.add(exec, logits.slice(i, 1250), labels.slice(i, 1250), weights.slice(i, 1250));
      part.merge(merged);
      merged = part;
      merged_weighted.merge(weighted_part);
    }
    CHECK(merged.samples() == 5000);
    CHECK(merged.value() == first);
    CHECK(merged.error_bound() == whole.error_bound());
    CHECK(merged_weighted.value() == doctest::Approx(first_weighted).epsilon(1e-12));
    merged.clear();
    CHECK(merged.samples() == 0);
    CHECK(std::isnan(merged.value()));
    merged.add(exec, s.logits, s.labels);
    CHECK(merged.value() == first);
  });
}

TEST_CASE("binned_auc is NaN unless both labels have weight") {
  serial_host host;
  auto const is_nan = [&](floats const& labels, floats const& weights) {
    binned_auc metric(8);
    metric.add(host.exec(), floats(labels.size(), 1.0F), labels, weights);
    return std::isnan(metric.value()) && std::isnan(metric.error_bound());
  };
  CHECK(is_nan({}, {}));
  CHECK(is_nan({1, 1}, {}));
  CHECK(is_nan({0}, {}));
  CHECK(is_nan({0, 1}, {0, 1}));
  CHECK_FALSE(is_nan({0, 1}, {1, 1}));
}

TEST_CASE("binned_auc refuses what it cannot rank, and adds nothing of it") {
  serial_host host;
  binned_auc metric(64);
  metric.add(host.exec(), floats{1, 2, 0}, floats{0, 1, 1});
  auto const before = metric.value();
  auto const refused = [&](floats const& logits, floats const& labels, floats const& weights, tessera::errc code,
                           std::string_view position) {
    auto const e = error_of([&] { metric.add(host.exec(), logits, labels, weights); });
    return e.code() == code && e.value("position") == position && metric.samples() == 3 && metric.value() == before;
  };
  auto const nan = std::nanf("");
  CHECK(refused({1, nan}, {0, 1}, {}, tessera::errc::invalid_argument, "1"));
  CHECK(refused({1, 1, 1}, {0, 1, 0.5F}, {}, tessera::errc::invalid_argument, "2"));
  CHECK(refused({1}, {nan}, {}, tessera::errc::invalid_argument, "0"));
  CHECK(refused({1, 1}, {0, 1}, {1, -1}, tessera::errc::invalid_argument, "1"));
  CHECK(refused({1, 1}, {0, 1}, {nan, 1}, tessera::errc::invalid_argument, "0"));
  CHECK(refused({1, 2}, {0}, {}, tessera::errc::shape_mismatch, ""));
  CHECK(refused({1, 2}, {0, 1}, {1}, tessera::errc::shape_mismatch, ""));
  SUBCASE("no memory") {
    host.memory().fail_after(0);
    CHECK_THROWS_AS(metric.add(host.exec(), floats{1}, floats{1}), std::bad_alloc);
    CHECK(metric.samples() == 3);
    CHECK(metric.value() == before);
  }
  SUBCASE("other bins") {
    CHECK(error_of([&] { metric.merge(binned_auc(65)); }).value("other") == "65");
    CHECK(metric.samples() == 3);
    for (std::int64_t const bins : {std::int64_t{0}, std::int64_t{-1}, std::int64_t{1} << 31})
      CHECK(error_of([&] { binned_auc{bins}; }).code() == tessera::errc::invalid_argument);
  }
}
