// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-labels: values
// ctest-optimize: -O2
// ctest-cost: 8
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include <tessera/nn/gemm_eigen.hpp>
#include <tessera/plan/cost_samples.hpp>
#include <tessera/plan/fit_published_cost.hpp>
#include <tessera/plan/learned_compute.hpp>
#include <tessera/plan/learned_exchange.hpp>

#include "hosts.hpp"
#include "learned_cost_support.hpp"
#include "random.hpp"

namespace learned_cost_test {

using namespace learned_cost_support;
using tessera::compute_fit_options;
using tessera::exchange_way;
using tessera::feature_statistics;
using tessera::fit_options;
using tessera::shard_features;

TEST_CASE("shard features: names and known values") {
  CHECK(tessera::shard_feature_names(shard_features::published) ==
        std::vector<std::string>{"bin_0", "bin_1", "bin_10", "bin_11", "bin_12", "bin_13", "bin_14", "bin_15", "bin_16",         "bin_2",
                                 "bin_3", "bin_4", "bin_5",  "bin_6",  "bin_7",  "bin_8",  "bin_9",  "dim",    "pooling_factor", "row"});
  tessera::table_profile table;
  table.rows = 1000, table.dim = 16, table.pooling_factor = 3, table.bags = 200, table.distinct_bags = 100;
  for (std::size_t b = 0; b < 17; ++b) table.access[b] = static_cast<double>(b);
  std::vector<float> features(20);
  tessera::write_shard_features(shard_features::published, table, features);
  CHECK(features == std::vector<float>{0, 1, 10, 11, 12, 13, 14, 15, 16, 2, 3, 4, 5, 6, 7, 8, 9, 16, 3, 1000});

  // Each distinct row is there twice in 600 ids; half of the bags repeat others.
  table.access = {};
  table.access[1] = 1;
  table.dim = 8;
  features.resize(26);
  REQUIRE(tessera::shard_feature_names(shard_features::logarithmic).size() == 26);
  tessera::write_shard_features(shard_features::logarithmic, table, features);
  std::vector<double> const expected{
      std::log(1001), std::log(9), std::log(4), std::log(101), std::log(301), std::log(301), 300 * 32e-6, 300 * 32e-6, 100 * 32e-6, 0, 1};
  for (std::size_t i = 0; i < expected.size(); ++i) CHECK(features[i] == doctest::Approx(expected[i]));
  auto const statistics = tessera::statistics_of_shards(shard_features::logarithmic, std::vector<tessera::table_profile>(3, table));
  for (std::size_t i = 0; i < expected.size(); ++i) CHECK(statistics.means[i] == doctest::Approx(expected[i]));
}

TEST_CASE("learned costs: one row at a time is what the MLP gives") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  tessera_tests::serial_host host;
  for (auto const last : {tessera::activation::identity, tessera::activation::relu}) {
    tessera::mlp network(host.exec(), {{5, 30, 7, 3}, last, tessera::random_seed(seed)});
    for (auto& p : network.parameters()) p = std::normal_distribution<float>()(random);
    auto const evaluate = tessera::detail::dense_network_of(network, last == tessera::activation::relu);
    auto const x = tessera_tests::random_floats(random, 5);
    std::vector<float> y(3), expected(3);
    tessera::mlp_saved saved;
    network.forward(host.exec(), tessera::eigen_gemm{}, {x.data(), 1, 5}, {expected.data(), 1, 3}, saved);
    evaluate(x.data(), y.data());
    for (std::size_t i = 0; i < 3; ++i) CHECK(y[i] == doctest::Approx(expected[i]).epsilon(1e-4).scale(30));
  }
  tessera::mlp const wide(host.exec(), {{2, 1025, 1}});
  CHECK_THROWS_AS(tessera::detail::dense_network_of(wide, false), tessera::error);
}

