// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <tessera/core/execution.hpp>
#include <tessera/nn/gemm_eigen.hpp>
#include <tessera/plan/cost_samples.hpp>
#include <tessera/plan/fit_published_cost.hpp>
#include <tessera/plan/learned_compute.hpp>
#include <tessera/plan/learned_exchange.hpp>
#include <tessera/plan/published_cost.hpp>
#include <tessera/plan/roofline_cost.hpp>
#include <tessera/synth/sharding_tasks.hpp>
#include <tessera/synth/table_pool.hpp>

namespace tessera_bench {

/// The profile of a pool's table with a dim.
inline tessera::table_profile profile_of(tessera::pool_table const& table, std::int64_t number, std::int64_t dim) {
  return {.name = std::to_string(number),
          .rows = table.rows,
          .dim = dim,
          .pooling_factor = table.pooling_factor,
          .access = table.shares(),
          .bags = static_cast<double>(tessera::pool_batch),
          .distinct_bags = static_cast<double>(tessera::pool_batch)};
}

/// The tables of a task.
inline std::vector<tessera::table_profile> profiles_of(std::vector<tessera::pool_table> const& pool, tessera::sharding_task const& task) {
  std::vector<tessera::table_profile> tables;
  for (std::size_t t = 0; t < task.tables.size(); ++t)
    tables.push_back(profile_of(pool.at(static_cast<std::size_t>(task.tables[t])), task.tables[t], task.dims[t]));
  return tables;
}

/// NeuroShard's networks for so many devices, of the published widths, fitted to what `roofline_cost` says of `samples` combinations of the
/// pool's tables and as many exchanges.
inline tessera::published_cost networks_of_roofline(tessera::host_exec const& exec, tessera::roofline_cost const& roofline,
                                                    std::vector<tessera::pool_table> const& pool, std::int64_t devices,
                                                    std::int64_t samples, std::int64_t epochs) {
  std::vector<tessera::table_profile> profiles;
  for (std::size_t t = 0; t < pool.size(); ++t) profiles.push_back(profile_of(pool[t], static_cast<std::int64_t>(t), 128));
  tessera::eigen_gemm const gemm;
  auto options = tessera::compute_fit_options::published();
  options.fit.epochs = epochs;
  options.fit.batch_samples = 128;
  options.fit.last_learning_rate = 1e-4F;
  std::vector<tessera::compute_cost_sample> combinations;
  std::vector<tessera::exchange_cost_sample> backward, forward;
  for (std::int64_t s = 0; s < samples; ++s) {
    auto shards = tessera::shards_of(profiles, tessera::draw_combination(profiles, {}, s));
    double cost = 0;
    for (auto const& shard : shards) cost += 1e3 * tessera::roofline_cost::moved_bytes(shard) / roofline.rates().memory_bytes_per_second;
    combinations.push_back({std::move(shards), cost});
    tessera::placement_options placements{.devices = devices};
    placements.tables.least_tables = devices * 5 / 2;
    placements.tables.most_tables = devices * 15;
    placements.tables.limit_bytes = std::int64_t{1} << 40;  // columns alone decide what an exchange costs
    auto const exchange = tessera::draw_placement(profiles, placements, s);
    std::vector<float> const columns(exchange.dims.begin(), exchange.dims.end()),
        starts(exchange.start_ms.begin(), exchange.start_ms.end());
    std::vector<float> ms(columns.size());
    roofline.backward_ms(columns, ms);
    backward.push_back({exchange, {ms.begin(), ms.end()}});
    roofline.forward_ms(columns, starts, ms);
    forward.push_back({exchange, {ms.begin(), ms.end()}});
  }
  auto const compute = tessera::fit_learned_compute(exec, gemm, combinations, options);
  return {tessera::computation_network_of(compute.model),
          tessera::fit_published_exchange(exec, gemm, tessera::exchange_way::backward, backward, options.fit).model,
          tessera::fit_published_exchange(exec, gemm, tessera::exchange_way::forward, forward, options.fit).model};
}

}  // namespace tessera_bench
