// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-labels: threads
#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include <hosts.hpp>
#include <random.hpp>

#include <tessera/comm/any_communicator.hpp>
#include <tessera/comm/thread_communicator.hpp>
#include <tessera/core/optimizers.hpp>
#include <tessera/data/dealt_reader.hpp>
#include <tessera/data/memory_log.hpp>
#include <tessera/embed/dense_table.hpp>
#include <tessera/embed/local_tables.hpp>
#include <tessera/nn/dense_optimizer.hpp>
#include <tessera/nn/gemm_eigen.hpp>
#include <tessera/shard/sharded_tables.hpp>
#include <tessera/tensor/keyed_jagged.hpp>
#include <tessera/train/click_model.hpp>
#include <tessera/train/trainer.hpp>

namespace dealt_training_test {

using namespace tessera;
using tessera_tests::serial_host;

constexpr std::int64_t rows = 130, block_rows = 20, batch_size = 18;
constexpr int ranks = 3;

float number_of(std::int64_t i) { return static_cast<float>(i % 7) / 7 - 0.5F; }
float label_of(std::int64_t i) { return i % 5 < 2 ? 1.0F : 0.0F; }

// Sample i has one id, i % 11.
memory_log make_log(host_exec const& exec) {
  sample_schema const schema{"label", {"x"}, {"a"}, "", ""};
  sample_columns all(schema);
  all.resize(exec, rows);
  auto const offsets = all.offsets(0);
  offsets[0] = 0;
  for (std::int64_t i = 0; i < rows; ++i) {
    all.labels()[i] = label_of(i);
    all.dense()(0, i) = number_of(i);
    offsets[i + 1] = i + 1;
  }
  auto* const ids = all.ids(exec, 0).data();
  for (std::int64_t i = 0; i < rows; ++i) ids[i] = i % 11;
  return {schema, std::move(all), block_rows};
}

std::vector<table_spec> specs() {
  return {spec_of<dense_table<>>({.id = table_id{0}, .dim = 4, .rows = 11, .init_bound = 0.2F}, adagrad{.learning_rate = 0.1F})};
}
std::vector<table_feature> features() { return {{.name = "a", .table = 0}}; }

template <class Source>
dlrm<Source, eigen_gemm> make_model(host_exec const& exec, Source source) {
  return {exec, {.dense_features = 1, .top_hidden = {8}, .seed = random_seed{4}}, std::move(source)};
}

TEST_CASE("dealt_reader: ranks that run dry train on with empty batches, as one process on what all ranks have") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  sample_reader_options const options{.batch_size = batch_size, .order = sample_order::samples, .seed = random_seed{seed}};
  auto const of_rank = [&](int rank) {
    auto own = options;
    own.slice = {rank, ranks};
    return own;
  };

  // The samples of each step, rank 0's first, over two epochs. Blocks are 7: one rank has a block more, and the last block is short.
  std::vector<std::vector<std::int64_t>> steps;
  {
    serial_host host;
    auto const log = make_log(host.exec());
    std::deque<dealt_reader<memory_log>> readers;
    for (int r = 0; r < ranks; ++r) readers.emplace_back(host.exec(), log, of_rank(r));
    int dry = 0;
    for (int epoch = 0; epoch < 2; ++epoch)
      for (bool more = true; more;) {
        std::vector<std::int64_t> step;
        for (auto& reader : readers) {
          batch_view batch;
          more = reader.next(host.exec(), batch);
          if (!more) continue;
          dry += batch.samples() == 0 ? 1 : 0;
          step.insert(step.end(), batch.sample_ids.begin(), batch.sample_ids.end());
        }
        if (more) steps.push_back(step);
      }
    CHECK(dry > 0);
  }

  std::vector<double> expected;
  {
    serial_host host;
    auto const exec = host.exec();
    table_list list;
    for (auto const& spec : specs()) spec.add(exec, spec.table, list);
    auto model = make_model(exec, local_tables(std::move(list), features()));
    trainer run(exec, model, sgd{.learning_rate = 0.1F});
    for (auto const& step : steps) {
      std::vector<float> dense, labels;
      std::vector<std::vector<std::int64_t>> bags;
      for (auto const i : step) {
        dense.push_back(number_of(i));
        labels.push_back(label_of(i));
        bags.push_back({i % 11});
      }
      std::vector<feature_rows<>> of_keys;
      of_keys.emplace_back("a", bags);
      auto const ids = keyed_jagged<>::from_rows(exec, of_keys);
      batch_view batch;
      batch.dense = {dense.data(), static_cast<std::int64_t>(step.size()), 1};
      batch.labels = labels;
      batch.sparse = ids.view();
      expected.push_back(run.step(exec, batch));
    }
  }

  std::vector<std::vector<double>> losses(ranks);
  std::vector<serial_host> hosts(ranks);
  run_thread_ranks(ranks, [&](thread_communicator& comm) {
    auto const r = static_cast<std::size_t>(comm.rank());
    auto const exec = hosts[r].exec();
    auto const log = make_log(exec);
    dealt_reader<memory_log> reader(exec, log, of_rank(comm.rank()));
    auto model = make_model(exec, sharded_tables(exec, comm, specs(), features(), plan_round_robin(options_of(specs()), ranks)));
    trainer run(exec, model, sgd{.learning_rate = 0.1F}, {.comm = comm});
    for (int epoch = 0; epoch < 2; ++epoch)
      for (batch_view batch; reader.next(exec, batch);) losses[r].push_back(run.step(exec, batch));
  });
  for (auto const& one : losses) {
    CHECK(one == losses[0]);
    REQUIRE(one.size() == expected.size());
    for (std::size_t i = 0; i < one.size(); ++i) CHECK(std::fabs(one[i] - expected[i]) < 1e-5);
  }
}

}  // namespace dealt_training_test
