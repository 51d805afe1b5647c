// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <tessera/nn/auc.hpp>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "nn_harness.hpp"

namespace {

using tessera::exact_auc;
using tessera_tests::serial_host;

double auc_of(std::vector<float> const& scores, std::vector<float> const& labels) {
  serial_host host;
  exact_auc auc;
  auc.add(scores, labels);
  return auc.value(host.exec());
}

/// The definition: all pairs.
double naive_auc(std::vector<float> const& scores, std::vector<float> const& labels) {
  double wins = 0, pairs = 0;
  for (std::size_t i = 0; i < scores.size(); ++i)
    for (std::size_t j = 0; j < scores.size(); ++j)
      if (labels[i] == 1 && labels[j] == 0) {
        wins += scores[i] > scores[j] ? 1 : scores[i] == scores[j] ? 0.5 : 0;
        pairs += 1;
      }
  return wins / pairs;
}

/// By the ranks of a sort, ties sharing their mean rank.
double ranked_auc(std::vector<float> const& scores, std::vector<float> const& labels) {
  std::vector<std::size_t> order(scores.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return scores[a] < scores[b]; });
  double ranks = 0, positives = 0;
  for (std::size_t i = 0; i < order.size();) {
    auto last = i;
    double tied = 0;
    for (; last < order.size() && scores[order[last]] == scores[order[i]]; ++last) tied += static_cast<double>(labels[order[last]]);
    ranks += tied * (static_cast<double>(i + last + 1) / 2);
    positives += tied;
    i = last;
  }
  return (ranks - positives * (positives + 1) / 2) / (positives * (static_cast<double>(scores.size()) - positives));
}

std::vector<float> random_labels(std::mt19937_64& random, std::size_t n) {
  std::vector<float> labels(n);
  for (auto& label : labels) label = random() % 4 == 0 ? 1.0F : 0.0F;
  labels[0] = 1;  // both occur
  labels[1] = 0;
  return labels;
}

TEST_CASE("exact_auc counts pairs, ties as halves") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  for (auto const n : std::vector<std::size_t>{2, 3, 10, 100, 700})
    for (unsigned const values : {1U, 2U, 7U, 1000000U}) {
      CAPTURE(n);
      CAPTURE(values);
      std::vector<float> scores(n);
      for (auto& score : scores) score = static_cast<float>(random() % values) - static_cast<float>(values / 2);
      auto const labels = random_labels(random, n);
      CHECK(auc_of(scores, labels) == doctest::Approx(naive_auc(scores, labels)).epsilon(1e-14));
    }
}

TEST_CASE("exact_auc: known values") {
  CHECK(auc_of({1, 2, 3, 4}, {0, 0, 1, 1}) == 1);
  CHECK(auc_of({1, 2, 3, 4}, {1, 1, 0, 0}) == 0);
  CHECK(auc_of({0.1F, 0.4F, 0.35F, 0.8F}, {0, 0, 1, 1}) == 0.75);  // the example of scikit-learn's roc_auc_score
  CHECK(auc_of({5, 5, 5}, {0, 1, 0}) == 0.5);
  CHECK(auc_of({-0.0F, 0.0F}, {1, 0}) == 0.5);
  CHECK(auc_of({-0.0F, 0.0F}, {0, 1}) == 0.5);
  CHECK(auc_of({-HUGE_VALF, -3e38F, 3e38F, HUGE_VALF}, {0, 0, 1, 1}) == 1);
  CHECK(auc_of({HUGE_VALF, HUGE_VALF, -HUGE_VALF}, {0, 1, 0}) == 0.75);
  CHECK(auc_of({-1e-45F, 0, 1e-45F}, {0, 1, 1}) == 1);
  CHECK(auc_of({-2, -1, 1, 2}, {1, 0, 1, 0}) == 0.25);
}

TEST_CASE("exact_auc is NaN unless both labels occur") {
  CHECK(std::isnan(auc_of({}, {})));
  CHECK(std::isnan(auc_of({1, 2}, {1, 1})));
  CHECK(std::isnan(auc_of({1, 2}, {0, 0})));
}

