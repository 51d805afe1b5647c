// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>
#include <tuple>
#include <utility>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>
#include <tessera/plan/cost_model.hpp>
#include <tessera/plan/feasible_shards.hpp>
#include <tessera/plan/found_plan.hpp>
#include <tessera/plan/halving_search.hpp>
#include <tessera/plan/placement.hpp>
#include <tessera/plan/shard_kinds.hpp>
#include <tessera/plan/shard_memory.hpp>
#include <tessera/plan/table_profile.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// Options of `published_search`; defaults are those of the paper.
struct published_search_options {
  std::int64_t devices = 0;
  std::int64_t bytes_per_device = std::int64_t{4} << 30;
  counted_memory counted = counted_memory::float_weights;
  std::int64_t candidates = 10;  ///< tables by size, and as many by cost, that each beam tries to halve: N
  std::int64_t beams = 3;        ///< that go on to the next step: K
  std::int64_t steps = 10;       ///< halvings of one plan: L
  std::int64_t grid = 11;        ///< limits on the columns of a device, from 1 to 1.5 times their mean: M; 0: no limit
  bool keep_sums = true;         ///< of representations. Else all of a device's are computed anew for each shard: the same plan, later
};

/// NeuroShard's search: a beam search over halvings of columns, and for each of its plans a greedy placement under each limit of a grid.
///
/// It finds the plans of the authors' code: tables go by falling predicted cost, of equal ones the later first. Each goes to the device
/// that costs least before it comes, of equal ones to that with fewer bytes. Tables that are not placed make a plan infinite. Sums of
/// representations are kept, and what limits or beams have in common is placed once. Any number of threads finds the same plan.
/// Source: "Pre-train and Search: Efficient Embedding Table Sharding with Pre-trained Neural Cost Models", Algorithms 1 and 2.
/// @throws tessera::error invalid_argument as `plan_of_shards`, and for an option that is too small, naming it. out_of_memory where no plan
/// can be: it names the table whose smallest shard is too large, its bytes and the limit, or all bytes and the limit of all devices.
/// out_of_memory too where none was found, naming how many plans were compared. There may be one all the same.
template <cost_model M>
found_plan published_search(host_exec const& exec, vector_view<table_profile const> tables, M const& model,
                            published_search_options const& options);

template <cost_model M>
found_plan published_search(host_exec const& exec, vector_view<table_profile const> tables, M const& model,
                            published_search_options const& options) {
  device_limits const limits{options.devices, options.bytes_per_device, options.counted};
  detail::check_search("published_search", tables, model, limits);
  for (auto const& [name, value, least] : {std::tuple("candidates", options.candidates, 1), std::tuple("beams", options.beams, 1),
                                           std::tuple("steps", options.steps, 0), std::tuple("grid", options.grid, 0)})
    if (value < least) throw error(errc::invalid_argument, "published_search: an option is too small", {{name, value}, {"least", least}});
  detail::shard_kinds const kinds(tables, model, options.counted, true, false);
  auto const device_bytes = options.bytes_per_device - received_bytes(tables, options.devices, options.counted);
  detail::check_feasible("published_search", kinds, limits, device_bytes,
                         "a table is too large for a device, and its columns are cut no further");
  detail::halving_search<M> search(exec, kinds, model, options.devices, device_bytes,
                                   {options.candidates, options.beams, options.steps, options.grid, options.keep_sums});
  std::vector<detail::placed_shard> best;
  auto const evaluations = search.run(
      std::numeric_limits<std::int64_t>::max(), [] { return false; },
      [&](std::vector<detail::placed_shard> shards) { best = std::move(shards); });
  if (best.empty())
    throw error(errc::out_of_memory, "published_search: no plan was found",
                {{"evaluations", evaluations}, {"devices", options.devices}, {"bytes_per_device", options.bytes_per_device}});
  auto found = plan_of_shards(tables, model, limits, detail::table_shards_of(kinds, best));
  found.evaluations = evaluations;
  return found;
}

}  // namespace TESSERA_ABI
}  // namespace tessera
