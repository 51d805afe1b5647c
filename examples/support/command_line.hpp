// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/CLI.hpp>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <system_error>

#include <nlohmann/json.hpp>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/files/json.hpp>

#include "settings.hpp"

namespace examples {

/// What the values of options are checked with.
struct value_checks {
  static float number(std::string const& text) {
    char* end = nullptr;
    auto const value = std::strtof(text.c_str(), &end);
    return !text.empty() && *end == 0 && std::isfinite(value) ? value : -1;
  }
  static bool integer_from(std::string const& text, std::int64_t least) {
    std::int64_t value = 0;
    auto const [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
    return failure == std::errc() && end == text.data() + text.size() && value >= least;
  }

  CLI::Validator positive_integer{
      [](std::string& text) { return integer_from(text, 1) ? std::string() : "not a positive integer: " + text; }, "POSITIVE"};
  CLI::Validator count{[](std::string& text) { return integer_from(text, 0) ? std::string() : "not an integer from 0 on: " + text; },
                       "COUNT"};
  CLI::Validator positive{[](std::string& text) { return number(text) > 0 ? std::string() : "not a positive number: " + text; },
                          "POSITIVE"};
  CLI::Validator not_negative{[](std::string& text) { return number(text) >= 0 ? std::string() : "not a number from 0 on: " + text; },
                              "NUMBER"};
  CLI::Validator init{[](std::string& text) {
                        return text == "rows" || number(text) >= 0 ? std::string() : "neither a number from 0 on nor 'rows': " + text;
                      },
                      "X|rows"};
  CLI::Validator unsigned_number{[](std::string& text) { return text.starts_with('-') ? "negative: " + text : std::string(); }, "UINT"};
};

inline void declare_model(CLI::App& app, settings& s, value_checks const& c) {
  app.add_option("--model", s.model, "Model")->check(CLI::IsMember({"dlrm", "dcn", "deepfm"}))->capture_default_str();
  app.add_option("--embedding-dim", s.embedding_dim, "Elements of an embedding row; DeepFM adds a first-order weight")
      ->check(CLI::Range(1, 1 << 16))
      ->capture_default_str();
  app.add_option("--bottom", s.bottom, "Hidden layers of the bottom MLP; the embedding dim is appended")
      ->delimiter(',')
      ->check(c.positive_integer)
      ->capture_default_str();
  app.add_option("--top", s.top, "Hidden layers of the top MLP; 1 is appended")
      ->delimiter(',')
      ->check(c.positive_integer)
      ->capture_default_str();
  auto* const hash = app.add_option("--hash-size", s.hash_size,
                                    "Hash categories to so many rows a table instead of a vocabulary; ids of Parquet files always, "
                                    "to 100000 unless this says otherwise")
                         ->check(c.positive_integer);
  app.add_option("--min-count", s.min_count, "Values seen fewer times in training share a row")
      ->check(c.positive_integer)
      ->capture_default_str()
      ->excludes(hash);
  app.add_option("--vocabulary-limit", s.vocabulary_limit, "At most so many values a column, the most frequent, in bounded memory; 0: all")
      ->check(c.count)
      ->capture_default_str()
      ->excludes(hash);
  app.add_option("--dense", s.dense, "log: ln(x + 1); standard: mean 0, deviation 1, of TSV alone; stored: as it is, of Parquet alone")
      ->check(CLI::IsMember({"log", "standard", "stored"}))
      ->capture_default_str();
  app.add_option("--dense-as-category", s.dense_as_category, "Integers are categories too")
      ->check(CLI::IsMember({"on", "off"}))
      ->capture_default_str();
  app.add_option("--embedding-init", s.embedding_init, "Rows start uniform in ±X; rows: X = 1/sqrt(rows of the table)")
      ->check(c.init)
      ->capture_default_str();
  app.add_option("--cross-layers", s.cross_layers, "Cross layers of a DCN")->check(c.count)->capture_default_str();
  app.add_option("--cross-rank", s.cross_rank, "Rank of their matrices; 0: full")->check(c.count)->capture_default_str();
  app.add_option("--row-format", s.row_format, "How embedding rows are stored; all but fp32 are rounded stochastically")
      ->check(CLI::IsMember({"fp32", "fp16", "bf16", "int8"}))
      ->capture_default_str();
}

inline void declare_training(CLI::App& app, settings& s, value_checks const& c) {
  app.add_option("--embedding-optimizer", s.embedding_optimizer, "Optimizer of the embedding rows")
      ->check(CLI::IsMember({"sgd", "momentum", "rowwise-adagrad", "adagrad", "adam", "rowwise-adam", "ftrl"}))
      ->capture_default_str();
  app.add_option("--embedding-lr", s.embedding_lr, "Its learning rate")->check(c.positive)->capture_default_str();
  app.add_option("--embedding-weight-decay", s.embedding_weight_decay, "Share of itself that a touched row's gradient grows by")
      ->check(c.not_negative)
      ->capture_default_str();
  app.add_option("--optimizer", s.optimizer, "Optimizer of the dense parameters")
      ->check(CLI::IsMember({"sgd", "momentum", "adagrad", "adam", "ftrl"}))
      ->capture_default_str();
  app.add_option("--lr", s.lr, "Its learning rate")->check(c.positive)->capture_default_str();
  app.add_option("--lr-schedule", s.lr_schedule, "How both rates fall to 0 during --decay-steps, after --decay-start steps")
      ->check(CLI::IsMember({"constant", "linear", "quadratic"}))
      ->capture_default_str();
  app.add_option("--warmup-steps", s.warmup_steps, "Steps during which both rates rise to their value")
      ->check(c.count)
      ->capture_default_str();
  app.add_option("--decay-start", s.decay_start, "Steps before the rates fall")->check(c.count)->capture_default_str();
  app.add_option("--decay-steps", s.decay_steps, "Steps that their fall takes")->check(c.count)->capture_default_str();
  app.add_option("--clip-norm", s.clip_norm, "Gradients are scaled down to this norm over all parameters; 0: never")
      ->check(c.not_negative)
      ->capture_default_str();
  app.add_option("--batch-size", s.batch_size, "Samples a step")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 24))
      ->capture_default_str();
  app.add_option("--epochs", s.epochs, "Passes over the training data")->check(c.positive_integer)->capture_default_str();
  app.add_flag("--progressive", s.progressive, "Test each batch before it is trained on; one epoch, samples in the order of the files");
}