TEST_CASE("exact_auc refuses what it cannot rank, and adds nothing of it") {
  serial_host host;
  exact_auc auc;
  auc.add(std::vector<float>{1, 2, 0}, std::vector<float>{0, 1, 1});
  auto const before = auc.value(host.exec());
  auto const refused = [&](std::vector<float> const& scores, std::vector<float> const& labels, tessera::errc code,
                           std::string_view position) {
    try {
      auc.add(scores, labels);
    } catch (tessera::error const& e) {
      return e.code() == code && e.value("position") == position && auc.samples() == 3 && auc.value(host.exec()) == before;
    }
    return false;
  };
  auto const nan = std::nanf("");
  CHECK(refused({1, nan}, {0, 1}, tessera::errc::invalid_argument, "1"));
  CHECK(refused({1, -nan}, {0, 1}, tessera::errc::invalid_argument, "1"));
  CHECK(refused({1, 1, 1}, {0, 1, 0.5F}, tessera::errc::invalid_argument, "2"));
  CHECK(refused({1}, {nan}, tessera::errc::invalid_argument, "0"));
  CHECK(refused({1}, {-1}, tessera::errc::invalid_argument, "0"));
  CHECK(refused({1, 2}, {0}, tessera::errc::shape_mismatch, ""));
}

TEST_CASE("exact_auc: parts merged are the whole, whatever the order") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  auto const scores = tessera_tests::random_floats(random, 999);
  auto const labels = random_labels(random, 999);
  auto const whole = auc_of(scores, labels);

  serial_host host;
  exact_auc first, second;
  tessera::vector_view<float const> const score_view(scores), label_view(labels);
  for (std::int64_t i = 0; i < 999; i += 111) (i % 2 == 0 ? first : second).add(score_view.slice(i, 111), label_view.slice(i, 111));
  exact_auc merged;
  merged.merge(second);
  merged.merge(first);
  CHECK(merged.samples() == 999);
  CHECK(merged.value(host.exec()) == whole);
  merged.merge(merged);  // every pair four times
  CHECK(merged.samples() == 2 * 999);
  CHECK(merged.value(host.exec()) == whole);

  std::vector<std::size_t> order(999);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::shuffle(order.begin(), order.end(), random);
  std::vector<float> shuffled_scores, shuffled_labels, mapped;
  for (auto const i : order) {
    shuffled_scores.push_back(scores[i]);
    shuffled_labels.push_back(labels[i]);
  }
  CHECK(auc_of(shuffled_scores, shuffled_labels) == whole);
  for (auto const score : scores) mapped.push_back(8 * score);  // exact, so that no two scores meet
  CHECK(auc_of(mapped, labels) == whole);
  for (auto& score : mapped) score = -score;
  CHECK(auc_of(mapped, labels) == doctest::Approx(1 - whole).epsilon(1e-14));

  merged.clear();
  CHECK(merged.samples() == 0);
  CHECK(std::isnan(merged.value(host.exec())));
  merged.add(scores, labels);
  CHECK(merged.value(host.exec()) == whole);
}

TEST_CASE("exact_auc: a million samples match ranks in double, 1, 2 and 4 threads give the same value") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  std::size_t const n = tessera_tests::under_sanitizer ? 150'000 : 1'000'000;
  auto scores = tessera_tests::random_floats(random, n);
  auto const labels = random_labels(random, n);
  for (std::size_t i = 0; i < n; ++i) {
    scores[i] += 0.5F * labels[i];
    if (i % 3 == 0) scores[i] = std::round(scores[i] * 100) / 100;
  }
  auto const expected = ranked_auc(scores, labels);
  double first = -1;
  tessera_tests::for_each_host([&](tessera::host_exec const& exec, tessera_tests::counting_memory& memory) {
    exact_auc auc;
    auc.add(scores, labels);
    auto const value = auc.value(exec);
    if (first < 0) first = value;
    CHECK(value == first);
    CHECK(value == doctest::Approx(expected).epsilon(1e-12));
    CHECK(memory.peak_bytes() < 12 * n);  // 10 bytes a sample are promised, and some histograms
  });
}

}  // namespace
