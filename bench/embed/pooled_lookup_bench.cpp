// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0

// Pooled lookup, and lookup + backward + row update, of T tables of E rows of D floats, B samples, bags of L ids; `lookup_dims`: the lookup
// of dims that fit vectors and of some that do not.
// Time at the ceilings: rows read at the rate of a gather, distinct rows read and written at that of an update in place (both over the same
// tables, random rows, the best prefetch distance), ids and vectors at that of a copy.

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <tessera/tessera.hpp>

#include "../ceiling.hpp"
#include "lookup_workload.hpp"

namespace {

using namespace tessera_bench;

template <class Optimizer>
using dense_workload = lookup_workload<tessera::dense_table<>, Optimizer>;

template <class Optimizer>
class workload : public dense_workload<Optimizer> {
 public:
  using base = dense_workload<Optimizer>;
  using base::base, base::batches, base::host, base::shape, base::tables, base::vectors;

  void measure_ceilings() {
    copy_ = copy_ceiling(host.exec);
    std::vector<float*> rows;
    for (std::size_t b = 0; b < batches.size() && b * static_cast<std::size_t>(shape.ids_a_batch()) < 4'000'000; ++b)
      add_rows(batches[b], rows);
    gather_ = gather_ceiling(host.exec, rows, shape.dim);
    distinct_ = 0;
    for (auto const& batch : batches) {
      std::vector<float*> one;
      add_rows(batch, one);
      std::sort(one.begin(), one.end());
      distinct_ += static_cast<double>(std::unique(one.begin(), one.end()) - one.begin()) / static_cast<double>(batches.size());
    }
    std::sort(rows.begin(), rows.end());
    rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
    draws draw(11);
    for (auto i = rows.size() - 1; i > 0; --i)
      std::swap(rows[i], rows[static_cast<std::size_t>(draw.below(static_cast<std::int64_t>(i) + 1))]);
    update_ = update_ceiling(host.exec, rows, shape.dim);
  }
  double copy_rate() const { return copy_; }
  double gather_rate() const { return gather_; }
  double update_rate() const { return update_; }

  double row_bytes() const { return static_cast<double>(shape.row_bytes()); }
  double stream_bytes() const { return static_cast<double>(shape.ids_a_batch() * 8 + vectors.size() * 4); }
  double distinct_bytes() const { return distinct_ * static_cast<double>(shape.dim * 8); }

 private:
  void add_rows(id_batch const& batch, std::vector<float*>& rows) {
    for (std::int64_t i = 0; i < shape.ids_a_batch(); ++i)
      rows.push_back(tables[static_cast<std::size_t>(i / (shape.samples * shape.length))].row(batch.ids[static_cast<std::size_t>(i)]));
  }

  double copy_ = 0, gather_ = 0, update_ = 0, distinct_ = 0;
};

// Tables, batches and ceilings of the benchmark that runs, warm.
template <class Optimizer>
workload<Optimizer>& warm(std::string const& name, lookup_shape const& s, Optimizer const& optimizer,
                          void (dense_workload<Optimizer>::*run)(std::int64_t)) {
  return kept<workload<Optimizer>>(name, [&] {
    auto work = std::make_shared<workload<Optimizer>>(s, optimizer);
    work->measure_ceilings();
    for (std::int64_t i = 0; i < static_cast<std::int64_t>(work->batches.size()); ++i) (*work.*run)(i);
    return work;
  });
}

void lookup_forward(benchmark::State& state, std::string const& name, lookup_shape const& s) {
  auto& work = warm(name, s, tessera::sgd{}, &workload<tessera::sgd>::forward);
  std::int64_t next = 0;
  for (auto _ : state) work.forward(next++);
  report(state, work.row_bytes() + work.stream_bytes(), work.row_bytes() / work.gather_rate() + work.stream_bytes() / work.copy_rate(),
         work.workspace_bytes());
  report_machine(state, work.copy_rate());
  state.counters["gather_ceiling"] = work.gather_rate();
}

template <class Optimizer>
void step(benchmark::State& state, std::string const& name, lookup_shape const& s, Optimizer const& optimizer) {
  auto& work = warm(name, s, optimizer, &workload<Optimizer>::step);
  std::int64_t next = 0;
  for (auto _ : state) work.step(next++);
  // The ids are read twice (forward, backward); a vector is written, its gradient read.
  auto const streams = 2 * work.stream_bytes();
  report(state, work.row_bytes() + work.distinct_bytes() + streams,
         work.row_bytes() / work.gather_rate() + work.distinct_bytes() / work.update_rate() + streams / work.copy_rate(),
         work.workspace_bytes());
  report_machine(state, work.copy_rate());
  state.counters["gather_ceiling"] = work.gather_rate();
  state.counters["update_ceiling"] = work.update_rate();
}

constexpr lookup_shape d128{8, 400'000, 128, 512, 20}, d16{26, 200'000, 16, 2048, 1}, d64{26, 200'000, 64, 2048, 10},
    zipf{8, 400'000, 128, 512, 20, 1.05};
constexpr tessera::sgd sgd{0.01F};
constexpr tessera::rowwise_adagrad rowwise{.learning_rate = 0.01F};

void add(std::string const& name, lookup_shape const& s) {
  benchmark::RegisterBenchmark(name.c_str(), [=](benchmark::State& state) { lookup_forward(state, name, s); })
      ->UseRealTime()
      ->Unit(benchmark::kMillisecond);
}
template <class Optimizer>
void add(char const* name, lookup_shape const& s, Optimizer const& optimizer) {
  benchmark::RegisterBenchmark(name, [=](benchmark::State& state) { step(state, name, s, optimizer); })
      ->UseRealTime()
      ->Unit(benchmark::kMillisecond);
}

}  // namespace

int main(int argc, char** argv) {
  add("lookup_forward_d128", d128);
  add("lookup_forward_d16", d16);
  add("lookup_forward_d64", d64);
  for (std::int64_t const dim : {1, 3, 16, 17, 64, 100, 128, 130, 256, 1027, 2050})
    add("lookup_dims/" + std::to_string(dim), {4, 400'000'000 / (4 * dim + 64) / 4, dim, 512, 20});
  add("step_sgd_d128", d128, sgd);
  add("step_sgd_d16", d16, sgd);
  add("step_sgd_d64", d64, sgd);
  add("step_sgd_zipf", zipf, sgd);
  add("step_rowwise_adagrad_d128", d128, rowwise);
  add("step_rowwise_adagrad_d16", d16, rowwise);
  add("step_rowwise_adagrad_d64", d64, rowwise);
  add("step_rowwise_adagrad_zipf", zipf, rowwise);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
}
