// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-cost: 18
// ctest-target: tessera::parquet
#include <doctest/doctest.h>

#include "../support/skip.hpp"

#ifndef TESSERA_TRAIN_CTR

TEST_CASE("train_ctr on Parquet files") { tessera_tests::skip("the examples are not built"); }

#else

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <numeric>
#include <random>
#include <regex>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <tessera/core/execution.hpp>
#include <tessera/data/delimited_writer.hpp>
#include <tessera/data/parquet_writer.hpp>
#include <tessera/files/step_folders.hpp>
#include <tessera/nn/auc.hpp>
#include <tessera/synth/session_clicks.hpp>

#include "../support/hosts.hpp"
#include "../support/sanitizers.hpp"
#include "run_program.hpp"
#include "temporary_folder.hpp"
#include "train_ctr_support.hpp"

namespace {

using namespace tessera_tests;

constexpr std::int64_t train_samples = 12000, test_samples = 4000;

/// Sessions of a user with a history, the places of the same clicks, and an item that is clicked or not.
tessera::session_clicks_options small_sessions() {
  using tessera::session_feature;
  using tessera::session_feature_kind;
  std::vector<session_feature> features;
  auto const add = [&](char const* name, session_feature feature, double linear, double interest) {
    feature.name = name;
    feature.linear = linear;
    feature.interest = interest;
    feature.exponent = 0.8;
    features.push_back(std::move(feature));
  };
  session_feature const sequence{.kind = session_feature_kind::sequence, .group = 0, .mean_length = 6, .most_length = 20, .ids = 100};
  add("history", sequence, 0.5, 1);
  add("places", sequence, 0.5, 0);
  add("user", {.stays = 0.95, .mean_length = 3, .most_length = 10, .ids = 100}, 1, 0);
  add("item", {.kind = session_feature_kind::item, .stays = 0.05, .lengths = tessera::list_lengths::uniform, .most_length = 1, .ids = 100},
      1, 0);
  tessera::session_clicks_options options{std::move(features)};
  options.dense_features = 3;
  options.mean_samples = 8;
  options.spread = 0.8;
  options.window_sessions = 400;
  options.linear_signal = 1.2;
  return options;
}

/// Training and test data, each in one file in the order of sessions, the training data in two as well.
struct session_files {
  temporary_folder folder;
  std::string train = folder.file("train.parquet"), test = folder.file("test.parquet");
  std::string first = folder.file("first.parquet"), second = folder.file("second.parquet");
  std::string by_time = folder.file("by time.parquet"), text = folder.file("train.tsv");  // the training data
  double best_auc = 0;                                                                    // on the test data

  session_files() {
    tessera::session_clicks log(exec(), small_sessions());
    auto const all = next(log, train_samples);
    write(train, log.schema(), all.view(), 0, train_samples);
    write(first, log.schema(), all.view(), 0, 5000);
    write(second, log.schema(), all.view(), 5000, train_samples - 5000);
    write(test, log.schema(), next(log, test_samples, &best_auc).view(), 0, test_samples);
    write(by_time, log.schema(), tessera::sorted_by(exec(), all, all.view().times).view(), 0, train_samples);
    tessera::delimited_writer lines(text, log.schema(), text_layout());
    lines.append(exec(), all.view());
  }

  static tessera::delimited_layout text_layout() { return {.header = true}; }

  tessera::host_exec exec() noexcept { return tessera::host_exec(team_, memory_); }

  void write(std::string const& path, tessera::sample_schema const& schema, tessera::sample_columns_view samples, std::int64_t begin,
             std::int64_t count) {
    tessera::sample_columns part(schema);
    part.append(exec(), samples, begin, count);
    tessera::parquet_writer writer(path, schema, {.row_group_rows = 1000});
    writer.write(exec(), part.view());
    writer.finish();
  }

 private:
  tessera::sample_columns next(tessera::session_clicks& log, std::int64_t count, double* best = nullptr) {
    tessera::sample_columns drawn(log.schema());
    log.next(exec(), count, drawn);
    if (best != nullptr) {
      tessera::exact_auc auc;
      auc.add(log.logits(), drawn.view().labels);
      *best = auc.value(exec());
    }
    return tessera::sorted_by(exec(), drawn, drawn.view().sessions);
  }

