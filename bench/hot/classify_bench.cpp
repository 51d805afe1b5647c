// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0

// What comes before training with hot rows: samples classified, accesses counted, thresholds chosen, of 26 ids a sample over 8.35 million rows.

#include <benchmark/benchmark.h>

#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <tessera/core/memory.hpp>
#include <tessera/core/thread_team.hpp>
#include <tessera/embed/dense_table.hpp>
#include <tessera/hot.hpp>
#include <tessera/shard/table_spec.hpp>
#include <tessera/synth/zipf.hpp>
#include <tessera/tensor/batch.hpp>
#include <tessera/tensor/keyed_jagged.hpp>

namespace {

constexpr std::int64_t keys = 26, samples = 1 << 16, rows = 8'350'000 / keys, large_rows = 8'350'000;

struct clicks {
  explicit clicks(int threads) : team(threads), exec(team, memory) {
    std::mt19937_64 random(1);
    auto const uniform = [&] { return static_cast<double>(random() >> 11) * 0x1p-53; };
    tessera::zipf_distribution const law(rows, 1.05);
    std::vector<std::int64_t> all;
    for (std::int64_t i = 0; i < keys * samples; ++i) all.push_back(law(uniform) * std::int64_t{1'000'003} % rows);
    std::vector<std::int64_t> const lengths(all.size(), 1), rows_per_key(keys, samples);
    ids = tessera::keyed_jagged<>::from_lengths(exec, {}, all, lengths, rows_per_key);
    batch.dense = {nullptr, samples, 0};
    batch.sparse = std::as_const(ids).view();
    for (std::int64_t t = 0; t < keys; ++t) {
      features.push_back({.name = "C" + std::to_string(t), .table = t});
      specs.push_back(tessera::spec_of<tessera::dense_table<>>({.id = tessera::table_id{t}, .dim = 16, .rows = rows}, tessera::sgd{}));
    }
  }

  tessera::thread_pool team;
  tessera::system_memory memory;
  tessera::host_exec exec;
  tessera::keyed_jagged<> ids;
  tessera::batch_view batch;
  std::vector<tessera::table_feature> features;
  std::vector<tessera::table_spec> specs;
};

// A reader of one batch.
struct one_batch {
  tessera::batch_view batch;
  bool given = false;
  bool next(tessera::host_exec const&, tessera::batch_view& out) {
    out = batch;
    return !std::exchange(given, true);
  }
  tessera::reader_position position() const { return {}; }
  void seek(tessera::reader_position) { given = false; }
  std::int64_t epoch_samples() const { return 0; }
};

void classify(benchmark::State& state) {
  clicks all(2);
  one_batch reader{all.batch};
  auto const profile = tessera::profile_accesses(all.exec, reader, all.features, all.specs);
  auto const hot = tessera::choose_hot_rows(all.exec, profile, all.specs, {.budget_bytes = 64 << 20});
  std::vector<std::uint8_t> classes(samples);
  for (auto _ : state) {
    tessera::classify_batch(all.exec, all.batch, all.features, hot, classes);
    benchmark::DoNotOptimize(classes.data());
  }
  state.SetItemsProcessed(state.iterations() * samples);
}

void profile(benchmark::State& state) {
  clicks all(2);
  for (auto _ : state) {
    one_batch reader{all.batch};
    benchmark::DoNotOptimize(tessera::profile_accesses(all.exec, reader, all.features, all.specs).samples);
  }
  state.SetItemsProcessed(state.iterations() * samples);
}

// Counts of a table as large as Criteo Kaggle's three largest in the mean.
tessera::table_accesses make_large_table(tessera::host_exec const& exec) {
  tessera::buffer<std::uint32_t> counts(exec, large_rows);
  tessera::zipf_distribution const law(large_rows, 1.05);
  std::mt19937_64 random(2);
  auto const uniform = [&] { return static_cast<double>(random() >> 11) * 0x1p-53; };
  for (std::int64_t i = 0; i < large_rows; ++i) counts[i] = 0;
  for (std::int64_t i = 0; i < 4 * large_rows; ++i) ++counts[law(uniform) * std::int64_t{1'000'003} % large_rows];
  return {{.id = tessera::table_id{1}, .dim = 16, .rows = large_rows}, std::move(counts)};
}

tessera::table_accesses const& large_table() {
  static tessera::serial_team team;
  static tessera::system_memory memory;
  static auto const table = make_large_table(tessera::host_exec(team, memory));
  return table;
}

void histogram(benchmark::State& state) {
  auto const& accesses = large_table();
  for (auto _ : state) benchmark::DoNotOptimize(tessera::count_histogram(accesses).size());
  state.SetItemsProcessed(state.iterations() * large_rows);
}

void estimate(benchmark::State& state) {
  auto const& accesses = large_table();
  auto const cutoff = state.range(0);
  tessera::hot_row_estimate found;
  for (auto _ : state) {
    found = tessera::estimate_hot_rows(accesses, cutoff);
    benchmark::DoNotOptimize(found);
  }
  state.counters["scanned_share"] = static_cast<double>(found.read) / static_cast<double>(large_rows);
}

BENCHMARK(classify)->UseRealTime();
BENCHMARK(profile)->UseRealTime();
BENCHMARK(histogram)->UseRealTime();
BENCHMARK(estimate)->Arg(2)->Arg(10)->UseRealTime();

}  // namespace
