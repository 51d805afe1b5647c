// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0

// What a row's format costs and saves: pooled lookup, and lookup + backward + row-wise Adagrad, of 8 tables of 400,000 rows of 128 elements, 512
// samples, bags of 20 ids. Time at the ceiling: rows read, and in a step written too, ids, offsets and vectors at the rate of a copy.

#include <benchmark/benchmark.h>

#include <memory>
#include <string>

#include <tessera/tessera.hpp>

#include "lookup_workload.hpp"

namespace {

using namespace tessera_bench;

template <class Element>
struct workload : lookup_workload<tessera::dense_table<Element>, tessera::rowwise_adagrad> {
  using base = lookup_workload<tessera::dense_table<Element>, tessera::rowwise_adagrad>;

  workload() : base({8, 400'000, 128, 512, 20, 0, sizeof(Element)}, {.learning_rate = 0.01F}), copy(copy_ceiling(this->host.exec)) {}

  /// Bytes of a lookup, or of a step, which reads the ids twice, and a gradient where it wrote a vector.
  double bytes(bool is_step) const {
    auto const rows = static_cast<double>(this->shape.row_bytes());
    auto const streams = static_cast<double>((this->shape.ids_a_batch() + this->shape.tables * this->shape.samples) * 8) +
                         static_cast<double>(this->inputs.vectors.size()) * 4;
    return is_step ? 3 * rows + 2 * streams : rows + streams;
  }

  ceiling copy;
};

template <class Element>
void add(std::string const& format) {
  for (bool const is_step : {false, true}) {
    auto const name = (is_step ? "step_" : "lookup_") + format;
    benchmark::RegisterBenchmark(name.c_str(),
                                 [=](benchmark::State& state) {
                                   auto& work = kept<workload<Element>>(format, [] { return std::make_shared<workload<Element>>(); });
                                   auto& next = next_input();
                                   for (auto _ : state) is_step ? work.step(next++) : work.forward(next++);
                                   report_machine(state, work.copy);
                                   report(state, work.bytes(is_step), work.bytes(is_step) / work.copy.rate(), work.workspace_bytes());
                                 })
        ->UseRealTime()
        ->Unit(benchmark::kMillisecond);
  }
}

}  // namespace

int main(int argc, char** argv) {
  add<float>("fp32");
  add<tessera::float16>("fp16");
  add<tessera::bfloat16>("bf16");
  add<tessera::float8_e4m3>("fp8_e4m3");
  add<tessera::float8_e5m2>("fp8_e5m2");
  add<tessera::scaled_int8>("int8");
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
}