  tessera::serial_team team_;
  tessera::system_memory memory_;
};

session_files& files() {
  static session_files all;
  return all;
}

arguments const columns{"--dense-columns",  "dense_0,dense_1,dense_2",
                        "--sparse-columns", "history,places,user,item",
                        "--session-column", "session",
                        "--time-column",    "time",
                        "--hash-size",      "1000"};

arguments with(arguments all, arguments const& more) {
  all.insert(all.end(), more.begin(), more.end());
  return all;
}
program_result run(arguments const& more) { return run_program(with({TESSERA_TRAIN_CTR}, more)); }
program_result train_on(std::vector<std::string> const& train, arguments const& more) {
  return run(with(with({"--train"}, train), with({"--test", files().test}, more)));
}
program_result train(arguments const& more = {}) { return train_on({files().train}, with(columns, more)); }

double auc_of(program_result const& result) {
  std::smatch found;
  auto const line = result.last_line();
  REQUIRE_MESSAGE(std::regex_search(line, found, std::regex("^test auc=([0-9.]+) ")), result.output);
  return std::stod(found[1]);
}
std::vector<double> probabilities(std::string const& csv) {
  std::istringstream text(contents(csv));
  std::vector<double> all;
  std::string line;
  for (std::getline(text, line); std::getline(text, line);) all.push_back(std::stod(line.substr(line.rfind(',') + 1)));
  return all;
}

void check_refused_at_once(program_result const& result, std::vector<std::string> const& parts) {
  CHECK_FALSE(result.says("epoch 1"));
  check_refused(result, parts);
}

}  // namespace

TEST_CASE("sessions are learned well, by sums and by attention, and the last line says how well" * doctest::skip(under_asan)) {
  for (arguments const& options : {arguments{}, arguments{"--pooling", "history+places=attention"},
                                   arguments{"--pooling", "history=attention,places=transformer,user=mean", "--model", "dcn"}}) {
    CAPTURE(options.size());
    auto const result = train(options);
    CAPTURE(result.output);
    REQUIRE(result.status == 0);
    CHECK(std::regex_match(result.last_line(), std::regex("test auc=0\\.\\d{4} logloss=0\\.\\d{4} ne=0\\.\\d{4} calibration=\\d\\.\\d{3} "
                                                          "samples_per_second=\\d+")));
    MESSAGE(figures(result) << ", at best " << files().best_auc);
    CHECK(auc_of(result) > 0.68);
    CHECK(auc_of(result) < files().best_auc);
    CHECK(result.says("train: 12000 samples"));
    CHECK(result.says("test: 4000 samples"));
    CHECK(result.says("model: 3 dense features, 4 tables of dim 16"));
  }
}

TEST_CASE("what to deduplicate is found from the data, or said") {
  arguments const brief{"--epochs", "1", "--batch-size", "1000"};
  auto const found = train(brief);
  CAPTURE(found.output);
  CHECK(std::regex_search(found.output, std::regex("\n[4-9]\\.\\d samples a session in a batch; .*\n  history [2-6]\\.\\d\\d group 1\n"
                                                   "  places [2-6]\\.\\d\\d group 1\n  user [3-9]\\.\\d\\d group 2\n  item 1\\.\\d\\d\n"
                                                   "dedup: history\\+places,user\n")));
  auto const groups_of = [&](arguments const& more) {
    auto const result = train(with(brief, more));
    CHECK_MESSAGE(result.status == 0, result.output);
    std::smatch line;
    REQUIRE(std::regex_search(result.output, line, std::regex("\ndedup: (.*)\n")));
    return line[1].str();
  };
  CHECK(groups_of({"--dedup", "off"}) == "off");
  CHECK(groups_of({"--dedup", "item,places+user"}) == "item,places+user");
  // Sequences are deduplicated as they are pooled.
  CHECK(groups_of({"--pooling", "history=attention,places=transformer"}) == "history,places,user");
  CHECK(groups_of({"--pooling", "history+places=attention", "--dedup", "user"}) == "user");  // what is not named stays as it is
  CHECK(groups_of({"--pooling", "history+places=attention", "--dedup", "user+places+history"}) == "history+places,user");
  // Where samples of a session are far apart, there is little to find.
  auto const apart = train({"--epochs", "1", "--order", "samples", "--batch-size", "20"});
  CHECK_MESSAGE(std::regex_search(apart.output, std::regex("\n1\\.\\d samples a session in a batch(.*\n)+dedup: off\n")), apart.output);
  auto const without = train_on({files().train}, with(brief, {"--dense-columns", "dense_0", "--sparse-columns", "item,user"}));
  CHECK_MESSAGE(without.status == 0, without.output);
  CHECK_FALSE(without.says("dedup"));
}

