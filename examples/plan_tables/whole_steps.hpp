// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include <tessera/comm/any_communicator.hpp>
#include <tessera/core/types.hpp>
#include <tessera/plan/measuring_clock.hpp>
#include <tessera/plan/table_profile.hpp>
#include <tessera/shard/sharding_plan.hpp>

#include "measured.hpp"

namespace plan_tables {

/// Runs steps of a plan by `sharded_tables`, one after the other, of no dense net: `repeat.warm_up` that do not count, then `repeat.runs`.
/// Each has ids of its own, which travel one step ahead. All ranks call it, alike, each on one thread. @return the medians of each rank's
/// lookups and updates, gradients, and vectors, on all ranks. Sending ids is in none of them.
/// @throws tessera::error incompatible, naming the table, for one whose bags are not as many as those of the first, or are deduplicated; and as
/// `sharded_tables` and `draw_table_ids`.
measured_costs measure_whole_steps(tessera::any_communicator comm, std::vector<tessera::table_profile> const& tables,
                                   tessera::sharding_plan const& plan, tessera::repetition const& repeat, tessera::random_seed seed);

}  // namespace plan_tables
