// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0

// What searches for sharding plans find, and what processor time they take, in the twelve settings of NeuroShard's paper: 4 and 8 devices,
// each with tasks whose largest dim is 4, 8, … 128. Costs are what a model predicts.
//
//   plan_search_bench                         with NeuroShard's networks, fitted here to counted bytes
//   plan_search_bench --tasks 100 --devices 4 --dim 128
//   plan_search_bench --published FOLDER      with networks of computation.json, and of backward_4.json, forward_4.json, … of devices
//   plan_search_bench --learned FOLDER        with a model that `save_learned_cost` wrote
//   plan_search_bench --random                with networks of random weights: their costs may be negative
//   plan_search_bench scale                   2,000 tables on 1,024 devices, by counted bytes: seconds and memory

#include <sys/resource.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <random>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/core/execution.hpp>
#include <tessera/core/memory.hpp>
#include <tessera/core/thread_team.hpp>
#include <tessera/plan/found_plan.hpp>
#include <tessera/plan/learned_cost_file.hpp>
#include <tessera/plan/plan_baselines.hpp>
#include <tessera/plan/plan_search.hpp>
#include <tessera/plan/published_cost_file.hpp>
#include <tessera/plan/published_search.hpp>
#include <tessera/plan/roofline_cost.hpp>
#include <tessera/synth/sharding_tasks.hpp>
#include <tessera/synth/table_pool.hpp>

#include "../../tests/plan/random_models.hpp"
#include "../inputs.hpp"
#include "fitted_networks.hpp"