// Other cases run all of it, in less time.
TEST_CASE("deduplication changes no bit of expanded sums, and hardly one of merged ones" * doctest::skip(under_asan)) {
  auto const& folder = files().folder;
  auto const predictions = [&](arguments const& more) {
    auto const csv = folder.file("dedup.csv");
    auto const result = train(with(more, {"--epochs", "1", "--predict", csv}));
    REQUIRE_MESSAGE(result.status == 0, result.output);
    auto const text = contents(csv);
    CHECK(std::count(text.begin(), text.end(), '\n') == 1 + test_samples);
    return text;
  };
  for (arguments const& model : {arguments{"--pooling", "history+places=attention,user=max"},
                                 arguments{"--pooling", "places=transformer,history=attention", "--max-length", "4",
                                           "--embedding-optimizer", "adam", "--embedding-lr", "0.005"},
                                 arguments{"--pooling", "user=mean", "--model", "dcn", "--clip-norm", "0.5", "--dense", "log"}}) {
    CAPTURE(model[1]);
    auto const expected = predictions(with(model, {"--dedup", "off", "--threads", "1"}));
    auto const apart = probabilities(folder.file("dedup.csv"));
    for (arguments const& dedup :
         {arguments{"--threads", "2"}, arguments{"--dedup", "item,history+places", "--threads", "1"}, arguments{"--dedup", "user"}}) {
      CAPTURE(dedup[1]);
      CHECK(predictions(with(model, with(dedup, {"--dedup-sums", "expanded"}))) == expected);
      if (model.size() > 2) break;  // which columns are deduplicated, the first model shows
    }
    predictions(model);
    auto const merged = probabilities(folder.file("dedup.csv"));
    REQUIRE(merged.size() == apart.size());
    double difference = 0;
    for (std::size_t i = 0; i < merged.size(); ++i) difference += std::abs(merged[i] - apart[i]) / static_cast<double>(merged.size());
    MESSAGE(model[1] << ": mean difference of probabilities " << difference);
    CHECK(difference < 0.03);
  }
}

TEST_CASE("files, threads and reading ahead change nothing" * doctest::skip(under_asan)) {
  arguments const options{"--order", "stored", "--epochs", "1", "--pooling", "history=attention"};
  auto const expected = train(with(options, {"--threads", "1"}));
  REQUIRE_MESSAGE(expected.status == 0, expected.output);
  CHECK(figures(train(with(options, {"--threads", "3", "--pipeline", "off"}))) == figures(expected));
  CHECK(figures(train_on({files().first, files().second}, with(columns, options))) == figures(expected));
  CHECK(figures(train_on({files().second, files().first}, with(columns, options))) != figures(expected));
  CHECK(figures(train({"--epochs", "1", "--pooling", "history=attention"})) != figures(expected));  // another order
}

