// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/types.hpp>
#include <tessera/files/json.hpp>

#include "settings.hpp"

namespace examples {

/// Most rows of a table: at the largest dim, with any optimizer's state, an int64 still holds its bytes.
inline constexpr std::int64_t most_rows = std::int64_t{1} << 40;
/// Most epochs: an int64 holds the steps of so many.
inline constexpr std::int64_t most_epochs = 1'000'000'000;
/// Most elements that a layer's input or output may have, as for `tessera::mlp` and `tessera::cross_net`.
inline constexpr std::int64_t most_layer_width = (std::int64_t{1} << 31) - 1, most_cross_width = (std::int64_t{1} << 29) - 1;
/// Larger rates and shares are a slip of the hand. Below these, too, training may diverge, which `check_state` finds.
inline constexpr float most_rate = 1e30F, most_decay = 1e6F;

/// Integers in [least, most]. Writes them anew, so that the parser behind this one, which knows octal and hexadecimal, reads the same.
template <class T>
CLI::Validator integer(T least, T most) {
  auto const least_text = std::to_string(least), most_text = std::to_string(most);
  return {[=](std::string& given) {
            T value{};
            if (!parse_number(given, value) || value < least || value > most)
              return "not an integer from " + least_text + " to " + most_text + ": " + given;
            given = std::to_string(value);
            return std::string();
          },
          least_text + ".." + most_text};
}

/// Numbers that a float holds, up to `most`; 0 where `or_0`. Writes them anew, as `integer` does.
inline CLI::Validator number(float most, bool or_0) {
  auto const range = text(or_0 ? "from 1e-45 to %g, or 0" : "from 1e-45 to %g", static_cast<double>(most));
  return {[=](std::string& given) {
            float value = 0;
            if (!parse_number(given, value) || value < 0 || (value == 0 && !or_0) || value > most)
              return "not a number " + range + ": " + given;
            given = text("%.9g", static_cast<double>(value));
            return std::string();
          },
          range};
}

/// A number as above, or a word.
inline CLI::Validator number_or(std::string const& word, float most) {
  return {[=](std::string& given) {
            auto copy = given;  // a checkpoint keeps it as it was written
            auto const refusal = given == word ? std::string() : number(most, true)(copy);
            return refusal.empty() ? refusal : "neither '" + word + "' nor " + refusal.substr(4);
          },
          "X|" + word};
}

/// The elements of an array, with commas between them.
inline std::string joined(nlohmann::json const& array) {
  std::string all;
  for (auto const& element : array) all += (all.empty() ? "" : ",") + element.dump();
  return all;
}

/// An option that is a list of the widths of layers: integers with commas between them.
inline void add_widths(CLI::App& app, std::string const& name, std::vector<std::int64_t>& widths, std::string const& what) {
  auto const width = integer(std::int64_t{1}, most_layer_width);
  auto const read = [=, &widths](std::string const& given) {
    std::vector<std::int64_t> all;
    for (std::size_t first = 0; first <= given.size();) {
      auto const comma = std::min(given.find(',', first), given.size());
      auto part = given.substr(first, comma - first);
      if (auto const refusal = width(part); !refusal.empty())
        throw CLI::ValidationError(name, refusal + (part == given ? "" : " in " + given));
      parse_number(part, all.emplace_back());
      first = comma + 1;
    }
    widths = std::move(all);
  };
  app.add_option_function<std::string>(name, read, what)->type_name(width.get_description() + ",...")->default_str(joined(widths));
}

/// The JSON that an option gives: that of a file, or, where it begins as an object does, itself.
inline std::string read_object(char const* option, std::string const& given) {
  return (given.starts_with('{') ? tessera::parse_json(given, option) : tessera::read_json(given)).dump();
}

/// Of every table, or of one feature's.
inline void declare_table(CLI::App& app, table_settings& s) {
  app.add_option("--embedding-dim", s.embedding_dim, "Elements of an embedding row; DeepFM adds a first-order weight")
      ->transform(integer(std::int64_t{1}, std::int64_t{1} << 16))
      ->capture_default_str();
  app.add_option("--row-format", s.row_format, "How embedding rows are stored; all but fp32 are rounded stochastically")
      ->check(CLI::IsMember({"fp32", "fp16", "bf16", "int8"}))
      ->capture_default_str();
  app.add_option("--hash-table", s.hash_table,
                 "Any id instead of a vocabulary: a row appears when its id does, at most so many a table; 0: one for each id")
      ->transform(integer(std::int64_t{0}, most_rows))
      ->capture_default_str();
  app.add_option("--admit", s.admit, "Of hashed tables: an id gets a row in the batch in which it is seen for so many-th time")
      ->transform(integer(std::int64_t{1}, tessera::most_counted))
      ->capture_default_str();
  app.add_option("--evict", s.evict,
                 "Of hashed tables that are full: which row makes room, the one not used for longest, the least used, none")
      ->check(CLI::IsMember({"lru", "lfu", "none"}))
      ->capture_default_str();
  app.add_option("--embedding-init", s.embedding_init, "Rows start uniform in ±X; rows: X = 1/sqrt(rows of the table)")
      ->check(number_or("rows", most_rate))
      ->capture_default_str();
  app.add_option("--embedding-optimizer", s.embedding_optimizer, "Optimizer of the embedding rows")
      ->check(CLI::IsMember({"sgd", "momentum", "rowwise-adagrad", "adagrad", "adam", "rowwise-adam", "ftrl"}))
      ->capture_default_str();
  app.add_option("--embedding-lr", s.embedding_lr, "Its learning rate")->transform(number(most_rate, false))->capture_default_str();
  app.add_option("--embedding-weight-decay", s.embedding_weight_decay, "Share of itself that a touched row's gradient grows by")
      ->transform(number(most_decay, true))
      ->capture_default_str();
}

inline void declare_model(CLI::App& app, settings& s) {
  declare_table(app, s);
  app.add_option_function<std::string>(
         "--tables", [&s](std::string const& given) { s.tables = read_object("--tables", given); },
         "What features have of their own: {feature: {option: value, …}, …} with the options from --embedding-dim to "
         "--embedding-weight-decay, as {\"item\": {\"row-format\": \"int8\"}}")
      ->type_name("FILE.json|{...}");
  app.add_option("--model", s.model, "Model")->check(CLI::IsMember({"dlrm", "dcn", "deepfm"}))->capture_default_str();
  add_widths(app, "--bottom", s.bottom,
             "Hidden layers of the bottom MLP; the embedding dim is appended. Without numbers in the data there is no such MLP");
  add_widths(app, "--top", s.top, "Hidden layers of the top MLP; 1 is appended");
  auto* const hash = app.add_option("--hash-size", s.hash_size,
                                    "Hash ids to so many rows a table instead of a vocabulary, which takes a pass over the training data")
                         ->transform(integer(std::int64_t{1}, most_rows))
                         ->excludes("--hash-table");
  app.add_option("--min-count", s.min_count, "Values seen fewer times in training share a row")
      ->transform(integer(std::int64_t{1}, tessera::most_counted))
      ->capture_default_str()
      ->excludes(hash)
      ->excludes("--hash-table");
  app.add_option("--vocabulary-limit", s.vocabulary_limit, "At most so many values a column, the most frequent, in bounded memory; 0: all")
      ->transform(integer(std::int64_t{0}, most_rows))
      ->capture_default_str()
      ->excludes(hash)
      ->excludes("--hash-table");
  app.add_option("--dense", s.dense, "What becomes of numbers; log: ln(x + 1); standard: mean 0, deviation 1; stored: as they are")
      ->check(CLI::IsMember({"log", "standard", "stored"}))
      ->capture_default_str();
  app.add_option("--dense-as-category", s.dense_as_category, "Numbers are ids too; auto: those of Criteo's layout alone")
      ->check(CLI::IsMember({"auto", "on", "off"}))
      ->capture_default_str();
  app.add_option("--cross-layers", s.cross_layers, "Cross layers of a DCN")
      ->transform(integer(std::int64_t{0}, most_cross_width))
      ->capture_default_str();
  app.add_option("--cross-rank", s.cross_rank, "Rank of their matrices; 0: full")
      ->transform(integer(std::int64_t{0}, most_cross_width))
      ->capture_default_str();
}

inline void declare_training(CLI::App& app, settings& s) {
  app.add_option("--optimizer", s.optimizer, "Optimizer of the dense parameters")
      ->check(CLI::IsMember({"sgd", "momentum", "adagrad", "adam", "ftrl"}))
      ->capture_default_str();
  app.add_option("--lr", s.lr, "Its learning rate")->transform(number(most_rate, false))->capture_default_str();
  app.add_option("--lr-schedule", s.lr_schedule, "How both rates fall to 0 during --decay-steps, after --decay-start steps")
      ->check(CLI::IsMember({"constant", "linear", "quadratic"}))
      ->capture_default_str();
  app.add_option("--warmup-steps", s.warmup_steps, "Steps during which both rates rise to their value")
      ->transform(integer(std::int64_t{0}, tessera::most_counted))
      ->capture_default_str();
  app.add_option("--decay-start", s.decay_start, "Steps before the rates fall")
      ->transform(integer(std::int64_t{0}, tessera::most_counted))
      ->capture_default_str();
  app.add_option("--decay-steps", s.decay_steps, "Steps that their fall takes")
      ->transform(integer(std::int64_t{0}, tessera::most_counted))
      ->capture_default_str();
  app.add_option("--clip-norm", s.clip_norm, "Gradients are scaled down to this norm over all parameters; 0: never")
      ->transform(number(most_rate, true))
      ->capture_default_str();
  app.add_option("--batch-size", s.batch_size, "Samples a step")
      ->transform(integer(std::int64_t{1}, std::int64_t{1} << 24))
      ->capture_default_str();
  app.add_option("--epochs", s.epochs, "Passes over the training data")
      ->transform(integer(std::int64_t{1}, most_epochs))
      ->capture_default_str();
  app.add_flag("--progressive", s.progressive, "Test each batch before it is trained on; one epoch, samples in the order of the files");
}

/// Which columns the files have.
inline void declare_columns(CLI::App& app, settings& s) {
  auto* const columns =
      app.add_option_function<std::string>(
             "--columns", [&s](std::string const& given) { s.columns = read_object("--columns", given); },
             "The columns of the files, what becomes of each and how text files are laid out; docs/training.md has the fields")
          ->type_name("FILE.json|{...}");
  auto const add = [&](char const* name, std::string& value, char const* what) {
    return app.add_option(name, value, what)->type_name("NAME,...")->excludes(columns);
  };
  add("--label-column", s.label_column, "The column of labels, 0 or 1")->type_name("NAME")->capture_default_str();
  add("--dense-columns", s.dense_columns, "Columns of numbers");
  add("--sparse-columns", s.sparse_columns,
      "Columns of ids, or of lists of ids: in text files NAME[], with | between the ids; Parquet files say so themselves");
  add("--session-column", s.session_column, "An integer that samples of one session share")->type_name("NAME");
  add("--time-column", s.time_column, "When samples were, an integer; in its order --dedup auto looks at sessions")->type_name("NAME");
}

/// What becomes of columns of ids, and in which order samples are trained on.
inline void declare_lists(CLI::App& app, settings& s) {
  app.add_option("--pooling", s.pooling,
                 "How lists become a vector: sum (those not named), mean, max, attention (to a target), transformer; A+B=KIND puts the "
                 "lists of several columns together. None sees the order of ids: see --positions")
      ->type_name("NAME=KIND,...");
  app.add_option("--attention-target", s.attention_target, "The column that attention looks at; else the last of those pooled by sum")
      ->type_name("NAME");
  app.add_option("--positions", s.positions,
                 "Attention and transformer see the order of ids: so many last places of a list have a learned vector each; 0: none")
      ->transform(integer(std::int64_t{0}, std::int64_t{1} << 20))
      ->capture_default_str();
  app.add_option("--share", s.share, "Columns that read the table of another: the same id has the same row in both")
      ->type_name("NAME=OTHER,...");
  app.add_option("--max-length", s.max_length, "Lists are cut to their last so many ids")
      ->transform(integer(std::int64_t{1}, tessera::most_counted));
  app.add_option("--order", s.order,
                 "In which order to train, blocks shuffled but for stored; sessions where there is a session column, else samples")
      ->check(CLI::IsMember({"stored", "samples", "sessions"}));
  app.add_option("--dedup", s.dedup,
                 "Columns whose repeated lists a batch has once: auto (what samples of all training data suggest, where there is a session "
                 "column), off, or groups of columns that repeat together")
      ->type_name("auto|off|A+B,C,...")
      ->capture_default_str();
  app.add_option("--dedup-sums", s.dedup_sums, "Gradients of repeated lists: merged, or expanded, slower, with the bits of --dedup off")
      ->check(CLI::IsMember({"merged", "expanded"}))
      ->capture_default_str();
}

/// Who trains together.
inline void declare_ranks(CLI::App& app, settings& s) {
  app.add_option(
         "--ranks", s.ranks,
         "Who trains together, each with a part of every batch and of the tables: mpi, the processes of mpirun; threads:N; 1; auto: "
         "mpi where mpirun has started this")
      ->check([](std::string const& given) {
        int ranks = 0;
        bool const is_known = given == "auto" || given == "mpi" || given == "1" ||
                              (given.starts_with("threads:") && parse_number(given.substr(8), ranks) && ranks >= 1 && ranks <= 1024);
        return is_known ? std::string() : "neither auto, mpi, 1 nor threads:1 to threads:1024: " + given;
      })
      ->type_name("auto|mpi|threads:N|1")
      ->capture_default_str();
  app.add_option(
         "--plan", s.plan,
         "Which rank holds which table: bytes, the largest first to who has the fewest bytes; cut, with --exchange sptt, the same, but "
         "tables larger than a rank's share of their tower are cut by columns or by rows, whichever moves fewer bytes; round-robin; or a "
         "file as docs/ranks.md has it, which may cut tables by rows and columns, and calls them by number or name")
      ->type_name("bytes|cut|round-robin|FILE.json")
      ->capture_default_str();
  app.add_option(
         "--plan-samples", s.plan_samples,
         "Where a run adds what it measured of a plan that says what was predicted of it; else beside the plan, FILE.json.samples.csv")
      ->type_name("FILE.csv");
  app.add_option("--sums", s.sums,
                 "How gradients are summed: in the order of ranks; or fixed, by chunks of samples, to the bits of any number of ranks")
      ->check(CLI::IsMember({"ranks", "fixed"}))
      ->capture_default_str();
  app.add_option("--chunk-samples", s.chunk_samples, "Samples of a chunk of fixed sums; ranks have whole chunks of every batch")
      ->transform(integer(std::int64_t{1}, tessera::most_counted))
      ->capture_default_str();
  app.add_option(
         "--read", s.read,
         "What a rank reads: slices, its part of every batch of all; or blocks of the files that it alone reads, its batches made of "
         "them, empty ones in the end where others have more")
      ->check(CLI::IsMember({"slices", "blocks"}))
      ->capture_default_str();
  app.add_option("--ids-ahead", s.ids_ahead, "Ids of so many later batches travel between ranks during a step; changes no result")
      ->transform(integer(std::int64_t{0}, std::int64_t{1} << 10))
      ->capture_default_str();
  app.add_option("--bucket-bytes", s.bucket_bytes,
                 "Sums of gradients over ranks begin during the backward, with parts of so many bytes at least; 0: after it; changes no "
                 "result")
      ->transform(integer(std::int64_t{0}, std::int64_t{1} << 40))
      ->capture_default_str();
  app.add_option("--time-limit", s.time_limit, "Seconds that ranks wait for one that reads, writes or trains longer, before all end")
      ->transform(integer(std::int64_t{1}, std::int64_t{1} << 20))
      ->capture_default_str();
  app.add_option("--codec", s.codec,
                 "How vectors and gradients of rows travel, also on one rank: fp32, fp16, bf16, int8, fp8_e4m3, fp8_e5m2; or one for each")
      ->type_name("CODEC[,CODEC]")
      ->capture_default_str();
}

/// How vectors travel between hosts, and what shortens them before.
inline void declare_towers(CLI::App& app, settings& s) {
  app.add_option("--topology", s.topology,
                 "Which ranks share a host: hosts:N, as many neighbouring ranks on each; or a file as docs/ranks.md has it. Else as hosts "
                 "name themselves")
      ->type_name("hosts:N|FILE.json");
  app.add_option(
         "--exchange", s.exchange,
         "How ids and vectors travel: flat, from rank to rank; two-hop, one message from host to host; sptt, by towers, whose tables "
         "lie on one host or a few. Changes no result where sums are fixed and ranks are numbered host by host")
      ->check(CLI::IsMember({"flat", "two-hop", "sptt"}))
      ->capture_default_str();
  app.add_option(
         "--towers", s.towers,
         "Which features make which tower, of sptt or of modules: T towers that features are dealt to in turn; a file as docs/towers.md "
         "has it; learn:T, those alike in a model that is trained before; learn, as many as hosts. A checkpoint keeps them")
      ->type_name("T|FILE.json|learn[:T]");
  app.add_option("--tower-probe", s.tower_probe, "To learn towers: batches that the first rank trains a model without towers on")
      ->transform(integer(std::int64_t{1}, std::int64_t{1} << 32))
      ->capture_default_str();
  app.add_option("--tower-module", s.tower_module,
                 "What makes fewer or shorter vectors of a tower's: dlrm, linear maps of all features together and of each; dcn, a cross "
                 "layer of all, of --cross-rank, and a map; dot, products of pairs, and a map. On several ranks with sptt alone")
      ->check(CLI::IsMember({"dlrm", "dcn", "dot", "none"}))
      ->capture_default_str();
  app.add_option("--tower-dim", s.tower_dim, "Elements of each vector that a module makes; 0: as --embedding-dim")
      ->transform(integer(std::int64_t{0}, std::int64_t{1} << 16))
      ->capture_default_str();
  app.add_option("--tower-p", s.tower_p, "Vectors of all features of a tower together; of dcn and dot 0: as many as the tower has features")
      ->transform(integer(std::int64_t{0}, std::int64_t{1} << 16))
      ->capture_default_str();
  app.add_option("--tower-c", s.tower_c, "Vectors of each feature of a tower, of dlrm alone")
      ->transform(integer(std::int64_t{0}, std::int64_t{1} << 16))
      ->capture_default_str();
}

/// Rows that are read often, on every rank.
inline void declare_hot(CLI::App& app, settings& s) {
  app.add_option(
         "--hot-budget", s.hot_budget,
         "Bytes on every rank for copies of the rows that are read most, with optimizer state: 512MB, 2GB, ... (1 MB is 2^20 bytes); 0: "
         "no hot rows. Batches are then all hot or all cold: docs/hot.md")
      ->transform(CLI::AsSizeValue(false))
      ->type_name("BYTES")
      ->capture_default_str();
  app.add_option(
         "--hot-schedule", s.hot_schedule,
         "How long runs of one class are: loss, a rate that follows the test loss; or R percent of the epoch's batches of the class")
      ->check([](std::string const& given) {
        double percent = 0;
        bool const is_known = given == "loss" || (parse_number(given, percent) && percent > 0 && percent <= 100);
        return is_known ? std::string() : "neither loss nor a percentage above 0 and at most 100: " + given;
      })
      ->type_name("loss|R")
      ->capture_default_str();
  app.add_option("--hot-batches", s.hot_batches,
                 "Where hot rows are while cold batches run: swap, in the tables; stay, in the copies that every rank has")
      ->check(CLI::IsMember({"swap", "stay"}))
      ->capture_default_str();
}

inline void declare(CLI::App& app, settings& s) {
  app.add_option("--train", s.train,
                 "Training data: Parquet (.parquet, .pq) or text. Text is Criteo's layout, or has a header line with the names of its "
                 "columns; .csv has commas, other text has tabs. Folders and patterns stand for the files in them")
      ->type_name("FILE|DIR|PATTERN");
  app.add_option("--test", s.test, "Test data, with the same columns")->type_name("FILE|DIR|PATTERN");
  declare_columns(app, s);
  declare_lists(app, s);
  declare_model(app, s);
  declare_training(app, s);
  app.add_option("--threads", s.threads,
                 "Threads of each rank; their number changes no result. Ranks share the machine's where none is given")
      ->transform(integer(1, 4096))
      ->capture_default_str();
  declare_ranks(app, s);
  declare_towers(app, s);
  declare_hot(app, s);
  app.add_option("--pipeline", s.pipeline, "With 2 threads or more, one reads batches and sorts their ids ahead; changes no result")
      ->check(CLI::IsMember({"on", "off"}))
      ->capture_default_str();
  app.add_option("--seed", s.seed, "Seed of initial weights and shuffling")
      ->transform(integer(std::uint64_t{0}, std::numeric_limits<std::uint64_t>::max()))
      ->capture_default_str();
  auto* const checkpoint =
      app.add_option("--checkpoint", s.checkpoint, "Folder for checkpoints; the newest two are kept")->type_name("DIR");
  app.add_option("--checkpoint-every", s.checkpoint_every, "Steps from one checkpoint to the next; there is one at the end too")
      ->transform(integer(std::int64_t{1}, tessera::most_counted))
      ->needs(checkpoint);
  auto* const resume = app.add_flag("--resume", s.resume,
                                    "Go on from the newest checkpoint with its settings, to the same model as if the run had never "
                                    "stopped; training AUC and loss count from there. Ranks, exchange, codec and a plan that is no file "
                                    "are said again: others may change the last bits, or more")
                           ->needs(checkpoint);
  app.add_flag("--eval-only", s.eval_only, "Test the newest checkpoint, train nothing")->needs(checkpoint)->excludes(resume);
  app.add_option("--metrics", s.metrics,
                 "Write metrics there, one JSON object a line; --resume and --eval-only add lines; a named pipe waits for its reader")
      ->type_name("FILE.jsonl");
  app.add_option("--predict", s.predict, "Write the test data's predictions there in the end")->type_name("FILE.csv");
  app.add_option("--report", s.report, "Write a page about the run there: curves, calibration, options, tables and their access skew")
      ->type_name("FILE.html")
      ->excludes("--eval-only");
  app.set_version_flag("--version", text("train_ctr %d.%d.%d", TESSERA_VERSION_MAJOR, TESSERA_VERSION_MINOR, TESSERA_VERSION_PATCH),
                       "Print the version");
  app.footer(
      "Further commands, which have a --help of their own:\n  train_ctr profile FILE...             what the columns of a log hold\n"
      "  train_ctr cluster IN... OUT.parquet   a log in the order of its sessions\n"
      "Examples:\n  train_ctr --train clicks.csv --test later.csv --label-column click --dense-columns age,price --sparse-columns "
      "user,item\n"
      "  train_ctr --train day_0.tsv day_1.tsv --test day_2.tsv --checkpoint run1 --checkpoint-every 10000");
}

/// Reads what --tables says, once it is known what a checkpoint says, and refuses what no table can be.
inline void set_own_tables(CLI::App& app, settings& s) {
  auto const refuse = [](std::string const& what, std::string const& why, std::vector<tessera::error_value> fields) {
    throw tessera::error(tessera::errc::invalid_argument, what + ": " + why, std::move(fields));
  };
  bool any_hashed = s.hash_table > 0;
  auto const features = s.tables.empty() ? nlohmann::json::object() : nlohmann::json::parse(s.tables);
  for (auto const& entry : features.items()) {
    std::string const& feature = entry.key();
    auto const& options = entry.value();
    table_settings own = s;
    CLI::App of_table;
    declare_table(of_table, own);
    if (!options.is_object()) refuse("option --tables", "options of a feature are an object", {{"feature", feature}});
    for (auto const& [name, value] : options.items()) {
      auto* const option = of_table.get_option_no_throw("--" + name);
      if (option == nullptr || name == "help")
        refuse("option --tables", "no such option of a table", {{"feature", feature}, {"option", name}});
      try {
        option->add_result(value.is_string() ? value.get<std::string>() : value.dump());
        option->run_callback();
      } catch (CLI::Error const& e) {
        refuse("option --tables", e.what(), {{"feature", feature}});
      }
    }
    auto const refuse_table = [&](char const* why) { refuse("option --tables", why, {{"feature", feature}}); };
    if (s.model == "deepfm" && own.embedding_dim != s.embedding_dim) refuse_table("all tables of a deepfm have one dim");
    if (s.hash_table > 0 && own.hash_table == 0) refuse_table("with --hash-table ids have no bound, and no table a row for each");
    if (own.hash_table == 0 && (options.contains("admit") || options.contains("evict")))
      refuse_table("only a hashed table admits and evicts");
    any_hashed = any_hashed || own.hash_table > 0;
    s.own_tables.insert_or_assign(feature, std::move(own));
  }
  for (char const* const option : {"--admit", "--evict"})
    if (!any_hashed && app.get_option(option)->count() > 0) throw CLI::ValidationError(option, "of a --hash-table alone");
}

/// Settings that the command line does not give become the checkpoint's, checked as if it gave them; those that it gives must agree,
/// unless they may change, which a run that goes on says.
inline void adopt(CLI::App& app, nlohmann::json const& kept, settings& s, std::string const& file) {
  if (!kept.contains("columns"))
    throw tessera::error(tessera::errc::incompatible, "the checkpoint is of a version that kept data otherwise", {{"file", file}});
  for_each_kept(s, [&](std::string const& name, auto& value, bool may_change) {
    auto const& of_checkpoint = tessera::json_field(kept, name, file);
    auto* const option = app.get_option("--" + name);
    if (nlohmann::json(value) == of_checkpoint) return;
    bool const given = option->count() > 0;
    if (given && may_change) {
      if (s.resume && s.speaks)
        std::printf("--%s: %s instead of the checkpoint's %s\n", name.c_str(), shown(value).c_str(), shown(of_checkpoint).c_str());
      return;
    }
    if (given)
      throw tessera::error(tessera::errc::incompatible, "option --" + name + ": the checkpoint is of a run with another value",
                           {{"checkpoint", of_checkpoint.dump()},
                            {"command line", nlohmann::json(value).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)}});
    try {
      option->add_result(of_checkpoint.is_string()  ? of_checkpoint.get<std::string>()
                         : of_checkpoint.is_array() ? joined(of_checkpoint)
                                                    : of_checkpoint.dump());
      if (option->count() == 0) throw CLI::RequiredError("--" + name);
      option->run_callback();
    } catch (CLI::Error const& e) {
      throw tessera::error(tessera::errc::incompatible, std::string("the checkpoint's option ") + e.what(), {{"file", file}});
    }
  });
}

}  // namespace examples
