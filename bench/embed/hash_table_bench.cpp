// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0

// The hashed store beside the dense one on the same ids, all of which have rows: pooled lookup, and lookup + backward + SGD.

#include <benchmark/benchmark.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <tessera/tessera.hpp>

#include "../ceiling.hpp"
#include "lookup_workload.hpp"

namespace {

using namespace tessera_bench;

constexpr lookup_shape shape{8, 200'000, 64, 2048, 10};

template <class Store>
struct workload : lookup_workload<Store, tessera::sgd> {
  workload() : lookup_workload<Store, tessera::sgd>(shape, {0.01F}) {
    std::vector<std::int64_t> ids(static_cast<std::size_t>(this->shape.rows)), slots(ids.size());
    for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::int64_t>(i);
    draws draw(3);  // rows come in the order in which a log first names them
    for (auto i = ids.size() - 1; i > 0; --i)
      std::swap(ids[i], ids[static_cast<std::size_t>(draw.below(static_cast<std::int64_t>(i) + 1))]);
    for (auto& table : this->tables) table.locate(this->host.exec, ids, slots);
    copy = copy_ceiling(this->host.exec);
  }
  double copy = 0;
};

template <class Store>
void run(benchmark::State& state, std::string const& name, void (workload<Store>::*one)(std::int64_t)) {
  auto& work = kept<workload<Store>>(name, [&] {
    auto made = std::make_shared<workload<Store>>();
    for (std::int64_t i = 0; i < 3; ++i) (*made.*one)(i);
    return made;
  });
  std::int64_t next = 3;
  for (auto _ : state) (work.*one)(next++);
  state.SetBytesProcessed(state.iterations() * shape.row_bytes());
  report_machine(state, work.copy);
  state.counters["workspace_bytes"] = work.workspace_bytes();
}

template <class Store>
void add(std::string const& name, void (workload<Store>::*one)(std::int64_t)) {
  benchmark::RegisterBenchmark(name.c_str(), [=](benchmark::State& state) { run<Store>(state, name, one); })
      ->UseRealTime()
      ->Unit(benchmark::kMillisecond);
}

}  // namespace

int main(int argc, char** argv) {
  using dense = tessera::dense_table<>;
  using hashed = tessera::hash_table<>;
  add<dense>("dense_forward", &workload<dense>::forward);
  add<hashed>("hashed_forward", &workload<hashed>::forward);
  add<dense>("dense_step", &workload<dense>::step);
  add<hashed>("hashed_step", &workload<hashed>::step);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
}
