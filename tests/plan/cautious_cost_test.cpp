// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <tessera/plan/cautious_cost.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <tessera/core/execution.hpp>
#include <tessera/plan/plan_search.hpp>

#include "hosts.hpp"
#include "learned_cost_support.hpp"
#include "random.hpp"
#include "temporary_folder.hpp"

namespace cautious_cost_test {

namespace {

using tessera::cautious_cost;
using tessera::learned_cost;
using tessera::vector_view;

// Networks of some seeds.
template <class Network>
std::vector<Network> networks_of(tessera::host_exec const& exec, typename Network::options options,
                                 vector_view<std::uint64_t const> seeds) {
  std::vector<Network> networks;
  for (auto const seed : seeds) {
    options.seed = tessera::random_seed{seed};
    networks.emplace_back(exec, options);
  }
  return networks;
}

tessera::feature_statistics random_statistics(std::mt19937_64& random, std::size_t features) {
  tessera::feature_statistics statistics;
  std::uniform_real_distribution<float> draw(0.5F, 2);
  for (std::size_t i = 0; i < features; ++i) {
    statistics.means.push_back(draw(random));
    statistics.deviations.push_back(draw(random));
  }
  return statistics;
}

}  // namespace

TEST_CASE("cautious_cost: a mean and beta standard deviations of what each network says alone") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  tessera_tests::serial_host host;
  auto const exec = host.exec();
  for (std::size_t const count : {1U, 2U, 5U}) {
    CAPTURE(count);
    auto const features = static_cast<std::int64_t>(tessera::shard_feature_names(tessera::shard_features::logarithmic).size());
    std::vector<std::uint64_t> seeds;
    while (seeds.size() < count) seeds.push_back(random());
    auto const statistics = random_statistics(random, static_cast<std::size_t>(features)), of_devices = random_statistics(random, 7);
    // All networks, or some of them.
    auto const model_of = [&](vector_view<std::uint64_t const> some) {
      auto const exchange = [&](std::vector<std::int64_t> const& rows, double unit_ms) {
        return tessera::learned_exchange(of_devices, networks_of<tessera::set_network>(exec, {rows, {17, 8, 1}}, some), unit_ms, {});
      };
      return learned_cost{
          {},
          "sgd",
          8192,
          tessera::learned_compute(tessera::shard_features::logarithmic, statistics,
                                   networks_of<tessera::sum_network>(exec, {{features, 8, 6}, {6, 8, 1}, true}, some), 3, {}),
          exchange({7, 8, 5}, 2),
          exchange({7, 9, 5}, 5)};
    };
    auto const all = model_of(seeds);
    auto const shards = learned_cost_support::random_pool(random, 6);
    std::vector<float> columns, starts;
    for (int d = 0; d < 3; ++d) {
      columns.push_back(std::uniform_real_distribution<float>(10, 400)(random));
      starts.push_back(std::uniform_real_distribution<float>(0, 5)(random));
    }
    // Three devices of two shards each.
    auto const costs_of = [&](auto const& model) {
      auto const width = model.width();
      std::vector<float> each(static_cast<std::size_t>(6 * width)), sums(static_cast<std::size_t>(3 * width));
      model.represent(shards, tessera::matrix_view<float>(each.data(), 6, width));
      for (std::int64_t d = 0; d < 3; ++d)
        for (std::int64_t i = 0; i < width; ++i)
          sums[static_cast<std::size_t>(d * width + i)] =
              each[static_cast<std::size_t>(2 * d * width + i)] + each[static_cast<std::size_t>((2 * d + 1) * width + i)];
      std::vector<float> ms(9);
      model.compute_ms(tessera::matrix_view<float const>(sums.data(), 3, width), vector_view<float>(ms.data(), 3));
      model.backward_ms(columns, vector_view<float>(ms.data() + 3, 3));
      model.forward_ms(columns, starts, vector_view<float>(ms.data() + 6, 3));
      return ms;
    };
    std::vector<std::vector<float>> alone;
    for (std::size_t n = 0; n < count; ++n) alone.push_back(costs_of(model_of({&seeds[n], 1})));
    for (double const beta : {0.0, 0.5, 2.0}) {
      auto const cautious = costs_of(cautious_cost(all, beta)), plain = costs_of(all);
      for (std::size_t i = 0; i < cautious.size(); ++i) {
        double mean = 0, squares = 0;
        for (auto const& of : alone) mean += static_cast<double>(of[i]) / static_cast<double>(count);
        for (auto const& of : alone) squares += std::pow(static_cast<double>(of[i]) - mean, 2);
        auto const spread = count == 1 ? 0 : std::sqrt(squares / static_cast<double>(count - 1));
        auto const near = 1e-4 * (1 + std::abs(mean) + spread);
        CHECK(std::abs(static_cast<double>(cautious[i]) - (mean + beta * spread)) < near);
        if (beta == 0) CHECK(std::abs(static_cast<double>(cautious[i] - plain[i])) < near);
        if (beta == 2 && spread > near) CHECK(cautious[i] > plain[i]);  // networks whose units are all dead agree
      }
    }
    // It is searched with as any model.
    std::int64_t bytes = 1;
    for (auto const& shard : shards) bytes += tessera::memory_of_shard(shard, tessera::counted_memory::float_weights).total();
    cautious_cost const by(all, 1);
    auto const found = tessera::plan_search(
        exec, shards, by, {.devices = 2, .bytes_per_device = bytes, .counted = tessera::counted_memory::float_weights, .evaluations = 300});
    CHECK(found.cost_ms == tessera::cost_of(found.costs));
  }
}

TEST_CASE("cautious_cost: a beta that is negative or not finite is refused") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  tessera_tests::serial_host host;
  auto const exec = host.exec();
  auto const features = static_cast<std::int64_t>(tessera::shard_feature_names(tessera::shard_features::logarithmic).size());
  auto const exchange = [&] {
    std::vector<tessera::set_network> networks;
    networks.emplace_back(exec, tessera::set_network::options{{7, 4, 3}, {13, 4, 1}, tessera::random_seed{random()}});
    return tessera::learned_exchange(random_statistics(random, 7), std::move(networks), 1, {});
  };
  std::vector<tessera::sum_network> networks;
  networks.emplace_back(exec, tessera::sum_network::options{{features, 4, 3}, {3, 4, 1}, true, tessera::random_seed{random()}});
  learned_cost const model{
      {},
      "sgd",
      8192,
      tessera::learned_compute(tessera::shard_features::logarithmic, random_statistics(random, static_cast<std::size_t>(features)),
                               std::move(networks), 1, {}),
      exchange(),
      exchange()};
  for (auto const& [beta, text] : {std::pair(-0.5, "-0.5"), std::pair(std::numeric_limits<double>::infinity(), "inf"),
                                   std::pair(std::numeric_limits<double>::quiet_NaN(), "nan")}) {
    auto const e = tessera_tests::error_of([&, value = beta] { cautious_cost(model, value); });
    CHECK(e.code() == tessera::errc::invalid_argument);
    CHECK(e.value("beta") == text);
  }
}

}  // namespace cautious_cost_test
