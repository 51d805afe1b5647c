// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0

// Searches for plans, and comparisons of searches over tasks.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <tessera/core/error.hpp>
#include <tessera/core/stopwatch.hpp>
#include <tessera/files/json.hpp>
#include <tessera/plan/exhaustive_search.hpp>
#include <tessera/plan/found_plan_file.hpp>
#include <tessera/plan/plan_baselines.hpp>
#include <tessera/plan/plan_prediction.hpp>
#include <tessera/plan/plan_search.hpp>
#include <tessera/plan/published_search.hpp>
#include <tessera/plan/table_profile_file.hpp>

#include "../support/data_files.hpp"
#include "commands.hpp"
#include "models.hpp"

namespace plan_tables {

namespace {

using tessera::any_cost_model;
using tessera::found_plan;
using profiles = std::vector<tessera::table_profile>;

tessera::counted_memory counted(search_options const& o) {
  return o.weights_alone ? tessera::counted_memory::float_weights : tessera::counted_memory::all;
}
tessera::device_limits limits_of(search_options const& o) { return {o.devices, static_cast<std::int64_t>(o.bytes_per_device), counted(o)}; }
tessera::plan_search_options plan_options(search_options const& o) {
  tessera::plan_search_options options;
  options.devices = o.devices;
  options.bytes_per_device = static_cast<std::int64_t>(o.bytes_per_device);
  options.counted = counted(o);
  options.evaluations = o.evaluations;
  options.deadline_ms = o.deadline_ms;
  options.cut_rows = o.cut_rows;
  options.seed = tessera::random_seed{o.seed};
  return options;
}

found_plan find(tessera::host_exec const& exec, profiles const& tables, any_cost_model const& cost, search_options const& o) {
  auto const limits = limits_of(o);
  if (o.method == "published")
    return tessera::published_search(exec, tables, cost,
                                     {.devices = limits.devices, .bytes_per_device = limits.bytes_per_device, .counted = limits.counted});
  if (o.method == "exhaustive")
    return tessera::exhaustive_search(tables, cost,
                                      {.devices = limits.devices, .bytes_per_device = limits.bytes_per_device, .counted = limits.counted});
  return tessera::plan_search(exec, tables, cost, plan_options(o));
}

nlohmann::json report_of(found_plan const& found, search_options const& o, double seconds) {
  auto devices = nlohmann::json::array();
  for (std::int64_t d = 0; d < found.limits.devices; ++d) {
    auto const at = static_cast<std::size_t>(d);
    devices.push_back({{"compute_ms", found.costs.compute[at]},
                       {"backward_ms", found.costs.backward[at]},
                       {"start_ms", found.costs.starts[at]},
                       {"forward_ms", found.costs.forward[at]},
                       {"total_ms", found.costs.total(d)},
                       {"bytes", found.bytes[at]}});
  }
  return {{"tables", o.tables},
          {"model", o.model.roofline ? "roofline" : o.model.folder},
          {"search", o.method},
          {"cost_ms", found.cost_ms},
          {"evaluations", found.evaluations},
          {"stopped_by_deadline", found.stopped_by_deadline},
          {"seconds", seconds},
          {"shards", found.shards.size()},
          {"bytes_per_device", found.limits.bytes_per_device},
          {"devices", std::move(devices)}};
}

// A way to find a plan, and how it did on tasks.
struct searched_way {
  std::string name;
  std::function<found_plan(profiles const&, std::size_t)> find;
  std::vector<double> cost_ms;  // (tasks,), infinite where it found none
  double seconds = 0;
};

std::vector<searched_way> all_ways(tessera::host_exec const& exec, any_cost_model const& cost, search_options const& o) {
  std::vector<searched_way> ways;
  auto const add = [&](std::string name, auto find) { ways.push_back({std::move(name), std::move(find), {}, 0}); };
  auto const limits = limits_of(o);
  add("random", [&cost, limits, o](profiles const& tables, std::size_t task) {
    auto const placed =
        tessera::place_randomly(static_cast<std::int64_t>(tables.size()), limits.devices, tessera::random_seed{o.seed + task});
    return tessera::plan_of_tables(tables, cost, limits, placed);
  });
  using tessera::greedy_cost;
  for (auto const& [name, by] :
       {std::pair("greedy by size", greedy_cost::size), std::pair("greedy by dim", greedy_cost::dim),
        std::pair("greedy by lookups", greedy_cost::lookup), std::pair("greedy by lookups * size", greedy_cost::size_lookup),
        std::pair("greedy by lookups * log rows", greedy_cost::log_rows_lookup)})
    add(name, [&cost, limits, by = by](profiles const& tables, std::size_t) {
      return tessera::plan_of_tables(tables, cost, limits, tessera::place_greedily(tables, by, limits));
    });
  using tessera::plan_objective;
  for (auto const& [name, by] : {std::pair("whole tables by even compute", plan_objective::compute_balance),
                                 std::pair("whole tables by cost", plan_objective::cost)})
    add(name, [&exec, &cost, o, by = by](profiles const& tables, std::size_t) {
      auto found = tessera::best_whole_tables(exec, tables, cost, by, plan_options(o));
      found.cost_ms = tessera::cost_of(found.costs);
      return found;
    });
  for (auto const& [name, method] : {std::pair("published search", "published"), std::pair("plan search", "plan")})
    add(name, [&exec, &cost, o, method = std::string(method)](profiles const& tables, std::size_t) {
      auto own = o;
      own.method = method;
      return find(exec, tables, cost, own);
    });
  return ways;
}

void write_csv(std::string const& path, std::vector<std::string> const& files, std::vector<searched_way> const& ways) {
  std::ofstream out(path);
  out << "task";
  for (auto const& way : ways) out << ',' << way.name;
  out << '\n';
  for (std::size_t t = 0; t < files.size(); ++t) {
    out << files[t];
    for (auto const& way : ways) out << ',' << (std::isfinite(way.cost_ms[t]) ? examples::text("%.9g", way.cost_ms[t]) : "");
    out << '\n';
  }
  if (!out.flush()) throw tessera::error(tessera::errc::io_error, "option --csv: cannot write", {{"file", path}});
}

}  // namespace

void search(tessera::host_exec const& exec, search_options const& o) {
  auto const tables = tessera::read_table_profiles(o.tables);
  auto const model = load_model(exec, o.model, tables, o.devices);
  tessera::stopwatch watch;
  auto const found = find(exec, tables, model.cost, o);
  auto const seconds = watch.lap();
  std::cout << found;
  if (!o.out.empty())
    tessera::write_predicted_plan(
        o.out, {found.plan(o.devices), tessera::prediction_of(found, model.digest, model.machine, model.relative_error)});
  if (!o.report.empty()) tessera::write_json(o.report, report_of(found, o, seconds));
}

void compare(tessera::host_exec const& exec, compare_options const& o) {
  auto const files = examples::named_files("DIR", {o.folder});
  std::vector<profiles> tasks;
  for (auto const& file : files) tasks.push_back(tessera::read_table_profiles(file));
  auto const cost = load_model(exec, o.search.model, tasks[0], o.search.devices).cost;
  auto ways = all_ways(exec, cost, o.search);
  constexpr auto none = std::numeric_limits<double>::infinity();
  std::vector<double> best;
  for (std::size_t task = 0; task < files.size(); ++task) {
    auto const& tables = tasks[task];
    best.push_back(none);
    for (auto& way : ways) {
      tessera::stopwatch watch;
      try {
        way.cost_ms.push_back(static_cast<double>(way.find(tables, task).cost_ms));
      } catch (tessera::error const& e) {
        if (e.code() != tessera::errc::out_of_memory) throw;
        way.cost_ms.push_back(none);
      }
      way.seconds += watch.lap();
      best.back() = std::min(best.back(), way.cost_ms.back());
    }
  }
  auto const solved = [](searched_way const& way) {
    return std::count_if(way.cost_ms.begin(), way.cost_ms.end(), [](double ms) { return ms < none; });
  };
  std::printf("%-30s %11s %13s %13s %13s %12s\n", "search", "solved", "mean ms", "all solve, ms", "ratio to best", "seconds each");
  std::vector<bool> by_all(files.size(), true);
  for (auto const& way : ways)
    for (std::size_t t = 0; t < files.size(); ++t) by_all[t] = by_all[t] && way.cost_ms[t] < none;
  auto const common = std::count(by_all.begin(), by_all.end(), true);
  for (auto const& way : ways) {
    double mean = 0, of_common = 0, ratio = 0;
    auto const count = static_cast<double>(solved(way));
    for (std::size_t t = 0; t < files.size(); ++t) {
      if (!(way.cost_ms[t] < none)) continue;
      mean += way.cost_ms[t] / count;
      ratio += way.cost_ms[t] / best[t] / count;
      if (by_all[t]) of_common += way.cost_ms[t] / static_cast<double>(common);
    }
    auto const number = [](bool is, double value) { return is ? examples::text("%.4g", value) : std::string("-"); };
    std::printf("%-30s %11s %13s %13s %13s %12.4g\n", way.name.c_str(),
                examples::text("%d of %d", static_cast<int>(count), static_cast<int>(files.size())).c_str(),
                number(count > 0, mean).c_str(), number(common > 0, of_common).c_str(), number(count > 0, ratio).c_str(),
                way.seconds / static_cast<double>(files.size()));
  }
  if (!o.csv.empty()) write_csv(o.csv, files, ways);
}

}  // namespace plan_tables
