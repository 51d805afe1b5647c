// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0

// Trains a DLRM, DCN V2 or DeepFM on click logs in Criteo's layout, or on samples of sessions in Parquet files: reading, preprocessing,
// training, evaluation, checkpoints.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <tessera/tessera_files.hpp>

#include "support/click_job.hpp"
#include "support/command_line.hpp"
#include "support/folder_lock.hpp"
#include "support/output_files.hpp"
#include "support/settings.hpp"

namespace {

using namespace examples;

/// Finds out before the long read of the training data what would fail after it.
void check_paths(CLI::App& app, settings& s) {
  if (s.train.empty() && !s.eval_only) throw CLI::RequiredError("--train");
  if (s.test.empty()) throw CLI::RequiredError("--test");
  check_kind(app, s);
  for (auto const& [option, path] :
       {named_file("--checkpoint", s.checkpoint), {"--predict", s.predict}, {"--metrics", s.metrics}, {"--report", s.report}})
    if (path.empty() && app.get_option(option)->count() > 0) throw CLI::ValidationError(option, "an empty path");
  if (!s.eval_only)
    for (auto const& path : s.train) tessera::posix_file::open(path);
  tessera::posix_file::open(s.test);
  std::vector<named_file> inputs{{"--test", s.test}}, outputs{{"--predict", s.predict}, {"--metrics", s.metrics}, {"--report", s.report}};
  if (!s.eval_only)
    for (auto const& path : s.train) inputs.emplace_back("--train", path);
  check_distinct(inputs, outputs);
  check_apart(s, outputs);
}

/// Finds out whether a run may put checkpoints there.
void check_folder(settings const& s) {
  if (!s.resume && !tessera::list_step_folders(s.checkpoint).empty())
    throw CLI::ValidationError("--checkpoint",
                               s.checkpoint + " holds checkpoints of another run: go on from them with --resume, or name another folder");
  std::error_code ignored;
  if (std::filesystem::exists(s.checkpoint + "/manifest.json", ignored))
    throw CLI::ValidationError("--checkpoint", s.checkpoint +
                                                   " is a single checkpoint: name the folder above it, from whose newest "
                                                   "--resume goes on; where that is damaged, remove that step-... folder");
}

/// Finds what cannot be meant, once it is known what a checkpoint says.
void check_sense(CLI::App& app, settings& s) {
  auto const refuse = [](char const* option, std::string const& why) { throw CLI::ValidationError(option, why); };
  for (char const* const option : {"--cross-layers", "--cross-rank"})
    if (s.model != "dcn" && app.get_option(option)->count() > 0) refuse(option, "only a dcn has cross layers");
  if (s.lr_schedule != "constant" && s.decay_steps == 0) refuse("--lr-schedule", s.lr_schedule + " needs --decay-steps");
  if (s.lr_schedule == "constant" && (s.decay_start > 0 || s.decay_steps > 0)) refuse("--decay-steps", "needs another --lr-schedule");
  set_own_tables(app, s);
  bool const any_ftrl =
      s.optimizer == "ftrl" || s.embedding_optimizer == "ftrl" ||
      std::any_of(s.own_tables.begin(), s.own_tables.end(), [](auto const& own) { return own.second.embedding_optimizer == "ftrl"; });
  if ((s.lr_schedule != "constant" || s.warmup_steps > 0) && any_ftrl)
    refuse(s.warmup_steps > 0 ? "--warmup-steps" : "--lr-schedule", "ftrl computes weights anew from sums made at one rate");
  if (!s.progressive) return;
  if (app.get_option("--epochs")->count() == 0) s.epochs = 1;
  if (s.epochs != 1) refuse("--progressive", "after one epoch no batch is new: --epochs 1");
}

/// Of hashed tables: as good as no bound, so that no two categories share an id.
constexpr std::int64_t any_id = std::int64_t{1} << 62;

/// Reads the training data and, where no checkpoint has it, fits the preprocessing.
void read_training_data(click_job& j) {
  tessera::preprocessing_options const options{.dense = j.s.dense == "log" ? tessera::dense_scaling::log : tessera::dense_scaling::standard,
                                               .dense_as_category = j.s.dense_as_category == "on",
                                               .min_count = j.s.min_count,
                                               .hash_size = j.s.hash_table > 0 ? any_id : j.s.hash_size,
                                               .vocabulary_limit = j.s.vocabulary_limit};
  if (j.preprocess) {
    j.train.emplace(j.exec, j.s.train);
  } else {
    tessera::click_statistics statistics(tessera::preprocessing::needed_statistics(options));
    j.train.emplace(j.exec, j.s.train, statistics);
    j.preprocess = tessera::preprocessing::fit(j.exec, statistics, options);
  }
  std::printf("train: %lld samples\n", static_cast<long long>(j.train->rows()));
  std::string dropped;
  for (auto const& name : j.preprocess->dropped()) dropped += (dropped.empty() ? "" : ", ") + name;
  if (!dropped.empty()) std::printf("empty everywhere, dropped: %s\n", dropped.c_str());
  if (j.preprocess->sparse_features() == 0)
    throw tessera::error(tessera::errc::incompatible,
                         j.preprocess->dense_features() == 0
                             ? "option --train: all columns are empty"
                             : "option --train: no category column that is not empty; --dense-as-category on makes categories of integers");
}

void run_clicks(any_job base) {
  click_job j{std::move(base), {}, {}, {}};
  auto const& s = j.s;
  if (j.start) j.preprocess = tessera::load_preprocessing(j.exec, j.start->folder);
  j.test.emplace(j.exec, std::vector<std::string>{s.test});  // the shorter first: what is wrong in it shows at once
  std::printf("test: %lld samples\n", static_cast<long long>(j.test->rows()));
  if (!s.eval_only) read_training_data(j);
  run_job(j);
}

void run(CLI::App& app, settings& s) {
  check_paths(app, s);
  std::optional<folder_lock> lock;
  if (!s.checkpoint.empty() && !s.eval_only) {
    check_checkpoints(s.checkpoint);
    lock.emplace(s.checkpoint);
    check_folder(s);
  }
  // Outputs may lie in the folder of checkpoints, so they are tried only now that the folder has been made.
  for (auto const& [option, path] : {named_file("--predict", s.predict), named_file("--report", s.report)})
    if (!path.empty()) whole_file::check(option, path);
  metrics_file metrics(s);
  tessera::thread_pool pool(s.threads);
  tessera::system_memory memory;
  any_job base{s, tessera::host_exec(pool, memory), {}, metrics};
  if (s.resume || s.eval_only) {
    base.start = tessera::open_newest_checkpoint(s.checkpoint);
    adopt(app, base.start->state.options, s, base.start->folder + "/manifest.json");
  }
  check_sense(app, s);
  if (!s.reads_parquet()) return run_clicks(std::move(base));
#ifdef TESSERA_TRAIN_PARQUET
  run_sessions(std::move(base));
#endif
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app(
      "Trains a DLRM, DCN V2 or DeepFM on click logs in Criteo's layout, or a DLRM or DCN V2 on samples of sessions in Parquet files.");
  settings s;
  declare(app, s);
  std::signal(SIGPIPE, SIG_IGN);  // a reader that leaves its pipe is an error with a name, and the model is saved
  try {
    app.parse(argc, argv);
    run(app, s);
    if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0)
      throw tessera::error(tessera::errc::io_error, "cannot write to the standard output");
    return 0;
  } catch (CLI::Error const& e) {
    return app.exit(e);
  } catch (std::exception const& e) {
    std::fflush(stdout);
    std::fprintf(stderr, "train_ctr: %s\n", e.what());
    return 1;
  }
}