TEST_CASE("a run goes on from its checkpoint as if it had never stopped, and can be tested") {
  auto const& folder = files().folder;
  arguments const model{"--pooling", "history+places=attention,user=transformer", "--batch-size", "100", "--max-length", "10"};
  auto const whole = folder.file("whole"), parts = folder.file("parts"), csv = folder.file("whole.csv");
  auto const expected = train(with(model, {"--epochs", "2", "--checkpoint", whole, "--predict", csv}));
  REQUIRE_MESSAGE(expected.status == 0, expected.output);

  // Stopped in the midst of the second epoch: later checkpoints are gone. What a checkpoint keeps needs no repeating.
  auto const first = train(with(model, {"--epochs", "2", "--checkpoint", parts, "--checkpoint-every", "170", "--threads", "1"}));
  REQUIRE_MESSAGE(first.status == 0, first.output);
  auto const steps = tessera::list_step_folders(parts);
  REQUIRE(steps.size() == 2);
  REQUIRE(steps[0].step.value == 170);
  std::filesystem::remove_all(steps[1].path);
  auto const resumed = train_on({files().train}, {"--resume", "--checkpoint", parts});
  REQUIRE_MESSAGE(resumed.status == 0, resumed.output);
  CHECK(resumed.says("resumed from " + parts + "/step-"));
  CHECK(tensors_of(parts) == tensors_of(whole));
  CHECK(figures(resumed) == figures(expected));

  auto const tested = run({"--eval-only", "--test", files().test, "--checkpoint", whole, "--predict", folder.file("tested.csv")});
  REQUIRE_MESSAGE(tested.status == 0, tested.output);
  CHECK(figures(tested) == figures(expected));
  CHECK(contents(folder.file("tested.csv")) == contents(csv));
  // A model is the same whatever is deduplicated.
  auto const apart = run({"--eval-only", "--test", files().test, "--checkpoint", whole, "--dedup", "item"});
  CHECK(figures(apart) == figures(expected));
  CHECK(train_on({files().train}, {"--resume", "--checkpoint", whole, "--epochs", "3", "--dedup", "off"}).status == 0);

  auto const resume = [&](arguments const& more) { return train_on({files().train}, with({"--resume", "--checkpoint", parts}, more)); };
  check_refused_at_once(resume({"--pooling", "history=attention"}), {"--pooling", "checkpoint \"history+places=attention", "command line"});
  check_refused_at_once(resume({"--sparse-columns", "history"}), {"--sparse-columns"});
  check_refused_at_once(resume({"--hash-size", "10"}), {"--hash-size", "1000", "10"});
  check_refused_at_once(resume({"--max-length", "5"}), {"--max-length"});
  check_refused_at_once(resume({"--order", "stored"}), {"--order"});
  check_refused_at_once(resume({"--label-column", "\xff"}), {"--label-column", "checkpoint \"label\""});  // which is no JSON
  check_refused_at_once(train_on({files().first}, {"--resume", "--checkpoint", parts}), {"--train", "5000", "12000"});
  check_refused_at_once(train_on({files().second, files().first}, {"--resume", "--checkpoint", parts}), {"--train", "fingerprint"});
  std::string const tsv = TESSERA_TEST_DATA_DIR "/adult/test.tsv";
  check_refused_at_once(run({"--eval-only", "--test", tsv, "--checkpoint", parts}), {"no such column", tsv});
}

TEST_CASE("without dense columns the vectors of lists meet alone, and a run goes on from its checkpoint") {
  auto const& folder = files().folder;
  for (arguments const& shape : {arguments{"--pooling", "history+places=attention,user=mean"}, arguments{"--model", "dcn"}}) {
    auto const whole = folder.file("no dense " + shape[1]), parts = folder.file("no dense in parts " + shape[1]);
    arguments const options = with(with(arguments(columns.begin() + 2, columns.end()), shape), {"--batch-size", "64"});
    auto const through = train_on({files().train}, with(options, {"--epochs", "2", "--checkpoint", whole, "--threads", "1"}));
    REQUIRE_MESSAGE(through.status == 0, through.output);
    CHECK(through.says("model: no dense features, no bottom MLP, 4 tables"));
    CHECK(auc_of(through) > 0.65);
    REQUIRE(train_on({files().train}, with(options, {"--epochs", "1", "--checkpoint", parts})).status == 0);
    auto const report = folder.file("no dense.html");
    auto const resumed =
        train_on({files().train}, {"--resume", "--epochs", "2", "--checkpoint", parts, "--threads", "3", "--report", report});
    CHECK(figures(resumed) == figures(through));
    CHECK(tensors_of(parts) == tensors_of(whole));
    CHECK(contents(report).find("history") != std::string::npos);
    CHECK(figures(run({"--eval-only", "--test", files().test, "--checkpoint", parts})) == figures(through));
  }
}

