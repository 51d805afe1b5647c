// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>
#include <tessera/nn/gemm.hpp>
#include <tessera/plan/cost_samples_file.hpp>
#include <tessera/plan/fit_cost_network.hpp>
#include <tessera/plan/learned_compute.hpp>
#include <tessera/plan/learned_cost.hpp>
#include <tessera/plan/learned_exchange.hpp>
#include <tessera/plan/machine_description.hpp>
#include <tessera/plan/measure_combination.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// Collected steps as a model learns from them: shards with the profiles of their ids, and the time of a step. Repeats are left out.
/// @throws tessera::error as `draw_table_ids`; out_of_range for a table that is not in the pool.
inline std::vector<compute_cost_sample> samples_of_steps(vector_view<compute_sample const> collected, pool_ids& ids) {
  std::vector<compute_cost_sample> result;
  for (auto const& sample : collected) {
    if (sample.is_repeat) continue;
    for (auto const& one : sample.combination.tables)
      if (one.table < 0 || one.table >= ids.pool().size())
        throw error(errc::out_of_range, "samples_of_steps: a table that is not in the pool",
                    {{"sample", sample.number}, {"table", one.table}, {"tables", ids.pool().size()}});
    result.push_back({ids.shards_of(sample.combination), sample.times.step_ms});
  }
  return result;
}

/// Collected exchanges of one way as a model learns from them. Repeats are left out.
inline std::vector<exchange_cost_sample> samples_of_exchanges(vector_view<exchange_sample const> collected, exchange_way way) {
  std::vector<exchange_cost_sample> result;
  for (auto const& sample : collected)
    if (!sample.is_repeat)
      result.push_back({sample.exchange, way == exchange_way::forward ? sample.times.forward_ms : sample.times.backward_ms});
  return result;
}

/// How the parts of a model of a machine are fitted.
struct collected_fit_options {
  compute_fit_options compute{};
  exchange_fit_options exchange{};
};

/// A model of a machine, and how each start of each of its parts went.
struct fitted_machine {
  learned_cost cost;
  std::vector<fit_report> compute, forward, backward;
};

/// Fits a model to what was collected on a machine. The exchanges may be of several numbers of devices; the batch that the model stands for is
/// that of the first. @throws tessera::error invalid_argument for no exchanges; and as `fit_learned_compute` and `fit_learned_exchange`.
template <gemm_policy Gemm>
fitted_machine fit_collected(host_exec const& exec, Gemm const& gemm, machine_description machine, std::string optimizer,
                             vector_view<compute_sample const> steps, pool_ids& ids, vector_view<exchange_sample const> exchanges,
                             collected_fit_options const& options = {}) {
  if (exchanges.empty()) throw error(errc::invalid_argument, "fit_collected: no exchanges", {{"exchanges", 0}});
  auto const measured = samples_of_steps(steps, ids);
  auto compute = fit_learned_compute(exec, gemm, vector_view<compute_cost_sample const>(measured), options.compute);
  auto const of_way = [&](exchange_way way) {
    auto const costs = samples_of_exchanges(exchanges, way);
    return fit_learned_exchange(exec, gemm, way, vector_view<exchange_cost_sample const>(costs), options.exchange);
  };
  auto forward = of_way(exchange_way::forward), backward = of_way(exchange_way::backward);
  return {{std::move(machine), std::move(optimizer), exchanges[0].exchange.batch_samples, std::move(compute.model),
           std::move(forward.model), std::move(backward.model)},
          std::move(compute.reports),
          std::move(forward.reports),
          std::move(backward.reports)};
}

}  // namespace TESSERA_ABI
}  // namespace tessera
