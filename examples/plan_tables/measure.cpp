// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0

// Measures what plans cost on this machine, in turns.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <tessera/comm/any_communicator.hpp>
#include <tessera/comm/collectives.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/memory.hpp>
#include <tessera/core/optimizers.hpp>
#include <tessera/core/thread_team.hpp>
#include <tessera/core/types.hpp>
#include <tessera/core/view.hpp>
#include <tessera/embed/row_optimizer.hpp>
#include <tessera/embed/row_store.hpp>
#include <tessera/files/json.hpp>
#include <tessera/plan/found_plan_file.hpp>
#include <tessera/plan/measure_compute.hpp>
#include <tessera/plan/measure_exchange.hpp>
#include <tessera/plan/measuring_clock.hpp>
#include <tessera/plan/plan_samples_file.hpp>
#include <tessera/plan/table_ids.hpp>
#include <tessera/plan/table_profile.hpp>
#include <tessera/plan/table_profile_file.hpp>
#include <tessera/shard/sharding_plan.hpp>

#include "../support/ranks.hpp"
#include "commands.hpp"
#include "measured.hpp"
#include "rounds.hpp"
#include "whole_steps.hpp"

namespace plan_tables {

namespace {

// Plans of the same tables.
struct planned {
  std::vector<tessera::table_profile> tables;
  std::vector<std::vector<tessera::table_shard>> plans;
  std::vector<tessera::predicted_plan> files;  // the same, with what was predicted of them

  std::vector<std::int64_t> columns(std::size_t plan, std::int64_t devices) const {
    std::vector<std::int64_t> sums(static_cast<std::size_t>(devices));
    for (auto const& s : plans[plan]) sums[static_cast<std::size_t>(s.rank)] += s.columns;
    return sums;
  }
};

planned read_plans(measure_options const& o) {
  planned of{tessera::read_table_profiles(o.tables), {}, {}};
  std::vector<tessera::table_options> options;
  for (auto const& one : of.tables) options.push_back({.dim = one.dim, .rows = one.rows});
  for (std::size_t p = 0; p < o.plans.size(); ++p) {
    auto const& file = o.plans[p];
    if (file.find_first_of(",\n\r") != file.npos || std::count(o.plans.begin(), o.plans.end(), file) > 1)
      throw tessera::error(tessera::errc::invalid_argument, "PLAN: the lines of --out name plans by their files, each once, without commas",
                           {{"file", file}});
    of.files.push_back(tessera::read_predicted_plan(file, options, static_cast<int>(o.devices)));
    of.plans.push_back(of.files.back().plan.shards);
    if (!o.samples.empty() && !of.files.back().found)
      throw tessera::error(tessera::errc::invalid_argument, "option --samples: of plans that say what was predicted of them",
                           {{"file", file}});
    if (auto const& found = of.files.back().found; found && !o.samples.empty()) {
      tessera::detail::told_of_file(file, [&] { tessera::check_row_kinds(of.tables, found->optimizer, found->row_format); });
      if (auto const samples = tessera::batch_samples_of(of.tables); found->batch_samples != samples)
        throw tessera::error(tessera::errc::incompatible, "option --samples: the plan was found for another batch than is measured",
                             {{"file", file}, {"field", "batch_samples"}, {"value", found->batch_samples}, {"samples of TABLES", samples}});
    }
    for (auto const& s : of.plans.back())
      if (s.rank == tessera::table_shard::all_ranks && (!o.whole_steps || !o.samples.empty()))
        throw tessera::error(tessera::errc::invalid_argument,
                             "a plan with a table on all ranks is measured by --whole-steps alone, without --samples",
                             {{"file", file}, {"table", s.table}});
  }
  auto const& optimizer = of.tables[0].optimizer;
  for (auto const& one : of.tables)
    if (one.optimizer != optimizer || (optimizer != "sgd" && optimizer != "rowwise_adagrad"))
      throw tessera::error(tessera::errc::incompatible, "steps are measured with sgd or rowwise_adagrad, the same for all tables",
                           {{"file", o.tables}, {"table", one.name}, {"field", "optimizer"}, {"value", one.optimizer}});
  tessera::detail::told_of_file(o.tables, [&] { tessera::check_row_kinds(of.tables, optimizer, tessera::measured_row_format); });
  return of;
}

// What a shard of rows reads of the batch of its table; bags whose ids are elsewhere are empty.
tessera::table_ids ids_of_rows(tessera::table_ids const& all, std::int64_t first_row, std::int64_t rows) {
  tessera::table_ids result;
  auto id = all.ids.begin();
  for (auto const length : all.lengths) {
    auto const before = result.ids.size();
    for (auto const end = id + length; id != end; ++id)
      if (*id >= first_row && *id - first_row < rows) result.ids.push_back(*id - first_row);
    result.lengths.push_back(static_cast<std::int64_t>(result.ids.size() - before));
  }
  return result;
}

// The tables of each device under each plan. All shards of a table, of all plans, read the ids that were drawn for it once.
class device_tables {
 public:
  device_tables(planned const& of, measure_options const& o) : on_(of.plans.size()) {
    for (std::size_t t = 0; t < of.tables.size(); ++t)
      whole_.push_back(tessera::draw_table_ids(of.tables[t], std::llround(of.tables[t].distinct_bags), tessera::random_seed{o.seed}, t));
    for (std::size_t p = 0; p < on_.size(); ++p) {
      on_[p].resize(static_cast<std::size_t>(o.devices));
      for (auto const& s : of.plans[p]) {
        auto const& ids = of_rows(s, of.tables[static_cast<std::size_t>(s.table)].rows);
        on_[p][static_cast<std::size_t>(s.rank)].push_back({s.rows, s.columns, ids.ids, ids.lengths});
      }
    }
  }
  std::vector<std::vector<tessera::measured_table>> const& operator[](std::size_t plan) const { return on_[plan]; }

