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
#include <tessera/plan/plan_samples_file.hpp>
#include <tessera/plan/table_profile.hpp>

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

/// What a model of a machine learns from: the steps of devices, and exchanges both ways, of any numbers of devices.
struct machine_samples {
  std::vector<compute_cost_sample> steps;
  std::vector<exchange_cost_sample> forward, backward;

  /// Takes what was measured of plans, whose tables have these profiles. @throws tessera::error as `samples_of_steps`, having taken nothing
  void add(vector_view<plan_sample const> plans, vector_view<table_profile const> tables) {
    auto const append = [](auto& all, auto const& some) { all.insert(all.end(), some.begin(), some.end()); };
    append(steps, samples_of_steps(plans, tables));
    append(forward, samples_of_exchanges(plans, exchange_way::forward));
    append(backward, samples_of_exchanges(plans, exchange_way::backward));
  }
};

/// Collected steps and exchanges. @throws tessera::error as `samples_of_steps`
inline machine_samples samples_of_machine(vector_view<compute_sample const> steps, pool_ids& ids,
                                          vector_view<exchange_sample const> exchanges) {
  return {samples_of_steps(steps, ids), samples_of_exchanges(exchanges, exchange_way::forward),
          samples_of_exchanges(exchanges, exchange_way::backward)};
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

/// Fits a model to samples of a machine. The batch that the model stands for is that of the first exchange.
/// @throws tessera::error invalid_argument for no exchanges, or not as many of one way as of the other; and as `fit_learned_compute` and
/// `fit_learned_exchange`.
template <gemm_policy Gemm>
fitted_machine fit_machine(host_exec const& exec, Gemm const& gemm, machine_description machine, std::string optimizer,
                           machine_samples const& samples, collected_fit_options const& options = {}) {
  if (samples.forward.empty() || samples.forward.size() != samples.backward.size())
    throw error(errc::invalid_argument, "fit_machine: exchanges of both ways",
                {{"forward", samples.forward.size()}, {"backward", samples.backward.size()}});
  auto compute = fit_learned_compute(exec, gemm, vector_view<compute_cost_sample const>(samples.steps), options.compute);
  auto const of_way = [&](exchange_way way, std::vector<exchange_cost_sample> const& of) {
    return fit_learned_exchange(exec, gemm, way, vector_view<exchange_cost_sample const>(of), options.exchange);
  };
  auto forward = of_way(exchange_way::forward, samples.forward), backward = of_way(exchange_way::backward, samples.backward);
  return {{std::move(machine), std::move(optimizer), samples.forward[0].exchange.batch_samples, std::move(compute.model),
           std::move(forward.model), std::move(backward.model)},
          std::move(compute.reports),
          std::move(forward.reports),
          std::move(backward.reports)};
}

/// The same of what was collected alone. @throws tessera::error as `samples_of_machine` and `fit_machine`
template <gemm_policy Gemm>
fitted_machine fit_collected(host_exec const& exec, Gemm const& gemm, machine_description machine, std::string optimizer,
                             vector_view<compute_sample const> steps, pool_ids& ids, vector_view<exchange_sample const> exchanges,
                             collected_fit_options const& options = {}) {
  return fit_machine(exec, gemm, std::move(machine), std::move(optimizer), samples_of_machine(steps, ids, exchanges), options);
}

}  // namespace TESSERA_ABI
}  // namespace tessera
