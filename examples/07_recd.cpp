// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// example-target: tessera::parquet

// RecD from storage to trainer: a session-structured click log is generated, sharded, clustered, stored, read and trained on, with and without
// deduplication, side by side. One table, one HTML page, and a last line for machines.

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <string>
#include <thread>

#include <tessera/tessera_files.hpp>

#include "recd/report.hpp"
#include "recd/results.hpp"

namespace {

void run(recd::plan const& plan, int threads, std::string const& page) {
  tessera::thread_pool team(threads);
  tessera::system_memory memory;
  tessera::host_exec const exec(team, memory);
  std::filesystem::create_directories(plan.folder);
  recd::report report(plan);
  auto const stored = recd::store(exec, plan);
  report.add(stored);
  report.add(recd::read(exec, plan, stored));
  report.add_rm1(recd::train_rm1(exec, plan, stored));
  report.add(recd::train_set(exec, plan, "RM2-like", tessera::rm2_sessions()));
  report.add(recd::train_set(exec, plan, "RM3-like", tessera::rm3_sessions()));
  report.add_without_repeats(recd::train_without_repeats(exec, plan));
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
  CLI::App app("RecD from storage to trainer: what deduplication gains at each stage, measured side by side.");
  app.add_flag("--paper", paper, "the full set: 14,000 sessions open at once, twice the steps");
  app.add_option("--rows", plan.rows, "samples of the log")->capture_default_str();
  app.add_option("--batch", plan.batch, "samples of a batch")->capture_default_str();
  app.add_option("--steps", plan.steps, "steps that are timed, of each way to train")->capture_default_str();
  app.add_option("--scale", plan.scale, "takes one of so many features only")->capture_default_str()->check(CLI::PositiveNumber);
  app.add_option("--folder", plan.folder, "where the log's files go, some hundred MB; those of a run before are replaced")
      ->capture_default_str();
  app.add_option("--page", page, "the HTML page; empty: none")->capture_default_str();
  app.add_option("--threads", threads)->capture_default_str()->check(CLI::PositiveNumber);
  try {
    app.parse(argc, argv);
    if (paper) {
      if (app.get_option("--rows")->count() == 0) plan.rows = 262'144;
      if (app.get_option("--steps")->count() == 0) plan.steps = 12;
      plan.page_bytes = 1 << 18;
    }
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
