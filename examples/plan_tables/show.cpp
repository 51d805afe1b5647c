// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0

// What a plan costs each device, as text and as a page.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <iostream>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/embed/row_store.hpp>
#include <tessera/files/json.hpp>
#include <tessera/plan/found_plan.hpp>
#include <tessera/plan/found_plan_file.hpp>
#include <tessera/plan/shard_memory.hpp>
#include <tessera/plan/table_profile.hpp>
#include <tessera/shard/sharding_plan.hpp>

#include "../support/column_plan.hpp"
#include "../support/html_page.hpp"
#include "../support/output_files.hpp"
#include "commands.hpp"
#include "measured.hpp"
#include "models.hpp"

namespace plan_tables {

namespace {

using tessera::found_plan;

// The costs of devices as bars. A network may predict less than 0; a bar does not go below.
examples::bar_chart bars_of(std::string title, std::vector<std::string> devices, auto const& compute, auto const& backward,
                            auto const& forward) {
  auto const values = [](auto const& ms) {
    std::vector<double> all;
    for (auto const one : ms) all.push_back(std::max(static_cast<double>(one), 0.0));
    return all;
  };
  return {std::move(title),
          "ms",
          std::move(devices),
          {{"compute", values(compute)}, {"backward exchange", values(backward)}, {"forward exchange", values(forward)}}};
}

std::string number(double value) { return examples::text("%.4g", value); }

void write_page(show_options const& o, found_plan const& found, measured_costs const* measured) {
  examples::html_page page("A plan of tables");
  page.paragraph(std::to_string(found.tables.size()) + " tables in " + std::to_string(found.shards.size()) + " shards on " +
                 std::to_string(found.limits.devices) + " devices. The slowest device is predicted to take " +
                 number(static_cast<double>(found.cost_ms)) + " ms of a step for its embeddings, by " +
                 (o.model.roofline ? std::string("counted bytes") : o.model.folder) + ".");
  std::vector<std::string> devices;
  for (std::int64_t d = 0; d < found.limits.devices; ++d) devices.push_back(std::to_string(d));
  std::vector<examples::bar_chart> charts{
      bars_of("predicted costs of each device", devices, found.costs.compute, found.costs.backward, found.costs.forward)};
  if (measured != nullptr)
    charts.push_back(bars_of("measured costs of each device", devices, measured->compute, measured->backward, measured->forward));
  std::vector<double> held, free;
  bool const has_limit = o.bytes_per_device > 0;
  for (auto const bytes : found.bytes) {
    held.push_back(static_cast<double>(bytes) * 1e-6);
    free.push_back(has_limit ? static_cast<double>(found.limits.bytes_per_device - bytes) * 1e-6 : 0);
  }
  charts.push_back({"memory of each device", "MB", devices, {{"held", held}}});
  if (has_limit) charts.back().parts.push_back({"free", free});
  page.bars(charts);
  page.heading("Devices");
  std::vector<std::string> header{"device", "shards", "columns", "MB", "compute ms", "backward ms", "start ms", "forward ms", "sum ms"};
  if (measured != nullptr) header.insert(header.end(), {"measured compute", "backward", "forward", "sum", "predicted / measured"});
  std::vector<std::vector<std::string>> rows;
  for (std::size_t d = 0; d < devices.size(); ++d) {
    std::int64_t shards = 0, columns = 0;
    for (auto const& s : found.shards)
      if (static_cast<std::size_t>(s.rank) == d) ++shards, columns += s.columns;
    auto const of = [&](std::vector<float> const& ms) { return number(static_cast<double>(ms[d])); };
    auto const total = static_cast<double>(found.costs.total(static_cast<std::int64_t>(d)));
    rows.push_back({devices[d], std::to_string(shards), std::to_string(columns), number(held[d]), of(found.costs.compute),
                    of(found.costs.backward), of(found.costs.starts), of(found.costs.forward), number(total)});
    if (measured != nullptr)
      rows.back().insert(rows.back().end(),
                         {number(measured->compute[d]), number(measured->backward[d]), number(measured->forward[d]),
                          number(measured->total(d)), measured->total(d) > 0 ? number(total / measured->total(d)) : "-"});
  }
  page.table(header, rows);
  page.heading("Tables that are cut");
  rows.clear();
  for (auto const& s : found.shards) {
    auto const& table = found.tables[static_cast<std::size_t>(s.table)];
    if (s.rows == table.rows && s.columns == table.dim) continue;
    rows.push_back({table.name, std::to_string(table.rows), std::to_string(table.dim), std::to_string(s.rank),
                    std::to_string(s.first_row) + " to " + std::to_string(s.first_row + s.rows),
                    std::to_string(s.first_column) + " to " + std::to_string(s.first_column + s.columns)});
  }
  if (rows.empty())
    page.paragraph("All tables are whole.");
  else
    page.table({"table", "rows", "dim", "device", "its rows", "its columns"}, rows);
  page.heading("Tables");
  rows.clear();
  for (std::size_t t = 0; t < found.tables.size(); ++t) {
    auto const& table = found.tables[t];
    std::string where;
    for (auto const& s : found.shards)
      if (static_cast<std::size_t>(s.table) == t)
        where += (where.empty() ? "" : ", ") + (s.rank == tessera::table_shard::all_ranks ? "all" : std::to_string(s.rank));
    rows.push_back({table.name, std::to_string(table.rows), std::to_string(table.dim), number(table.pooling_factor), number(table.bags),
                    number(table.distinct_bags), number(tessera::distinct_rows_of_batch(table)), where});
  }
  page.table({"table", "rows", "dim", "ids of a bag", "bags", "distinct bags", "distinct rows", "devices"}, rows);
  examples::whole_file file("--page", o.page);
  file.text << page.text();
  file.commit();
}

void print_measured(found_plan const& found, measured_costs const& measured) {
  double most = 0;
  for (std::size_t d = 0; d < measured.compute.size(); ++d) {
    auto const of = [&](std::vector<float> const& predicted, std::vector<double> const& ms) {
      return examples::text("%.4g / %.4g", static_cast<double>(predicted[d]), ms[d]);
    };
    std::printf("device %d, predicted / measured ms: compute %s, backward %s, forward %s, sum %.4g / %.4g\n", static_cast<int>(d),
                of(found.costs.compute, measured.compute).c_str(), of(found.costs.backward, measured.backward).c_str(),
                of(found.costs.forward, measured.forward).c_str(), static_cast<double>(found.costs.total(static_cast<std::int64_t>(d))),
                measured.total(d));
    most = std::max(most, measured.total(d));
  }
  std::printf("slowest device, predicted / measured ms: %.4g / %.4g\n", static_cast<double>(found.cost_ms), most);
}

}  // namespace

void show(tessera::host_exec const& exec, show_options const& o) {
  auto const tables = read_tables(o.tables);
  std::vector<tessera::table_options> options;
  for (auto const& one : tables) options.push_back({.dim = one.dim, .rows = one.rows});
  std::vector<std::string> names;
  for (auto const& one : tables) names.push_back(one.name);
  auto plan = tessera::read_predicted_plan(o.plan, options, static_cast<int>(o.devices), names).plan;
  auto const model = load_model(exec, o.model, tables, o.devices);
  tessera::device_limits const limits{
      o.devices, o.bytes_per_device == 0 ? std::numeric_limits<std::int64_t>::max() : static_cast<std::int64_t>(o.bytes_per_device),
      o.weights_alone ? tessera::counted_memory::float_weights : tessera::counted_memory::all};
  auto const found =
      tessera::detail::told_of_file(o.plan, [&] { return tessera::plan_of_shards(tables, model.cost, limits, std::move(plan.shards)); });
  std::optional<measured_costs> measured;
  if (!o.measured.empty()) {
    measured = read_measured(o.measured, o.plan, o.devices);
    if (!measured->has_exchanges())
      throw tessera::error(tessera::errc::incompatible, "option --measured: measured without exchanges", {{"file", o.measured}});
  }
  std::cout << found << std::flush;
  if (measured) print_measured(found, *measured);
  if (!o.page.empty()) write_page(o, found, measured ? &*measured : nullptr);
}

}  // namespace plan_tables
