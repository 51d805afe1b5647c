// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-optimize: -O2, sanitizers -O0
// ctest-labels: threads
// ctest-cost: 6
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <tessera/nn/gemm_eigen.hpp>
#include <tessera/plan/cost_interval.hpp>
#include <tessera/plan/cost_networks.hpp>
#include <tessera/plan/fit_cost_network.hpp>

#include "hosts.hpp"
#include "random.hpp"
#include "sanitizers.hpp"

namespace fit_cost_network_test {

using tessera::cost_interval;
using tessera::fit_cost_networks;
using tessera::fit_options;
using tessera::network_samples;
using tessera::predicted_cost;
using tessera::sum_network;

namespace {

/// Costs of combinations that are not sums: a fixed part, what each row takes, and a bend where much comes together. `exact` are the costs
/// without noise.
struct planted {
  network_samples samples{3};
  std::vector<double> exact;

  planted(std::mt19937_64& random, int count, double noise) {
    std::uniform_int_distribution<int> size(1, 6);
    std::uniform_real_distribution<double> uniform(0, 1);
    std::normal_distribution<double> normal;
    for (int s = 0; s < count; ++s) {
      std::vector<float> rows;
      double work = 0, bytes = 0;
      for (int r = size(random); r > 0; --r) {
        double const a = uniform(random), b = uniform(random), c = uniform(random);
        for (double const x : {a, b, c}) rows.push_back(static_cast<float>(2 * x - 1));
        work += a * b + 0.2 * c;
        bytes += c;
      }
      exact.push_back(1 + work + 0.5 * std::max(bytes - 2, 0.0));
      samples.add(rows, std::vector<float>{static_cast<float>(exact.back() * (1 + noise * normal(random)))});
    }
  }
};

auto network_of(tessera::host_exec const& exec) {
  return [exec](tessera::random_seed seed) {
    return sum_network(exec, {.row_widths = {3, 32, 16}, .head_widths = {16, 32, 1}, .seed = seed});
  };
}

/// Kendall's tau, for values without ties.
double rank_correlation(std::vector<double> const& a, std::vector<double> const& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    for (std::size_t j = 0; j < i; ++j) sum += (a[i] < a[j]) == (b[i] < b[j]) ? 1 : -1;
  return sum / (static_cast<double>(a.size()) * static_cast<double>(a.size() - 1) / 2);
}

}  // namespace

TEST_CASE("fit_cost_networks: a planted cost is learned from noisy samples; the ensemble's interval covers nine of ten" *
          doctest::skip(tessera_tests::under_sanitizer)) {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  tessera_tests::serial_host host;
  planted const data(random, 10'000, 0.05);
  auto const fitted = fit_cost_networks(host.exec(), tessera::eigen_gemm{}, data.samples, network_of(host.exec()),
                                        {.epochs = 60,
                                         .batch_samples = 128,
                                         .learning_rate = 0.01F,
                                         .last_learning_rate = 0.0005F,
                                         .validation_fraction = 0.3,
                                         .test_fraction = 0.3,
                                         .starts = 5,
                                         .most_error_over_best = 1.3,
                                         .seed = tessera::random_seed(seed)});
  REQUIRE(!fitted.networks.empty());
  auto const predict = [&](std::vector<std::int64_t> const& which) {
    return tessera::predict_by_all(host.exec(), tessera::eigen_gemm{}, fitted.networks, data.samples, which);
  };
  auto const targets = [&](std::vector<std::int64_t> const& which) {
    std::vector<float> result;
    for (auto const s : which) result.push_back(data.samples.targets[static_cast<std::size_t>(s)]);
    return result;
  };
  auto const interval = cost_interval::of(predict(fitted.split.validation), targets(fitted.split.validation));
  auto const& test = fitted.split.test;
  auto const predicted = predict(test);
  auto const measured = targets(test);
  std::vector<double> means, exact;
  double squares = 0, mean = 0, covered = 0;
  for (std::size_t i = 0; i < test.size(); ++i) {
    exact.push_back(data.exact[static_cast<std::size_t>(test[i])]);
    means.push_back(predicted[i].mean);
    squares += std::pow(means[i] - exact[i], 2);
    mean += exact[i];
    covered += interval.covers(predicted[i], static_cast<double>(measured[i]));
  }
  auto const n = static_cast<double>(test.size());
  auto const relative_error = std::sqrt(squares / n) / (mean / n), tau = rank_correlation(means, exact);
  MESSAGE("error " << relative_error << ", tau " << tau << ", covered " << covered / n << ", kept " << fitted.networks.size());
  CHECK(relative_error < 0.06);
  CHECK(tau > 0.93);
  CHECK(covered / n > 0.85);
  CHECK(covered / n < 0.95);
}

TEST_CASE("fit_cost_networks: the same bits on 1, 2 and 4 threads; a start does not depend on the number of starts") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  planted const data(random, 600, 0.1);
  fit_options options{.epochs = 3, .batch_samples = 100, .starts = 2, .most_error_over_best = 1e9, .seed = tessera::random_seed(seed)};
  std::vector<float> first;
  tessera_tests::for_each_host([&](tessera::host_exec const& exec, auto&) {
    auto const fitted = fit_cost_networks(exec, tessera::eigen_gemm{}, data.samples, network_of(exec), options);
    REQUIRE(fitted.networks.size() == 2);
    CHECK(fitted.reports[0].is_kept);
    std::vector<float> all;
    for (auto const& network : fitted.networks) all.insert(all.end(), network.parameters().begin(), network.parameters().end());
    if (first.empty()) first = all;
    CHECK(all == first);
    // The networks are those of the epochs that the reports name, in the order of their errors.
    auto best = fitted.reports[0].validation_error, other = fitted.reports[1].validation_error;
    if (other < best) std::swap(best, other);
    auto const error_of = [&](std::size_t n) {
      return tessera::detail::error_over(exec, tessera::eigen_gemm{}, fitted.networks[n], data.samples, fitted.split.validation);
    };
    CHECK(error_of(0) == best);
    CHECK(error_of(1) == other);
  });
  tessera_tests::serial_host host;
  options.starts = 1;
  auto const alone = fit_cost_networks(host.exec(), tessera::eigen_gemm{}, data.samples, network_of(host.exec()), options);
  auto const parameters = alone.networks[0].parameters();
  auto const half = static_cast<std::ptrdiff_t>(first.size() / 2);
  std::vector<float> const of_alone(parameters.begin(), parameters.end());
  CHECK((of_alone == std::vector<float>(first.begin(), first.begin() + half) ||
         of_alone == std::vector<float>(first.begin() + half, first.end())));
}

TEST_CASE("fit_cost_networks: the best epoch is kept where a rate that is too large spoils the next") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  tessera_tests::serial_host host;
  planted const data(random, 400, 0.1);
  auto const train = [&](std::int64_t epochs, float last_rate) {
    return fit_cost_networks(host.exec(), tessera::eigen_gemm{}, data.samples, network_of(host.exec()),
                             {.epochs = epochs, .batch_samples = 50, .last_learning_rate = last_rate, .seed = tessera::random_seed(seed)});
  };
  auto const one = train(1, 0.001F), two = train(2, 1e30F);
  CHECK(two.reports[0].epoch == 0);
  auto const kept = two.networks[0].parameters(), expected = one.networks[0].parameters();
  CHECK(std::equal(kept.begin(), kept.end(), expected.begin(), expected.end()));
}

