// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// example-unit: training

// Trains a DLRM, DCN V2 or DeepFM on click logs in text or Parquet files: reading, preprocessing, training, evaluation, checkpoints. And says what
// a log is like.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <tessera/comm/any_communicator.hpp>
#include <tessera/comm/codec.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/memory.hpp>
#include <tessera/core/thread_team.hpp>
#include <tessera/files/posix_file.hpp>
#include <tessera/files/step_folders.hpp>
#include <tessera/train/checkpoint_folder.hpp>

#include "support/cluster_job.hpp"
#include "support/command_line.hpp"
#include "support/data_columns.hpp"
#include "support/data_files.hpp"
#include "support/folder_lock.hpp"
#include "support/output_files.hpp"
#include "support/profile_job.hpp"
#include "support/ranks.hpp"
#include "support/settings.hpp"
#include "support/training_job.hpp"

namespace {

using namespace examples;

/// Finds out before the long read of the training data what would fail after it.
void check_paths(CLI::App& app, settings& s) {
  if (s.train.empty() && !s.eval_only) throw CLI::RequiredError("--train");
  if (s.test.empty()) throw CLI::RequiredError("--test");
  for (auto const& [option, path] : {named_file("--checkpoint", s.checkpoint),
                                     {"--predict", s.predict},
                                     {"--metrics", s.metrics},
                                     {"--report", s.report},
                                     {"--plan-samples", s.plan_samples}})
    if (path.empty() && app.get_option(option)->count() > 0) throw CLI::ValidationError(option, "an empty path");
  std::vector<named_file> inputs,
      outputs{{"--predict", s.predict}, {"--metrics", s.metrics}, {"--report", s.report}, {"--plan-samples", s.plan_samples}};
  for (auto const& path : named_files("--test", s.test)) inputs.emplace_back("--test", path);
  if (!s.eval_only)
    for (auto const& path : named_files("--train", s.train)) inputs.emplace_back("--train", path);
  for (auto const& [option, path] : inputs) tessera::posix_file::open(path);
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

/// Finds what cannot be meant of towers.
void check_towers(CLI::App& app, settings const& s) {
  auto const refuse = [](char const* option, std::string const& why) { throw CLI::ValidationError(option, why); };
  auto const given = [&](char const* option) { return app.get_option(option)->count() > 0; };
  if (s.has_modules() && s.model == "deepfm") refuse("--tower-module", s.tower_module + ": of a dlrm or a dcn; a deepfm has none");
  for (char const* const option : {"--tower-dim", "--tower-p", "--tower-c"})
    if (!s.has_modules() && given(option)) refuse(option, "of a --tower-module alone");
  if (s.has_modules() && s.tower_module != "dlrm" && given("--tower-c"))
    refuse("--tower-c", "of --tower-module dlrm alone, not of " + s.tower_module);
  if (!s.has_towers() && given("--towers"))
    refuse("--towers", s.towers + ": of --exchange sptt or a --tower-module; --exchange is " + s.exchange);
  if (!s.learns_towers() && given("--tower-probe")) refuse("--tower-probe", "of --towers learn alone");
  if (s.learns_towers() && s.progressive)
    refuse("--towers", s.towers + ": from samples that --progressive tests before they are trained on: name T or a file");
  if (s.plan == "cut" && s.exchange != "sptt") refuse("--plan", "cut: with --exchange sptt alone; --exchange is " + s.exchange);
  if (s.exchange != "sptt") return;
  if (s.plan == "round-robin")
    refuse("--plan", "round-robin: tables of a tower lie on its hosts: bytes, cut, or a file, with --exchange sptt");
  if (s.dedup_sums == "expanded") refuse("--dedup-sums", "expanded: with --exchange flat and two-hop alone");
}

/// Finds what cannot be meant of hot rows.
void check_hot(CLI::App& app, settings const& s) {
  auto const refuse = [](char const* option, std::string const& why) { throw CLI::ValidationError(option, why); };
  for (char const* const option : {"--hot-schedule", "--hot-batches"})
    if (!s.has_hot_rows() && app.get_option(option)->count() > 0) refuse(option, "with a --hot-budget alone");
  if (!s.has_hot_rows()) return;
  if (s.has_towers()) refuse("--hot-budget", "with --exchange flat and two-hop, without tower modules");
  if (s.read == "blocks") refuse("--hot-budget", "ranks read the same batches: --read slices");
  if (s.progressive) refuse("--hot-budget", "--progressive tests samples in the order of the files, and hot ones come apart");
  if (s.dedup_sums == "expanded") refuse("--hot-budget", "with --dedup-sums merged alone");
  if (s.ids_ahead > 0) refuse("--hot-budget", "what comes next may hang on the test loss: --ids-ahead 0");
}

/// Finds what cannot be meant, once it is known what a checkpoint says.
void check_sense(CLI::App& app, settings& s) {
  auto const refuse = [](char const* option, std::string const& why) { throw CLI::ValidationError(option, why); };
  try {
    tessera::parse_exchange_codecs(s.codec);
  } catch (tessera::error const& e) {
    refuse("--codec", e.what());
  }
  for (char const* const option : {"--cross-layers", "--cross-rank"}) {
    bool const of_tower = std::string_view(option) == "--cross-rank" && s.tower_module == "dcn";
    if (s.model != "dcn" && !of_tower && app.get_option(option)->count() > 0) refuse(option, "only a dcn has cross layers");
  }
  check_towers(app, s);
  check_hot(app, s);
  if (s.lr_schedule != "constant" && s.decay_steps == 0) refuse("--lr-schedule", s.lr_schedule + " needs --decay-steps");
  if (s.lr_schedule == "constant" && (s.decay_start > 0 || s.decay_steps > 0)) refuse("--decay-steps", "needs another --lr-schedule");
  set_own_tables(app, s);
  bool const any_ftrl =
      s.optimizer == "ftrl" || s.embedding_optimizer == "ftrl" ||
      std::any_of(s.own_tables.begin(), s.own_tables.end(), [](auto const& own) { return own.second.embedding_optimizer == "ftrl"; });
  if ((s.lr_schedule != "constant" || s.warmup_steps > 0) && any_ftrl)
    refuse(s.warmup_steps > 0 ? "--warmup-steps" : "--lr-schedule", "ftrl computes weights anew from sums made at one rate");
  if (s.bucket_bytes > 0 && s.chunks() > 0) refuse("--bucket-bytes", "fixed sums begin after the backward: --sums ranks");
  if (s.bucket_bytes > 0 && s.clip_norm > 0) refuse("--bucket-bytes", "sums of gradients that are clipped begin after the backward");
  if (s.read == "blocks" && s.chunks() > 0) refuse("--read", "ranks that read blocks run dry, and have no whole chunks: --sums ranks");
  if (s.read == "blocks" && s.progressive) refuse("--progressive", "samples are tested in the order of the files: --read slices");
  if (!s.progressive) return;
  if (app.get_option("--epochs")->count() == 0) s.epochs = 1;
  if (s.epochs != 1) refuse("--progressive", "after one epoch no batch is new: --epochs 1");
}

void run(CLI::App& app, settings& s) {
  check_paths(app, s);
  rank_group ranks(s.ranks, s.time_limit);
  s.speaks = ranks.has_first();
  s.plan_is_given = app.get_option("--plan")->count() > 0;
  if (app.get_option("--threads")->count() == 0) s.threads = std::max(1, s.threads / ranks.here());
  std::optional<folder_lock> lock;
  std::optional<tessera::open_checkpoint> start;
  std::optional<metrics_file> metrics;
  auto const prepare = [&](tessera::any_communicator processes) {
    tessera::serial_team team;
    tessera::system_memory memory;
    tessera::host_exec const exec(team, memory);
    if (!s.checkpoint.empty() && !s.eval_only) {
      check_checkpoints(s.checkpoint);
      if (s.speaks) lock.emplace(s.checkpoint);
      check_folder(s);
      if (processes.size() > 1) tessera::check_shared_folder(exec, processes, s.checkpoint);
    }
    // Outputs may lie in the folder of checkpoints, so they are tried only now that the folder has been made.
    for (auto const& [option, path] : {named_file("--predict", s.predict), named_file("--report", s.report)})
      if (!path.empty() && s.speaks) whole_file::check(option, path);
    metrics.emplace(s.speaks ? s : settings());
    if (s.resume || s.eval_only) {
      start = processes.size() == 1 ? tessera::open_newest_checkpoint(s.checkpoint)
                                    : tessera::open_newest_checkpoint(exec, processes, s.checkpoint);
      adopt(app, start->state.options, s, start->folder + "/manifest.json");
    }
    check_sense(app, s);
  };
  ranks.run(prepare, [&](tessera::any_communicator comm) {
    tessera::thread_pool pool(s.threads);
    tessera::system_memory memory;
    metrics_file nowhere{settings()};
    bool const writes = comm.rank() == 0;
    training_job job({s, tessera::host_exec(pool, memory), start, writes ? *metrics : nowhere, std::move(comm)});
    run_job(job);
  });
}

std::vector<named_file> as_inputs(char const* option, std::vector<std::string> const& files) {
  std::vector<named_file> inputs;
  for (auto const& path : files) inputs.emplace_back(option, path);
  return inputs;
}

/// `train_ctr profile FILE...`: what the columns of a log hold.
void profile(CLI::App& app, settings& s, profile_settings& p) {
  auto const files = named_files("FILE", s.train);
  for (auto const& path : files) tessera::posix_file::open(path);
  tessera::thread_pool pool(s.threads);
  tessera::system_memory memory;
  tessera::host_exec const exec(pool, memory);
  if (app.count("--json") > 0 && p.json.empty()) throw CLI::ValidationError("--json", "an empty path");
  check_distinct(as_inputs("FILE", files), {{"--json", p.json}});
  run_profile(files, describe_columns(s, files[0]), exec, p);
}

void declare_profile(CLI::App& app, settings& s, profile_settings& p) {
  app.add_option("FILE", s.train, "The log: as of --train")->required();
  declare_columns(app, s);
  app.add_option("--json", p.json, "Write the profile there, too")->type_name("FILE.json");
  app.add_option("--threads", s.threads, "Threads; their number changes no result")->transform(integer(1, 4096))->capture_default_str();
}

/// `train_ctr cluster IN... OUT`: a log in the order of its sessions, as Parquet.
void cluster(settings& s, cluster_settings c) {
  if (s.train.size() < 2) throw CLI::RequiredError("IN and OUT");
  c.out = s.train.back();
  s.train.pop_back();
  if (kind_of(c.out) != file_kind::parquet) throw CLI::ValidationError("OUT", "a name that ends in .parquet or .pq: " + c.out);
  c.in = named_files("IN", s.train);
  for (auto const& path : c.in) tessera::posix_file::open(path);
  check_distinct(as_inputs("IN", c.in), {{"OUT", c.out}});
  c.session_column = s.session_column;
  c.time_column = s.time_column;
  tessera::thread_pool pool(s.threads);
  tessera::system_memory memory;
  tessera::host_exec const exec(pool, memory);
  if (kind_of(c.in[0]) == file_kind::parquet) {
    if (!s.columns.empty()) {
      auto const named = describe_columns(s, c.in[0]).schema;
      c.session_column = named.session;
      c.time_column = named.time;
    }
    if (c.session_column.empty()) throw CLI::RequiredError("--session-column");
    run_cluster(exec, c);
    return;
  }
  auto const data = describe_columns(s, c.in[0]);
  if (data.schema.session.empty()) throw CLI::RequiredError("--session-column");
  run_cluster(exec, open_any_files(exec, c.in, data), c);
}

void declare_cluster(CLI::App& app, settings& s, cluster_settings& c) {
  app.add_option("IN... OUT", s.train, "The log, as of --train, then the Parquet file to write")->required();
  declare_columns(app, s);
  app.add_option("--memory-mb", c.memory_mb, "Megabytes that sorting takes")
      ->transform(integer(std::int64_t{16}, std::int64_t{1} << 30))
      ->capture_default_str();
  app.add_flag("--whole-sessions", c.whole_sessions, "Row groups end with sessions");
  app.add_option("--threads", s.threads, "Threads; their number changes no result")->transform(integer(1, 4096))->capture_default_str();
}

}  // namespace

int main(int argc, char** argv) {
  std::string const command = argc > 1 ? argv[1] : "";
  bool const profiles = command == "profile", clusters = command == "cluster";
  CLI::App app(
      profiles
          ? "Says what the columns of a log hold: missing values, distinct ids, lengths of lists, how unevenly ids are looked up, repeats."
      : clusters ? "Writes a log in the order of its sessions, as Parquet, with all its columns; of text those that are named."
                 : "Trains a DLRM, DCN V2 or DeepFM on click logs in text or Parquet files.",
      profiles || clusters ? "train_ctr " + command : "train_ctr");
  settings s;
  profile_settings p;
  cluster_settings c;
  if (profiles)
    declare_profile(app, s, p);
  else if (clusters)
    declare_cluster(app, s, c);
  else
    declare(app, s);
  std::signal(SIGPIPE, SIG_IGN);  // a reader that leaves its pipe is an error with a name, and the model is saved
  try {
    int const words = profiles || clusters ? 1 : 0;
    app.parse(argc - words, argv + words);
    if (profiles)
      profile(app, s, p);
    else if (clusters)
      cluster(s, c);
    else
      run(app, s);
    if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0)
      throw tessera::error(tessera::errc::io_error, "cannot write to the standard output");
    return 0;
  } catch (CLI::Error const& e) {
    if (auto const rank = launched_rank(); rank > 0 && e.get_exit_code() != 0) {
      std::fprintf(stderr, "train_ctr: rank %d: %s\n", rank, e.what());
      return e.get_exit_code();
    }
    return app.exit(e);
  } catch (std::exception const& e) {
    std::fflush(stdout);
    auto const rank = launched_rank();
    std::fprintf(stderr, "train_ctr: %s%s\n", rank > 0 ? text("rank %d: ", rank).c_str() : "", e.what());
    return 1;
  }
}
