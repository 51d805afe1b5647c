// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-labels: values
// ctest-optimize: -O2
// ctest-cost: 5
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include <tessera/nn/gemm_eigen.hpp>
#include <tessera/plan/cost_interval.hpp>
#include <tessera/plan/cost_networks.hpp>
#include <tessera/plan/exchange_features.hpp>
#include <tessera/plan/fit_cost_network.hpp>

#include "hosts.hpp"
#include "random.hpp"

namespace exchange_features_test {

using tessera::exchange_feature_count;
using tessera::network_samples;
using tessera::set_network;
using tessera::write_exchange_features;

namespace {

constexpr std::int64_t batch = 32'768;

/// What a device pays in a planted exchange, in units of 30 ms: the wait for the last start, an overhead a peer, and the busiest of what it
/// sends, what it receives and a link that all share; early devices have begun meanwhile.
std::vector<float> planted_costs(std::vector<float> const& dims, std::vector<float> const& starts) {
  auto const n = static_cast<double>(dims.size()), mb = batch / n * 4e-6,
             last = static_cast<double>(*std::max_element(starts.begin(), starts.end()));
  double sum = 0, most = 0;
  for (auto const dim : dims) sum += static_cast<double>(dim), most = std::max(most, static_cast<double>(dim));
  std::vector<float> costs;
  for (std::size_t r = 0; r < dims.size(); ++r) {
    auto const dim = static_cast<double>(dims[r]), wait = last - static_cast<double>(starts[r]);
    auto const work = 0.05 * (n - 1) + std::max({mb * dim * (n - 1), mb * (sum - dim), 0.7 * mb * most * (n - 1)});
    costs.push_back(static_cast<float>((wait + work * (1 - 0.2 * std::min(1.0, wait / 5))) / 30));
  }
  return costs;
}

/// Exchanges of random balance, each of one of these numbers of devices.
network_samples planted(std::mt19937_64& random, int count, std::vector<int> const& devices, double noise) {
  network_samples samples(exchange_feature_count);
  std::normal_distribution<double> normal;
  for (int s = 0; s < count; ++s) {
    auto const n = devices[static_cast<std::size_t>(std::uniform_int_distribution<int>(0, static_cast<int>(devices.size()) - 1)(random))];
    auto const imbalance = std::uniform_real_distribution<double>(0, 100)(random),
               skew = std::uniform_real_distribution<double>(0, 20)(random);
    std::vector<float> dims, starts;
    for (int d = 0; d < n; ++d) {
      dims.push_back(
          static_cast<float>(4 * std::llround(std::uniform_real_distribution<double>(100 - imbalance, 100 + imbalance)(random))));
      starts.push_back(static_cast<float>(skew * std::uniform_real_distribution<double>()(random)));
    }
    std::vector<float> features;
    write_exchange_features(dims, starts, batch, features);
    auto costs = planted_costs(dims, starts);
    for (auto& cost : costs) cost *= static_cast<float>(1 + noise * normal(random));
    samples.add(features, costs);
  }
  return samples;
}

}  // namespace

TEST_CASE("exchange features: known values; devices in another order have the same features") {
  std::vector<float> features, moved;
  write_exchange_features(std::vector<float>{10, 30, 20}, std::vector<float>{5, 8, 6.5F}, 750'000, features);
  // A dim is a megabyte from one device to another.
  std::vector<float> const expected{20, 50, 60, 40, 3, 1.5F, 3, 60, 30, 60, 40, 0, 1.5F, 3, 40, 40, 60, 40, 1.5F, 1.5F, 3};
  REQUIRE(features.size() == expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) CHECK(features[i] == doctest::Approx(expected[i]));
  write_exchange_features(std::vector<float>{20, 10, 30}, std::vector<float>{106.5F, 105, 108}, 750'000, moved);
  for (std::size_t c = 0; c < 7; ++c) {
    CHECK(moved[c] == doctest::Approx(features[14 + c]));
    CHECK(moved[7 + c] == doctest::Approx(features[c]));
  }
  write_exchange_features(std::vector<float>{10, 30}, {}, 1000, features);
  for (std::size_t const wait : {4U, 5U, 6U, 11U, 12U, 13U}) CHECK(features[wait] == 0);
  write_exchange_features(std::vector<float>{10}, std::vector<float>{3}, 1000, features);
  CHECK(features == std::vector<float>(7));
}

TEST_CASE("exchange features: a set network learns a planted exchange, and ranks exchanges of numbers of devices that it never saw") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  tessera_tests::serial_host host;
  auto training = planted(random, 3000, {2, 4, 8}, 0.03), others = planted(random, 500, {3, 6, 12}, 0);
  auto const statistics = tessera::feature_statistics::of({training.features.data(), training.rows(), exchange_feature_count});
  for (auto* const samples : {&training, &others})
    for (std::int64_t r = 0; r < samples->rows(); ++r)
      statistics.normalise({samples->features.data() + r * exchange_feature_count, exchange_feature_count});
  auto const make = [&](tessera::random_seed of_start) {
    return set_network(
        host.exec(),
        {.row_widths = {exchange_feature_count, 32, 16}, .head_widths = {exchange_feature_count + 32, 32, 1}, .seed = of_start});
  };
  auto const fitted = tessera::fit_cost_networks(host.exec(), tessera::eigen_gemm{}, training, make,
                                                 {.epochs = 60,
                                                  .batch_samples = 64,
                                                  .learning_rate = 0.01F,
                                                  .last_learning_rate = 0.0003F,
                                                  .starts = 2,
                                                  .seed = tessera::random_seed(seed)});
  std::vector<std::int64_t> all(static_cast<std::size_t>(others.samples()));
  for (std::size_t s = 0; s < all.size(); ++s) all[s] = static_cast<std::int64_t>(s);
  auto const predicted = tessera::predict_by_all(host.exec(), tessera::eigen_gemm{}, fitted.networks, others, all);
  double squares = 0, sum = 0;
  std::vector<double> slowest, planted_slowest;
  for (std::size_t s = 0; s < all.size(); ++s) {
    slowest.push_back(0), planted_slowest.push_back(0);
    for (auto t = static_cast<std::size_t>(others.first_target[s]); t < static_cast<std::size_t>(others.first_target[s + 1]); ++t) {
      auto const target = static_cast<double>(others.targets[t]);
      squares += std::pow(predicted[t].mean - target, 2);
      sum += target;
      slowest.back() = std::max(slowest.back(), predicted[t].mean);
      planted_slowest.back() = std::max(planted_slowest.back(), target);
    }
  }
  double concordant = 0;
  for (std::size_t i = 0; i < all.size(); ++i)
    for (std::size_t j = 0; j < i; ++j) concordant += (slowest[i] < slowest[j]) == (planted_slowest[i] < planted_slowest[j]) ? 1 : -1;
  auto const n = static_cast<double>(predicted.size()), pairs = static_cast<double>(all.size() * (all.size() - 1) / 2);
  auto const relative_error = std::sqrt(squares / n) / (sum / n), tau = concordant / pairs;
  MESSAGE("error " << relative_error << ", tau " << tau);
  CHECK(relative_error < 0.05);
  CHECK(tau > 0.95);
}

}  // namespace exchange_features_test
