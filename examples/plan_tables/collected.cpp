// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include "collected.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <tessera/core/error.hpp>
#include <tessera/core/optimizers.hpp>
#include <tessera/core/types.hpp>
#include <tessera/embed/row_optimizer.hpp>
#include <tessera/files/checksum.hpp>
#include <tessera/files/json.hpp>
#include <tessera/plan/measure_compute.hpp>
#include <tessera/plan/measure_exchange.hpp>
#include <tessera/plan/table_profile_file.hpp>

#include "../support/settings.hpp"

namespace plan_tables {

namespace {

using nlohmann::json;

constexpr std::int64_t version = 1;

// Stands for what measures where samples are read.
template <class Times>
struct never_measured {
  template <class Drawn>
  Times operator()(Drawn const&) const {
    return {};
  }
};

json json_of(collect_options const& o, tessera::machine_description const& machine) {
  return {{"version", version},
          {"machine", {{"processor", machine.processor}, {"threads", machine.threads}, {"last_cache_bytes", machine.last_cache_bytes}}},
          {"optimizer", o.optimizer},
          {"dims", o.dims},
          {"batches", o.batches},
          {"least-tables", o.least_tables},
          {"most-tables", o.most_tables},
          {"least-placed", o.least_placed},
          {"most-placed", o.most_placed},
          {"limit-bytes", o.limit_bytes},
          {"most-skew-ms", o.most_skew_ms},
          {"warm-up", o.warm_up},
          {"runs", o.runs},
          {"rounds", o.rounds},
          {"seed", o.seed}};
}

std::vector<std::int64_t> integers(json const& object, char const* field, std::string const& file) {
  std::vector<std::int64_t> all;
  for (auto const& one : tessera::json_array(object, field, file)) all.push_back(tessera::json_integer({{field, one}}, field, file));
  return all;
}

// Without the pool.
collected of_json(json const& found, std::string const& folder) {
  auto const file = folder + "/collected.json";
  tessera::detail::allow_fields(found,
                                {"version", "machine", "optimizer", "dims", "batches", "least-tables", "most-tables", "least-placed",
                                 "most-placed", "limit-bytes", "most-skew-ms", "warm-up", "runs", "rounds", "seed"},
                                file, "collected");
  if (auto const of = tessera::json_integer(found, "version", file); of != version)
    throw tessera::error(tessera::errc::incompatible, "samples of another version",
                         {{"file", file}, {"field", "version"}, {"found", of}, {"expected", version}});
  auto const integer = [&](char const* field) { return tessera::json_count(found, field, file); };
  auto const& machine = tessera::json_object(found, "machine", file);
  collected result;
  result.folder = folder;
  result.machine = {tessera::json_string(machine, "processor", file), tessera::json_integer(machine, "threads", file),
                    tessera::json_integer(machine, "last_cache_bytes", file)};
  result.optimizer = tessera::json_string(found, "optimizer", file);
  auto& drawn = result.combinations;
  drawn.dims = integers(found, "dims", file);
  drawn.batches = integers(found, "batches", file);
  drawn.limit_bytes = integer("limit-bytes");
  drawn.seed = tessera::random_seed{static_cast<std::uint64_t>(integer("seed"))};
  auto const layout = result.optimizer == "rowwise_adagrad" ? tessera::row_state_layout::of(tessera::rowwise_adagrad{})
                                                            : tessera::row_state_layout::of(tessera::sgd{});
  if (result.optimizer != "rowwise_adagrad" && result.optimizer != "sgd")
    throw tessera::error(tessera::errc::incompatible, "steps are measured with sgd or rowwise_adagrad",
                         {{"file", file}, {"field", "optimizer"}, {"found", result.optimizer}});
  drawn.state_floats_per_element = (layout.width(8) - layout.width(4)) / 4;
  drawn.state_floats_per_row = layout.width(4) - 4 * drawn.state_floats_per_element;
  result.placements.tables = drawn;
  drawn.least_tables = integer("least-tables"), drawn.most_tables = integer("most-tables");
  result.placements.tables.least_tables = integer("least-placed"), result.placements.tables.most_tables = integer("most-placed");
  result.placements.most_skew_ms = tessera::json_number(found, "most-skew-ms", file);
  result.repeat = {.warm_up = integer("warm-up"), .runs = integer("runs"), .most_rounds = integer("rounds")};
  return result;
}

void read_pool(collected& folder) { folder.pool = tessera::read_table_profiles(folder.folder + "/pool.json"); }

json settings_of(collected const& c) {
  collect_options o;
  o.optimizer = c.optimizer;
  o.dims = c.combinations.dims, o.batches = c.combinations.batches;
  o.least_tables = c.combinations.least_tables, o.most_tables = c.combinations.most_tables;
  o.least_placed = c.placements.tables.least_tables, o.most_placed = c.placements.tables.most_tables;
  o.limit_bytes = static_cast<std::uint64_t>(c.combinations.limit_bytes);
  o.most_skew_ms = c.placements.most_skew_ms;
  o.warm_up = c.repeat.warm_up, o.runs = c.repeat.runs, o.rounds = c.repeat.most_rounds;
  o.seed = c.combinations.seed.value;
  return json_of(o, c.machine);
}

}  // namespace

std::string collected::about() const {
  auto const of_pool = tessera::table_profiles_json(pool).dump();
  return examples::text("pool %08x ", tessera::crc32_of(std::string_view(of_pool))) + settings_of(*this).dump();
}

std::vector<std::int64_t> collected::devices() const {
  std::vector<std::int64_t> found;
  std::error_code failure;
  for (auto const& entry : std::filesystem::directory_iterator(folder, failure)) {
    auto const name = entry.path().filename().string();
    std::string_view middle(name);
    if (!middle.starts_with("exchanges_") || !middle.ends_with(".csv")) continue;
    middle.remove_prefix(10), middle.remove_suffix(4);
    if (std::int64_t number = 0; examples::parse_number(middle, number) && number > 0) found.push_back(number);
  }
  std::sort(found.begin(), found.end());
  return found;
}

collected read_collected(std::string const& folder) {
  auto result = of_json(tessera::read_json(folder + "/collected.json"), folder);
  read_pool(result);
  return result;
}

collected open_collected(collect_options const& o, tessera::machine_description const& here) {
  auto const file = o.folder + "/collected.json";
  std::error_code ignored;
  auto asked = json_of(o, here);
  if (!std::filesystem::exists(file, ignored)) {
    if (o.pool.empty())
      throw tessera::error(tessera::errc::invalid_argument, "option --pool: a new folder needs the tables that are drawn from",
                           {{"folder", o.folder}});
    auto pool = tessera::read_table_profiles(o.pool);
    auto const most = tessera::batch_samples_of(pool);
    for (auto const samples : o.batches)
      if (samples > most)
        throw tessera::error(tessera::errc::invalid_argument, "option --batches: the profiles are of batches of fewer samples",
                             {{"file", o.pool}, {"samples", samples}, {"of the profiles", most}});
    if (o.batches.empty()) asked["batches"] = std::vector<std::int64_t>{most};
    auto result = of_json(asked, o.folder);
    result.pool = std::move(pool);
    std::filesystem::create_directories(o.folder);
    tessera::write_table_profiles(o.folder + "/pool.json", result.pool);
    tessera::write_json(file, asked);
    return result;
  }
  auto result = read_collected(o.folder);
  auto const found = settings_of(result);
  for (auto const& name : o.given)
    if (asked.contains(name) && asked[name] != found[name])
      throw tessera::error(tessera::errc::incompatible, "option --" + name + ": the folder's samples were drawn with another value",
                           {{"file", file}, {"of the folder", found[name].dump()}, {"asked for", asked[name].dump()}});
  if (!o.pool.empty() && tessera::read_table_profiles(o.pool) != result.pool)
    throw tessera::error(tessera::errc::incompatible, "option --pool: the folder's samples are of other tables",
                         {{"file", o.pool}, {"of the folder", o.folder + "/pool.json"}});
  tessera::check_machine(result.machine, here);
  return result;
}

std::string between_of(collected const& folder, std::int64_t devices) {
  std::ifstream file(folder.exchanges_file(devices));
  std::string line;
  std::getline(file, line);
  return line.ends_with("processes") ? "processes" : "threads";
}

std::vector<tessera::compute_sample> read_steps(collected const& folder) {
  return tessera::collect_compute_samples(
      folder.steps_file(), folder.about(), 0,
      [&](std::int64_t number) { return tessera::draw_combination(folder.pool, folder.combinations, number); },
      never_measured<tessera::compute_times>());
}

std::vector<tessera::exchange_sample> read_exchanges(collected const& folder, std::int64_t devices) {
  auto options = folder.placements;
  options.devices = devices;
  return tessera::collect_exchange_samples(
      folder.exchanges_file(devices), folder.about_exchanges(devices, between_of(folder, devices)), 0,
      [&](std::int64_t number) { return tessera::draw_placement(folder.pool, options, number); },
      never_measured<tessera::exchange_times>());
}

}  // namespace plan_tables
