// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include "whole_steps.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <string>
#include <utility>

#include <tessera/comm/collectives.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/memory.hpp>
#include <tessera/core/optimizers.hpp>
#include <tessera/core/thread_team.hpp>
#include <tessera/core/view.hpp>
#include <tessera/embed/dense_table.hpp>
#include <tessera/embed/row_optimizer.hpp>
#include <tessera/embed/row_store.hpp>
#include <tessera/embed/table_list.hpp>
#include <tessera/plan/table_ids.hpp>
#include <tessera/shard/embedding_times.hpp>
#include <tessera/shard/sharded_tables.hpp>
#include <tessera/shard/table_spec.hpp>
#include <tessera/tensor/batch.hpp>
#include <tessera/tensor/keyed_jagged.hpp>

#include "rounds.hpp"

namespace plan_tables {

namespace {

std::int64_t samples_of(std::vector<tessera::table_profile> const& tables) {
  for (auto const& one : tables)
    if (one.bags != tables[0].bags || one.distinct_bags != one.bags)
      throw tessera::error(tessera::errc::incompatible, "whole steps are of tables of one number of bags, without deduplication",
                           {{"table", one.name}, {"bags", one.bags}, {"distinct_bags", one.distinct_bags}, {"expected", tables[0].bags}});
  return tessera::batch_samples_of(tables);
}

tessera::table_spec spec_of(tessera::table_profile const& table, std::int64_t number) {
  tessera::table_options const options{
      .id = tessera::table_id{number}, .dim = table.dim, .rows = table.rows};  // random rows: each page is there
  if (table.optimizer == "sgd") return tessera::spec_of<tessera::dense_table<>>(options, tessera::sgd{});
  return tessera::spec_of<tessera::dense_table<>>(options, tessera::rowwise_adagrad{});
}

// A rank's part of a batch: the ids of its samples, of each table those that `draw_table_ids` gives the whole batch.
tessera::keyed_jagged<> part_of_batch(tessera::host_exec const& exec, std::vector<tessera::table_profile> const& tables,
                                      std::int64_t samples, std::int64_t first, std::int64_t count, tessera::random_seed seed,
                                      std::int64_t batch) {
  std::vector<std::string> names;
  std::vector<std::int64_t> ids, lengths;
  for (std::size_t t = 0; t < tables.size(); ++t) {
    auto const all = tessera::draw_table_ids(tables[t], samples, seed, static_cast<std::uint64_t>(batch) * tables.size() + t);
    auto const begin = all.lengths.begin() + first, end = begin + count;
    auto const id = all.ids.begin() + std::accumulate(all.lengths.begin(), begin, std::int64_t{0});
    ids.insert(ids.end(), id, id + std::accumulate(begin, end, std::int64_t{0}));
    lengths.insert(lengths.end(), begin, end);
    names.push_back(std::to_string(t));
  }
  return tessera::keyed_jagged<>::from_lengths(exec, names, ids, lengths, std::vector<std::int64_t>(tables.size(), count));
}

}  // namespace

measured_costs measure_whole_steps(tessera::any_communicator comm, std::vector<tessera::table_profile> const& tables,
                                   tessera::sharding_plan const& plan, tessera::repetition const& repeat, tessera::random_seed seed) {
  repeat.check("measure_whole_steps");
  auto const samples = samples_of(tables), ranks = std::int64_t{comm.size()}, rank = std::int64_t{comm.rank()};
  auto const count = samples / ranks + (rank < samples % ranks), first = rank * (samples / ranks) + std::min(rank, samples % ranks);
  tessera::serial_team team;
  tessera::system_memory memory;
  tessera::host_exec const exec(team, memory);

  std::vector<tessera::table_spec> specs;
  std::vector<tessera::table_feature> features;
  std::int64_t columns = 0;
  for (std::size_t t = 0; t < tables.size(); ++t) {
    auto const number = static_cast<std::int64_t>(t);
    specs.push_back(spec_of(tables[t], number));
    features.push_back({.name = std::to_string(t), .table = number});
    columns += tables[t].dim;
  }
  tessera::sharded_tables source(exec, comm, specs, features, plan);
  std::vector<float> vectors(static_cast<std::size_t>(count * columns), 0.001F);
  std::vector<tessera::matrix_view<float>> out;
  for (std::int64_t column = 0; auto const& one : tables) {
    out.push_back(tessera::matrix_view<float>{vectors.data(), count, columns}.columns_from(column, one.dim));
    column += one.dim;
  }
  std::vector<tessera::matrix_view<float const>> const gradients(out.begin(), out.end());

  std::vector<tessera::keyed_jagged<>> batches;
  for (std::int64_t b = 0; b < repeat.warm_up + repeat.runs; ++b)
    batches.push_back(part_of_batch(exec, tables, samples, first, count, seed, b));
  tessera::sharded_tables::saved_type saved[2];
  auto const send_ids = [&](std::size_t step) {
    tessera::batch_view batch;
    batch.dense = {nullptr, count, 0};
    batch.sparse = std::as_const(batches[step]).view();
    source.begin(exec, batch, saved[step % 2]);
  };
  tessera::embedding_times times;
  source.add_times_to(&times);
  per_device stages(3);  // of this rank: compute, backward, forward
  send_ids(0);
  for (std::size_t step = 0; step < batches.size(); ++step) {
    times = {};
    if (step + 1 < batches.size()) send_ids(step + 1);  // ahead, so that no rank waits for them
    source.finish(exec, saved[step % 2], out);
    source.begin_backward(exec, saved[step % 2], gradients);
    source.finish_backward(exec, saved[step % 2]);
    if (static_cast<std::int64_t>(step) < repeat.warm_up) continue;
    stages[0].push_back(1000 * times.compute);
    stages[1].push_back(1000 * times.gradients);
    stages[2].push_back(1000 * times.vectors);
  }
  source.add_times_to(nullptr);

  auto const own = medians(stages);
  measured_costs costs(ranks);
  tessera::any_pending pending;
  std::size_t r = 0;
  for (auto const& of : tessera::all_gather<double>(exec, comm, {own.data(), 3}, pending, "measure_whole_steps: times")) {
    costs.compute[r] = of[0], costs.backward[r] = of[1], costs.forward[r] = of[2];
    ++r;
  }
  return costs;
}

}  // namespace plan_tables