TEST_CASE("fit_cost_networks: dead units are reported by layer") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  tessera_tests::serial_host host;
  planted const data(random, 100, 0.1);
  auto const make = [&](tessera::random_seed of_start) {
    sum_network network(host.exec(), {.row_widths = {3, 4, 5}, .head_widths = {5, 6, 1}, .seed = of_start});
    // Units 1 of the first layer and 0, 2 of the second are never on; nothing can wake them.
    for (auto& block : network.blocks()) {
      if (block.name == "table.0.bias") block.values[1] = -100;
      if (block.name == "table.1.bias") block.values[0] = block.values[2] = -100;
    }
    return network;
  };
  auto const fitted =
      fit_cost_networks(host.exec(), tessera::eigen_gemm{}, data.samples, make, {.epochs = 1, .seed = tessera::random_seed(seed)});
  auto const& dead = fitted.reports[0].dead;
  REQUIRE(dead.size() == 3);
  CHECK(dead[0].layer == "table.0");
  CHECK(dead[0].units == 4);
  CHECK(dead[0].dead >= 1);
  CHECK(dead[1].layer == "table.1");
  CHECK(dead[1].dead >= 2);
  CHECK(dead[2].layer == "head.0");
  CHECK(dead[2].units == 6);
  CHECK(fitted.reports[0].dead_count() == dead[0].dead + dead[1].dead + dead[2].dead);
}