TEST_CASE("learned_compute: a planted cost of tables and batches is learned; ranks, interval, and nothing costs nothing") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  tessera_tests::serial_host host;
  auto const pool = random_pool(random, 60);
  auto const measured = planted_compute(random, pool, 6000, 0.05, seed);
  compute_fit_options const options{.hidden_of_rows = {32},
                                    .representation = 16,
                                    .hidden_of_head = {32},
                                    .fit = {.epochs = 40,
                                            .batch_samples = 64,
                                            .learning_rate = 0.01F,
                                            .last_learning_rate = 0.0003F,
                                            .validation_fraction = 0.25,
                                            .test_fraction = 0.25,
                                            .starts = 3,
                                            .most_error_over_best = 1.5,
                                            .seed = tessera::random_seed(seed)}};
  auto const fitted = tessera::fit_learned_compute(host.exec(), tessera::eigen_gemm{}, measured, options);
  auto const& model = fitted.model;
  std::vector<double> predicted, exact;
  double squares = 0, covered = 0;
  for (auto const s : fitted.split.test) {
    auto const& sample = measured[static_cast<std::size_t>(s)];
    auto const cost = model.predict(sample.shards);
    predicted.push_back(cost.mean);
    exact.push_back(planted_cost(sample.shards));
    squares += std::pow(cost.mean - exact.back(), 2);
    covered += model.interval().covers(cost, sample.cost_ms);
  }
  auto const n = static_cast<double>(exact.size());
  auto const relative_error = std::sqrt(squares / n) / (std::accumulate(exact.begin(), exact.end(), 0.0) / n);
  auto const tau = rank_correlation(predicted, exact);
  MESSAGE("error " << relative_error << ", tau " << tau << ", covered " << covered / n << ", kept " << model.networks().size());
  CHECK(relative_error < 0.2);
  CHECK(tau > 0.95);
  CHECK(covered / n > 0.83);
  CHECK(covered / n < 0.97);
  std::vector<float> const nothing(static_cast<std::size_t>(model.representation_width()));
  CHECK(model.predict_sum(nothing) == tessera::predicted_cost{0, 0});
  CHECK(model.predict({}) == tessera::predicted_cost{0, 0});
  CHECK(model.cost_ms(nothing) == 0);
  // Errors are told in milliseconds squared: those of the noise at least.
  CHECK(fitted.reports[0].validation_error > 1e-4 * std::pow(std::accumulate(exact.begin(), exact.end(), 0.0) / n, 2));

  // The published network and features take the same samples.
  auto published = compute_fit_options::published();
  published.fit.epochs = 2;
  auto const other = tessera::fit_learned_compute(host.exec(), tessera::eigen_gemm{}, measured, published, pool);
  CHECK(other.model.representation_width() == 32);
  CHECK(other.model.statistics() == tessera::statistics_of_shards(shard_features::published, pool));
  CHECK(other.model.unit_ms() == 1);
  CHECK(other.model.networks()[0].parameters().size() == 8993);
}

TEST_CASE("learned_exchange: costs follow the devices, whatever their order and number") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  tessera_tests::serial_host host;
  auto const measured = planted_exchanges(random, 600, {2, 4, 8});
  tessera::exchange_fit_options const options{.hidden_of_rows = {16},
                                              .representation = 8,
                                              .hidden_of_head = {16},
                                              .fit = {.epochs = 60,
                                                      .batch_samples = 32,
                                                      .learning_rate = 0.01F,
                                                      .last_learning_rate = 0.001F,
                                                      .starts = 2,
                                                      .seed = tessera::random_seed(seed)}};
  auto const fitted = tessera::fit_learned_exchange(host.exec(), tessera::eigen_gemm{}, exchange_way::forward, measured, options);
  auto const& model = fitted.model;
  std::vector<float> const dims{100, 300, 40, 220, 60}, starts{0, 2, 4, 1, 0.5F};
  auto const costs = model.predict(dims, starts, 8192);
  std::vector<float> const moved_dims{300, 40, 220, 60, 100}, moved_starts{12, 14, 11, 10.5F, 10};
  auto const moved = model.predict(moved_dims, moved_starts, 8192);
  REQUIRE(costs.size() == 5);
  for (std::size_t d = 0; d < 5; ++d) {
    CHECK(moved[d].mean == doctest::Approx(costs[(d + 1) % 5].mean).epsilon(1e-4));
    CHECK(moved[d].spread == doctest::Approx(costs[(d + 1) % 5].spread).epsilon(1e-2).scale(1));
  }
  // The evaluator says what the networks say.
  std::vector<float> features;
  tessera::write_exchange_features(dims, starts, 8192, features);
  for (std::size_t d = 0; d < 5; ++d) model.statistics().normalise({features.data() + 7 * d, 7});
  tessera::network_samples one(7);
  one.add(features, std::vector<float>(5));
  auto const expected = tessera::predict_by_all(host.exec(), tessera::eigen_gemm{}, model.networks(), one, std::vector<std::int64_t>{0});
  for (std::size_t d = 0; d < 5; ++d) CHECK(costs[d].mean == doctest::Approx(expected[d].mean * model.unit_ms()).epsilon(1e-4).scale(1));
  std::vector<float> ms(5);
  model.cost_ms(dims, starts, 8192, ms);
  for (std::size_t d = 0; d < 5; ++d) CHECK(static_cast<double>(ms[d]) == doctest::Approx(costs[d].mean).epsilon(1e-5).scale(1));
  CHECK(model.predict(dims, {}, 8192).size() == 5);
  CHECK_THROWS_WITH_AS(model.predict(dims, std::vector<float>{1}, 8192), "learned_exchange: one start a device (devices 5, starts 1)",
                       tessera::error);
}

