// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// example-target: tessera::parquet

// RecD from storage to trainer: a session-structured click log is generated, sharded, clustered, stored, read and trained on, with and without
// deduplication, side by side. One table, one HTML page, and a last line for machines.

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <string>
#include <thread>

#include <tessera/core/execution.hpp>
#include <tessera/core/memory.hpp>
#include <tessera/core/thread_team.hpp>
#include <tessera/synth/session_options.hpp>
#include <tessera/synth/session_sets.hpp>

#include "recd/report.hpp"
#include "recd/results.hpp"

namespace {

// What a stage gives, after it has told how long it took.
template <class Stage>
auto timed(std::string const& name, Stage const& stage) {
  std::printf("%s\n", name.c_str());
  std::fflush(stdout);
  auto const start = std::chrono::steady_clock::now();
  auto result = stage();
  std::printf("  %.0f s\n", std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  return result;
}

void train(tessera::host_exec const& exec, recd::plan const& plan, recd::storage_result const& stored, recd::report& report) {
  report.add_rm1(timed("training, RM1-like", [&] { return recd::train_rm1(exec, plan, stored); }));
  report.add_fewer(timed("training, RM1-like, fewer transformers", [&] { return recd::train_with_fewer(exec, plan, stored); }));
  auto const train_set = [&](std::string const& name, tessera::session_clicks_options const& set) {
    report.add(timed("training, " + name, [&] { return recd::train_set(exec, plan, name, set); }));
#ifdef TESSERA_RECD_DNNL
    if (recd::has_bf16(exec))
      report.add(timed("training, " + name + ", bf16", [&] { return recd::train_set_by_bf16(exec, plan, name + ", bf16", set); }));
#endif
  };
  train_set("RM2-like", tessera::rm2_sessions());
  train_set("RM3-like", tessera::rm3_sessions());
  report.add_without_repeats(timed("training, no repeats", [&] { return recd::train_without_repeats(exec, plan); }));
}

void run(recd::plan const& plan, int threads, std::string const& page) {
  tessera::thread_pool team(threads);
  tessera::system_memory memory;
  tessera::host_exec const exec(team, memory);
  std::filesystem::create_directories(plan.folder);
  recd::report report(plan);
  report.add(timed("what repeats, in a log fitted to the paper's", [&] { return recd::fitted_repeats(exec, plan); }));
  auto const stored = timed("storage", [&] { return recd::store(exec, plan); });
  report.add(stored);
  report.add(timed("readers", [&] { return recd::read(exec, plan, stored); }));
  if (plan.ranks > 1) report.add(timed("ranks", [&] { return recd::train_on_ranks(exec, plan, stored); }));
  if (plan.trains) train(exec, plan, stored, report);
  report.print();
  if (!page.empty()) report.write_page(page);
  report.print_last_line();
}

}  // namespace

int main(int argc, char** argv) {
  recd::plan plan;
  plan.folder = "recd_files";
  std::string page = "recd.html";
  int threads = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  bool paper = false;
  std::string log = "fitted";
  CLI::App app("RecD from storage to trainer: what deduplication gains at each stage, measured side by side.");
  app.add_flag("--paper", paper, "a log four times as long, of which 16,000 sessions are open at once");
  app.add_option("--log", log, "what is stored, read and trained on: the log fitted to the paper's Figures 3 and 4, or the RM1-like set")
      ->capture_default_str()
      ->check(CLI::IsMember({"fitted", "rm1"}));
  app.add_option("--rows", plan.rows, "samples of the log, about")->capture_default_str()->check(CLI::PositiveNumber);
  app.add_option("--batch", plan.batch, "samples of a batch")->capture_default_str()->check(CLI::PositiveNumber);
  app.add_option("--steps", plan.steps, "steps that are timed, of each way to train and round, after one that is not")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  app.add_option("--rounds", plan.rounds, "how often ways take turns; medians are of the steps, and epochs, of all rounds")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  app.add_option("--transformers", plan.transformers, "RM1-like also trains with so many groups pooled by a transformer, all others by sum")
      ->capture_default_str()
      ->delimiter(',')
      ->check(CLI::NonNegativeNumber);
  app.add_flag("!--no-training", plan.trains, "storage, readers and ranks alone");
  app.add_option("--ranks", plan.ranks, "also trains on so many ranks, threads of this process, and counts what they read and send")
      ->capture_default_str()
      ->check(CLI::Range(1, 1024));
  app.add_option("--hosts", plan.hosts, "on so many hosts, each of as many ranks: bytes between them are counted apart")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  app.add_option("--rank-steps", plan.rank_steps, "steps of each way on ranks; 0: an epoch")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  app.add_option("--rank-transformers", plan.rank_transformers, "groups of sequences that a transformer pools there, all others by sum")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  app.add_option("--scale", plan.scale, "takes one of so many features only")->capture_default_str()->check(CLI::PositiveNumber);
  app.add_option("--source-mb-per-second", plan.source_mb_per_second, "what the remote file's source lets through")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  app.add_option("--folder", plan.folder, "where the log's files go, some hundred MB; those of a run before are replaced")
      ->capture_default_str();
  app.add_option("--page", page, "the HTML page; empty: none")->capture_default_str();
  app.add_option("--threads", threads)->capture_default_str()->check(CLI::PositiveNumber);
  try {
    app.parse(argc, argv);
    plan.fitted = log == "fitted";
    if (plan.ranks % plan.hosts != 0) throw CLI::ValidationError("--hosts", "each has as many ranks");
    if (plan.ranks > plan.batch) throw CLI::ValidationError("--ranks", "more than a batch has samples");
    if (paper && app.get_option("--rows")->count() == 0) plan.rows = 262'144;
    run(plan, threads, page);
    return 0;
  } catch (CLI::Error const& e) {
    return app.exit(e);
  } catch (std::exception const& e) {
    std::fflush(stdout);
    std::fprintf(stderr, "recd: %s\n", e.what());
    return 1;
  }
}
