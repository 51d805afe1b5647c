// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0

// Writes training and test data of planted clicks in Criteo's layout, and prints the best AUC that any model can reach on them: what a
// training run on the same files is measured against.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include <tessera/synth/expected_auc.hpp>
#include <tessera/synth/planted_clicks.hpp>
#include <tessera/synth/planted_log.hpp>
#include <tessera/tessera_files.hpp>

namespace {

struct settings {
  std::string folder;
  std::int64_t train_rows = 10'000'000;
  std::int64_t test_rows = 1'000'000;
  std::vector<std::int64_t> ids{100, 100, 200, 500, 1000, 2000, 10'000, 100'000};
  double exponent = 1.05;
  std::uint64_t seed = 1;
  tessera::planted_clicks_options planted{};
  int threads = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
};

void declare(CLI::App& app, settings& s) {
  auto const rows = CLI::Range(std::int64_t{1}, std::int64_t{1} << 40);
  app.add_option("folder", s.folder, "Where train.tsv and test.tsv are written")->required()->type_name("DIR");
  app.add_option("--train-rows", s.train_rows, "Training samples")->check(rows)->capture_default_str();
  app.add_option("--test-rows", s.test_rows, "Test samples, which follow them")->check(rows)->capture_default_str();
  app.add_option("--ids", s.ids, "Ids of each sparse feature")->delimiter(',')->capture_default_str();
  app.add_option("--exponent", s.exponent, "Of their Zipf law")->capture_default_str();
  app.add_option("--dense-features", s.planted.dense_features, "Dense features")->capture_default_str();
  app.add_option("--latent-dim", s.planted.latent_dim, "Of the vectors behind interactions")->capture_default_str();
  app.add_option("--base-rate", s.planted.base_rate, "Share of clicks")->capture_default_str();
  app.add_option("--dense-signal", s.planted.dense_signal, "Standard deviation of the logit's dense part")->capture_default_str();
  app.add_option("--linear-signal", s.planted.linear_signal, "Of the part linear in the ids")->capture_default_str();
  app.add_option("--interaction-signal", s.planted.interaction_signal, "Of the part of pairs of ids")->capture_default_str();
  app.add_option("--head-ids", s.planted.head_ids, "Ids of full effect in a feature")->capture_default_str();
  app.add_option("--tail-decay", s.planted.tail_decay, "Effects of others shrink with their rank to this power")->capture_default_str();
  app.add_option("--seed", s.seed, "Seed of model and samples")->capture_default_str();
  app.add_option("--threads", s.threads, "Threads; their number changes no byte")->check(CLI::Range(1, 4096))->capture_default_str();
}

void write(tessera::host_exec const& exec, tessera::planted_clicks const& clicks, char const* what, std::int64_t first, std::int64_t count,
           std::string const& path) {
  auto const started = std::chrono::steady_clock::now();
  std::vector<float> logits;
  logits.reserve(static_cast<std::size_t>(count));
  tessera::exact_auc auc;
  tessera::click_metrics metrics;
  tessera::write_planted_log(exec, clicks, first, count, path, [&](tessera::planted_samples const& samples) {
    logits.insert(logits.end(), samples.logits().begin(), samples.logits().end());
    auc.add(samples.logits(), samples.view().labels);
    metrics.add(exec, samples.logits(), samples.view().labels);
  });
  std::chrono::duration<double> const elapsed = std::chrono::steady_clock::now() - started;
  std::printf("%s %s: %lld samples, base rate %.4f, best auc %.5f (expected %.5f), best logloss %.5f, %.0f samples/s\n", what, path.c_str(),
              static_cast<long long>(count), metrics.base_rate(), auc.value(exec), tessera::expected_auc(exec, logits), metrics.log_loss(),
              static_cast<double>(count) / elapsed.count());
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Writes planted clicks in Criteo's layout and prints the best possible AUC.");
  settings s;
  declare(app, s);
  try {
    app.parse(argc, argv);
    tessera::thread_pool pool(s.threads);
    tessera::system_memory memory;
    tessera::host_exec const exec(pool, memory);
    s.planted.seed = tessera::random_seed{s.seed};
    for (auto const ids : s.ids) s.planted.features.push_back({.ids = ids, .exponent = s.exponent});
    tessera::planted_clicks const clicks(exec, s.planted);
    write(exec, clicks, "train", 0, s.train_rows, s.folder + "/train.tsv");
    write(exec, clicks, "test", s.train_rows, s.test_rows, s.folder + "/test.tsv");
    return 0;
  } catch (CLI::Error const& e) {
    return app.exit(e);
  } catch (std::exception const& e) {
    std::fprintf(stderr, "planted_clicks: %s\n", e.what());
    return 1;
  }
}
