// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0

// What it costs that tables are of kinds chosen at run time: a lookup and a step of 26 tables of 200,000 rows of 16 floats, 2,048 bags of one
// id each, by the calls that know the tables' type (`calls`), by `local_tables` of one kind (`one_group`), and of 26 kinds of one table each
// (`groups_of_one`). Same rows, ids and gradients. The lesser the bags, the more it would show.

#include <benchmark/benchmark.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <tessera/embed/local_tables.hpp>
#include <tessera/tessera.hpp>

#include "lookup_workload.hpp"

namespace {

using namespace tessera_bench;

constexpr lookup_shape shape{26, 200'000, 16, 2048, 1};

// As many kinds of optimizer as are asked for, all with the same code.
template <int Number>
struct numbered_sgd : tessera::sgd {};

template <int Number = 0>
void add_kinds(machine const& host, std::int64_t rows, tessera::table_list& tables) {
  if constexpr (Number < 26) {
    numbered_sgd<Number> const optimizer{{.learning_rate = 0.01F}};
    tessera::table_options const options{.id = tessera::table_id{Number}, .dim = shape.dim, .rows = rows, .init_bound = 0.1F};
    tables.add(tessera::dense_table<>(host.exec, options, optimizer), optimizer);
    add_kinds<Number + 1>(host, rows, tables);
  }
}

class local_workload {
 public:
  explicit local_workload(bool one_group) : inputs_(host.exec, sized_shape(shape)), source_(make(host, one_group)) {}

  void forward(std::int64_t i) { source_.predict(host.step, batch(i), inputs_.out); }
  void step(std::int64_t i) {
    source_.begin(host.step, batch(i), saved_);
    source_.finish(host.step, saved_, inputs_.out);
    source_.begin_backward(host.step, saved_, inputs_.gradients);
    source_.finish_backward(host.step, saved_);
  }

  machine host;

 private:
  static tessera::local_tables make(machine const& host, bool one_group) {
    tessera::table_list tables;
    if (one_group) {
      for (std::int64_t t = 0; t < shape.tables; ++t) {
        tessera::table_options const options{.id = tessera::table_id{t}, .dim = shape.dim, .rows = sized(shape.rows), .init_bound = 0.1F};
        tables.add(tessera::dense_table<>(host.exec, options, tessera::sgd{}), tessera::sgd{.learning_rate = 0.01F});
      }
    } else {
      add_kinds(host, sized(shape.rows), tables);
    }
    std::vector<tessera::table_feature> features;
    for (std::int64_t t = 0; t < shape.tables; ++t) features.push_back({.name = "key" + std::to_string(t), .table = t});
    return {std::move(tables), std::move(features)};
  }
  tessera::batch_view batch(std::int64_t i) const {
    tessera::batch_view result;
    result.dense = {nullptr, shape.samples, 0};
    result.sparse = inputs_.batch(i);
    return result;
  }

  lookup_inputs inputs_;
  tessera::local_tables source_;
  tessera::local_tables_saved saved_;
};

template <class Workload, class Make>
void run(benchmark::State& state, std::string const& name, bool is_step, Make const& make) {
  auto& work = kept<Workload>(name, make);
  auto& next = next_input();
  for (auto _ : state) {
    if (is_step)
      work.step(next++);
    else
      work.forward(next++);
  }
}

template <class Workload, class Make>
void add(std::string const& name, Make const& make) {
  for (bool const is_step : {false, true})
    benchmark::RegisterBenchmark(((is_step ? "step/" : "lookup/") + name).c_str(),
                                 [=](benchmark::State& state) { run<Workload>(state, name, is_step, make); })
        ->UseRealTime()
        ->Unit(benchmark::kMicrosecond);
}

}  // namespace

int main(int argc, char** argv) {
  using calls = lookup_workload<tessera::dense_table<>, tessera::sgd>;
  add<calls>("calls", [] { return std::make_shared<calls>(shape, tessera::sgd{.learning_rate = 0.01F}); });
  add<local_workload>("one_group", [] { return std::make_shared<local_workload>(true); });
  add<local_workload>("groups_of_one", [] { return std::make_shared<local_workload>(false); });
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
}
