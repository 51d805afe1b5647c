// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0

// Pooled lookup on a GPU: 8 tables of 10 M rows, 16,384 samples, bags of 20 ids; rows of 128, 64 and 16 floats, and of 128
// elements of 16 and 8 bits.
// Time at the ceiling: ids, offsets and rows read, vectors written, at the rate of a copy. `of_gather`: the same with the rows at the rate at
// which a kernel that adds nothing up reads these very rows. Under Zipf many rows come from the cache, which a copy does not.

#include <cstdint>
#include <string>
#include <utility>

#include "../cuda_bench.cuh"
#include "../cuda_ceiling.cuh"
#include "cuda_lookups.cuh"

namespace {

using namespace tessera_bench;

template <class Element>
cuda_report lookup_forward(gpu& on, gpu_lookup_shape const& shape) {
  gpu_ceilings ceilings(on);
  auto const copy = ceilings.copy_rate();
  auto const tables = gpu_tables<Element>(on.lasting, shape, tessera::sgd{});
  gpu_lookups lookups(on, shape);
  using scale = tessera::row_scale<Element>;
  auto const rows = lookups.row_bytes(scale::extent(shape.dim) * static_cast<std::int64_t>(sizeof(Element))),
             streams = lookups.stream_bytes();
  auto const seconds = on.measure([&](std::int64_t i) { lookups.evaluate(tables, i); });
  cuda_report report{seconds, rows + streams, (rows + streams) / copy, copy, {{"read_rate", ceilings.read_rate()}}};
  if constexpr (scale::lead == 0) {  // rows that begin where a wide read may
    auto const gather = gather_rate_of(ceilings, tables, lookups);
    report.counters.emplace_back("of_gather", (rows / gather + streams / copy) / seconds.median);
    report.counters.emplace_back("gather_rate", gather);
  }
  return report;
}

template <class Element>
void add(cuda_program& program, std::string const& name, gpu_lookup_shape const& shape) {
  program.add(name, [shape](gpu& on) { return lookup_forward<Element>(on, shape); });
}

}  // namespace

int main(int argc, char** argv) {
  cuda_program program(argc, argv);
  add<float>(program, "lookup_forward_d128", {});
  add<tessera::bfloat16>(program, "lookup_forward_d128_bf16", {});
  add<tessera::float8_e4m3>(program, "lookup_forward_d128_fp8", {});
  add<tessera::scaled_int8>(program, "lookup_forward_d128_int8", {});
  add<float>(program, "lookup_forward_d64", {.dim = 64});
  add<float>(program, "lookup_forward_d16", {.dim = 16});
  add<float>(program, "lookup_forward_zipf", {.exponent = 1.05});
  return program.run();
}