TEST_CASE("sample_split: every sample is in one part; parts are of the size that was asked for") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  auto const split = tessera::sample_split::of(1000, {.seed = tessera::random_seed(seed)});
  CHECK(split.training.size() == 800);
  CHECK(split.validation.size() == 100);
  CHECK(split.test.size() == 100);
  std::vector<std::int64_t> all;
  for (auto const* part : {&split.training, &split.validation, &split.test}) all.insert(all.end(), part->begin(), part->end());
  std::sort(all.begin(), all.end());
  for (std::int64_t s = 0; s < 1000; ++s) CHECK(all[static_cast<std::size_t>(s)] == s);
}

TEST_CASE("fit_cost_networks: what cannot be trained is refused by name") {
  tessera_tests::serial_host host;
  std::mt19937_64 random(1);
  planted const data(random, 20, 0);
  auto const refused = [&](char const* what, std::string const& value, fit_options const& options, network_samples const& samples) {
    try {
      fit_cost_networks(host.exec(), tessera::eigen_gemm{}, samples, network_of(host.exec()), options);
      FAIL_CHECK("accepted");
    } catch (tessera::error const& e) {
      CHECK(e.value(what) == value);
    }
  };
  refused("epochs", "0", {.epochs = 0}, data.samples);
  refused("batch_samples", "0", {.epochs = 1, .batch_samples = 0}, data.samples);
  refused("starts", "0", {.epochs = 1, .starts = 0}, data.samples);
  refused("validation_fraction", "-0.5", {.epochs = 1, .validation_fraction = -0.5}, data.samples);
  refused("samples", "20", {.epochs = 1, .validation_fraction = 0.5, .test_fraction = 0.5}, data.samples);
  refused("samples", "0", {.epochs = 1}, network_samples(3));
  network_samples wide(4);
  for (int s = 0; s < 20; ++s) wide.add(std::vector<float>{1, 2, 3, 4}, std::vector<float>{1});
  refused("width", "4", {.epochs = 1}, wide);
  network_samples many(3);
  for (int s = 0; s < 20; ++s) many.add(std::vector<float>{1, 2, 3}, std::vector<float>{1, 2});
  refused("targets", "40", {.epochs = 1}, many);
  refused("starts", "2", {.epochs = 2, .learning_rate = 1e30F, .last_learning_rate = 1e30F, .starts = 2}, data.samples);
}

TEST_CASE("cost_interval: known values") {
  CHECK(tessera::joined_prediction(std::vector<double>{1, 3}) == predicted_cost{2, std::sqrt(2.0)});
  CHECK(tessera::joined_prediction(std::vector<double>{5}) == predicted_cost{5, 0});
  // Nine of ten measurements of this many: all but the one that is farthest off.
  std::vector<predicted_cost> const predicted(10, {10, 0});
  std::vector<float> measured{11, 9, 10, 10, 10.5F, 9.5F, 10, 10, 10, 14};
  auto const interval = cost_interval::of(predicted, measured, 0.8);
  CHECK(interval.half_width({10, 0}) == doctest::Approx(1));
  CHECK(interval.half_width({20, 0}) == doctest::Approx(2));
  CHECK(!interval.covers({10, 0}, 11.1));
  CHECK_THROWS_WITH_AS(cost_interval::of(predicted, std::vector<float>(9)),
                       "cost_interval: one measurement a prediction (predictions 10, measurements 9)", tessera::error);
  std::vector<predicted_cost> const few(9, {10, 0});
  CHECK_THROWS_WITH_AS(cost_interval::of(few, std::vector<float>(9)), "cost_interval: too few measurements (measurements 9, least 10)",
                       tessera::error);
}

}  // namespace fit_cost_network_test
