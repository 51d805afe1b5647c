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
#include <iostream>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/stopwatch.hpp>
#include <tessera/files/json.hpp>
#include <tessera/plan/found_plan.hpp>
#include <tessera/plan/found_plan_file.hpp>
#include <tessera/plan/plan_objective.hpp>
#include <tessera/plan/plan_prediction.hpp>
#include <tessera/plan/table_profile.hpp>

#include "../support/data_files.hpp"
#include "commands.hpp"
#include "methods.hpp"
#include "models.hpp"

namespace plan_tables {

namespace {

using tessera::found_plan;
using profiles = std::vector<tessera::table_profile>;

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
          {"objective", o.objective},
          {"cost_ms", found.cost_ms},
          {"evaluations", found.evaluations},
          {"stopped_by_deadline", found.stopped_by_deadline},
          {"seconds", seconds},
          {"shards", found.shards.size()},
          {"bytes_per_device", found.limits.bytes_per_device},
          {"devices", std::move(devices)}};
}

// How a method did on tasks.
struct compared {
  search_method const* method;
  std::vector<double> cost_ms, seconds;  // (tasks,); the cost is infinite where it found no plan
};

void write_csv(std::string const& path, std::vector<std::string> const& files, std::vector<compared> const& all) {
  std::ofstream out(path);
  out << "task,method,cost_ms,seconds\n";
  for (std::size_t t = 0; t < files.size(); ++t)
    for (auto const& one : all)
      out << files[t] << ',' << one.method->name << ',' << (std::isfinite(one.cost_ms[t]) ? examples::text("%.9g", one.cost_ms[t]) : "")
          << ',' << examples::text("%.6g", one.seconds[t]) << '\n';
  if (!out.flush()) throw tessera::error(tessera::errc::io_error, "option --csv: cannot write", {{"file", path}});
}

}  // namespace

void search(tessera::host_exec const& exec, search_options const& o) {
  auto const& method = search_method_of(o.method);
  check_method(method, o);
  auto const tables = read_tables(o.tables);
  auto const model = load_model(exec, o.model, tables, o.devices);
  tessera::stopwatch watch;
  auto const found = tessera::detail::told_of_file(o.tables, [&] { return method.find(exec, tables, model.cost, o); });
  auto const seconds = watch.lap();
  std::cout << found;
  // What is on all devices may exchange fewer bytes than the bound reckons with.
  if (model.lower_bound_ms && !o.replicas && o.objective == tessera::name(tessera::plan_objective::cost))
    std::cout << "no plan of these tables costs less than " << *model.lower_bound_ms << " ms; this one costs " << found.cost_ms << " ms\n";
  if (!o.out.empty()) {
    // What the file says is what the model predicts of its shards: those of a table on one device are one there, and caution is no prediction.
    auto plain = o.model;
    plain.caution = 0;
    auto const by = load_model(exec, plain, tables, o.devices);
    auto plan = found.plan(o.devices);
    auto const predicted = tessera::plan_of_shards(tables, by.cost, found.limits, plan.shards);
    tessera::write_predicted_plan(o.out, {std::move(plan), tessera::prediction_of(predicted, by.digest, by.machine, by.relative_error)});
  }
  if (!o.report.empty()) tessera::write_json(o.report, report_of(found, o, seconds));
}

void compare(tessera::host_exec const& exec, compare_options const& o) {
  std::vector<compared> all;
  if (o.methods.empty()) {
    for (auto const& one : search_methods())
      if (one.name != "exhaustive") all.push_back({&one, {}, {}});
  }
  for (auto const& name : o.methods) all.push_back({&search_method_of(name), {}, {}});
  for (auto const& one : all) check_method(*one.method, o.search);
  auto const files = examples::named_files("DIR", {o.folder});
  std::vector<profiles> tasks;
  for (auto const& file : files) {
    tasks.push_back(read_tables(file));
    auto const samples = tessera::batch_samples_of(tasks.back()), expected = tessera::batch_samples_of(tasks[0]);
    if (samples != expected)
      throw tessera::error(tessera::errc::incompatible, "DIR: tasks of one batch are compared, since a model reckons with one",
                           {{"file", file}, {"field", "bags"}, {"samples", samples}, {"expected", expected}, {"as in", files[0]}});
  }
  auto const model = load_model(exec, o.search.model, tasks[0], o.search.devices);
  for (auto const& tables : tasks) model.check(o.search.model.folder, tables);
  constexpr auto none = std::numeric_limits<double>::infinity();
  std::vector<double> best;
  for (std::size_t task = 0; task < files.size(); ++task) {
    best.push_back(none);
    for (auto& one : all) {
      auto own = o.search;
      if (one.method->name == "random") own.seed += task;
      tessera::stopwatch watch;
      try {
        auto const found = tessera::detail::told_of_file(files[task], [&] { return one.method->find(exec, tasks[task], model.cost, own); });
        one.cost_ms.push_back(static_cast<double>(found.cost_ms));
      } catch (tessera::error const& e) {
        if (e.code() != tessera::errc::out_of_memory) throw;
        one.cost_ms.push_back(none);
      }
      one.seconds.push_back(watch.lap());
      best.back() = std::min(best.back(), one.cost_ms.back());
    }
  }
  std::printf("%-24s %11s %13s %13s %13s %12s\n", "method", "solved", "mean ms", "all solve, ms", "ratio to best", "seconds each");
  std::vector<bool> by_all(files.size(), true);
  for (auto const& one : all)
    for (std::size_t t = 0; t < files.size(); ++t) by_all[t] = by_all[t] && one.cost_ms[t] < none;
  auto const common = std::count(by_all.begin(), by_all.end(), true);
  for (auto const& one : all) {
    double mean = 0, of_common = 0, ratio = 0, seconds = 0;
    auto const count = static_cast<double>(std::count_if(one.cost_ms.begin(), one.cost_ms.end(), [](double ms) { return ms < none; }));
    for (std::size_t t = 0; t < files.size(); ++t) {
      seconds += one.seconds[t];
      if (!(one.cost_ms[t] < none)) continue;
      mean += one.cost_ms[t] / count;
      ratio += one.cost_ms[t] / best[t] / count;
      if (by_all[t]) of_common += one.cost_ms[t] / static_cast<double>(common);
    }
    auto const number = [](bool is, double value) { return is ? examples::text("%.4g", value) : std::string("-"); };
    std::printf("%-24s %11s %13s %13s %13s %12.4g\n", one.method->name.c_str(),
                examples::text("%d of %d", static_cast<int>(count), static_cast<int>(files.size())).c_str(),
                number(count > 0, mean).c_str(), number(common > 0, of_common).c_str(), number(count > 0, ratio).c_str(),
                seconds / static_cast<double>(files.size()));
  }
  if (!o.csv.empty()) write_csv(o.csv, files, all);
}

}  // namespace plan_tables
