// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0

// Pooled lookup, and lookup + backward + row update, of T tables of E rows of D floats, B samples, bags of L ids; `lookup_dims`: the lookup
// of dims that fit vectors and of some that do not.
// Time at the ceilings: as `measured_lookups` says.

#include <benchmark/benchmark.h>

#include <cstdint>
#include <memory>
#include <string>

#include <tessera/tessera.hpp>

#include "lookup_workload.hpp"

namespace {

using namespace tessera_bench;

template <class Optimizer>
using workload = measured_lookups<tessera::dense_table<>, Optimizer>;

// Tables, batches and ceilings of the benchmark that runs, warm.
template <class Optimizer>
workload<Optimizer>& warm(std::string const& name, lookup_shape const& s, Optimizer const& optimizer,
                          void (lookup_workload<tessera::dense_table<>, Optimizer>::*run)(std::int64_t)) {
  return kept<workload<Optimizer>>(name, [&] {
    auto work = std::make_shared<workload<Optimizer>>(s, optimizer);
    work->measure_ceilings();
    for (std::int64_t i = 0; i < static_cast<std::int64_t>(work->inputs.batches.size()); ++i) (*work.*run)(i);
    return work;
  });
}

void lookup_forward(benchmark::State& state, std::string const& name, lookup_shape const& s) {
  auto& work = warm(name, s, tessera::sgd{}, &workload<tessera::sgd>::forward);
  auto& next = next_input();
  for (auto _ : state) work.forward(next++);
  work.report_lookups(state, false);
}

template <class Optimizer>
void step(benchmark::State& state, std::string const& name, lookup_shape const& s, Optimizer const& optimizer) {
  auto& work = warm(name, s, optimizer, &workload<Optimizer>::step);
  auto& next = next_input();
  for (auto _ : state) work.step(next++);
  work.report_lookups(state, true);
}

constexpr lookup_shape d128{8, 400'000, 128, 512, 20}, d16{26, 200'000, 16, 2048, 1}, d64{26, 200'000, 64, 2048, 10},
    zipf{8, 400'000, 128, 512, 20, 1.05}, large{26, 200'000, 64, 16'384, 1};
constexpr tessera::sgd sgd{0.01F};
constexpr tessera::adagrad adagrad{.learning_rate = 0.01F};
constexpr tessera::rowwise_adagrad rowwise{.learning_rate = 0.01F};

void add(std::string const& name, lookup_shape const& s) {
  benchmark::RegisterBenchmark(name.c_str(), [=](benchmark::State& state) { lookup_forward(state, name, s); })
      ->UseRealTime()
      ->Unit(benchmark::kMillisecond);
}
template <class Optimizer>
void add(char const* name, lookup_shape const& s, Optimizer const& optimizer) {
  benchmark::RegisterBenchmark(name, [=](benchmark::State& state) { step(state, name, s, optimizer); })
      ->UseRealTime()
      ->Unit(benchmark::kMillisecond);
}

}  // namespace

int main(int argc, char** argv) {
  add("lookup_forward_d128", d128);
  add("lookup_forward_d16", d16);
  add("lookup_forward_d64", d64);
  add("lookup_forward_large", large);  // more vectors than caches keep
  for (std::int64_t const dim : {1, 3, 16, 17, 64, 100, 128, 130, 256, 1027, 2050})
    add("lookup_dims/" + std::to_string(dim), {4, 400'000'000 / (4 * dim + 64) / 4, dim, 512, 20});
  add("step_sgd_d128", d128, sgd);
  add("step_sgd_d16", d16, sgd);
  add("step_sgd_d64", d64, sgd);
  add("step_sgd_zipf", zipf, sgd);
  add("step_adagrad_d128", d128, adagrad);
  add("step_adagrad_d16", d16, adagrad);
  add("step_adagrad_d64", d64, adagrad);
  add("step_adagrad_zipf", zipf, adagrad);
  add("step_rowwise_adagrad_d128", d128, rowwise);
  add("step_rowwise_adagrad_d16", d16, rowwise);
  add("step_rowwise_adagrad_d64", d64, rowwise);
  add("step_rowwise_adagrad_zipf", zipf, rowwise);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
}
