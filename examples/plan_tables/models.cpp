// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include "models.hpp"

#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <tessera/core/error.hpp>
#include <tessera/plan/cautious_cost.hpp>
#include <tessera/plan/learned_cost_file.hpp>
#include <tessera/plan/plan_prediction.hpp>
#include <tessera/plan/published_cost_file.hpp>
#include <tessera/plan/roofline_cost.hpp>
#include <tessera/plan/shard_memory.hpp>
#include <tessera/plan/table_profile_file.hpp>

namespace plan_tables {

namespace {

std::string devices_in(std::string const& folder) {
  std::string found;
  std::error_code ignored;
  for (auto const& entry : std::filesystem::directory_iterator(folder, ignored)) {
    auto const name = entry.path().filename().string();
    if (name.starts_with("backward_") && name.ends_with(".json")) found += (found.empty() ? "" : ",") + name.substr(9, name.size() - 14);
  }
  return found;
}

}  // namespace

void loaded_model::check(std::string const& folder, std::vector<tessera::table_profile> const& tables) const {
  if (!optimizer.empty())
    tessera::detail::told_of_file(folder, [&] { tessera::check_row_kinds(tables, optimizer, tessera::measured_row_format); });
}

std::vector<tessera::table_profile> read_tables(std::string const& file) {
  auto tables = tessera::read_table_profiles(file);
  tessera::detail::told_of_file(file, [&] {
    for (auto const& one : tables) tessera::memory_of_shard(one);
  });
  return tables;
}

loaded_model load_model(tessera::host_exec const& exec, model_options const& o, std::vector<tessera::table_profile> const& tables,
                        std::int64_t devices) {
  auto const samples = tessera::batch_samples_of(tables);
  if (o.roofline) {
    tessera::roofline_cost const roofline({.memory_bytes_per_second = o.memory_gb_per_second * 1e9,
                                           .exchange_bytes_per_second = o.exchange_gb_per_second * 1e9,
                                           .bags = static_cast<double>(samples),
                                           .devices_of_host = o.devices_of_host,
                                           .host_bytes_per_second = o.host_gb_per_second * 1e9});
    loaded_model result{tessera::any_cost_model(roofline), "roofline", ""};
    result.lower_bound_ms = tessera::lower_bound_ms(roofline, tables, devices);
    return result;
  }
  if (o.folder.empty()) throw tessera::error(tessera::errc::invalid_argument, "option --model: a folder of costs, or --roofline", {});
  std::error_code ignored;
  auto const files = published_files(o.folder, devices);
  if (o.caution > 0 && std::filesystem::exists(files.computation, ignored))
    throw tessera::error(tessera::errc::incompatible, "option --caution: published networks are one each, and disagree with none",
                         {{"folder", o.folder}});
  if (std::filesystem::exists(files.computation, ignored)) {
    if (!std::filesystem::exists(files.backward, ignored))
      throw tessera::error(tessera::errc::incompatible, "published networks of other numbers of devices",
                           {{"folder", o.folder}, {"devices", devices}, {"there are those of", devices_in(o.folder)}});
    auto cost = tessera::read_published_cost(files.computation, files.backward, files.forward);
    auto digest = tessera::published_cost_digest(cost);
    return {tessera::any_cost_model(std::move(cost)), std::move(digest), ""};
  }
  // Searches may have other threads than the steps that were measured had.
  auto cost = tessera::load_learned_cost(exec, o.folder, {.of_this_machine = false});
  if (!o.any_machine) {
    auto here = tessera::describe_machine(exec);
    here.threads = cost.machine.threads;
    tessera::detail::told_of_file(o.folder, [&] { tessera::check_machine(cost.machine, here); });
  }
  cost.batch_samples = samples;
  auto machine = cost.machine.processor + ", " + std::to_string(cost.machine.threads) + " threads";
  auto const error = tessera::stated_error(cost);
  auto digest = tessera::learned_cost_digest(o.folder);
  tessera::detail::told_of_file(o.folder, [&] { tessera::check_measured_tables(cost, tables); });
  auto optimizer = cost.optimizer;
  if (o.caution == 0) return {tessera::any_cost_model(std::move(cost)), std::move(digest), std::move(machine), error, std::move(optimizer)};
  auto learned = std::make_shared<tessera::learned_cost const>(std::move(cost));
  tessera::any_cost_model cautious(tessera::cautious_cost(*learned, o.caution));
  return {std::move(cautious), std::move(digest), std::move(machine), error, std::move(optimizer), std::move(learned)};
}

}  // namespace plan_tables