TEST_CASE("learned_exchange: heads of one layer and of more give what the networks do") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  tessera_tests::serial_host host;
  for (auto const& behind : {std::vector<std::int64_t>{1}, std::vector<std::int64_t>{5, 1}, std::vector<std::int64_t>{64, 32, 1}})
    for (std::int64_t const representation : {3, 32}) {
      CAPTURE(behind.size());
      CAPTURE(representation);
      std::vector<std::int64_t> of_head{7 + 2 * representation};
      of_head.insert(of_head.end(), behind.begin(), behind.end());
      std::vector<tessera::set_network> networks;
      for (int n = 0; n < 3; ++n) {
        networks.emplace_back(host.exec(), tessera::set_network::options{{7, 20, representation}, of_head, tessera::random_seed(random())});
        for (auto& parameter : networks.back().parameters()) parameter = std::normal_distribution<float>(0, 0.3F)(random);  // biases too
      }
      tessera::learned_exchange const model({std::vector<float>(7, 3), std::vector<float>(7, 2)}, std::move(networks), 1.5, {});
      for (int const devices : {1, 2, 9}) {
        CAPTURE(devices);
        auto const dims = tessera_tests::random_floats(random, static_cast<std::size_t>(devices)),
                   starts = tessera_tests::random_floats(random, static_cast<std::size_t>(devices));
        std::vector<float> features;
        tessera::write_exchange_features(dims, starts, 8192, features);
        for (std::int64_t d = 0; d < devices; ++d) model.statistics().normalise({features.data() + 7 * d, 7});
        tessera::network_samples one(7);
        one.add(features, std::vector<float>(static_cast<std::size_t>(devices)));
        auto const expected =
            tessera::predict_by_all(host.exec(), tessera::eigen_gemm{}, model.networks(), one, std::vector<std::int64_t>{0});
        auto const costs = model.predict(dims, starts, 8192);
        for (std::size_t d = 0; d < costs.size(); ++d)
          CHECK(costs[d].mean == doctest::Approx(expected[d].mean * 1.5).epsilon(1e-4).scale(1));
      }
    }
}