TEST_CASE("a run on row groups that is resumed ends with the manifest of one that ran through") {
  auto const& folder = files().folder;
  auto const through = folder.file("manifest whole"), resumed = folder.file("manifest resumed");
  arguments const options{"--epochs", "1", "--batch-size", "100", "--checkpoint-every", "40", "--threads", "2", "--checkpoint"};
  REQUIRE(train(with(options, {through})).status == 0);
  REQUIRE(tessera::list_step_folders(through).back().step.value == 120);
  std::filesystem::copy(through, resumed, std::filesystem::copy_options::recursive);
  auto const manifest = [](std::string const& checkpoints) {
    return contents(tessera::list_step_folders(checkpoints).back().path + "/manifest.json");
  };
  REQUIRE(train_on({files().train}, {"--resume", "--checkpoint", resumed}).says("nothing to train"));
  CHECK(manifest(resumed) == manifest(through));
  std::filesystem::remove_all(tessera::list_step_folders(resumed).back().path);
  REQUIRE(train_on({files().train}, {"--resume", "--checkpoint", resumed}).status == 0);
  CHECK(manifest(resumed) == manifest(through));
}

TEST_CASE("metrics, reports and progressive runs are those of other data") {
  auto const& folder = files().folder;
  auto const metrics = folder.file("metrics.jsonl"), report = folder.file("report.html");
  auto const result =
      train({"--progressive", "--batch-size", "60", "--metrics", metrics, "--report", report, "--pooling", "history=attention"});
  REQUIRE_MESSAGE(result.status == 0, result.output);
  CHECK(std::regex_search(result.output, std::regex("\nprogressive auc=0\\.\\d{4} .* samples=12000\n")));
  std::istringstream text(contents(metrics));
  std::vector<nlohmann::json> lines;
  for (std::string line; std::getline(text, line);) lines.push_back(nlohmann::json::parse(line));
  REQUIRE(lines.size() == 2 + 2);
  CHECK(lines[0].at("event") == "train");
  CHECK(lines[1].at("step") == 200);
  CHECK(lines[2].at("progressive_auc").get<double>() > 0.6);
  CHECK(lines.back().at("event") == "test");
  auto const page = contents(report);
  for (std::string const cell : {"history", "places", "user", "item", "--pooling", "history=attention", "--session-column"})
    CHECK(page.find("<td>" + cell + "</td>") != std::string::npos);
  check_refused_at_once(train({"--progressive", "--order", "samples"}), {"--progressive", "--order samples"});
}

TEST_CASE("other ways to read run, too") {
  for (arguments const& options :
       {arguments{"--order", "samples"}, arguments{"--order", "stored", "--dense", "log"}, arguments{"--max-length", "1"},
        arguments{"--pooling", "history=transformer,places=transformer,user=transformer,item=transformer"},
        arguments{"--pooling", "history=attention", "--attention-target", "user", "--embedding-dim", "5"},
        arguments{"--embedding-init", "rows", "--row-format", "bf16", "--model", "dlrm", "--dense", "stored"},
        arguments{"--tables", R"({"item": {"embedding-dim": 6, "hash-table": 300, "evict": "lfu"}, "user": {"row-format": "int8"}})"}}) {
    CAPTURE(options[1]);
    auto const result = train(with(options, {"--epochs", "1"}));
    CHECK_MESSAGE(result.status == 0, result.output);
    CHECK(auc_of(result) > 0.55);
  }
  auto const any_id = train_on({files().train}, with(arguments(columns.begin(), columns.begin() + 8),
                                                     {"--hash-table", "5000", "--admit", "2", "--row-format", "fp16", "--epochs", "1"}));
  CHECK(auc_of(any_id) > 0.55);
  auto const defaults = train_on({files().train}, {"--dense-columns", "dense_0", "--sparse-columns", "item,user", "--epochs", "1"});
  CHECK_MESSAGE(defaults.says("2 tables of dim 16 (0.01 MB"), defaults.output);  // of vocabularies of 100 ids
  auto const dense_alone = train_on({files().train}, {"--dense-columns", "dense_0,dense_1", "--epochs", "1"});
  CHECK_MESSAGE(dense_alone.says("model: 2 dense features, 0 tables"), dense_alone.output);
}

