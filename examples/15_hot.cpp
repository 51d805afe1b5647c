// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0

// Hot rows on every worker (FAE). Three ranks, here threads: two train, and the third holds the tables. Rows that are read often lie on both
// workers, and batches are all hot or all cold. Hot batches send no ids and no vectors to the third rank.

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include <tessera/comm/any_communicator.hpp>
#include <tessera/comm/thread_communicator.hpp>
#include <tessera/data/memory_log.hpp>
#include <tessera/data/picked_samples.hpp>
#include <tessera/data/sample_reader.hpp>
#include <tessera/data/sampled_blocks.hpp>
#include <tessera/hot/access_profile.hpp>
#include <tessera/hot/choose_hot_rows.hpp>
#include <tessera/hot/class_reader.hpp>
#include <tessera/hot/class_schedules.hpp>
#include <tessera/hot/classify_samples.hpp>
#include <tessera/hot/hot_source.hpp>
#include <tessera/local_model.hpp>
#include <tessera/shard/sharded_tables.hpp>
#include <tessera/shard/table_spec.hpp>

namespace {

constexpr std::int64_t samples = 40'000, items = 20'000, users = 50'000, batch_size = 256;

tessera::sample_schema schema() { return {.label = "click", .dense = {"age"}, .sparse = {"user", "item"}, .single = {"user", "item"}}; }

/// Clicks on items of which few are seen often. Item and user decide together.
tessera::sample_columns make_clicks(tessera::host_exec const& exec) {
  tessera::sample_columns log(schema());
  log.resize(exec, samples);
  std::mt19937 random(7);
  std::uniform_real_distribution<double> uniform;
  auto const popular = [&](std::int64_t ids) {  // the share of ids below n is log n / log ids
    return static_cast<std::int64_t>(std::exp(uniform(random) * std::log(static_cast<double>(ids)))) - 1;
  };
  for (std::int64_t i = 0; i < samples; ++i) {
    auto const user = log.single_ids(0)[i] = popular(users), item = log.single_ids(1)[i] = popular(items);
    log.dense()(0, i) = static_cast<float>(uniform(random));
    log.labels()[i] = uniform(random) < ((user * 31 + item * 17) % 5 == 0 ? 0.7 : 0.2) ? 1.0F : 0.0F;
  }
  return log;
}

}  // namespace

int main() {
  tessera::serial_team main_team;
  tessera::system_memory main_memory;
  tessera::host_exec const main_exec(main_team, main_memory);
  tessera::memory_log const log(schema(), make_clicks(main_exec), 1000);
  std::vector<tessera::table_feature> const features{{.name = "user", .table = 0}, {.name = "item", .table = 1}};
  tessera::adagrad const optimizer{.learning_rate = 0.05F};
  std::vector<tessera::table_spec> const specs{
      tessera::spec_of<tessera::dense_table<>>({.id = tessera::table_id{0}, .dim = 16, .rows = users}, optimizer),
      tessera::spec_of<tessera::dense_table<>>({.id = tessera::table_id{1}, .dim = 16, .rows = items}, optimizer)};

  // What is hot: a tenth of the blocks says which rows, and their rows say which samples.
  tessera::sampled_blocks const some(log, {.percent = 10});
  tessera::sample_reader sample(main_exec, some, {.batch_size = 1000});
  tessera::sample_reader all(main_exec, log, {.batch_size = 1000});
  auto const profile = tessera::profile_accesses(main_exec, sample, features, specs);
  tessera::hot_row_options const budget{.budget_bytes = 200'000, .small_table_bytes = 1000};
  auto const hot = tessera::choose_hot_rows(main_exec, profile, specs, budget);
  auto const classes = tessera::classify_samples(main_exec, all, features, hot);
  std::printf("%d of %d users and %d of %d items are hot, and so are %.0f%% of the samples\n", static_cast<int>(hot.tables[0].size()),
              static_cast<int>(users), static_cast<int>(hot.tables[1].size()), static_cast<int>(items),
              100 * static_cast<double>(classes.hot()) / static_cast<double>(classes.size()));
  tessera::picked_samples const hot_log(log, classes, tessera::batch_class::hot), cold_log(log, classes, tessera::batch_class::cold);

  tessera::run_thread_ranks(3, [&](tessera::thread_communicator& comm) {
    tessera::serial_team team;
    tessera::system_memory memory;
    tessera::host_exec const exec(team, memory);
    bool const trains = comm.rank() < 2;
    auto const part = comm.split(exec, trains ? 1 : 0, 0);
    std::optional<tessera::any_communicator> workers;
    if (trains) workers = part;

    // All tables on rank 2; each worker has the hot rows, too.
    tessera::sharding_plan const plan{
        {tessera::whole_table(tessera::options_of(specs), 0, 2), tessera::whole_table(tessera::options_of(specs), 1, 2)}};
    tessera::hot_source source(exec, tessera::sharded_tables(exec, comm, specs, features, plan), specs,
                               tessera::choose_hot_rows(exec, profile, specs, budget), {.workers = workers});
    using source_type = tessera::hot_source<tessera::sharded_tables>;

    // Every rank steps the same reader, so that it knows each batch's class. A worker trains on its half; rank 2 drops what it reads.
    tessera::batch_slice const slice{.rank = trains ? comm.rank() : 0, .ranks = 2};
    tessera::sample_reader_options const options{.batch_size = batch_size, .order = tessera::sample_order::samples, .slice = slice};
    tessera::sample_reader hots(exec, hot_log, options), colds(exec, cold_log, options);
    tessera::class_reader batches(hots, colds, tessera::fixed_schedule(25));
    if (!trains) {
      for (tessera::batch_view batch; batches.next(exec, batch);) source.join_step(exec, batch.kind);
      return;
    }
    tessera::dlrm<source_type, tessera::eigen_gemm> model(
        exec, {.dense_features = 1, .bottom_hidden = {16}, .top_hidden = {16}, .seed = tessera::random_seed{1}}, std::move(source));
    tessera::trainer run(exec, model, tessera::adam{.learning_rate = 0.005F}, {.comm = workers});
    double loss = 0;
    std::int64_t steps = 0;
    for (tessera::batch_view batch; batches.next(exec, batch);) {
      loss += run.step(exec, batch);
      ++steps;
      if (!batches.class_ends()) continue;
      if (comm.rank() == 0)
        std::printf("%d %s batches: mean loss %.4f, %d swaps, %d rows moved\n", static_cast<int>(steps),
                    batch.kind == tessera::batch_class::hot ? "hot" : "cold", loss / static_cast<double>(steps),
                    static_cast<int>(model.source().swaps()), static_cast<int>(model.source().moved_rows()));
      loss = 0;
      steps = 0;
    }
  });
}
