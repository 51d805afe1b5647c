// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0

// What a model predicts of what was collected.

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>
#include <tessera/plan/any_cost_model.hpp>
#include <tessera/plan/measure_combination.hpp>
#include <tessera/plan/table_profile.hpp>

#include "../support/output_files.hpp"
#include "collected.hpp"
#include "commands.hpp"
#include "models.hpp"

namespace plan_tables {

namespace {

using floats = std::vector<float>;

constexpr std::int64_t most_devices = 4096;  // whose networks are looked for

// A model, for each number of devices and samples of a batch that comes. Published networks are of some numbers of devices alone.
class models_of_devices {
 public:
  models_of_devices(tessera::host_exec const& exec, model_options const& options, tessera::table_profile any)
      : exec_(exec), options_(options), any_(std::move(any)) {}

  bool has(std::int64_t devices) const {
    std::error_code ignored;
    auto const files = published_files(options_.folder, devices);
    return !std::filesystem::exists(files.computation, ignored) || std::filesystem::exists(files.backward, ignored);
  }
  tessera::any_cost_model const& of(std::int64_t devices, std::int64_t batch_samples) {
    auto const found = loaded_.find({devices, batch_samples});
    if (found != loaded_.end()) return found->second.cost;
    auto table = any_;
    table.bags = table.distinct_bags = static_cast<double>(batch_samples);
    return loaded_.emplace(std::pair(devices, batch_samples), load_model(exec_, options_, {table}, devices)).first->second.cost;
  }

 private:
  tessera::host_exec const& exec_;
  model_options const& options_;
  tessera::table_profile any_;
  std::map<std::pair<std::int64_t, std::int64_t>, loaded_model> loaded_;
};

float predicted_step(tessera::any_cost_model const& cost, std::vector<tessera::table_profile> const& shards) {
  auto const width = cost.width();
  floats each(shards.size() * static_cast<std::size_t>(width)), sum(static_cast<std::size_t>(width));
  cost.represent(shards, tessera::matrix_view<float>(each.data(), static_cast<std::int64_t>(shards.size()), width));
  for (std::size_t i = 0; i < each.size(); ++i) sum[i % sum.size()] += each[i];
  float ms = 0;
  cost.compute_ms(tessera::matrix_view<float const>(sum.data(), 1, width), tessera::vector_view<float>(&ms, 1));
  return ms;
}

// A line of part, devices, sample, repeat, rank, measured_ms and predicted_ms.
void write(std::ofstream& out, char const* part, std::int64_t devices, std::int64_t number, bool is_repeat, std::size_t rank,
           double measured_ms, float predicted_ms) {
  out << part << ',' << devices << ',' << number << ',' << (is_repeat ? 1 : 0) << ',' << rank << ',' << measured_ms << ',' << predicted_ms
      << '\n';
}

}  // namespace

void predict(tessera::host_exec const& exec, predict_options const& o) {
  auto const folder = read_collected(o.folder);
  examples::whole_file file("--out", o.out);
  auto& out = file.text;
  out.precision(9);
  out << "part,devices,sample,repeat,rank,measured_ms,predicted_ms\n";
  auto any_table = folder.pool[0];  // as it was measured, whatever else its profile says
  any_table.optimizer = folder.optimizer;
  any_table.row_format = tessera::measured_row_format;
  models_of_devices models(exec, o.model, std::move(any_table));
  std::size_t steps = 0, exchanges = 0;
  std::int64_t any = 1;  // of whose model the steps are predicted: all have the same of them
  while (any < most_devices && !models.has(any)) ++any;
  for (auto const devices : folder.devices()) {
    if (!models.has(devices)) {
      std::printf("no networks of %lld devices\n", static_cast<long long>(devices));
      continue;
    }
    for (auto const& one : read_exchanges(folder, devices)) {
      floats columns, starts, forward(one.exchange.dims.size()), backward(forward.size());
      for (auto const dim : one.exchange.dims) columns.push_back(static_cast<float>(dim));
      for (auto const ms : one.exchange.start_ms) starts.push_back(static_cast<float>(ms));
      auto const& cost = models.of(devices, one.exchange.batch_samples);
      cost.forward_ms(columns, starts, forward);
      cost.backward_ms(columns, backward);
      for (std::size_t d = 0; d < columns.size(); ++d) {
        write(out, "forward", devices, one.number, one.is_repeat, d, one.times.forward_ms[d], forward[d]);
        write(out, "backward", devices, one.number, one.is_repeat, d, one.times.backward_ms[d], backward[d]);
      }
      ++exchanges;
    }
  }
  if (std::error_code ignored; std::filesystem::exists(folder.steps_file(), ignored)) {
    tessera::pool_ids ids(folder.pool, folder.combinations.seed);
    for (auto const& one : read_steps(folder)) {
      auto const& cost = models.of(any, one.combination.batch_samples);
      write(out, "step", 1, one.number, one.is_repeat, 0, one.times.step_ms, predicted_step(cost, ids.shards_of(one.combination)));
      ++steps;
    }
  }
  file.commit();
  std::printf("%zu steps and %zu exchanges in %s\n", steps, exchanges, o.out.c_str());
}

}  // namespace plan_tables