namespace {

using tessera::counted_memory;
using tessera::found_plan;
using tessera::greedy_cost;
using tessera::host_exec;
using tessera::table_profile;
using tessera::vector_view;

constexpr std::int64_t device_bytes = std::int64_t{4} << 30;
constexpr auto counted = counted_memory::float_weights;
// Such that computation and exchanges both count, as on the devices of the paper.
tessera::roofline_cost const roofline({.memory_bytes_per_second = 5e10, .exchange_bytes_per_second = 1e10});

struct settings {
  std::string published, learned;
  bool random = false, scale = false;
  std::int64_t tasks = tessera_bench::smoke() ? 1 : 10, devices = 0, dim = 0;  // 0: all
};

double processor_seconds() {
  std::timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// What a search found in the tasks that it solved, beside the published search, where both solved them.
struct tally {
  char const* name;
  std::int64_t solved = 0;
  double cost = 0, seconds = 0, both = 0, published = 0;
};

template <class M, tessera::plan_searcher<M> Search>
float solve(host_exec const& exec, M const& model, std::vector<table_profile> const& tables, float published, tally& into,
            Search const& search) {
  auto const began = processor_seconds();
  float cost = 0;
  try {
    cost = search(exec, vector_view<table_profile const>(tables), model).cost_ms;
  } catch (tessera::error const& e) {
    if (e.code() != tessera::errc::out_of_memory) throw;
    return 0;
  }
  into.seconds += processor_seconds() - began;
  ++into.solved;
  into.cost += static_cast<double>(cost);
  if (published != 0) into.both += static_cast<double>(cost), into.published += static_cast<double>(published);
  return cost;
}

template <class M>
void run(host_exec const& exec, settings const& s, std::vector<tessera::pool_table> const& pool, std::int64_t devices, std::int64_t dim,
         M const& model) {
  tessera::sharding_task_options tasks{.devices = devices, .most_dim = dim};
  if (devices == 8) tasks.least_tables = 20, tasks.below_tables = 120;
  tessera::device_limits const limits{devices, device_bytes, counted};
  std::vector<tally> tallies;
  for (auto const* name : {"random", "by size", "by dim", "by lookups", "by size * lookups", "whole tables, balanced",
                           "whole tables, cheapest", "published_search", "plan_search, 0.1 s", "plan_search, 0.2 s", "plan_search, 1 s"})
    tallies.push_back({name});
  for (std::int64_t number = 0; number < s.tasks; ++number) {
    auto const tables = tessera_bench::profiles_of(pool, tessera::make_sharding_task(pool, tasks, number));
    float published = 0;
    auto const one = [&](std::size_t t, auto const& search) { return solve(exec, model, tables, published, tallies[t], search); };
    published = one(7, [&](auto const& on, auto of, auto const& by) {
      return tessera::published_search(on, of, by, {.devices = devices, .bytes_per_device = device_bytes, .counted = counted});
    });
    if (published != 0) tallies[7].both += published, tallies[7].published += published;
    one(0, [&](auto const&, auto of, auto const& by) {
      auto const seed = tessera::random_seed{static_cast<std::uint64_t>(number)};
      return tessera::plan_of_tables(of, by, limits, tessera::place_randomly(of.size(), devices, seed));
    });
    std::size_t next = 1;
    for (auto const cost : {greedy_cost::size, greedy_cost::dim, greedy_cost::lookup, greedy_cost::size_lookup})
      one(next++, [&](auto const&, auto of, auto const& by) {
        return tessera::plan_of_tables(of, by, limits, tessera::place_greedily(of, cost, limits));
      });
    tessera::plan_search_options options{.devices = devices, .bytes_per_device = device_bytes, .counted = counted};
    options.evaluations = tessera_bench::sized(options.evaluations);
    for (auto const objective : {tessera::plan_objective::compute_balance, tessera::plan_objective::cost})
      one(next++, [&](auto const& on, auto of, auto const& by) { return tessera::best_whole_tables(on, of, by, objective, options); });
    next = 8;
    options.evaluations = std::int64_t{1} << 40;
    for (double const ms : {100.0, 200.0, 1000.0}) {
      options.deadline_ms = tessera_bench::smoke() ? 10 : ms;
      one(next++, [&](auto const& on, auto of, auto const& by) { return tessera::plan_search(on, of, by, options); });
    }
  }
  for (auto const& t : tallies) {
    auto const solved = static_cast<double>(t.solved);
    std::printf("| %lld | %lld | %s | %lld of %lld |", static_cast<long long>(devices), static_cast<long long>(dim), t.name,
                static_cast<long long>(t.solved), static_cast<long long>(s.tasks));
    if (t.solved > 0) std::printf(" %.3f | %.4f | %.4f |\n", t.cost / solved, t.both / t.published, t.seconds / solved);
    if (t.solved == 0) std::printf(" - | - | - |\n");
  }
  std::fflush(stdout);
}

void run_all(host_exec const& exec, settings const& s) {
  auto const pool = tessera::make_table_pool();
  std::printf("model: %s\n", !s.published.empty() ? s.published.c_str()
                             : !s.learned.empty() ? s.learned.c_str()
                             : s.random           ? "networks of random weights"
                                        : "NeuroShard's networks, fitted to counted bytes of 5e10 bytes/s of memory, 1e10 of exchanges");
  std::printf("one thread; costs in ms of the tasks that were solved; their ratio to the published search's where both solved them\n\n");
  std::printf("| devices | largest dim | search | solved | cost | of published | processor s |\n|---|---|---|---|---|---|---|\n");
  for (std::int64_t const devices : {4, 8}) {
    if (s.devices != 0 && s.devices != devices) continue;
    auto const with = [&](auto const& model) {
      for (std::int64_t dim = 4; dim <= 128; dim *= 2)
        if ((s.dim == 0 && (!tessera_bench::smoke() || dim == 16)) || s.dim == dim) run(exec, s, pool, devices, dim, model);
    };
    if (!s.published.empty()) {
      auto const of = "_" + std::to_string(devices) + ".json";
      with(tessera::read_published_cost(s.published + "/computation.json", s.published + "/backward" + of, s.published + "/forward" + of));
    } else if (!s.learned.empty()) {
      with(tessera::load_learned_cost(exec, s.learned));
    } else if (s.random) {
      std::mt19937_64 random(7);
      with(tessera_tests::random_published_cost(random, devices));
    } else {
      bool const smoke = tessera_bench::smoke();
      with(tessera_bench::networks_of_roofline(exec, roofline, pool, devices, smoke ? 64 : 20'000, smoke ? 1 : 60));
    }
  }
}

// A deadline of 40 s, of which a large part of the limit of 60 s is left.
void run_scale(host_exec const& exec) {
  bool const smoke = tessera_bench::smoke();
  std::int64_t const tables = smoke ? 50 : 2000, devices = smoke ? 16 : 1024;
  auto const pool = tessera::make_table_pool();
  auto const task = tessera::make_sharding_task(
      pool, {.devices = devices, .least_tables = tables, .below_tables = tables + 1, .slack_bytes = device_bytes}, 0);
  auto const profiles = tessera_bench::profiles_of(pool, task);
  auto const began = std::chrono::steady_clock::now();
  auto const processor = processor_seconds();
  auto const found = tessera::plan_search(exec, profiles, roofline,
                                          {.devices = devices,
                                           .bytes_per_device = device_bytes,
                                           .counted = counted,
                                           .evaluations = std::int64_t{1} << 40,
                                           .deadline_ms = smoke ? 100.0 : 40'000.0});
  auto const seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  rusage used;
  getrusage(RUSAGE_SELF, &used);
  std::printf(
      "%lld tables, %lld devices: %zu shards, cost %.3f ms (no plan costs less than %.3f), %lld evaluations, %.1f s, %.1f processor s, "
      "%.0f MiB at most\n",
      static_cast<long long>(tables), static_cast<long long>(devices), found.shards.size(), static_cast<double>(found.cost_ms),
      tessera::lower_bound_ms(roofline, profiles, devices), static_cast<long long>(found.evaluations), seconds,
      processor_seconds() - processor, static_cast<double>(used.ru_maxrss) / 1024);
}

settings parsed(int argc, char** argv) {
  settings s;
  for (int i = 1; i < argc; ++i) {
    std::string_view const word = argv[i];
    auto const value = [&] {
      if (++i == argc) throw std::runtime_error(std::string(word) + " needs a value");
      return argv[i];
    };
    if (word == "scale")
      s.scale = true;
    else if (word == "--random")
      s.random = true;
    else if (word == "--published")
      s.published = value();
    else if (word == "--learned")
      s.learned = value();
    else if (word == "--tasks")
      s.tasks = std::atoll(value());
    else if (word == "--devices")
      s.devices = std::atoll(value());
    else if (word == "--dim")
      s.dim = std::atoll(value());
    else if (word.substr(0, 12) != "--benchmark_")
      throw std::runtime_error("no such option: " + std::string(word));
  }
  return s;
}

}  // namespace

int main(int argc, char** argv) try {
  auto const s = parsed(argc, argv);
  tessera::serial_team team;
  tessera::system_memory memory;
  host_exec const exec(team, memory);
  if (s.scale || tessera_bench::smoke()) run_scale(exec);
  if (!s.scale) run_all(exec, s);
} catch (std::exception const& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
