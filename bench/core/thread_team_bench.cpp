// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0

// What a parallel region costs: chunks that do nothing, on threads that were awake a moment ago.

#include <benchmark/benchmark.h>

#include <cstdint>

#include <tessera/core/execution.hpp>

namespace {

void empty_region(benchmark::State& state) {
  tessera::thread_pool pool(static_cast<int>(state.range(0)));
  tessera::system_memory memory;
  tessera::host_exec const exec(pool, memory);
  for (auto _ : state) exec.run(state.range(1), [](std::int64_t chunk) { benchmark::DoNotOptimize(chunk); });
}

}  // namespace

BENCHMARK(empty_region)->ArgNames({"threads", "chunks"})->ArgsProduct({{1, 2}, {2, 64}})->UseRealTime()->Unit(benchmark::kMicrosecond);
