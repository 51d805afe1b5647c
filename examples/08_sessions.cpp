// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// example-target: tessera::parquet

// A model of sessions, from a log in Parquet files: clustered by session, repeated rows kept once a batch, histories pooled by a transformer,
// tested on the sessions of another day, saved and loaded.

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include <tessera/synth/session_clicks.hpp>
#include <tessera/tessera_files.hpp>
#include <tessera/tessera_parquet.hpp>

using session_dlrm = tessera::click_model<tessera::local_tables, tessera::eigen_gemm, tessera::dot_products, tessera::encoder_pooling>;
constexpr std::int64_t table_rows = 5000;
constexpr tessera::rowwise_adagrad row_optimizer{.learning_rate = 0.02F};

// Made up, two days in the order of time, in which sessions interleave. Yours has these kinds of columns under names of its own.
tessera::session_clicks made_up_clicks(tessera::host_exec const& exec) {
  using tessera::session_feature_kind;
  tessera::session_clicks_options options{
      {{.name = "item", .kind = session_feature_kind::item, .stays = 0.05, .mean_length = 1, .most_length = 1, .ids = 2000, .linear = 1},
       {.name = "history", .kind = session_feature_kind::sequence, .group = 0, .mean_length = 20, .ids = 2000, .interest = 1},
       {.name = "places", .kind = session_feature_kind::sequence, .group = 0, .mean_length = 20, .ids = 500},
       {.name = "user", .stays = 0.98, .mean_length = 5, .ids = 3000, .linear = 1}}};
  options.dense_features = 2;
  options.window_sessions = 2000;  // of a day
  options.windows = 2;
  return {exec, options};
}

// A table a key, in the order of a batch's keys. The histories are pooled together by a transformer, the others each by sum.
session_dlrm make_model(tessera::host_exec const& exec, std::vector<std::string> const& keys) {
  tessera::table_list tables;
  std::vector<tessera::table_feature> features;
  for (auto const& key : keys) {
    tessera::table_options const options{.id = tessera::table_id{tables.size()}, .dim = 16, .rows = table_rows, .init_bound = 0.1F};
    auto const table = tables.add(tessera::dense_table<>(exec, options, row_optimizer), row_optimizer);
    features.push_back({.name = key, .table = table, .sequence = key == "history" || key == "places"});
  }
  return {exec,
          {.dense_features = 2, .bottom_hidden = {32}, .top_hidden = {32}},
          {std::move(tables), std::move(features)},
          {},
          {{{"history", "places"}, {.layers = 1, .heads = 2, .hidden = 32}}}};
}

int main() {
  tessera::thread_pool threads(2);
  tessera::system_memory memory;
  tessera::host_exec const exec(threads, memory);
  std::string const folder = "sessions_files/";
  std::filesystem::create_directories(folder);

  auto clicks = made_up_clicks(exec);
  auto const schema = clicks.schema();  // of your files: sample_schema(label, {dense columns}, {columns of ids}, session, time)
  std::vector<std::string> days;
  for (tessera::sample_columns day(schema); clicks.next_window(exec, day) > 0;) {
    auto const path = folder + "day_" + std::to_string(days.size());
    tessera::parquet_writer log(path + ".parquet", schema);
    log.write(exec, day.view());
    log.finish();

    // Samples of a session side by side: what repeats is stored and read once, and comes in one batch.
    tessera::cluster_by_session(exec, tessera::parquet_log({path + ".parquet"}, schema), path + "_clustered.parquet");
    days.push_back(path + "_clustered.parquet");
  }

  // Only what can be learned from: a label that is neither 0 nor 1, or a NaN, is refused by file, column and sample.
  tessera::checked_samples const train(tessera::parquet_log({days[0]}, schema)), test(tessera::parquet_log({days[1]}, schema));
  tessera::sample_columns some(schema);
  train.read(exec, 0, some);
  for (auto const& group : tessera::group_names(schema.sparse, tessera::recommend_groups(exec, some.view()).groups)) {
    std::printf("worth to be kept once together:");
    for (auto const& name : group) std::printf(" %s", name.c_str());
    std::printf("\n");
  }

  // Groups come first among the keys, in this order, which pipeline and model are made for.
  tessera::sample_reader_options options;
  options.batch_size = 256;
  options.groups = {{"history", "places"}, {"user"}};
  auto const keys = tessera::group_keys(schema.sparse, options.groups).keys;
  tessera::id_pipeline const prepare(exec, keys, tessera::truncate_ids{.most = 50}, tessera::hash_ids{.size = table_rows});
  tessera::sample_reader held_out(exec, test, prepare, options);
  options.order = tessera::sample_order::sessions;  // shuffled as wholes
  tessera::sample_reader reader(exec, train, prepare, options);

  auto model = make_model(exec, keys);
  tessera::trainer run(exec, model, tessera::adam{.learning_rate = 0.001F});
  tessera::batch_view batch;
  for (int epoch = 1; epoch <= 3; ++epoch) {
    std::int64_t samples = 0, kept = 0;
    while (reader.next(exec, batch)) {
      run.step(exec, batch);
      samples += batch.samples();
      kept += batch.sparse.rows(0);
    }
    std::printf("epoch %d: %.1f times fewer histories than samples, test auc %.4f\n", epoch,
                static_cast<double>(samples) / static_cast<double>(kept), tessera::evaluate(exec, model, held_out).auc.value(exec));
  }

  tessera::save_checkpoint(exec, folder + "checkpoints", run, {.step = reader.position().batch});
  auto loaded = make_model(exec, keys);
  tessera::load_model(exec, tessera::open_newest_checkpoint(folder + "checkpoints"), loaded);
  std::printf("loaded: test auc %.4f\n", tessera::evaluate(exec, loaded, held_out).auc.value(exec));
}
