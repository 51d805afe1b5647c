// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0

// The hashed store beside the dense one on the same ids, all of which have rows: pooled lookup, and lookup + backward + SGD. `hashed_grown`: in
// tables that were never told how many rows come. Time at the ceilings as in pooled_lookup_bench: what finding rows costs is not in it.

#include <benchmark/benchmark.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <tessera/tessera.hpp>

#include "lookup_workload.hpp"

namespace {

using namespace tessera_bench;

constexpr lookup_shape shape{8, 200'000, 64, 2048, 10};

// Rows come in the order in which a log first names them. `told`: whether the tables know beforehand how many.
template <class Store>
struct workload : measured_lookups<Store, tessera::sgd> {
  explicit workload(bool told) : measured_lookups<Store, tessera::sgd>(shape, {0.01F}, told ? sized(shape.rows) : 0) {
    std::vector<std::int64_t> ids(static_cast<std::size_t>(this->shape.rows)), slots(ids.size());
    for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::int64_t>(i);
    draws draw(3);
    for (auto i = ids.size() - 1; i > 0; --i)
      std::swap(ids[i], ids[static_cast<std::size_t>(draw.below(static_cast<std::int64_t>(i) + 1))]);
    for (auto& table : this->tables) table.locate(this->host.exec, ids, slots);
    this->measure_ceilings();
  }
};

template <class Store>
void run(benchmark::State& state, std::string const& name, bool told, bool is_step) {
  auto& work = kept<workload<Store>>(name, [&] { return std::make_shared<workload<Store>>(told); });
  auto const one = [&](std::int64_t i) { is_step ? work.step(i) : work.forward(i); };
  auto& next = next_input();
  while (next < 3) one(next++);
  for (auto _ : state) one(next++);
  work.report_lookups(state, is_step);
}

template <class Store>
void add(std::string const& store, bool told = true) {
  for (bool const is_step : {false, true}) {
    auto const name = store + (is_step ? "_step" : "_forward");
    benchmark::RegisterBenchmark(name.c_str(), [=](benchmark::State& state) { run<Store>(state, name, told, is_step); })
        ->UseRealTime()
        ->Unit(benchmark::kMillisecond);
  }
}

}  // namespace

int main(int argc, char** argv) {
  add<tessera::dense_table<>>("dense");
  add<tessera::hash_table<>>("hashed");
  add<tessera::hash_table<>>("hashed_grown", false);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
}