TEST_CASE("columns that are missing or of another type are refused by name") {
  check_refused_at_once(train_on({files().train}, {}), {"--sparse-columns", files().train, "lists history,places,user,item",
                                                        "integers session,time", "other numbers label,dense_0,dense_1,dense_2"});
  auto const refused = [&](arguments const& more, std::vector<std::string> const& parts) {
    check_refused_at_once(train_on({files().train}, more), parts);
  };
  refused({"--dense-columns", "dense_7", "--sparse-columns", "item"}, {"column dense_7", "no column of that name", files().test});
  refused({"--dense-columns", "dense_0", "--sparse-columns", "items"}, {"column items", "integers or texts", "no column"});
  refused({"--dense-columns", "item", "--sparse-columns", "user"}, {"column item", "expected numbers", "found List of"});
  refused({"--dense-columns", "dense_0", "--sparse-columns", "dense_1"}, {"column dense_1", "expected integers or texts", "FLOAT"});
  refused({"--dense-columns", "dense_0", "--sparse-columns", "item", "--label-column", "click"}, {"column click"});
  refused({"--dense-columns", "dense_0", "--sparse-columns", "item", "--label-column", "user"}, {"column user", "expected numbers"});
  refused({"--dense-columns", "dense_0", "--sparse-columns", "item", "--session-column", "dense_1"}, {"column dense_1", "integers"});
  refused({"--dense-columns", "dense_0", "--sparse-columns", "item", "--time-column", "history"}, {"column history", "integers or times"});
  refused({"--dense-columns", "dense_0,dense_0", "--sparse-columns", "item"}, {"a column twice", "dense_0"});
  refused({"--dense-columns", "dense_0", "--sparse-columns", "item,user,item"}, {"a column twice", "item"});
  refused({"--dense-columns", "label", "--sparse-columns", "item"}, {"a column twice", "label"});
  refused({"--dense-columns", "dense_0", "--sparse-columns", "item", "--order", "sessions"}, {"--order", "--session-column"});
}

TEST_CASE("poolings and groups that cannot be are refused by name") {
  auto const refused = [&](arguments const& more, std::vector<std::string> const& parts) { check_refused_at_once(train(more), parts); };
  refused({"--pooling", "histori=sum"}, {"--pooling", "column histori", "history,places,user,item"});
  refused({"--pooling", "history=median"}, {"--pooling", "column history", "found median", "transformer"});
  refused({"--pooling", "history"}, {"--pooling", "NAME=KIND", "found history"});
  refused({"--pooling", "history=attention,history=sum"}, {"--pooling", "a column twice", "history"});
  refused({"--pooling", "history+places=sum"}, {"--pooling", "put lists together", "history+places=sum"});
  refused({"--pooling", "history=attention", "--attention-target", "history"},
          {"--attention-target", "column history", "places,user,item"});
  refused({"--pooling", "history=attention", "--attention-target", "shop"}, {"--attention-target", "column shop"});
  refused({"--attention-target", "item"}, {"--attention-target", "no column is pooled by attention"});
  refused({"--pooling", "history=attention,places=max,user=max,item=mean"}, {"--pooling", "attention needs a target"});
  refused({"--dedup", ""}, {"--dedup", "auto, off, or groups of columns"});
  refused({"--dedup", "history+house"}, {"--dedup", "column house", "history,places,user,item"});
  refused({"--dedup", "history+user,user"}, {"--dedup", "a column twice", "user"});
  refused({"--dedup", "history,,user"}, {"--dedup", "an empty group"});
  refused({"--dedup", "history,places", "--pooling", "history+places=attention"}, {"--dedup", "group history", "history+places"});
  refused({"--dedup", "Auto"}, {"--dedup", "column Auto"});
  refused({"--dedup-sums", "exact"}, {"--dedup-sums", "exact", "expanded"});
  refused({"--max-length", "0"}, {"--max-length", "not an integer from 1 to 4611686018427387904: 0"});
  refused({"--order", "random"}, {"--order", "random", "sessions"});
}

