// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include <tessera/plan/cost_samples.hpp>
#include <tessera/plan/learned_compute.hpp>
#include <tessera/plan/learned_exchange.hpp>

namespace learned_cost_support {

/// Tables of 10^2 to 10^6 rows, each with accesses of one to three bins that follow each other.
inline std::vector<tessera::table_profile> random_pool(std::mt19937_64& random, int tables) {
  std::uniform_real_distribution<double> uniform;
  std::vector<tessera::table_profile> pool;
  for (int t = 0; t < tables; ++t) {
    tessera::table_profile table;
    table.name = "t" + std::to_string(t);
    table.rows = static_cast<std::int64_t>(std::pow(10, 2 + 4 * uniform(random)));
    table.dim = 16;
    table.pooling_factor = std::pow(10, -0.5 + 2 * uniform(random));
    table.bags = table.distinct_bags = 4096;
    auto const first = static_cast<std::size_t>(6 * uniform(random));
    double left = 1;
    for (std::size_t b = 0; b < 3; ++b) {
      table.access[first + b] = b == 2 ? left : left * uniform(random);
      left -= table.access[first + b];
    }
    pool.push_back(table);
  }
  return pool;
}

/// A cost that is no sum over tables: what is looked up and updated, dearer from a size on that a cache would have.
inline double planted_cost(std::vector<tessera::table_profile> const& shards) {
  double cost = 0.05, updated = 0;
  for (auto const& shard : shards) {
    auto const bytes = 4e-6 * static_cast<double>(shard.dim + 8), rows = tessera::distinct_rows_of_batch(shard) * bytes;
    cost += 0.2 * tessera::ids_of_batch(shard) * bytes + 0.3 * rows + 0.1;
    updated += rows;
  }
  return cost + 0.5 * std::max(updated - 20, 0.0);
}

inline std::vector<tessera::compute_cost_sample> planted_compute(std::mt19937_64& random, std::vector<tessera::table_profile> const& pool,
                                                                 int count, double noise, std::uint64_t seed) {
  tessera::combination_options const options{.most_tables = 6, .batches = {1024, 2048, 4096}, .seed = tessera::random_seed(seed)};
  std::vector<tessera::compute_cost_sample> samples;
  std::normal_distribution<double> normal;
  for (int s = 0; s < count; ++s) {
    auto const drawn = tessera::draw_combination(pool, options, s);
    auto shards = tessera::shards_of(pool, drawn);
    for (auto& shard : shards) shard.bags = shard.distinct_bags = static_cast<double>(drawn.batch_samples);
    samples.push_back({std::move(shards), 0});
    samples.back().cost_ms = planted_cost(samples.back().shards) * (1 + noise * normal(random));
  }
  return samples;
}

/// Exchanges that take the wait for the last start, and then as long as the busiest device.
inline std::vector<tessera::exchange_cost_sample> planted_exchanges(std::mt19937_64& random, int count, std::vector<int> const& devices) {
  std::vector<tessera::exchange_cost_sample> samples;
  for (int s = 0; s < count; ++s) {
    tessera::exchange_cost_sample sample;
    auto const n = devices[static_cast<std::size_t>(s) % devices.size()];
    for (int d = 0; d < n; ++d) {
      sample.exchange.dims.push_back(std::uniform_int_distribution<std::int64_t>(10, 400)(random));
      sample.exchange.start_ms.push_back(std::uniform_real_distribution<double>(0, 10)(random));
    }
    sample.exchange.batch_samples = 8192;
    auto const& of = sample.exchange;
    auto const most = *std::max_element(of.dims.begin(), of.dims.end());
    auto const last = *std::max_element(of.start_ms.begin(), of.start_ms.end());
    for (auto const start : of.start_ms) sample.cost_ms.push_back(last - start + static_cast<double>(most) * 8192 * 4e-6 * (n - 1) / n);
    samples.push_back(sample);
  }
  return samples;
}

/// Kendall's tau, for values without ties.
inline double rank_correlation(std::vector<double> const& a, std::vector<double> const& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    for (std::size_t j = 0; j < i; ++j) sum += (a[i] < a[j]) == (b[i] < b[j]) ? 1 : -1;
  return sum / (static_cast<double>(a.size()) * static_cast<double>(a.size() - 1) / 2);
}

}  // namespace learned_cost_support
