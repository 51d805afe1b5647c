// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0

// Networks of costs, fitted to what was collected.

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/types.hpp>
#include <tessera/core/view.hpp>
#include <tessera/files/json.hpp>
#include <tessera/nn/gemm_eigen.hpp>
#include <tessera/plan/cost_samples_file.hpp>
#include <tessera/plan/fit_collected_file.hpp>
#include <tessera/plan/fit_cost_network.hpp>
#include <tessera/plan/fit_published_cost.hpp>
#include <tessera/plan/learned_compute.hpp>
#include <tessera/plan/learned_cost_file.hpp>
#include <tessera/plan/learned_exchange.hpp>
#include <tessera/plan/machine_description.hpp>
#include <tessera/plan/measure_combination.hpp>
#include <tessera/plan/plan_samples_file.hpp>
#include <tessera/plan/published_cost_file.hpp>
#include <tessera/plan/table_profile.hpp>
#include <tessera/plan/table_profile_file.hpp>

#include "collected.hpp"
#include "commands.hpp"
#include "models.hpp"

namespace plan_tables {

namespace {

// The first samples, with their repeats; 0: all.
template <class Sample>
std::vector<Sample> first_of(std::vector<Sample> samples, std::int64_t count) {
  if (count > 0) std::erase_if(samples, [&](Sample const& one) { return one.number >= count; });
  return samples;
}

// The steps that are learned from: of a folder, or the medians or the fastest of several.
std::vector<tessera::compute_sample> steps_of(collected const& folder, fit_command const& o) {
  auto steps = first_of(read_steps(folder), o.samples);
  if (o.again.empty()) return steps;
  std::vector<std::vector<tessera::compute_sample>> all{std::move(steps)};
  for (auto const& other : o.again)
    all.push_back(tessera::detail::told_of_file(other, [&] {
      auto const again = read_collected(other);
      tessera::check_machine(again.machine, folder.machine);
      if (again.pool != folder.pool)
        throw tessera::error(tessera::errc::incompatible, "option --again: steps of other tables", {{"folder", o.folder}});
      if (again.optimizer != folder.optimizer)
        throw tessera::error(tessera::errc::incompatible, "option --again: steps of another optimizer",
                             {{"field", "optimizer"}, {"expected", folder.optimizer}, {"found", again.optimizer}});
      return first_of(read_steps(again), o.samples);
    }));
  return o.fastest ? tessera::fastest_samples(all) : tessera::median_samples(all);
}

// What was measured of plans: of each "TABLES.json=SAMPLES.csv". Their tables are of the kind whose steps were collected.
void add_plans(tessera::machine_samples& samples, collected const& folder, fit_command const& o) {
  for (auto const& both : o.plans) {
    auto const at = both.find('=');
    if (at == both.npos || at == 0 || at + 1 == both.size())
      throw tessera::error(tessera::errc::invalid_argument,
                           "option --plans: a file of profiles, '=', and a file of what plans of them took", {{"value", both}});
    auto const file = both.substr(at + 1);
    if (std::error_code ignored; !std::filesystem::exists(file, ignored))
      throw tessera::error(tessera::errc::io_error, "option --plans: no such file", {{"file", file}});
    auto const profiles = both.substr(0, at);
    auto const tables = tessera::read_table_profiles(profiles);
    tessera::detail::told_of_file(profiles, [&] { tessera::check_row_kinds(tables, folder.optimizer, tessera::measured_row_format); });
    tessera::plan_sample_log const log(file);
    tessera::detail::told_of_file(file, [&] { samples.add(log.samples(), tables); });
  }
}

// How each start of a part went; errors beside the mean cost.
void print(std::string const& part, std::vector<tessera::fit_report> const& reports, double mean_ms) {
  for (auto const& one : reports) {
    std::printf(
        "%-18s start %lld, epoch %lld: off by %.4g ms in training, %.4g in validation, %.4g held out (%.1f%% of the mean %.4g ms)%s",
        part.c_str(), static_cast<long long>(one.start), static_cast<long long>(one.epoch), std::sqrt(one.training_error),
        std::sqrt(one.validation_error), std::sqrt(one.test_error), 100 * std::sqrt(one.test_error) / mean_ms, mean_ms,
        one.is_kept ? "" : ", left out");
    std::int64_t units = 0;
    for (auto const& layer : one.dead) units += layer.units;
    std::printf(", %lld of %lld units dead\n", static_cast<long long>(one.dead_count()), static_cast<long long>(units));
  }
}

double mean_of(std::vector<tessera::exchange_cost_sample> const& samples) {
  double sum = 0, count = 0;
  for (auto const& one : samples)
    for (auto const ms : one.cost_ms) sum += ms, ++count;
  return count > 0 ? sum / count : 0;
}

// The pool with each of the dims: what the published features are normalised by.
std::vector<tessera::table_profile> pool_of_all_dims(collected const& folder) {
  std::vector<tessera::table_profile> all;
  for (auto const& table : folder.pool)
    for (auto const dim : folder.combinations.dims) all.push_back(tessera::profile_of_shard(table, table.rows, dim));
  return all;
}

}  // namespace

void fit(tessera::host_exec const& exec, fit_command const& o) {
  auto const folder = read_collected(o.folder);
  tessera::eigen_gemm const gemm;
  tessera::fit_options const training{.epochs = o.epochs,
                                      .batch_samples = o.batch,
                                      .learning_rate = o.rate,
                                      .last_learning_rate = o.last_rate,
                                      .starts = o.starts,
                                      .seed = tessera::random_seed{o.seed}};
  auto const steps = steps_of(folder, o);
  auto const of_exchanges = o.exchanges_of.empty() ? folder : read_collected(o.exchanges_of);
  if (!o.exchanges_of.empty())
    tessera::detail::told_of_file(o.exchanges_of, [&] { tessera::check_machine(of_exchanges.machine, folder.machine); });
  std::vector<tessera::exchange_sample> exchanges;
  for (auto const d : of_exchanges.devices()) {
    auto const some = first_of(read_exchanges(of_exchanges, d), o.exchanges);
    exchanges.insert(exchanges.end(), some.begin(), some.end());
  }
  if (steps.empty() || exchanges.empty())
    throw tessera::error(tessera::errc::invalid_argument, "fit: steps and exchanges are collected first",
                         {{"folder", o.folder}, {"steps", steps.size()}, {"exchanges", exchanges.size()}});
  tessera::pool_ids ids(folder.pool, folder.combinations.seed);
  auto samples = tessera::samples_of_machine(steps, ids, exchanges);
  add_plans(samples, folder, o);
  double step_ms = 0;
  for (auto const& one : samples.steps) step_ms += one.cost_ms / static_cast<double>(samples.steps.size());
  using tessera::exchange_way;
  if (!o.out.empty()) {
    tessera::collected_fit_options options;
    options.compute.fit = options.exchange.fit = training;
    auto const fitted = tessera::fit_machine(exec, gemm, folder.machine, folder.optimizer, samples, options);
    print("steps", fitted.compute, step_ms);
    print("forward", fitted.forward, mean_of(samples.forward));
    print("backward", fitted.backward, mean_of(samples.backward));
    auto const& interval = fitted.cost.compute.interval();
    if (interval.factor > 0)
      std::printf("nine steps of ten are within %.1f%% of what is predicted, and further off where networks disagree\n",
                  100 * interval.factor * interval.relative_noise);
    if (auto const parent = std::filesystem::path(o.out).parent_path(); !parent.empty()) std::filesystem::create_directories(parent);
    tessera::save_learned_cost(o.out, fitted.cost);
    std::printf("learned costs in %s\n", o.out.c_str());
  }
  if (o.published.empty()) return;
  std::filesystem::create_directories(o.published);
  auto published = tessera::compute_fit_options::published();
  published.fit = training;
  published.fit.most_error_over_best = 1;  // one network
  auto const pool = pool_of_all_dims(folder);
  auto const compute =
      tessera::fit_learned_compute(exec, gemm, tessera::vector_view<tessera::compute_cost_sample const>(samples.steps), published, pool);
  print("published steps", compute.reports, step_ms);
  for (auto const devices : of_exchanges.devices()) {
    auto const fit_way = [&](exchange_way way) {
      auto some = way == exchange_way::forward ? samples.forward : samples.backward;
      std::erase_if(some, [&](auto const& one) { return static_cast<std::int64_t>(one.cost_ms.size()) != devices; });
      auto fitted =
          tessera::fit_published_exchange(exec, gemm, way, tessera::vector_view<tessera::exchange_cost_sample const>(some), training);
      print(std::string(tessera::name(way)) + " of " + std::to_string(devices), fitted.reports, mean_of(some));
      return std::move(fitted.model);
    };
    auto forward = fit_way(exchange_way::forward), backward = fit_way(exchange_way::backward);
    auto const files = published_files(o.published, devices);
    tessera::write_published_cost({tessera::computation_network_of(compute.model), std::move(backward), std::move(forward)},
                                  files.computation, files.backward, files.forward);
  }
  std::printf("published networks in %s\n", o.published.c_str());
}

}  // namespace plan_tables
