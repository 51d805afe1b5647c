// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0

// Exact AUC of 10 million scores in one call, ties and all. Time at the ceiling: scores and labels read once.

#include <benchmark/benchmark.h>

#include <cmath>
#include <cstdint>
#include <memory>
#include <vector>

#include <tessera/nn/auc.hpp>

#include "../inputs.hpp"
#include "../memory_ceilings.hpp"
#include "../report.hpp"

namespace {

using namespace tessera_bench;

struct scored_samples {
  machine host;
  ceiling read = read_ceiling(host.exec);
  std::vector<float> scores, labels;

  // A quarter of the labels is 1; scores are probabilities, on the average higher where it is.
  scored_samples() {
    auto const n = sized(10'000'000);
    draws draw(3);
    for (std::int64_t i = 0; i < n; ++i) {
      labels.push_back(draw.bits() % 4 == 0 ? 1.0F : 0.0F);
      auto const logit = 2 * (draw.unit() + draw.unit() + draw.unit() - 1.5) + labels.back() - 1.5;
      scores.push_back(static_cast<float>(1 / (1 + std::exp(-logit))));
    }
  }
};

void auc(benchmark::State& state) {
  auto& samples = kept<scored_samples>("auc", [] { return std::make_shared<scored_samples>(); });
  tessera::exact_auc sum;
  double value = 0;
  for (auto _ : state) {
    sum.clear();
    sum.add(samples.scores, samples.labels);
    value = sum.value(samples.host.step);
  }
  auto const bytes = 8.0 * static_cast<double>(samples.scores.size());
  report_machine(state, samples.read);
  report(state, bytes, bytes / samples.read.rate(), static_cast<double>(samples.host.workspace.reserved_bytes()));
  state.counters["auc"] = value;
}

}  // namespace

BENCHMARK(auc)->UseRealTime()->Unit(benchmark::kMillisecond);