 private:
  tessera::table_ids const& of_rows(tessera::table_shard const& s, std::int64_t rows) {
    auto const& whole = whole_[static_cast<std::size_t>(s.table)];
    if (s.rows == rows) return whole;
    auto const [at, is_new] = parts_.try_emplace({s.table, s.first_row, s.rows});
    if (is_new) at->second = ids_of_rows(whole, s.first_row, s.rows);
    return at->second;
  }

  std::vector<tessera::table_ids> whole_;
  std::map<std::tuple<std::int64_t, std::int64_t, std::int64_t>, tessera::table_ids> parts_;
  std::vector<std::vector<std::vector<tessera::measured_table>>> on_;
};

// Calls f(plan) for all plans so often, each time beginning with the next one.
template <class F>
void take_turns(std::int64_t rounds, std::size_t plans, F const& f) {
  for (std::size_t r = 0; r < static_cast<std::size_t>(rounds); ++r)
    for (std::size_t p = 0; p < plans; ++p) f((r + p) % plans);
}

// The steps of all devices of all plans, (plans, devices), one after the other on the threads of this process.
template <class Optimizer>
std::vector<std::vector<double>> measure_steps(tessera::host_exec const& exec, planned const& of, measure_options const& o,
                                               Optimizer const& optimizer) {
  device_tables const on(of, o);
  std::int64_t bytes = 0;
  for (std::size_t p = 0; p < of.plans.size(); ++p)
    for (auto const& tables : on[p]) bytes = std::max(bytes, tessera::compute_bench<>::bytes_for(tables, optimizer));
  tessera::compute_bench bench(exec, bytes);
  tessera::machine_clock clock;
  std::vector<per_device> ms(of.plans.size(), per_device(static_cast<std::size_t>(o.devices)));
  take_turns(o.rounds, of.plans.size(), [&](std::size_t p) {
    for (std::size_t d = 0; d < ms[p].size(); ++d)
      ms[p][d].push_back(bench.measure(exec, clock, on[p][d], optimizer, {.warm_up = o.warm_up, .runs = o.runs}).step_ms);
  });
  std::vector<std::vector<double>> result;
  for (auto const& plan : ms) result.push_back(o.fastest ? least(plan) : medians(plan));
  return result;
}

// All ranks call it. The first one's costs of steps count; all get those of exchanges.
void measure_exchanges(tessera::any_communicator comm, planned const& of, std::vector<measured_costs>& costs, measure_options const& o) {
  tessera::serial_team team;
  tessera::system_memory memory;
  tessera::host_exec const exec(team, memory);
  tessera::machine_clock clock;
  for (auto& one : costs) tessera::broadcast(exec, comm, tessera::vector_view<double>(one.compute), 0);
  tessera::repetition const repeat{.warm_up = o.warm_up, .runs = o.runs};
  auto const devices = static_cast<std::size_t>(o.devices);
  std::vector<per_device> backward(costs.size(), per_device(devices)), forward(backward);
  take_turns(o.rounds, costs.size(), [&](std::size_t p) {
    tessera::exchange_case exchange{of.columns(p, o.devices), std::vector<double>(devices), tessera::batch_samples_of(of.tables)};
    auto const together = tessera::measure_exchange(exec, comm, clock, exchange, repeat);
    // A device sends vectors when it is done with the gradients of the batch before.
    for (std::size_t d = 0; d < devices; ++d) exchange.start_ms[d] = costs[p].compute[d] + together.backward_ms[d];
    auto const first = *std::min_element(exchange.start_ms.begin(), exchange.start_ms.end());
    for (auto& start : exchange.start_ms) start -= first;
    auto const apart = tessera::measure_exchange(exec, comm, clock, exchange, repeat);
    for (std::size_t d = 0; d < devices; ++d) {
      backward[p][d].push_back(together.backward_ms[d]);
      forward[p][d].push_back(apart.forward_ms[d]);
    }
  });
  for (std::size_t p = 0; p < costs.size(); ++p) {
    per_device steps;  // the same in all rounds
    for (auto const ms : costs[p].compute) steps.emplace_back(static_cast<std::size_t>(o.rounds), ms);
    costs[p] = costs_of_rounds(steps, backward[p], forward[p], o.fastest);
  }
}

// Whole steps on the ranks of `comm`. All ranks call it and get all costs.
std::vector<measured_costs> costs_of_whole_steps(tessera::any_communicator const& comm, planned const& of, measure_options const& o) {
  std::vector<std::array<per_device, 3>> stages(of.files.size());
  for (auto& one : stages) one.fill(per_device(static_cast<std::size_t>(o.devices)));
  take_turns(o.rounds, of.files.size(), [&](std::size_t p) {
    auto const costs =
        measure_whole_steps(comm, of.tables, of.files[p].plan, {.warm_up = o.warm_up, .runs = o.runs}, tessera::random_seed{o.seed});
    for (std::size_t d = 0; d < costs.compute.size(); ++d) {
      stages[p][0][d].push_back(costs.compute[d]);
      stages[p][1][d].push_back(costs.backward[d]);
      stages[p][2][d].push_back(costs.forward[d]);
    }
  });
  std::vector<measured_costs> all;
  for (auto const& [compute, backward, forward] : stages) all.push_back(costs_of_rounds(compute, backward, forward, o.fastest));
  return all;
}

std::vector<measured_costs> costs_of_steps(int threads, planned const& of, measure_options const& o) {
  std::vector<measured_costs> costs(of.plans.size(), measured_costs(o.devices));
  if (!o.compute.empty()) {
    for (std::size_t p = 0; p < costs.size(); ++p) costs[p].compute = read_measured(o.compute, o.plans[p], o.devices).compute;
    return costs;
  }
  tessera::thread_pool pool(threads);
  tessera::system_memory memory;
  tessera::host_exec const exec(pool, memory);
  auto const steps =
      of.tables[0].optimizer == "sgd" ? measure_steps(exec, of, o, tessera::sgd{}) : measure_steps(exec, of, o, tessera::rowwise_adagrad{});
  for (std::size_t p = 0; p < costs.size(); ++p) costs[p].compute = steps[p];
  return costs;
}

// Adds what was measured to a file of plans' samples.
void add_samples(planned const& of, std::vector<measured_costs> const& costs, measure_options const& o) {
  tessera::plan_sample_log log(o.samples);
  for (std::size_t p = 0; p < costs.size(); ++p) {
    auto const& [plan, found] = of.files[p];
    tessera::plan_sample sample{
        plan.shards, tessera::plan_digest(plan), found->model, found->batch_samples, o.rounds * o.runs, found->devices, {}};
    for (std::size_t d = 0; d < costs[p].compute.size(); ++d)
      sample.measured.push_back({costs[p].compute[d], costs[p].backward[d], costs[p].forward[d]});
    log.append(std::move(sample));
  }
}

void write(planned const& of, measure_options const& o, std::vector<measured_costs> const& costs) {
  write_measured(o.out, o.plans, costs);
  if (!o.samples.empty()) add_samples(of, costs, o);
  std::printf("%zu plans, %lld devices in %s\n", costs.size(), static_cast<long long>(o.devices), o.out.c_str());
}

}  // namespace

void measure(int threads, measure_options const& o) {
  auto const of = read_plans(o);
  if (o.no_exchanges) return write(of, o, costs_of_steps(threads, of, o));
  examples::rank_group ranks(o.ranks.empty() ? "threads:" + std::to_string(o.devices) : o.ranks, o.time_limit);
  std::vector<measured_costs> costs(of.plans.size(), measured_costs(o.devices));
  auto const prepare = [&](tessera::any_communicator const&) {
    if (ranks.has_first() && !o.whole_steps) costs = costs_of_steps(threads, of, o);
  };
  ranks.run(prepare, [&](tessera::any_communicator const& comm) {
    if (comm.size() != o.devices)
      throw tessera::error(tessera::errc::incompatible, "option --devices: as many as ranks",
                           {{"devices", o.devices}, {"ranks", comm.size()}});
    auto own = o.whole_steps ? costs_of_whole_steps(comm, of, o) : costs;
    if (!o.whole_steps) measure_exchanges(comm, of, own, o);
    if (comm.rank() == 0) write(of, o, own);
  });
}

}  // namespace plan_tables