TEST_CASE("a log that is not clustered says so, and train_ctr cluster mends that") {
  arguments const brief = with(columns, {"--epochs", "1", "--batch-size", "500"});
  auto const by_time = train_on({files().by_time}, brief);
  CHECK_MESSAGE(by_time.says("train_ctr cluster IN... OUT.parquet --session-column session"), by_time.output);
  auto const clustered = files().folder.file("clustered.pq");
  auto const done = run({"cluster", files().by_time, clustered, "--session-column", "session"});
  REQUIRE_MESSAGE(done.status == 0, done.output);
  CHECK_MESSAGE(done.says("clustered 12000 samples into " + clustered), done.output);
  auto const mended = train_on({clustered}, brief);
  REQUIRE_MESSAGE(mended.status == 0, mended.output);
  CHECK_FALSE(mended.says("train_ctr cluster"));
  CHECK(mended.says("train: 12000 samples"));
  check_refused(run({"cluster", files().by_time, clustered}), {"--session-column"});
  check_refused(run({"cluster", files().by_time, files().folder.file("out.tsv"), "--session-column", "session"}), {"OUT", ".parquet"});
  check_refused(run({"cluster", files().by_time, clustered, "--session-column", "visit"}), {"visit"});
  check_refused(run({"cluster", clustered, clustered, "--session-column", "session"}), {"OUT", "IN", clustered});
  auto const by_columns = files().folder.file("clustered by columns.parquet");
  auto const named =
      run({"cluster", files().by_time, by_columns, "--columns", R"({"label": "clicked", "sparse": ["item"], "session": "session"})"});
  REQUIRE_MESSAGE(named.status == 0, named.output);
  CHECK(contents(by_columns) == contents(clustered));
}

// Blocks of the two differ.
TEST_CASE("the same samples as text and as Parquet train to the same model, and have the same profile") {
  auto const& folder = files().folder;
  arguments text_columns = columns;
  text_columns[3] = "history[],places[],user[],item[]";
  for (arguments const& options : {arguments{"--pooling", "history+places=attention"},
                                   arguments{"--vocabulary-limit", "50", "--min-count", "2", "--model", "dcn", "--dense", "log"}}) {
    CAPTURE(options[0]);
    arguments const all = with(options, {"--order", "stored", "--epochs", "1", "--checkpoint"});
    auto const without_hash = [&](arguments const& named) {
      return arguments(named.begin(), named.end() - (options[0] == "--pooling" ? 0 : 2));
    };
    auto const of_text = folder.file("of text " + options[0]), of_parquet = folder.file("of parquet " + options[0]);
    auto const text = train_on({files().text}, with(without_hash(text_columns), with(all, {of_text})));
    auto const parquet = train_on({files().train}, with(without_hash(columns), with(all, {of_parquet})));
    REQUIRE_MESSAGE(text.status == 0, text.output);
    CHECK_MESSAGE(figures(parquet) == figures(text), parquet.output);
    auto const differ = [&](char const* file) {
      auto const of = [&](std::string const& checkpoints) {
        return contents(tessera::list_step_folders(checkpoints).back().path + "/" + file);
      };
      CHECK_FALSE(of(of_text).empty());
      return of(of_parquet) != of(of_text);
    };
    for (char const* const file : {"dense.safetensors", "tables.safetensors", "preprocessing.safetensors"}) {
      CAPTURE(file);
      CHECK_FALSE(differ(file));
    }
  }
  auto const profile = [&](std::string const& path, arguments const& named) {
    auto const json = folder.file("profile.json");
    auto const result = run(with({"profile", path, "--json", json}, arguments(named.begin(), named.end() - 2)));
    REQUIRE_MESSAGE(result.status == 0, result.output);
    CHECK(result.says("12,000 rows"));
    return contents(json);
  };
  CHECK(profile(files().text, text_columns) == profile(files().train, columns));
  auto const log = folder.file("log that stays.txt");
  std::filesystem::copy_file(files().text, log);
  auto const itself = run(with({"profile", log, "--json", log}, arguments(text_columns.begin(), text_columns.end() - 2)));
  check_refused(itself, {"--json", "FILE", log});
  CHECK(contents(log) == contents(files().text));
}

