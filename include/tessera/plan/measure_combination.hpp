// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include <tessera/core/execution.hpp>
#include <tessera/core/types.hpp>
#include <tessera/core/view.hpp>
#include <tessera/embed/row_optimizer.hpp>
#include <tessera/plan/cost_samples.hpp>
#include <tessera/plan/learned_compute.hpp>
#include <tessera/plan/measure_compute.hpp>
#include <tessera/plan/measuring_clock.hpp>
#include <tessera/plan/table_ids.hpp>
#include <tessera/plan/table_profile.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// The ids of a pool's tables, drawn once for each size of batch and kept: 8 bytes an id.
class pool_ids {
 public:
  /// Ids of a table of the pool, and the profile that they show.
  struct batch_of_table {
    table_ids ids;
    table_profile profile;
  };

  /// @pre the pool outlives it
  pool_ids(vector_view<table_profile const> pool, random_seed seed) : pool_(pool), seed_(seed) {}

  vector_view<table_profile const> pool() const noexcept { return pool_; }

  /// The ids of a batch of so many samples: of its distinct bags, the same share as in the profile.
  /// @throws tessera::error as `draw_table_ids`. @pre 0 <= table < size of the pool
  batch_of_table const& of(std::int64_t table, std::int64_t batch_samples) {
    auto const found = drawn_.find({table, batch_samples});
    if (found != drawn_.end()) return found->second;
    auto const& profile = pool_[table];
    auto const share = profile.bags > 0 ? profile.distinct_bags / profile.bags : 0.0;
    auto ids = draw_table_ids(profile, std::llround(share * static_cast<double>(batch_samples)), seed_, static_cast<std::uint64_t>(table));
    auto shown = profile_of_ids(profile, ids);
    return drawn_.emplace(std::pair{table, batch_samples}, batch_of_table{std::move(ids), std::move(shown)}).first->second;
  }

  /// The shards of a combination, with the profiles of their ids.
  std::vector<table_profile> shards_of(table_combination const& combination) {
    std::vector<table_profile> shards;
    for (auto const& one : combination.tables) {
      shards.push_back(of(one.table, combination.batch_samples).profile);
      shards.back().dim = one.dim;
    }
    return shards;
  }

 private:
  vector_view<table_profile const> pool_;
  random_seed seed_;
  std::map<std::pair<std::int64_t, std::int64_t>, batch_of_table> drawn_;
};

/// Measures a combination of a pool's tables in a bench's arena. @throws tessera::error as `compute_bench::measure` and `draw_table_ids`.
template <row_optimizer Optimizer, measuring_clock Clock, execution Exec>
compute_times measure_combination(Exec const& exec, Clock& clock, compute_bench<Exec>& bench, pool_ids& ids,
                                  table_combination const& combination, Optimizer const& optimizer, repetition const& repeat = {}) {
  std::vector<measured_table> tables;
  for (auto const& one : combination.tables) {
    auto const& batch = ids.of(one.table, combination.batch_samples).ids;
    tables.push_back({ids.pool()[one.table].rows, one.dim, batch.ids, batch.lengths});
  }
  return bench.measure(exec, clock, tables, optimizer, repeat);
}

}  // namespace TESSERA_ABI
}  // namespace tessera
