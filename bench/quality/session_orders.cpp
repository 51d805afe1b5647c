// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0

// Trains the same model on the same session-structured clicks in three orders: of inference, clustered by session, and clustered with the
// sessions shuffled; prints the test AUC of each over seeds, beside the best that is possible. The clustered runs also train with repeated rows
// kept once: with sums in the order of the expanded batch they must end with the same bits, and with merged sums nearly there.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <tessera/synth/expected_auc.hpp>
#include <tessera/synth/session_clicks.hpp>
#include <tessera/synth/session_sets.hpp>
#include <tessera/tessera.hpp>

namespace {

using namespace tessera;
using session_dlrm = click_model<local_tables, eigen_gemm, dot_products, encoder_pooling>;

struct settings {
  std::int64_t rows = 200'000, test_rows = 50'000, batch = 512, scale = 10, seeds = 5, epochs = 1;
  int threads = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
};

session_dlrm make_model(host_exec const& exec, session_clicks_options const& options, shared_gradients sums, std::uint64_t seed,
                        rowwise_adagrad const& optimizer) {
  table_list tables;
  std::vector<session_dlrm::group_type> groups;
  std::vector<table_feature> features;
  std::int64_t last = -1;
  for (auto const& feature : options.features) {
    table_options const shape{
        .id = table_id(tables.size()), .dim = 16, .rows = feature.ids, .init_bound = 0.05F, .seed = random_seed(seed)};
    bool const is_sequence = feature.kind == session_feature_kind::sequence;
    auto const table = tables.add(dense_table<>(exec, shape, optimizer), optimizer);
    features.push_back({.name = feature.name, .table = table, .sequence = is_sequence, .pooling = pooling::mean});
    if (!is_sequence) continue;
    if (groups.empty() || feature.group != last) groups.push_back({{}, {.layers = 1, .heads = 2, .hidden = 32}});
    last = feature.group;
    groups.back().outputs.push_back(feature.name);
  }
  click_model_options const shape{
      .dense_features = options.dense_features, .bottom_hidden = {64}, .top_hidden = {64, 32}, .seed = random_seed(seed)};
  return {exec, shape, {std::move(tables), std::move(features), {.sums = sums}}, {}, std::move(groups)};
}

// Test logits after training. `groups`: repeated rows of these are kept once.
std::vector<float> train(host_exec const& exec, settings const& s, session_clicks_options const& options, memory_log const& log,
                         memory_log const& test, sample_order order, std::vector<std::vector<std::string>> const& groups,
                         shared_gradients sums, std::uint64_t seed) {
  system_memory memory;
  arena workspace(memory);
  auto const step_exec = exec.with_memory(workspace);
  rowwise_adagrad const rows{.learning_rate = 0.03F};
  auto model = make_model(exec, options, sums, seed, rows);
  trainer run(exec, model, adam{.learning_rate = 1e-3F});
  sample_reader_options how;
  how.batch_size = s.batch;
  how.order = order;
  how.seed = random_seed(seed);
  how.groups = groups;
  sample_reader reader(exec, log, how);
  batch_view batch;
  for (std::int64_t epoch = 0; epoch < s.epochs; ++epoch)
    while (reader.next(step_exec, batch)) run.step(step_exec, batch);
  sample_reader_options stored;
  sample_reader tests(exec, test, stored);
  session_dlrm::saved_type saved;
  std::vector<float> logits;
  while (tests.next(step_exec, batch)) {
    auto const more = model.predict(step_exec, batch, saved);
    logits.insert(logits.end(), more.begin(), more.end());
  }
  return logits;
}

double auc_of(host_exec const& exec, std::vector<float> const& logits, vector_view<float const> labels) {
  exact_auc auc;
  auc.add(logits, labels);
  return auc.value(exec);
}

void run(settings const& s) {
  thread_pool team(s.threads);
  system_memory memory;
  host_exec const exec(team, memory);
  auto options = scaled_down(rm1_sessions(), s.scale);
  options.window_sessions = static_cast<std::int64_t>(static_cast<double>(s.rows) / options.mean_samples);
  auto const groups = session_groups(options);

  std::printf("seed  best    inference  clustered  sessions shuffled  merged  expanded sums\n");
  for (std::int64_t seed = 1; seed <= s.seeds; ++seed) {
    options.seed = random_seed(static_cast<std::uint64_t>(seed));
    session_clicks clicks(exec, options);
    auto const schema = clicks.schema();
    sample_columns rows(schema), more(schema);
    clicks.next(exec, s.rows, rows);
    clicks.seek(clicks.window() + 1);  // tested on sessions of another time
    clicks.next(exec, s.test_rows, more);
    auto const best = expected_auc(exec, clicks.logits());
    std::vector<float> const labels(more.view().labels.begin(), more.view().labels.end());
    memory_log const clustered(schema, sorted_by(exec, rows, rows.view().sessions), s.rows), inference(schema, std::move(rows)),
        test(schema, std::move(more));
    auto const number = static_cast<std::uint64_t>(seed);
    auto const train_on = [&](memory_log const& log, sample_order in, std::vector<std::vector<std::string>> const& kept_once,
                              shared_gradients sums) { return train(exec, s, options, log, test, in, kept_once, sums, number); };
    auto const a = train_on(inference, sample_order::stored, {}, shared_gradients::merged);
    auto const b = train_on(clustered, sample_order::stored, {}, shared_gradients::merged);
    auto const c = train_on(clustered, sample_order::sessions, {}, shared_gradients::merged);
    auto const d = train_on(clustered, sample_order::stored, groups, shared_gradients::merged);
    auto const e = train_on(clustered, sample_order::stored, groups, shared_gradients::expanded);
    std::printf("%4lld  %.4f  %.4f     %.4f     %.4f             %.4f  %s\n", static_cast<long long>(seed), best, auc_of(exec, a, labels),
                auc_of(exec, b, labels), auc_of(exec, c, labels), auc_of(exec, d, labels), e == b ? "the same bits" : "OTHER BITS");
    std::fflush(stdout);
  }
}

}  // namespace

int main(int argc, char** argv) {
  settings s;
  CLI::App app("AUC of a model trained on session clicks in three orders, and with repeated rows kept once.");
  app.add_option("--rows", s.rows, "Training samples")->capture_default_str();
  app.add_option("--test-rows", s.test_rows, "Test samples")->capture_default_str();
  app.add_option("--batch", s.batch, "Samples of a batch")->capture_default_str();
  app.add_option("--scale", s.scale, "A by-th of the RM1-like set's features and sessions")->capture_default_str();
  app.add_option("--seeds", s.seeds, "Runs, each with data and start of its own")->capture_default_str();
  app.add_option("--epochs", s.epochs)->capture_default_str();
  app.add_option("--threads", s.threads)->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  run(s);
  return 0;
}
