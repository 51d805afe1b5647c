// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0

// Generates a log of session clicks and prints what its sessions and repeats are like, beside the numbers of the RecD paper; how fast it was
// made; the best AUC that any model can reach on it; and how near the model of deduplication comes to what clustered batches hold.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include <tessera/core/thread_team.hpp>
#include <tessera/data/dedupe_model.hpp>
#include <tessera/data/session_statistics.hpp>
#include <tessera/synth/expected_auc.hpp>
#include <tessera/synth/session_clicks.hpp>
#include <tessera/synth/session_sets.hpp>

namespace {

struct settings {
  std::string set = "paper";
  std::int64_t scale_down = 1;
  std::int64_t sessions = 14'000;
  std::int64_t one_session_in = 8;
  std::int64_t batch = 2048;
  std::int64_t batches = 100;
  std::uint64_t seed = 1;
  int threads = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
};

void declare(CLI::App& app, settings& s) {
  auto const positive = CLI::Range(std::int64_t{1}, std::int64_t{1} << 28);
  app.add_option("set", s.set, "Which ready-made set")
      ->check(CLI::IsMember({"paper", "rm1", "rm2", "rm3", "no_repeats"}))
      ->capture_default_str();
  app.add_option("--scale-down", s.scale_down, "Take a part of its features only")->check(positive)->capture_default_str();
  app.add_option("--sessions", s.sessions, "Sessions of the log, all in one window; 0: as the set has, for what batches hold")
      ->capture_default_str();
  app.add_option("--one-session-in", s.one_session_in, "Look for repeats in so many sessions only")->check(positive)->capture_default_str();
  app.add_option("--batch", s.batch, "Samples of the clustered batches")->check(positive)->capture_default_str();
  app.add_option("--batches", s.batches, "How many of them, at least")->check(positive)->capture_default_str();
  app.add_option("--seed", s.seed, "Seed of model and samples")->capture_default_str();
  app.add_option("--threads", s.threads, "Threads; their number changes nothing")->check(CLI::Range(1, 4096))->capture_default_str();
}

tessera::session_clicks_options options_of(settings const& s) {
  auto options = s.set == "rm1"     ? tessera::rm1_sessions()
                 : s.set == "rm2"   ? tessera::rm2_sessions()
                 : s.set == "rm3"   ? tessera::rm3_sessions()
                 : s.set == "paper" ? tessera::paper_sessions()
                                    : tessera::no_repeats();
  auto const window = options.window_sessions;
  options = tessera::scaled_down(options, s.scale_down);
  options.window_sessions = s.sessions > 0 ? s.sessions : window;
  options.seed = tessera::random_seed{s.seed};
  return options;
}

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void print_log(tessera::host_exec const& exec, settings const& s) {
  auto options = options_of(s);
  options.windows = 1;
  tessera::session_clicks log(exec, options);
  tessera::session_statistics_options measured;
  measured.one_session_in = s.one_session_in;
  tessera::session_statistics statistics(static_cast<std::int64_t>(options.features.size()), measured);
  tessera::sample_columns rows(log.schema());
  std::vector<float> logits;
  double seconds = 0, ids = 0;
  for (;;) {
    auto const start = std::chrono::steady_clock::now();
    auto const count = log.next(exec, 4096, rows);
    seconds += seconds_since(start);
    if (count == 0) break;
    statistics.add(exec, rows.view());
    for (auto const& column : rows.view().sparse) ids += static_cast<double>(column.size());
    logits.insert(logits.end(), log.logits().begin(), log.logits().end());
  }
  auto const samples = static_cast<double>(statistics.samples());
  std::printf("%s: %zu sparse features, %.0f samples of %lld sessions, %.0f ids a sample, best auc %.4f\n", s.set.c_str(),
              options.features.size(), samples, static_cast<long long>(statistics.sessions()), ids / samples,
              tessera::expected_auc(exec, logits));
  std::printf("made at %.0f samples/s, %.0f MB/s of ids, generator %.0f MB, statistics %.0f MB\n\n", samples / seconds,
              8e-6 * ids / seconds, 1e-6 * static_cast<double>(log.bytes()), 1e-6 * static_cast<double>(statistics.bytes()));
  auto const means = statistics.means();
  auto const histogram = statistics.histogram();
  std::int64_t beyond = 0;
  for (auto const& [n, count] : histogram) beyond += n > 1000 ? count : 0;
  std::printf("%-44s %8s %8s\n", "", "paper", "here");
  std::printf("%-44s %8.2f %8.2f\n", "samples a session", 16.5, statistics.samples_per_session());
  std::printf("%-44s %8.2f %8.2f\n", "samples a session in 4,096", 1.15, statistics.samples_per_session_in_batch());
  std::printf("%-44s %8s %8lld\n", "sessions of more than 1,000 samples", "a tail", static_cast<long long>(beyond));
  std::printf("%-44s %8s %8lld\n", "samples of the longest", "> 1000", static_cast<long long>(histogram.rbegin()->first));
  std::printf("%-44s %8.1f %8.1f\n", "most exact duplicates possible, %", 93.9, 100 * statistics.most_exact());
  std::printf("%-44s %8.1f %8.1f\n", "exact duplicates, mean of features, %", 80.0, 100 * means.exact);
  std::printf("%-44s %8.1f %8.1f\n", "partial duplicates, mean of features, %", 83.9, 100 * means.partial);
  std::printf("%-44s %8.1f %8.1f\n", "exact duplicates by bytes, %", 81.6, 100 * means.exact_by_bytes);
  std::printf("%-44s %8.1f %8.1f\n\n", "partial duplicates by bytes, %", 89.4, 100 * means.partial_by_bytes);
}

// Batches of sessions that stand together, from windows of some thousand samples.
void print_model(tessera::host_exec const& exec, settings const& s) {
  auto options = options_of(s);
  options.window_sessions = static_cast<std::int64_t>(static_cast<double>(3 * s.batch) / options.mean_samples) + 1;
  tessera::session_clicks log(exec, options);
  tessera::sample_columns window(log.schema()), batch(log.schema());
  std::vector<double> predicted(options.features.size(), 0), measured = predicted;
  std::int64_t batches = 0;
  std::string groups;
  while (batches < s.batches) {
    log.next_window(exec, window);
    auto const sorted = tessera::sorted_by(exec, window, log.session_numbers());
    if (batches == 0)
      for (auto const& group : tessera::recommend_groups(exec, window.view()).groups)
        if (group.size() > 1) groups += " " + std::to_string(group.size());
    for (std::int64_t first = 0; first + s.batch <= window.size(); first += s.batch, ++batches) {
      batch.clear();
      batch.append(exec, sorted.view(), first, s.batch);
      auto const repeats = tessera::measure_batch(exec, batch.view());
      for (std::size_t f = 0; f < predicted.size(); ++f) {
        predicted[f] += repeats.predicted_length(static_cast<std::int64_t>(f));
        measured[f] += static_cast<double>(repeats.measured_length(static_cast<std::int64_t>(f)));
      }
    }
  }
  double worst = 0;
  for (std::size_t f = 0; f < predicted.size(); ++f) worst = std::max(worst, std::abs(predicted[f] / measured[f] - 1));
  std::printf("%lld clustered batches of %lld: DedupeLen off by %.2f %% at most over %zu features; groups of several features:%s\n",
              static_cast<long long>(batches), static_cast<long long>(s.batch), 100 * worst, predicted.size(),
              groups.empty() ? " none" : groups.c_str());
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Prints the statistics of synthetic logs in sessions beside those of the RecD paper.");
  settings s;
  declare(app, s);
  try {
    app.parse(argc, argv);
    tessera::thread_pool pool(s.threads);
    tessera::system_memory memory;
    tessera::host_exec const exec(pool, memory);
    print_log(exec, s);
    print_model(exec, s);
    return 0;
  } catch (CLI::Error const& e) {
    return app.exit(e);
  } catch (std::exception const& e) {
    std::fprintf(stderr, "session_statistics: %s\n", e.what());
    return 1;
  }
}