/// Options of Parquet files, which those of TSV files know nothing of.
inline constexpr char const* parquet_options[] = {"--label-column", "--dense-columns", "--sparse-columns",   "--session-column",
                                                  "--time-column",  "--pooling",       "--attention-target", "--max-length",
                                                  "--order",        "--dedup",         "--dedup-sums"};
/// And the other way round.
inline constexpr char const* tsv_options[] = {"--min-count", "--vocabulary-limit", "--dense-as-category"};

inline void declare_columns(CLI::App& app, settings& s, value_checks const& c) {
  app.add_option("--label-column", s.label_column, "Parquet: the column of labels, 0 or 1")->type_name("NAME")->capture_default_str();
  app.add_option("--dense-columns", s.dense_columns, "Parquet: columns of numbers")->type_name("NAME,...");
  app.add_option("--sparse-columns", s.sparse_columns, "Parquet: columns of ids or lists of ids")->type_name("NAME,...");
  app.add_option("--session-column", s.session_column, "Parquet: an integer that samples of one session share")->type_name("NAME");
  app.add_option("--time-column", s.time_column, "Parquet: when samples were; in its order --dedup auto looks at sessions")
      ->type_name("NAME");
  app.add_option("--pooling", s.pooling,
                 "Parquet: how lists become a vector: sum (those not named), mean, max, attention (to a target), "
                 "transformer; A+B=KIND puts the lists of several columns together")
      ->type_name("NAME=KIND,...");
  app.add_option("--attention-target", s.attention_target, "Parquet: the column that attention looks at; the last of those pooled by sum")
      ->type_name("NAME");
  app.add_option("--max-length", s.max_length, "Parquet: lists are cut to their last so many ids")->check(c.positive_integer);
  app.add_option("--order", s.order,
                 "Parquet: in which order to train, blocks shuffled but for stored; sessions where there is a "
                 "--session-column, else samples")
      ->check(CLI::IsMember({"stored", "samples", "sessions"}));
  app.add_option("--dedup", s.dedup,
                 "Parquet: columns whose repeated lists a batch has once: auto (what the first samples suggest, where "
                 "there is a --session-column), off, or groups of columns that repeat together")
      ->type_name("auto|off|A+B,C,...")
      ->capture_default_str();
  app.add_option("--dedup-sums", s.dedup_sums,
                 "Parquet: gradients of repeated lists: merged, or expanded, slower, with the bits of --dedup off")
      ->check(CLI::IsMember({"merged", "expanded"}))
      ->capture_default_str();
}

