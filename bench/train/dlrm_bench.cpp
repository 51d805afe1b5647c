// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0

// One DLRM training step of the shape that the Criteo Kaggle data are trained with: bottom 13-512-256-64-16, 26 tables of dim 16, top
// 367-512-256-1, one id a feature, row-wise Adagrad for rows and SGD for the rest.

#include <benchmark/benchmark.h>

#include <cstdint>
#include <string>
#include <vector>

#include "click_step.hpp"

namespace {

// Distinct values of each category in the Kaggle data, as facebookresearch/dlrm counts them.
tessera_bench::click_shape shape() {
  tessera_bench::click_shape result{.dense_features = 13,
                                    .dim = 16,
                                    .rows = {1460,  583,     10131227, 2202608, 305,  24, 12517,   633, 3,  93145,  5683, 8351593, 3194, 27,
                                             14992, 5461306, 10,       5652,    2173, 4,  7046547, 18,  15, 286181, 105,  142572},
                                    .lengths = std::vector<std::int64_t>(26, 1),
                                    .bottom = {512, 256, 64},
                                    .top = {512, 256}};
  for (auto& rows : result.rows) rows = tessera_bench::sized(rows);
  return result;
}

}  // namespace

int main(int argc, char** argv) {
  for (std::int64_t const samples : {128, 2048}) {
    auto const batch = "b" + std::to_string(samples);
    tessera_bench::add_click_step<tessera::dot_products>("dlrm_step_" + batch, shape(), samples);
    for (int threads = 1; threads < tessera_bench::all_threads(); threads *= 2)
      tessera_bench::add_click_step<tessera::dot_products>("dlrm_scaling_" + batch + "_t" + std::to_string(threads), shape(), samples,
                                                           threads);
  }
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
}