TEST_CASE("two numbers with 40 categories, and numbers alone, are learned from Parquet as from text") {
  tessera_tests::serial_host host;
  auto const exec = host.exec();
  temporary_folder const folder;
  for (std::int64_t const categories : {40, 0}) {
    CAPTURE(categories);
    tessera::sample_schema schema{.label = "clicked", .dense = {"n0", "n1"}};
    std::string names;
    for (std::int64_t c = 0; c < categories; ++c) {
      schema.sparse.push_back("c" + std::to_string(c));
      names += (c > 0 ? "," : "") + schema.sparse.back();
    }
    schema.single = schema.sparse;
    arguments all{"--label-column", "clicked", "--dense-columns", "n0,n1", "--epochs", "2", "--order", "stored"};
    if (categories > 0) all = with(all, {"--sparse-columns", names});
    std::mt19937_64 random(7);
    std::normal_distribution<float> normal;
    auto const write = [&](std::string const& name, std::int64_t count) {
      tessera::sample_columns samples(schema);
      samples.resize(exec, count);
      for (std::int64_t i = 0; i < count; ++i) {
        auto const number = normal(random);
        samples.dense()(0, i) = number;
        samples.dense()(1, i) = random() % 9 == 0 ? std::numeric_limits<float>::quiet_NaN() : normal(random);
        for (std::int64_t c = 0; c < categories; ++c) samples.single_ids(c)[i] = static_cast<std::int64_t>(random() % 30);
        samples.labels()[i] = number + normal(random) > 0 ? 1.0F : 0.0F;
      }
      tessera::parquet_writer parquet(folder.file(name + ".parquet"), schema, {.row_group_rows = 700});
      parquet.write(exec, samples.view());
      parquet.finish();
      tessera::delimited_writer text(folder.file(name + ".tsv"), schema, {.header = true, .quotes = true});
      text.append(exec, samples.view());
      text.close();
    };
    write("train", 3000);
    write("test", 1000);
    auto const trained = [&](std::string const& kind) {
      auto const result = run(with({"--train", folder.file("train" + kind), "--test", folder.file("test" + kind)}, all));
      REQUIRE_MESSAGE(result.status == 0, result.output);
      return result;
    };
    auto const of_parquet = trained(".parquet");
    CHECK_MESSAGE(auc_of(of_parquet) > 0.65, of_parquet.output);
    CHECK(figures(trained(".tsv")) == figures(of_parquet));
  }
}

TEST_CASE("files that are no Parquet are refused by name") {
  auto const no_parquet = files().folder.file("no.parquet");
  write_file(no_parquet, "0\t1\t2\n");
  check_refused_at_once(train_on({no_parquet}, columns), {no_parquet, "Parquet"});
  check_refused_at_once(run({"--train", no_parquet, "--test", no_parquet}), {no_parquet, "no Parquet file"});
  check_refused_at_once(train_on({files().folder.file("missing.parquet")}, columns), {"missing.parquet", "No such file"});
}

TEST_CASE("samples that nothing can be learned from are refused by column and number") {
  auto const path = files().folder.file("odd.parquet");
  tessera::sample_schema const schema{"label", {"x"}, {"item"}};
  auto const refused = [&](std::vector<float> const& labels, std::vector<float> const& numbers, std::vector<std::string> const& parts) {
    auto const rows = static_cast<std::int64_t>(labels.size());
    std::vector<std::int64_t> const ids(labels.size(), 3);
    std::vector<std::int64_t> offsets(labels.size() + 1);
    std::iota(offsets.begin(), offsets.end(), std::int64_t{0});
    std::vector<tessera::jagged_view<std::int64_t const>> const lists{{ids.data(), offsets.data(), rows}};
    tessera::sample_columns_view samples;
    samples.labels = labels;
    samples.dense = {numbers.data(), 1, rows};
    samples.sparse = lists;
    files().write(path, schema, samples, 0, rows);
    arguments const options{"--test", path, "--dense-columns", "x", "--sparse-columns", "item", "--order", "stored"};
    check_refused_at_once(run(with({"--train", path}, options)), parts);
  };
  refused({0, 1, 2}, {1, 1, 1}, {"neither 0 nor 1", "column label", "sample 2", "found 2"});
  refused({0, 1, 1}, {1, std::numeric_limits<float>::infinity(), 1}, {"not finite", "column x", "sample 1", "inf"});
  refused({}, {}, {"--test", "no samples"});
}

#endif