inline void declare(CLI::App& app, settings& s) {
  value_checks const c;
  app.add_option("--train", s.train, "Training data: Criteo-layout TSV files, or Parquet files")->type_name("FILE");
  app.add_option("--test", s.test, "Test data, in the same layout")->type_name("FILE");
  declare_columns(app, s, c);
  declare_model(app, s, c);
  declare_training(app, s, c);
  app.add_option("--threads", s.threads, "Threads; their number changes no result")->check(CLI::Range(1, 4096))->capture_default_str();
  app.add_option("--pipeline", s.pipeline, "With 2 threads or more, one reads batches and sorts their ids ahead; changes no result")
      ->check(CLI::IsMember({"on", "off"}))
      ->capture_default_str();
  app.add_option("--seed", s.seed, "Seed of initial weights and shuffling")->check(c.unsigned_number)->capture_default_str();
  auto* const checkpoint =
      app.add_option("--checkpoint", s.checkpoint, "Folder for checkpoints; the newest two are kept")->type_name("DIR");
  app.add_option("--checkpoint-every", s.checkpoint_every, "Steps from one checkpoint to the next; there is one at the end too")
      ->check(c.positive_integer)
      ->needs(checkpoint);
  auto* const resume =
      app.add_flag("--resume", s.resume, "Go on from the newest checkpoint with its settings, as if the run had never stopped")
          ->needs(checkpoint);
  app.add_flag("--eval-only", s.eval_only, "Test the newest checkpoint, train nothing")->needs(checkpoint)->excludes(resume);
  app.add_option("--metrics", s.metrics, "Write metrics there, one JSON object a line; --resume and --eval-only add lines")
      ->type_name("FILE.jsonl");
  app.add_option("--predict", s.predict, "Write the test data's predictions there in the end")->type_name("FILE.csv");
  app.add_option("--report", s.report, "Write a page about the run there: curves, calibration, options, tables and their access skew")
      ->type_name("FILE.html")
      ->excludes("--eval-only");
  app.set_version_flag("--version", text("train_ctr %d.%d.%d", TESSERA_VERSION_MAJOR, TESSERA_VERSION_MINOR, TESSERA_VERSION_PATCH),
                       "Print the version");
  app.footer("Example:\n  train_ctr --train day_0.tsv day_1.tsv --test day_2.tsv --checkpoint run1 --checkpoint-every 10000");
}

/// Refuses what files of this kind have no use for, and sets defaults that depend on the kind.
inline void check_kind(CLI::App& app, settings& s) {
  bool const parquet = s.reads_parquet();
  for (auto const& path : s.train)
    if (path.ends_with(".parquet") != parquet)
      throw CLI::ValidationError("--train", "files that end in .parquet and others do not go together: " + path + " and " + s.test);
  auto const given = [&](char const* option) { return app.get_option(option)->count() > 0; };
  auto const refuse = [&](char const* option, std::string const& why) { throw CLI::ValidationError(option, why); };
  if (!parquet) {
    for (auto const* const option : parquet_options)
      if (given(option)) refuse(option, "of Parquet files alone, whose names end in .parquet");
    if (s.dense == "stored") refuse("--dense", "stored: of Parquet files alone");
    return;
  }
#ifndef TESSERA_TRAIN_PARQUET
  throw CLI::ValidationError(s.train.empty() ? "--test" : "--train",
                             "this build reads no Parquet files: it needs Apache Arrow. `sh cmake/bootstrap.sh deps` installs it; then "
                             "configure with -D TESSERA_PARQUET=ON and build again");
#endif
  for (auto const* const option : tsv_options)
    if (given(option)) refuse(option, "of TSV files alone");
  if (!given("--dense")) s.dense = "stored";
  if (s.dense == "standard") refuse("--dense", "standard: of TSV files alone");
  if (s.model == "deepfm") refuse("--model", "deepfm: of TSV files alone");
  if (s.row_format != "fp32") refuse("--row-format", s.row_format + ": of TSV files alone");
}

/// Settings that the command line does not give become the checkpoint's, checked as if it gave them; those that it gives must agree,
/// unless they may change.
inline void adopt(CLI::App& app, nlohmann::json const& kept, settings& s, std::string const& file) {
  if (kept.contains("sparse-columns") != s.reads_parquet())
    throw tessera::error(tessera::errc::incompatible, "option --test: the checkpoint is of a run on files of the other kind",
                         {{"test", s.test}, {"checkpoint", s.reads_parquet() ? "TSV" : "Parquet"}});
  for_each_kept(s, [&](std::string const& name, auto& value, bool may_change) {
    auto const& of_checkpoint = tessera::json_field(kept, name, file);
    auto* const option = app.get_option("--" + name);
    bool const given = option->count() > 0;
    if (given && may_change) return;
    if (nlohmann::json(value) == of_checkpoint) return;
    if (given)
      throw tessera::error(tessera::errc::incompatible, "option --" + name + ": the checkpoint is of a run with another value",
                           {{"checkpoint", of_checkpoint.dump()}, {"command line", nlohmann::json(value).dump()}});
    try {
      option->add_result(of_checkpoint.is_string() ? of_checkpoint.get<std::string>() : of_checkpoint.dump());
      if (option->count() == 0) throw CLI::RequiredError("--" + name);
      option->run_callback();
    } catch (CLI::Error const& e) {
      throw tessera::error(tessera::errc::incompatible, std::string("the checkpoint's option ") + e.what(), {{"file", file}});
    }
  });
}

}  // namespace examples
