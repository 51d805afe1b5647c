// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0

// The hashed store beside the dense one on the same ids, all of which have rows: pooled lookup, and lookup + backward + SGD.

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <tessera/tessera.hpp>

#include "../ceiling.hpp"
#include "../inputs.hpp"

namespace {

using namespace tessera_bench;

constexpr std::int64_t tables = 8, dim = 64, samples = 2048, length = 10;

template <class Store>
struct workload {
  workload() {
    auto const rows = sized(200'000);
    std::vector<std::int64_t> ids(static_cast<std::size_t>(rows)), slots(static_cast<std::size_t>(rows));
    for (std::int64_t i = 0; i < rows; ++i) ids[static_cast<std::size_t>(i)] = i;
    draws draw(3);  // rows come in the order in which a log first names them
    for (auto i = ids.size() - 1; i > 0; --i)
      std::swap(ids[i], ids[static_cast<std::size_t>(draw.below(static_cast<std::int64_t>(i) + 1))]);
    for (std::int64_t t = 0; t < tables; ++t) {
      stores.emplace_back(host.exec, tessera::table_options{.id = tessera::table_id{t}, .dim = dim, .rows = rows}, sgd);
      stores.back().locate(host.exec, ids, slots);
      features.push_back({.table = t});
    }
    for (std::int64_t b = 0; b < batches_past_cache(tables * samples * length * dim * 4); ++b)
      batches.emplace_back(tables, samples, length, rows, 0, static_cast<std::uint64_t>(b));
    vectors.resize(host.exec, tables * samples * dim);
    gradients.resize(host.exec, tables * samples * dim);
    std::fill(gradients.begin(), gradients.end(), 0.001F);
    for (std::int64_t t = 0; t < tables; ++t) {
      out.push_back({vectors.data() + t * dim, samples, dim, tables * dim});
      gradient.push_back({gradients.data() + t * dim, samples, dim, tables * dim});
    }
    copy = copy_ceiling(host.exec);
  }

  tessera::keyed_jagged_view<std::int64_t const> batch(std::int64_t i) const {
    return batches[static_cast<std::size_t>(i) % batches.size()].view();
  }
  void forward(std::int64_t i) { tessera::pooled_lookup(host.step, std::as_const(stores), features, batch(i), out); }
  void step(std::int64_t i) {
    tessera::pooled_lookup(host.step, stores, features, batch(i), out, saved);
    tessera::pooled_lookup_backward(host.step, stores, features, saved, gradient, sgd);
  }

  machine host;
  tessera::sgd sgd{0.01F};
  std::vector<Store> stores;
  std::vector<tessera::pooled_feature> features;
  std::vector<id_batch> batches;
  tessera::buffer<float> vectors, gradients;
  std::vector<tessera::matrix_view<float>> out;
  std::vector<tessera::matrix_view<float const>> gradient;
  tessera::lookup_saved saved;
  double copy = 0;
};

template <class Store>
void run(benchmark::State& state, std::string const& name, void (workload<Store>::*one)(std::int64_t)) {
  auto& work = kept<workload<Store>>(name, [&] {
    auto made = std::make_shared<workload<Store>>();
    for (std::int64_t i = 0; i < 3; ++i) (*made.*one)(i);
    return made;
  });
  std::int64_t next = 3;
  for (auto _ : state) (work.*one)(next++);
  state.SetBytesProcessed(state.iterations() * tables * samples * length * dim * 4);
  report_machine(state, work.copy);
  state.counters["workspace_bytes"] = static_cast<double>(work.host.workspace.reserved_bytes());
}

template <class Store>
void add(std::string const& name, void (workload<Store>::*one)(std::int64_t)) {
  benchmark::RegisterBenchmark(name.c_str(), [=](benchmark::State& state) { run<Store>(state, name, one); })
      ->UseRealTime()
      ->Unit(benchmark::kMillisecond);
}

}  // namespace

int main(int argc, char** argv) {
  using dense = tessera::dense_table<>;
  using hashed = tessera::hash_table<>;
  add<dense>("dense_forward", &workload<dense>::forward);
  add<hashed>("hashed_forward", &workload<hashed>::forward);
  add<dense>("dense_step", &workload<dense>::step);
  add<hashed>("hashed_step", &workload<hashed>::step);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
}