TEST_CASE("fit_published_exchange: learns exchanges of one number of devices, and refuses others") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  tessera_tests::serial_host host;
  auto measured = planted_exchanges(random, 400, {4});
  double mean = 0, squares = 0;
  for (auto const& sample : measured)
    for (auto const cost : sample.cost_ms) mean += cost / 1600, squares += cost * cost / 1600;
  auto const fitted = [&](exchange_way way) {
    return tessera::fit_published_exchange(host.exec(), tessera::eigen_gemm{}, way, measured,
                                           {.epochs = 40, .batch_samples = 16, .starts = 2, .seed = tessera::random_seed(seed)});
  };
  auto const forward = fitted(exchange_way::forward), backward = fitted(exchange_way::backward);
  CHECK(forward.model.network.inputs() == 8);
  CHECK(backward.model.network.inputs() == 4);
  auto const error_of = [](auto const& report) { return report.validation_error; };
  CHECK(std::min(error_of(forward.reports[0]), error_of(forward.reports[1])) < (squares - mean * mean) / 2);

  // With a computation network it is the published model, whose errors are those that the fit tells.
  auto const pool = random_pool(random, 20);
  auto options = compute_fit_options::published();
  options.fit.epochs = 1;
  auto const steps = planted_compute(random, pool, 300, 0.05, seed);
  auto const compute = tessera::fit_learned_compute(host.exec(), tessera::eigen_gemm{}, steps, options, pool);
  tessera::published_cost const model(tessera::computation_network_of(compute.model), backward.model, forward.model);
  CHECK(model.devices() == 4);
  double error = 0;
  for (auto const s : forward.split.validation) {
    auto const& sample = measured[static_cast<std::size_t>(s)];
    std::vector<float> const dims(sample.exchange.dims.begin(), sample.exchange.dims.end()),
        starts(sample.exchange.start_ms.begin(), sample.exchange.start_ms.end());
    std::vector<float> ms(4);
    model.forward_ms(dims, starts, ms);
    for (std::size_t d = 0; d < 4; ++d) error += std::pow(static_cast<double>(ms[d]) - sample.cost_ms[d], 2) / 4;
  }
  error /= static_cast<double>(forward.split.validation.size());
  auto const best = std::min_element(forward.reports.begin(), forward.reports.end(),
                                     [](auto const& a, auto const& b) { return a.validation_error < b.validation_error; });
  CHECK(error == doctest::Approx(best->validation_error).epsilon(1e-2));
  auto const& shards = steps[0].shards;
  std::vector<float> each(32), sum(32);
  for (auto const& shard : shards) {
    model.represent({&shard, 1}, {each.data(), 1, 32});
    for (std::size_t i = 0; i < 32; ++i) sum[i] += each[i];
  }
  float ms = 0;
  model.compute_ms({sum.data(), 1, 32}, {&ms, 1});
  CHECK(static_cast<double>(ms) == doctest::Approx(compute.model.predict(shards).mean).epsilon(1e-3).scale(1));
  options = {};
  options.fit.epochs = 1;
  auto const ours = tessera::fit_learned_compute(host.exec(), tessera::eigen_gemm{}, steps, options);
  CHECK_THROWS_AS(tessera::computation_network_of(ours.model), tessera::error);

  measured.push_back(planted_exchanges(random, 1, {8})[0]);
  CHECK_THROWS_WITH_AS(tessera::fit_published_exchange(host.exec(), tessera::eigen_gemm{}, exchange_way::forward, measured),
                       "fit_published_exchange: a sample of another number of devices (sample 400, devices 8, expected 4)", tessera::error);
  measured.clear();
  CHECK_THROWS_AS(tessera::fit_published_exchange(host.exec(), tessera::eigen_gemm{}, exchange_way::forward, measured), tessera::error);
}

TEST_CASE("learned costs: samples that cannot be learned from are refused by name") {
  tessera_tests::serial_host host;
  std::mt19937_64 random(1);
  auto const pool = random_pool(random, 3);
  auto measured = planted_compute(random, pool, 20, 0, 1);
  for (auto& sample : measured) sample.cost_ms = 0;
  CHECK_THROWS_WITH_AS(tessera::fit_learned_compute(host.exec(), tessera::eigen_gemm{}, measured),
                       "learned costs: costs whose mean is not above 0 (mean_ms 0)", tessera::error);
  auto exchanges = planted_exchanges(random, 20, {4});
  exchanges[2].cost_ms.pop_back();
  CHECK_THROWS_WITH_AS(tessera::fit_learned_exchange(host.exec(), tessera::eigen_gemm{}, exchange_way::forward, exchanges),
                       "fit_learned_exchange: one cost and one start a device (sample 2, devices 4, costs 3, starts 4)", tessera::error);
  CHECK_THROWS_AS(tessera::learned_compute(shard_features::published, {}, {}, 1, {}), tessera::error);
  CHECK_THROWS_AS(tessera::learned_exchange({}, {}, 1, {}), tessera::error);
}

}  // namespace learned_cost_test
