// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0

// One DLRM training step of the shape that the Criteo Kaggle data are trained with: bottom 13-512-256-64-16, 26 tables of dim 16, top
// 367-512-256-1, one id a feature, row-wise Adagrad for rows and SGD for the rest.

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include <tessera/tessera.hpp>

#include "../ceiling.hpp"

namespace {

constexpr std::int64_t features = 26, dense_features = 13, dim = 16;

// Distinct values of each category in the Kaggle data, as facebookresearch/dlrm counts them.
constexpr std::int64_t cardinalities[features] = {1460,  583,  10131227, 2202608, 305, 24,     12517,   633,   3,
                                                  93145, 5683, 8351593,  3194,    27,  14992,  5461306, 10,    5652,
                                                  2173,  4,    7046547,  18,      15,  286181, 105,     142572};

using model_type = tessera::dlrm<tessera::dense_table<>, tessera::eigen_gemm>;

struct batch_memory {
  std::vector<float> dense, labels;
  std::vector<std::int64_t> ids, offsets, first_row, sample_ids;

  batch_memory(std::int64_t samples, std::int64_t most_rows, std::uint64_t seed) : labels(static_cast<std::size_t>(samples)) {
    std::uint64_t draws = 0;
    auto const draw = [&] { return tessera::philox(tessera::random_seed{seed}, draws++, 0, 0)[0]; };
    for (std::int64_t i = 0; i < samples * dense_features; ++i) dense.push_back(tessera::uniform(draw()));
    for (auto& label : labels) label = draw() % 4 == 0 ? 1.0F : 0.0F;
    first_row.push_back(0);
    for (std::int64_t f = 0; f < features; ++f) {
      for (std::int64_t s = 0; s < samples; ++s)
        ids.push_back(static_cast<std::int64_t>(draw() % static_cast<std::uint64_t>(std::min(cardinalities[f], most_rows))));
      first_row.push_back((f + 1) * samples);
    }
    for (std::int64_t i = 0; i <= features * samples; ++i) offsets.push_back(i);
    for (std::int64_t i = 0; i < samples; ++i) sample_ids.push_back(i);
  }

  tessera::batch_view view() const {
    auto const samples = static_cast<std::int64_t>(labels.size());
    return {{dense.data(), samples, dense_features}, labels, {ids.data(), nullptr, offsets.data(), first_row.data(), features}, sample_ids};
  }
};

// Multiply-adds of the layers' products, forward and both backwards, and of the interaction.
double flop_per_sample(model_type const& model) {
  double sum = 0;
  auto const add = [&](tessera::mlp const& net, bool input_gradient) {
    for (std::size_t l = 1; l < net.widths().size(); ++l)
      sum += static_cast<double>(net.widths()[l - 1] * net.widths()[l]) * (l == 1 && !input_gradient ? 4 : 6);
  };
  add(model.bottom(), false);
  add(model.top(), true);
  return sum + static_cast<double>((features + 1) * features / 2 * dim) * 6;
}

void dlrm_step(benchmark::State& state) {
  auto const samples = state.range(0), most_rows = state.range(1);
  tessera::thread_pool pool(static_cast<int>(state.range(2)));
  tessera::system_memory memory;
  tessera::arena workspace(memory);
  tessera::host_exec const exec(pool, memory);
  auto const step_exec = exec.with_memory(workspace);
  tessera::rowwise_adagrad const rows{.learning_rate = 0.01F};
  std::vector<tessera::dense_table<>> tables;
  std::vector<tessera::pooled_feature> pooled;
  for (std::int64_t f = 0; f < features; ++f) {
    tables.emplace_back(exec, tessera::table_options{.id = tessera::table_id{f}, .dim = dim, .rows = std::min(cardinalities[f], most_rows)},
                        rows);
    pooled.push_back({.table = f});
  }
  model_type model(exec, tessera::click_model_options(dense_features, {512, 256, 64}, {512, 256}), std::move(tables), std::move(pooled));
  tessera::trainer run(exec, model, rows, tessera::sgd{0.1F});
  std::vector<batch_memory> batches;
  for (std::uint64_t b = 0; b < 32; ++b) batches.emplace_back(samples, most_rows, b);
  auto const ceiling = tessera_bench::gemm_ceiling(exec);
  std::size_t next = 0;
  for (auto const& batch : batches) run.step(step_exec, batch.view());
  for (auto _ : state) benchmark::DoNotOptimize(run.step(step_exec, batches[next++ % batches.size()].view()));
  auto const done = static_cast<double>(state.iterations() * samples);
  state.counters["samples_per_second"] = benchmark::Counter(done, benchmark::Counter::kIsRate);
  state.counters["gemm_ceiling_gflops"] = ceiling / 1e9;
  state.counters["ceiling_fraction"] = benchmark::Counter(done * flop_per_sample(model) / ceiling, benchmark::Counter::kIsRate);
  state.counters["mflop_per_sample"] = flop_per_sample(model) / 1e6;
  state.counters["workspace_bytes"] = static_cast<double>(workspace.reserved_bytes());
}

}  // namespace

BENCHMARK(dlrm_step)
    ->ArgNames({"batch", "most_rows", "threads"})
    ->ArgsProduct({{128, 2048}, {200'000, 1'000'000'000}, {1, 2}})
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);
