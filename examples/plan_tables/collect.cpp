// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0

// Measures what steps and exchanges cost on this machine.

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <tessera/comm/any_communicator.hpp>
#include <tessera/comm/collectives.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/memory.hpp>
#include <tessera/core/optimizers.hpp>
#include <tessera/core/stopwatch.hpp>
#include <tessera/core/thread_team.hpp>
#include <tessera/core/view.hpp>
#include <tessera/embed/row_optimizer.hpp>
#include <tessera/plan/collect_exchanges_file.hpp>
#include <tessera/plan/cost_samples.hpp>
#include <tessera/plan/cost_samples_file.hpp>
#include <tessera/plan/machine_description.hpp>
#include <tessera/plan/measure_combination.hpp>
#include <tessera/plan/measure_compute.hpp>
#include <tessera/plan/measuring_clock.hpp>

#include "../support/ranks.hpp"
#include "collected.hpp"
#include "commands.hpp"

namespace plan_tables {

namespace {

// How many samples are collected between two looks at the clock.
constexpr std::int64_t at_once = tessera::samples_per_repeat;

class time_left {
 public:
  explicit time_left(double seconds) : seconds_(seconds) {}
  bool is_over() { return seconds_ > 0 && (spent_ += watch_.lap()) >= seconds_; }

 private:
  double seconds_, spent_ = 0;
  tessera::stopwatch watch_;
};

template <class Sample>
std::int64_t count_of(std::vector<Sample> const& samples) {
  return std::count_if(samples.begin(), samples.end(), [](auto const& one) { return !one.is_repeat; });
}

// The noise of the forward's times of exchanges that were measured twice.
double noise_of(std::vector<tessera::exchange_sample> const& samples) {
  std::map<std::int64_t, tessera::exchange_sample const*> firsts;
  for (auto const& one : samples)
    if (!one.is_repeat) firsts[one.number] = &one;
  std::vector<double> first, second;
  for (auto const& again : samples)
    if (again.is_repeat)
      for (std::size_t d = 0; d < again.times.forward_ms.size(); ++d) {
        first.push_back(firsts.at(again.number)->times.forward_ms[d]);
        second.push_back(again.times.forward_ms[d]);
      }
  return tessera::relative_noise(tessera::vector_view<double const>(first), tessera::vector_view<double const>(second));
}

void say(char const* what, std::int64_t count, std::int64_t wanted, double noise, bool is_late) {
  std::printf("%s: %lld of %lld", what, static_cast<long long>(count), static_cast<long long>(wanted));
  if (noise > 0) std::printf(", noise %.2f%% of a time", 100 * noise);
  std::printf("%s\n", is_late ? ", stopped by --seconds" : "");
  std::fflush(stdout);
}

template <class Optimizer>
void collect_steps(tessera::host_exec const& exec, collected const& folder, collect_options const& o, Optimizer const& optimizer,
                   time_left& time) {
  auto const& drawn = folder.combinations;
  std::optional<tessera::compute_bench<>> bench;
  tessera::pool_ids ids(folder.pool, drawn.seed);
  tessera::machine_clock clock;
  auto const draw = [&](std::int64_t number) { return tessera::draw_combination(folder.pool, drawn, number); };
  auto const measure = [&](tessera::table_combination const& combination) {
    // Tables begin at lines of the cache.
    if (!bench) bench.emplace(exec, drawn.limit_bytes + 128 * drawn.most_tables);
    return tessera::measure_combination(exec, clock, *bench, ids, combination, optimizer, folder.repeat);
  };
  auto samples = tessera::collect_compute_samples(folder.steps_file(), folder.about(), 0, draw, measure);
  auto const noise = [&] { return tessera::relative_noise(tessera::vector_view<tessera::compute_sample const>(samples)); };
  say("steps", count_of(samples), o.samples, noise(), false);
  bool is_late = false;
  for (auto count = count_of(samples); count < o.samples && !(is_late = time.is_over());) {
    count = std::min(o.samples, (count / at_once + 1) * at_once);
    samples = tessera::collect_compute_samples(folder.steps_file(), folder.about(), count, draw, measure);
    say("steps", count, o.samples, noise(), false);
  }
  if (is_late) say("steps", count_of(samples), o.samples, noise(), true);
}

// All ranks call it.
void collect_exchanges(tessera::any_communicator comm, std::optional<collected> const& folder, collect_options const& o, time_left& time) {
  tessera::serial_team team;
  tessera::system_memory memory;
  tessera::host_exec const exec(team, memory);
  tessera::machine_clock clock;
  auto const first = comm.rank() == 0;
  auto const file = first ? folder->exchanges_file(comm.size()) : std::string();
  auto const about = first ? folder->about_exchanges(comm.size(), o.ranks == "mpi" ? "processes" : "threads") : std::string();
  auto const draw = [&](std::int64_t number) {
    auto options = folder->placements;
    options.devices = comm.size();
    return tessera::draw_placement(folder->pool, options, number);
  };
  // The first rank says how often to measure, and how many there shall be; -1: no more.
  std::vector<std::int64_t> told(3);
  if (first) told[1] = folder->repeat.warm_up, told[2] = folder->repeat.runs;
  std::vector<tessera::exchange_sample> samples;
  bool is_late = false;
  for (;;) {
    tessera::broadcast(exec, comm, tessera::vector_view<std::int64_t>(told), 0);
    if (told[0] < 0) break;
    samples = tessera::collect_exchanges(exec, comm, clock, file, about, told[0], draw, {.warm_up = told[1], .runs = told[2]});
    if (!first) continue;
    auto const count = count_of(samples);
    say("exchanges", count, o.exchanges, noise_of(samples), false);
    told[0] = count >= o.exchanges || (is_late = time.is_over()) ? -1 : std::min(o.exchanges, (count / at_once + 1) * at_once);
  }
  if (is_late) say("exchanges", count_of(samples), o.exchanges, noise_of(samples), true);
}

}  // namespace

void collect(int threads, collect_options const& o) {
  examples::rank_group ranks(o.ranks, o.time_limit);
  time_left time(o.seconds);
  std::optional<collected> folder;
  auto const prepare = [&](tessera::any_communicator const& processes) {
    if (o.samples > 0 && processes.size() > 1)
      throw tessera::error(tessera::errc::invalid_argument, "option --samples: one process measures steps; collect them without a launcher",
                           {{"samples", o.samples}, {"processes", processes.size()}});
    if (!ranks.has_first()) return;
    tessera::thread_pool pool(threads);
    tessera::system_memory memory;
    tessera::host_exec const exec(pool, memory);
    folder = open_collected(o, tessera::describe_machine(exec));
    if (o.samples == 0) return;
    if (folder->optimizer == "rowwise_adagrad")
      collect_steps(exec, *folder, o, tessera::rowwise_adagrad{}, time);
    else
      collect_steps(exec, *folder, o, tessera::sgd{}, time);
  };
  ranks.run(prepare, [&](tessera::any_communicator const& comm) {
    if (o.exchanges > 0) collect_exchanges(comm, folder, o, time);
  });
}

}  // namespace plan_tables
