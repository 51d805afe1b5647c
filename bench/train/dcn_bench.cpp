// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0

// One training step of DLRM-DCNv2 in the shape of MLPerf's training benchmark: bottom 13-512-256-128, 26 tables of dim 128 with bags of 1 to
// 100 ids, 214 a sample, three cross layers of rank 512 over 3,456 columns, top 1024-1024-512-256-1; tables of at most a million rows, so that
// they fit 24 GB of memory, and batches of 2,048, which suit a processor (MLPerf's 65,536 are spread over many accelerators).

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdint>
#include <string>

#include "click_step.hpp"

namespace {

tessera_bench::click_shape shape() {
  tessera_bench::click_shape result{
      .dense_features = 13,
      .dim = 128,
      .rows = {40000000, 39060, 17295, 7424, 20265, 3,  7122,     1543,     63,       40000000, 3067956, 405282, 10,
               2209,     11938, 155,   4,    976,   14, 40000000, 40000000, 40000000, 590152,   12973,   108,    36},
      .lengths = {3, 2, 1, 2, 6, 1, 1, 1, 1, 7, 3, 8, 1, 6, 9, 5, 1, 1, 1, 12, 100, 27, 10, 3, 1, 1},
      .bottom = {512, 256},
      .top = {1024, 1024, 512, 256}};
  for (auto& rows : result.rows) rows = std::min<std::int64_t>(rows, tessera_bench::sized(1'000'000));
  return result;
}

}  // namespace

int main(int argc, char** argv) {
  tessera_bench::add_click_step<tessera::cross_layers>("dcn_step", shape(), 2048, tessera_bench::all_threads(), {.layers = 3, .rank = 512});
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
}
