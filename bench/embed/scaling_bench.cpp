// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0

// How lookup + backward + row-wise Adagrad grows with the number of tables, rows, dims, samples and ids a bag, each over three decades and
// more, with one thread and with all: `time_per_element` is over rows touched times dim, flat where growth is linear (`time_per_row` where
// a row costs more than its bytes). `memory_ratio`: anonymous memory that a process which goes on stepping holds, over tables + states + one
// batch's ids, vectors and gradients. `step_sgd_hot`: lookup, backward and SGD of a batch of which one id takes three positions in five.

#include <benchmark/benchmark.h>
#include <malloc.h>

#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include <tessera/tessera.hpp>

#include "../inputs.hpp"

namespace {

using namespace tessera_bench;

double anonymous_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("RssAnon:")) return std::stod(line.substr(8)) * 1024;
  return 0;
}

struct shape {
  std::int64_t tables = 8, rows = 100'000, dim = 32, samples = 512, length = 8;
};

void step(benchmark::State& state, shape const& s) {
  malloc_trim(0);  // what earlier shapes gave back
  auto const before = anonymous_bytes();
  machine host(static_cast<int>(state.range(1)));
  tessera::rowwise_adagrad const optimizer{.learning_rate = 0.01F};
  std::vector<tessera::dense_table<>> tables;
  std::vector<tessera::pooled_feature> features;
  double bytes = 0;
  for (std::int64_t t = 0; t < s.tables; ++t) {
    tables.emplace_back(host.exec, tessera::table_options{.id = tessera::table_id{t}, .dim = s.dim, .rows = s.rows, .init_bound = 0.1F},
                        optimizer);
    features.push_back({.table = t});
    bytes += static_cast<double>(tables.back().bytes());
  }
  id_batch const batch(s.tables, s.samples, s.length, s.rows, 0, 1);
  tessera::buffer<float> vectors(host.exec, s.samples * s.tables * s.dim), gradients(host.exec, vectors.size());
  for (auto& g : gradients) g = 0.001F;
  bytes += static_cast<double>(vectors.size() * 8 + s.tables * s.samples * (s.length + 1) * 8);
  std::vector<tessera::matrix_view<float>> out;
  std::vector<tessera::matrix_view<float const>> gradient;
  for (std::int64_t t = 0; t < s.tables; ++t) {
    out.push_back({vectors.data() + t * s.dim, s.samples, s.dim, s.tables * s.dim});
    gradient.push_back({gradients.data() + t * s.dim, s.samples, s.dim, s.tables * s.dim});
  }
  tessera::lookup_saved saved;
  auto const run = [&] {
    tessera::pooled_lookup(host.step, tables, features, batch.view(), out, saved);
    tessera::pooled_lookup_backward(host.step, tables, features, saved, gradient, optimizer);
  };
  for (int i = 0; i < 2; ++i) run();
  for (auto _ : state) run();
  auto const touched = static_cast<double>(s.tables * s.samples * s.length);
  auto const time_per = [](double n) {
    return benchmark::Counter(n, benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
  };
  state.counters["time_per_row"] = time_per(touched);
  state.counters["time_per_element"] = time_per(touched * static_cast<double>(s.dim));
  malloc_trim(0);  // what the first steps took and the later ones do not
  run();
  state.counters["memory_ratio"] = (anonymous_bytes() - before) / bytes;
}

void step_hot(benchmark::State& state) {
  constexpr std::int64_t dim = 128;
  auto const samples = sized(65'536), rows = sized(100'000);
  machine host(static_cast<int>(state.range(0)));
  tessera::sgd const optimizer{.learning_rate = 0.01F};
  std::vector<tessera::dense_table<>> tables;
  tables.emplace_back(host.exec, tessera::table_options{.dim = dim, .rows = rows, .init_bound = 0.1F}, optimizer);
  std::vector<tessera::pooled_feature> const features{{.table = 0}};
  id_batch batch(1, samples, 1, rows, 0, 1);
  draws draw(2);
  for (auto& id : batch.ids)
    if (draw.below(5) < 3) id = 0;
  tessera::buffer<float> vectors(host.exec, samples * dim), gradients(host.exec, samples * dim);
  for (auto& g : gradients) g = 0.001F;
  std::vector<tessera::matrix_view<float>> const out{{vectors.data(), samples, dim, dim}};
  std::vector<tessera::matrix_view<float const>> const gradient{{gradients.data(), samples, dim, dim}};
  tessera::lookup_saved saved;
  for (auto _ : state) {
    tessera::pooled_lookup(host.step, tables, features, batch.view(), out, saved);
    tessera::pooled_lookup_backward(host.step, tables, features, saved, gradient, optimizer);
  }
}

void add(char const* what, std::vector<std::int64_t> const& values, std::int64_t shape::*varied, shape base = {}) {
  auto* const made = benchmark::RegisterBenchmark((std::string("scaling_") + what).c_str(), [=](benchmark::State& state) {
    auto s = base;
    s.*varied = state.range(0);
    s.rows = sized(s.rows);
    step(state, s);
  });
  made->ArgNames({what, "threads"})->ArgsProduct({values, {1, all_threads()}})->UseRealTime()->Unit(benchmark::kMillisecond);
}

}  // namespace

int main(int argc, char** argv) {
  add("tables", {1, 10, 100, 1'000}, &shape::tables, {.rows = 10'000, .samples = 128, .length = 4});
  add("rows", {1'000, 10'000, 100'000, 1'000'000}, &shape::rows);
  add("dim", {4, 16, 64, 256, 1'024, 4'096}, &shape::dim, {.tables = 2, .rows = 20'000});
  add("samples", {16, 160, 1'600, 16'000}, &shape::samples);
  add("length", {1, 10, 100, 1'000}, &shape::length, {.samples = 64});
  benchmark::RegisterBenchmark("step_sgd_hot", step_hot)
      ->ArgName("threads")
      ->Arg(1)
      ->Arg(all_threads())
      ->UseRealTime()
      ->Unit(benchmark::kMillisecond);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
}
