// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cmath>

#include "ceiling.hpp"
#include "inputs.hpp"

namespace tessera_bench {

/// What each benchmark reports beside its time: `bytes` an iteration, the seconds they cost at the machine's ceilings over those that the
/// iteration took (`ceiling_fraction`), and what it took from its workspace. Another `rate` than that of bytes where other work is counted.
inline void report(benchmark::State& state, double bytes, double seconds_at_ceiling, double workspace_bytes,
                   char const* rate = "bytes_per_second") {
  auto const iterations = static_cast<double>(state.iterations());
  state.counters[rate] = benchmark::Counter(bytes * iterations, benchmark::Counter::kIsRate);
  state.counters["ceiling_fraction"] = benchmark::Counter(seconds_at_ceiling * iterations, benchmark::Counter::kIsRate);
  state.counters["workspace_bytes"] = workspace_bytes;
}

/// By what a reader tells a quiet machine from a busy one: `machine`, the first ceiling's rate; `moved`, the most by which one of them
/// differs before and after the work; `others`, the cores that worked for others since the report before. Measures the ceilings again, so
/// it comes before what is made of their rates.
template <class... Ceilings>
void report_machine(benchmark::State& state, ceiling& machine, Ceilings&... more) {
  if (auto const cores = cores_of_others(); std::isfinite(cores)) state.counters["others"] = cores;
  machine.measure_again();
  (more.measure_again(), ...);
  state.counters["machine"] = machine.rate();
  state.counters["moved"] = std::max({machine.moved(), more.moved()...});
}

}  // namespace tessera_bench
