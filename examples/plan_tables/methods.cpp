// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include "methods.hpp"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <tessera/core/error.hpp>
#include <tessera/core/types.hpp>
#include <tessera/plan/exhaustive_search.hpp>
#include <tessera/plan/plan_baselines.hpp>
#include <tessera/plan/plan_objective.hpp>
#include <tessera/plan/plan_search.hpp>
#include <tessera/plan/published_search.hpp>
#include <tessera/plan/shard_memory.hpp>

namespace plan_tables {

namespace {

using tessera::any_cost_model;
using tessera::found_plan;
using tessera::host_exec;
using profiles = std::vector<tessera::table_profile>;

tessera::device_limits limits_of(search_options const& o) {
  return {o.devices, static_cast<std::int64_t>(o.bytes_per_device),
          o.weights_alone ? tessera::counted_memory::float_weights : tessera::counted_memory::all};
}

tessera::plan_objective objective_of(search_options const& o) {
  using enum tessera::plan_objective;
  for (auto const one : {compute_balance, slowest_stage})
    if (o.objective == tessera::name(one)) return one;
  return cost;
}

tessera::plan_search_options plan_options(search_options const& o) {
  auto const limits = limits_of(o);
  tessera::plan_search_options options;
  options.devices = limits.devices;
  options.bytes_per_device = limits.bytes_per_device;
  options.counted = limits.counted;
  options.evaluations = o.evaluations;
  options.deadline_ms = o.deadline_ms;
  options.cut_rows = o.cut_rows;
  options.towers = o.towers;
  options.devices_of_host = o.model.devices_of_host;
  options.objective = objective_of(o);
  options.seed = tessera::random_seed{o.seed};
  return options;
}

found_plan random(host_exec const&, profiles const& tables, any_cost_model const& cost, search_options const& o) {
  auto const placed = tessera::place_randomly(static_cast<std::int64_t>(tables.size()), o.devices, tessera::random_seed{o.seed});
  return tessera::plan_of_tables(tables, cost, limits_of(o), placed);
}

search_method greedy(char const* name, tessera::greedy_cost by) {
  return {name, [by](host_exec const&, profiles const& tables, any_cost_model const& cost, search_options const& o) {
            auto const limits = limits_of(o);
            return tessera::plan_of_tables(tables, cost, limits, tessera::place_greedily(tables, by, limits));
          }};
}

found_plan whole(host_exec const& exec, profiles const& tables, any_cost_model const& cost, search_options const& o) {
  return tessera::best_whole_tables(exec, tables, cost, objective_of(o), plan_options(o));
}

found_plan whole_even_compute(host_exec const& exec, profiles const& tables, any_cost_model const& cost, search_options const& o) {
  return tessera::best_whole_tables(exec, tables, cost, tessera::plan_objective::compute_balance, plan_options(o));
}

found_plan published(host_exec const& exec, profiles const& tables, any_cost_model const& cost, search_options const& o) {
  auto const limits = limits_of(o);
  return tessera::published_search(exec, tables, cost,
                                   {.devices = limits.devices,
                                    .bytes_per_device = limits.bytes_per_device,
                                    .counted = limits.counted,
                                    .candidates = o.candidates,
                                    .beams = o.beams,
                                    .steps = o.steps,
                                    .grid = o.grid,
                                    .keep_sums = !o.no_sums});
}

found_plan plan(host_exec const& exec, profiles const& tables, any_cost_model const& cost, search_options const& o) {
  auto options = plan_options(o);
  options.replicas = o.replicas;
  return tessera::plan_search(exec, tables, cost, options);
}

found_plan exhaustive(host_exec const&, profiles const& tables, any_cost_model const& cost, search_options const& o) {
  auto const limits = limits_of(o);
  // A model of any number of devices costs a plan the same with devices renumbered, unless it counts bytes inside hosts.
  bool const are_alike = cost.devices() == 0 && o.model.devices_of_host <= 1;
  return tessera::exhaustive_search(tables, cost,
                                    {.devices = limits.devices,
                                     .bytes_per_device = limits.bytes_per_device,
                                     .counted = limits.counted,
                                     .devices_alike = are_alike,
                                     .objective = objective_of(o)});
}

}  // namespace

std::vector<search_method> const& search_methods() {
  using tessera::greedy_cost;
  static std::vector<search_method> const all{{"random", random},
                                              greedy("greedy-size", greedy_cost::size),
                                              greedy("greedy-dim", greedy_cost::dim),
                                              greedy("greedy-lookup", greedy_cost::lookup),
                                              greedy("greedy-size-lookup", greedy_cost::size_lookup),
                                              greedy("greedy-log-rows-lookup", greedy_cost::log_rows_lookup),
                                              {"whole-even-compute", whole_even_compute, true},
                                              {"whole", whole, true, true},
                                              {"published", published},
                                              {"plan", plan, true, true, true},
                                              {"exhaustive", exhaustive, false, true}};
  return all;
}

search_method const& search_method_of(std::string const& name) {
  std::string known;
  for (auto const& one : search_methods()) {
    if (one.name == name) return one;
    known += (known.empty() ? "" : ",") + one.name;
  }
  throw tessera::error(tessera::errc::invalid_argument, "no such method of searching", {{"method", name}, {"methods", known}});
}

void check_method(search_method const& method, search_options const& options) {
  if (options.towers > 0 && !method.knows_towers)
    throw tessera::error(tessera::errc::invalid_argument,
                         "option --towers: the method knows no towers; plan, whole and whole-even-compute do",
                         {{"--towers", options.towers}, {"method", method.name}});
  if (options.objective != tessera::name(tessera::plan_objective::cost) && !method.has_objectives)
    throw tessera::error(tessera::errc::invalid_argument, "option --objective: the method takes none; plan, whole and exhaustive do",
                         {{"--objective", options.objective}, {"method", method.name}});
  if (options.cut_rows && !method.cuts_tables)
    throw tessera::error(tessera::errc::invalid_argument, "option --cut-rows: the method cuts no rows; plan does",
                         {{"method", method.name}});
  if (options.replicas && !method.cuts_tables)
    throw tessera::error(tessera::errc::invalid_argument, "option --replicas: the method puts no table on all devices; plan does",
                         {{"method", method.name}});
}

}  // namespace plan_tables
