// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-cost: 15
#include <doctest/doctest.h>

#include "../support/skip.hpp"

#ifndef TESSERA_TRAIN_CTR

TEST_CASE("train_ctr") { tessera_tests::skip("the examples are not built"); }

#else

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <random>
#include <regex>
#include <sstream>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include <nlohmann/json.hpp>

#include <tessera/core/config.hpp>
#include <tessera/files/manifest.hpp>
#include <tessera/files/step_folders.hpp>

#include "../support/random.hpp"
#include "run_program.hpp"
#include "temporary_folder.hpp"
#include "train_ctr_support.hpp"

namespace {

using namespace tessera_tests;

std::vector<nlohmann::json> json_lines(std::string const& path) {
  std::vector<nlohmann::json> lines;
  std::istringstream text(contents(path));
  for (std::string line; std::getline(text, line);) lines.push_back(nlohmann::json::parse(line));
  REQUIRE(!lines.empty());
  return lines;
}

/// Sample lines with one field replaced.
std::string with_field(std::string const& lines, int line, int field, std::string const& value) {
  std::istringstream text(lines);
  std::string result;
  int at = 0;
  for (std::string each; std::getline(text, each);) {
    if (++at == line) {
      std::istringstream split(each + '\t');
      std::string changed;
      int position = 0;
      for (std::string part; std::getline(split, part, '\t'); ++position)
        changed += (position > 0 ? "\t" : "") + (position == field ? value : part);
      each = changed;
    }
    result += each + '\n';
  }
  return result;
}

}  // namespace

TEST_CASE("the defaults learn the shipped data well, and the last line says how well") {
  auto const result = train_ctr(train_tsv, test_tsv);
  CAPTURE(result.output);
  CHECK(result.status == 0);
  CHECK(std::regex_match(result.last_line(), std::regex("test auc=0\\.\\d{4} logloss=0\\.\\d{4} ne=0\\.\\d{4} calibration=\\d\\.\\d{3} "
                                                        "samples_per_second=\\d+")));
  CHECK(figure(result, "auc") >= 0.925);
  CHECK(figure(result, "calibration") == doctest::Approx(1).epsilon(0.1));
  CHECK(figure(result, "samples_per_second") > 0);
  CHECK(result.says("train: 32561 samples"));
  CHECK(result.says("test: 16281 samples"));
  CHECK(result.says("empty everywhere, dropped: I6"));
  CHECK(result.says("epoch 1/"));
  CHECK_FALSE(result.says("\033"));  // no terminal, no drawing
}

TEST_CASE("the number of threads changes neither figures nor predictions") {
  temporary_folder folder;
  auto const train = folder.file("train.tsv"), test = folder.file("test.tsv");
  write_file(train, head(train_tsv, 6000));
  write_file(test, head(test_tsv, 6000));
  std::string expected_figures, expected_csv;
  for (std::string const threads : {"1", "2", "3"}) {
    auto const csv = folder.file(threads + ".csv");
    auto const result = train_ctr(train, test, {"--epochs", "1", "--threads", threads, "--predict", csv});
    REQUIRE_MESSAGE(result.status == 0, result.output);
    if (threads == "1") {
      expected_figures = figures(result);
      expected_csv = contents(csv);
      CHECK(std::count(expected_csv.begin(), expected_csv.end(), '\n') == 1 + 6000);
      CHECK(std::regex_search(expected_csv, std::regex("^sample,label,probability\n0,[01],[01]\\.?[0-9e-]*\n1,")));
    }
    CHECK(figures(result) == expected_figures);
    CHECK(contents(csv) == expected_csv);
  }
}

TEST_CASE("a run that is killed and resumed ends where an uninterrupted one does") {
  auto const seed = draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  temporary_folder folder;
  auto const train = folder.file("train.tsv"), test = folder.file("test.tsv");
  write_file(train, head(train_tsv, 12000));
  write_file(test, head(test_tsv, 1000));
  auto const options = [&](std::string const& checkpoints) {
    return arguments{"--epochs",     "2",         "--batch-size",       "64", "--lr",      "0.002",
                     "--checkpoint", checkpoints, "--checkpoint-every", "20", "--threads", "3"};
  };
  // The one that runs through reads no batch ahead, the others do.
  auto const whole = folder.file("whole");
  auto serial = options(whole);
  serial.insert(serial.end(), {"--pipeline", "off"});
  auto const uninterrupted = train_ctr(train, test, serial);
  REQUIRE_MESSAGE(uninterrupted.status == 0, uninterrupted.output);
  auto const expected = tensors_of(whole);

  // Kills it a while after its first new checkpoint; whether that was before its end.
  auto const kill_once = [&](arguments const& more, std::string const& checkpoints) {
    auto const newest = [&] {
      auto const steps = tessera::list_step_folders(checkpoints);
      return steps.empty() ? -1 : steps.back().step.value;
    };
    auto const before = newest();
    running_program program(command_of(train, test, more));
    while (newest() == before && !program.ended()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    std::this_thread::sleep_for(std::chrono::microseconds(std::uniform_int_distribution<int>(0, 80000)(random)));
    program.kill();
    return program.wait().status < 0;
  };

  int killed = 0;
  for (int round = 0; round < 3; ++round) {
    CAPTURE(round);
    auto const checkpoints = folder.file("round " + std::to_string(round));
    killed += kill_once(options(checkpoints), checkpoints);
    // What a checkpoint keeps needs no repeating.
    arguments const resume{"--resume", "--checkpoint", checkpoints, "--checkpoint-every", "20", "--threads", "2"};
    if (round == 2)
      for (int again = 0; again < 2; ++again) killed += kill_once(resume, checkpoints);
    auto const resumed = train_ctr(train, test, round == 1 ? arguments{"--resume", "--checkpoint", checkpoints, "--threads", "1"} : resume);
    REQUIRE_MESSAGE(resumed.status == 0, resumed.output);
    CHECK(resumed.says("resumed from " + checkpoints + "/step-"));
    CHECK(tensors_of(checkpoints) == expected);
    CHECK(figures(resumed) == figures(uninterrupted));
    CHECK(tessera::list_step_folders(checkpoints).size() <= 2);
  }
  MESSAGE("seed " << seed << ": " << killed << " of 5 kills came before the end");
  CHECK(killed > 0);
}

TEST_CASE("reading ahead changes no bit of checkpoints, predictions, metrics or reports") {
  small_data const data;
  struct outcome {
    std::string figures, tensors, manifest, predictions, metrics, report;
  };
  auto const with = [&](std::string const& threads, std::string const& pipeline, arguments const& more) {
    auto const name = [&](char const* kind) { return data.folder.file(kind); };
    std::filesystem::remove_all(name("checkpoints"));
    arguments all{"--batch-size",       "32", "--threads", threads,     "--pipeline", pipeline,        "--checkpoint", name("checkpoints"),
                  "--checkpoint-every", "10", "--predict", name("csv"), "--metrics",  name("metrics"), "--report",     name("report")};
    all.insert(all.end(), more.begin(), more.end());
    auto const run = data.run(all);
    REQUIRE_MESSAGE(run.status == 0, run.output);
    auto const strip = [](std::string const& text, char const* what) { return std::regex_replace(text, std::regex(what), ""); };
    return outcome{figures(run),
                   tensors_of(name("checkpoints")),
                   contents(tessera::list_step_folders(name("checkpoints")).back().path + "/manifest.json"),
                   contents(name("csv")),
                   strip(contents(name("metrics")), "\"samples_per_second\":[^,}]*"),
                   strip(contents(name("report")), "<tr><td>--threads</td><td>.</td></tr>")};
  };
  using ways = std::vector<std::pair<std::string, std::string>>;
  for (arguments const& options :
       {arguments{"--epochs", "2"},
        arguments{"--epochs", "2", "--model", "deepfm", "--row-format", "bf16", "--embedding-optimizer", "adam", "--embedding-lr", "0.01"},
        arguments{"--progressive", "--epochs", "1", "--model", "dcn", "--hash-size", "50"}}) {
    CAPTURE(options.size());
    auto const expected = with("1", "off", options);
    for (auto const& way : options.size() == 2 ? ways{{"1", "on"}, {"2", "off"}, {"2", "on"}, {"4", "on"}} : ways{{"2", "on"}}) {
      CAPTURE(way.first);
      CAPTURE(way.second);
      auto const found = with(way.first, way.second, options);
      CHECK(found.figures == expected.figures);
      CHECK(found.tensors == expected.tensors);
      CHECK(found.manifest == expected.manifest);
      CHECK(found.predictions == expected.predictions);
      CHECK(found.metrics == expected.metrics);
      CHECK(found.report == expected.report);
    }
  }
  check_refused(data.run({"--pipeline", "perhaps"}), {"--pipeline", "perhaps", "off"});
}

TEST_CASE("a run that fails while it reads ahead ends with its error") {
  small_data const data;
  for (std::string const threads : {"2", "4"}) {
    auto const result = data.run({"--threads", threads, "--pipeline", "on", "--lr", "1e30", "--batch-size", "8"});
    check_refused(result, {"diverged"});
    CHECK(result.status == 1);
  }
}

TEST_CASE("the report is one page with curves, calibration, tables and options, and fetches nothing") {
  small_data const data;
  auto const report = data.folder.file("a & b.html"), checkpoints = data.folder.file("checkpoints");
  auto const run = data.run({"--epochs", "3", "--batch-size", "50", "--report", report, "--checkpoint", checkpoints});
  REQUIRE_MESSAGE(run.status == 0, run.output);
  auto const page = contents(report);
  auto const count = [](std::string const& text, std::string const& part) {
    std::size_t n = 0;
    for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
    return n;
  };
  auto const has = [&](std::string const& part) {
    CAPTURE(part);
    CHECK(page.find(part) != std::string::npos);
  };
  CHECK(page.starts_with("<!doctype html>"));
  CHECK(page.ends_with("</html>\n"));
  for (char const* const outside : {"http", "<script", "src=", "href=", "url(", "@import", "nan", "inf\""}) {
    CAPTURE(outside);
    CHECK(page.find(outside) == std::string::npos);
  }
  CHECK(count(page, "<svg") == count(page, "</svg>"));
  CHECK(count(page, "<table") == 3);
  for (char const* const chart : {"Log loss", "AUC", "Calibration", "Predictions"})
    has(std::string("<figcaption>") + chart + "</figcaption>");
  for (char const* const part : {"Curves", "Calibration on the test data", "Embedding tables", "Options"}) has(std::string("<h2>") + part);
  CHECK(count(page, "<title>training</title>") == 2);  // a curve of each
  CHECK(count(page, "<title>test: ") == 6);            // a dot an epoch
  auto const cell = [](std::string const& text) { return "<td>" + text + "</td>"; };
  std::smatch auc;
  auto const last_line = run.last_line();
  REQUIRE(std::regex_search(last_line, auc, std::regex("auc=([0-9.]+)")));
  has(cell(auc[1]));
  has(cell("300"));
  has(cell("--batch-size") + cell("50"));
  has(cell("--model") + cell("dlrm"));
  has(cell("--embedding-lr") + cell("0.03"));
  has(cell("--train") + cell(data.train));
  // Every table by its feature, with its rows, dim, megabytes, reads in 3 epochs of 1000 samples, and shares.
  CHECK(count(page, cell("3000")) == 13);
  CHECK(std::regex_search(page, std::regex("<td>C1</td><td>\\d+</td><td>16</td><td>\\d+\\.\\d+</td><td>\\d+\\.\\d+</td><td>3000</td>"
                                           "<td>\\d+\\.\\d %</td><td>\\d+\\.\\d %</td><td>\\d+\\.\\d %</td>")));

  // Of a run that went on, what it saw; of one that had ended, the test alone.
  REQUIRE(data.run({"--resume", "--checkpoint", checkpoints, "--epochs", "4", "--report", report}).status == 0);
  auto const further = contents(report);
  CHECK(further.find("went on from step 60:") != std::string::npos);
  CHECK(count(further, cell("1000")) >= 13);
  REQUIRE(data.run({"--resume", "--checkpoint", checkpoints, "--report", report}).status == 0);
  CHECK(count(contents(report), "<title>test: ") == 2);
  CHECK(contents(report).find("nan") == std::string::npos);
}

TEST_CASE("reports that cannot be") {
  small_data const data;
  auto const report = data.folder.file("report.html"), checkpoints = data.folder.file("checkpoints");
  REQUIRE(data.run({"--epochs", "1", "--checkpoint", checkpoints}).status == 0);
  check_refused(data.run({"--eval-only", "--checkpoint", checkpoints, "--report", report}), {"--report", "--eval-only"});
  CHECK_FALSE(std::filesystem::exists(report));
  // A run that fails leaves the page of an earlier one.
  write_file(report, "of an earlier run\n");
  check_refused(data.run({"--lr", "1e30", "--report", report}), {"diverged"});
  CHECK(contents(report) == "of an earlier run\n");
  // Tested on one label only: no AUC, and a page all the same.
  std::string zeros;
  std::istringstream lines(head(test_tsv, 100));
  for (std::string line; std::getline(lines, line);)
    if (line[0] == '0') zeros += line + '\n';
  write_file(data.folder.file("zeros"), zeros);
  auto const run = train_ctr(data.train, data.folder.file("zeros"), {"--epochs", "1", "--report", report});
  CHECK_MESSAGE(run.status == 0, run.output);
  CHECK(contents(report).find("test AUC nan") != std::string::npos);
  CHECK(contents(report).find("\"nan") == std::string::npos);  // no coordinate
}

TEST_CASE("a finished run can be resumed, tested and trained further") {
  small_data const data;
  auto const checkpoints = data.folder.file("checkpoints"), csv = data.folder.file("end.csv");
  auto const trained = data.run({"--epochs", "2", "--checkpoint", checkpoints, "--predict", csv});
  REQUIRE_MESSAGE(trained.status == 0, trained.output);
  auto const tensors = tensors_of(checkpoints), predictions = contents(csv);

  auto const resumed = data.run({"--checkpoint", checkpoints, "--resume", "--predict", data.folder.file("resumed.csv")});
  CHECK_MESSAGE(resumed.status == 0, resumed.output);
  CHECK(figures(resumed) == figures(trained));
  CHECK(figure(resumed, "samples_per_second") > 0);  // of the test
  CHECK_FALSE(resumed.says("nan"));
  CHECK(tensors_of(checkpoints) == tensors);
  CHECK(contents(data.folder.file("resumed.csv")) == predictions);

  auto const tested = run_program(
      {TESSERA_TRAIN_CTR, "--eval-only", "--test", data.test, "--checkpoint", checkpoints, "--predict", data.folder.file("tested.csv")});
  CHECK_MESSAGE(tested.status == 0, tested.output);
  CHECK(figures(tested) == figures(trained));
  CHECK(contents(data.folder.file("tested.csv")) == predictions);
  CHECK(tensors_of(checkpoints) == tensors);

  // Two epochs and a third are three epochs.
  auto const further = data.run({"--checkpoint", checkpoints, "--resume", "--epochs", "3"});
  CHECK_MESSAGE(further.status == 0, further.output);
  auto const three = data.folder.file("three");
  auto const at_once = data.run({"--checkpoint", three, "--epochs", "3"});
  CHECK(figures(further) == figures(at_once));
  CHECK(tensors_of(checkpoints) == tensors_of(three));
}

TEST_CASE("the optimizers, too, go on as they were") {
  small_data const data;
  for (arguments const& options :
       {arguments{"--optimizer", "sgd", "--lr", "0.05", "--embedding-optimizer", "sgd", "--embedding-lr", "0.5"},
        arguments{"--optimizer", "adagrad", "--embedding-init", "rows", "--dense", "log", "--hash-size", "500"}}) {
    CAPTURE(options[1]);
    auto const parts = data.folder.file(options[1] + " parts"), whole = data.folder.file(options[1] + " whole");
    auto const with = [&](std::string const& epochs, std::string const& checkpoints) {
      auto all = options;
      all.insert(all.end(), {"--epochs", epochs, "--checkpoint", checkpoints});
      return all;
    };
    REQUIRE(data.run(with("1", parts)).status == 0);
    REQUIRE(data.run({"--resume", "--checkpoint", parts, "--epochs", "2"}).status == 0);
    REQUIRE(data.run(with("2", whole)).status == 0);
    CHECK(tensors_of(parts) == tensors_of(whole));
  }
}

TEST_CASE("every model and row format learns, and goes on from its checkpoint with the same bits on any threads") {
  small_data const data;
  for (arguments const& options :
       {arguments{"--model", "dcn", "--cross-layers", "2", "--lr", "0.01", "--optimizer", "adagrad"},
        arguments{"--model", "dcn", "--cross-rank", "4", "--row-format", "bf16"}, arguments{"--model", "deepfm"},
        arguments{"--model", "dlrm", "--row-format", "fp16", "--embedding-optimizer", "rowwise-adam", "--embedding-lr", "0.01"}}) {
    CAPTURE(options[1]);
    auto const parts = data.folder.file(options[1] + options[3 % options.size()] + " parts"),
               whole = data.folder.file("whole " + parts.substr(parts.size() - 12));
    auto const with = [&](arguments more) {
      more.insert(more.end(), options.begin(), options.end());
      return data.run(more);
    };
    auto const first = with({"--epochs", "1", "--checkpoint", parts, "--threads", "2"});
    REQUIRE_MESSAGE(first.status == 0, first.output);
    REQUIRE(data.run({"--resume", "--checkpoint", parts, "--epochs", "4"}).status == 0);
    auto const at_once = with({"--epochs", "4", "--checkpoint", whole, "--threads", "1"});
    REQUIRE_MESSAGE(at_once.status == 0, at_once.output);
    CHECK(tensors_of(parts) == tensors_of(whole));
    CHECK(figure(at_once, "auc") > 0.8);
    CHECK(figures(data.run({"--eval-only", "--checkpoint", parts})) == figures(at_once));
  }
}

TEST_CASE("a schedule goes on where it was") {
  small_data const data;
  arguments const schedule{"--lr-schedule", "quadratic", "--warmup-steps", "4", "--decay-start", "6", "--decay-steps", "12"};
  auto const parts = data.folder.file("parts"), whole = data.folder.file("whole"), longer = data.folder.file("longer");
  auto const with = [&](std::string const& epochs, std::string const& checkpoints) {
    auto all = schedule;
    all.insert(all.end(), {"--epochs", epochs, "--checkpoint", checkpoints});
    return data.run(all);
  };
  REQUIRE(with("1", parts).status == 0);  // 8 steps
  REQUIRE(data.run({"--resume", "--checkpoint", parts, "--epochs", "3"}).status == 0);
  REQUIRE(with("3", whole).status == 0);
  CHECK(tensors_of(parts) == tensors_of(whole));
  // Another rate is another model.
  REQUIRE(data.run({"--epochs", "3", "--checkpoint", longer}).status == 0);
  CHECK(tensors_of(longer) != tensors_of(whole));
  // From step 18 on the rates are 0.
  auto const tested = data.run({"--eval-only", "--checkpoint", whole});
  REQUIRE(data.run({"--resume", "--checkpoint", whole, "--epochs", "5"}).status == 0);
  CHECK(figures(data.run({"--eval-only", "--checkpoint", whole})) == figures(tested));
}

TEST_CASE("gradients are clipped where that is asked for") {
  small_data const data;
  auto const plain = data.run({"--epochs", "2", "--optimizer", "sgd", "--embedding-optimizer", "sgd"});
  auto const with = [&](std::string const& norm) {
    return data.run({"--epochs", "2", "--optimizer", "sgd", "--embedding-optimizer", "sgd", "--clip-norm", norm});
  };
  CHECK(figures(with("1000000")) == figures(plain));
  CHECK(figure(with("1e-6"), "logloss") > figure(plain, "logloss") + 1e-4);
}

TEST_CASE("a progressive run tests each batch before it trains on it") {
  small_data const data;
  auto const metrics = data.folder.file("metrics");
  auto const run = data.run({"--progressive", "--batch-size", "10", "--metrics", metrics});
  REQUIRE_MESSAGE(run.status == 0, run.output);
  CHECK(run.says("epoch 1/1"));
  CHECK(std::regex_search(run.output, std::regex("\nprogressive auc=0\\.\\d{4} logloss=0\\.\\d{4} window_auc=0\\.\\d{4} "
                                                 "window_logloss=0\\.\\d{4} samples=1000\n")));
  auto const lines = json_lines(metrics);
  REQUIRE(lines.size() == 3);
  auto const& last = lines[0];  // step 100 of 100: its loss is the mean over all batches, before each was trained on
  CHECK(last.at("step") == 100);
  CHECK(last.at("progressive_logloss").get<double>() == doctest::Approx(last.at("loss").get<double>()).epsilon(1e-6));
  CHECK(last.at("progressive_auc").get<double>() == doctest::Approx(last.at("auc").get<double>()).epsilon(1e-3));
  CHECK(last.at("window_auc") == last.at("auc"));
  CHECK(last.at("window_logloss").get<double>() == doctest::Approx(last.at("loss").get<double>()).epsilon(1e-6));
  CHECK(lines[1].at("event") == "progressive");
  CHECK(lines[1].at("tested") == 1000);
  CHECK(lines[1].at("progressive_auc") == last.at("progressive_auc"));
  CHECK(lines[2].at("event") == "test");
  // In the order of the file: what stands first is tested on an untrained model.
  auto const one_batch = data.run({"--progressive", "--batch-size", "1000", "--metrics", metrics});
  REQUIRE(one_batch.status == 0);
  CHECK(json_lines(metrics)[0].at("progressive_logloss").get<double>() > last.at("progressive_logloss").get<double>() + 0.05);
  CHECK(figures(data.run({"--progressive", "--seed", "1"})) == figures(data.run({"--progressive"})));
  check_refused(data.run({"--progressive", "--epochs", "2"}), {"--progressive", "--epochs 1"});
}

TEST_CASE("two runs do not share a checkpoint folder") {
  small_data const data;
  auto const checkpoints = data.folder.file("checkpoints");
  running_program first(command_of(data.train, data.test, {"--epochs", "100000", "--checkpoint", checkpoints, "--checkpoint-every", "50"}));
  while (tessera::list_step_folders(checkpoints).empty() && !first.ended()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  REQUIRE_FALSE(first.ended());
  check_refused(data.run({"--checkpoint", checkpoints}), {"--checkpoint", checkpoints, "another run"});
  check_refused(data.run({"--checkpoint", checkpoints, "--resume"}), {"--checkpoint", checkpoints, "another run"});
  first.kill();
  first.wait();
  CHECK(data.run({"--checkpoint", checkpoints, "--resume", "--epochs", "1"}).status == 0);  // the lock went with its holder
}

TEST_CASE("what contradicts the checkpoint is refused by name") {
  small_data const data;
  auto const checkpoints = data.folder.file("checkpoints");
  REQUIRE(data.run({"--epochs", "1", "--checkpoint", checkpoints}).status == 0);
  auto const tensors = tensors_of(checkpoints);
  auto const resume = [&](arguments more) {
    more.insert(more.end(), {"--checkpoint", checkpoints, "--resume"});
    return data.run(more);
  };
  check_refused(resume({"--embedding-dim", "8"}), {"--embedding-dim", "checkpoint 16", "command line 8"});
  check_refused(resume({"--optimizer", "sgd"}), {"--optimizer", "\"adam\"", "\"sgd\""});
  check_refused(resume({"--embedding-optimizer", "sgd"}), {"--embedding-optimizer"});
  check_refused(resume({"--bottom", "64"}), {"--bottom", "[64,32]", "[64]"});
  check_refused(resume({"--top", "128,64,32"}), {"--top"});
  check_refused(resume({"--hash-size", "100"}), {"--hash-size"});
  check_refused(resume({"--min-count", "2"}), {"--min-count"});
  check_refused(resume({"--dense", "log"}), {"--dense:"});
  check_refused(resume({"--dense-as-category", "off"}), {"--dense-as-category"});
  check_refused(resume({"--embedding-init", "rows"}), {"--embedding-init"});
  check_refused(resume({"--seed", "2"}), {"--seed"});
  check_refused(resume({"--model", "dcn"}), {"--model", "\"dlrm\"", "\"dcn\""});
  check_refused(resume({"--row-format", "bf16"}), {"--row-format"});
  check_refused(resume({"--progressive"}), {"--progressive"});
  auto eval = data.run({"--eval-only", "--checkpoint", checkpoints, "--embedding-dim", "8"});
  check_refused(eval, {"--embedding-dim"});
  check_refused(train_ctr(data.test, data.test, {"--checkpoint", checkpoints, "--resume"}), {"--train", "300", "1000"});
  CHECK(tensors_of(checkpoints) == tensors);
  // Saying the same again, or another speed of learning, contradicts nothing.
  CHECK(
      resume({"--embedding-dim", "16", "--bottom", "64,32", "--seed", "1", "--dense", "standard", "--dense-as-category", "auto"}).status ==
      0);
  CHECK(resume({"--lr", "0.0001", "--epochs", "2"}).status == 0);
}

TEST_CASE("other training data are refused, if only their order or one label differs") {
  small_data const data;
  auto const checkpoints = data.folder.file("checkpoints"), metrics = data.folder.file("metrics");
  auto const first = data.folder.file("first.tsv"), second = data.folder.file("second.tsv");
  auto const text = head(train_tsv, 500);
  write_file(first, text);
  write_file(second, contents(data.train).substr(text.size()));
  auto const run = [&](std::string const& a, std::string const& b, arguments const& more) {
    arguments all{TESSERA_TRAIN_CTR, "--train", a, b, "--test", data.test, "--checkpoint", checkpoints, "--metrics", metrics};
    all.insert(all.end(), more.begin(), more.end());
    return run_program(all);
  };
  REQUIRE(run(first, second, {"--epochs", "1"}).status == 0);
  auto const tensors = tensors_of(checkpoints), lines = contents(metrics);
  check_refused(run(second, first, {"--resume"}), {"option --train", "other data", "fingerprint"});
  check_refused(run(first, first, {"--resume"}), {"option --train"});
  write_file(first, with_field(text, 5, 0, text.substr(head(train_tsv, 4).size(), 1) == "0" ? "1" : "0"));
  REQUIRE(contents(first).size() == text.size());
  REQUIRE(contents(first) != text);
  check_refused(run(first, second, {"--resume"}), {"option --train", "fingerprint"});
  CHECK(tensors_of(checkpoints) == tensors);
  CHECK(contents(metrics) == lines);
  write_file(first, text);
  CHECK(run(first, second, {"--resume"}).status == 0);
}

TEST_CASE("what a checkpoint says of its options is checked like a command line") {
  small_data const data;
  auto const checkpoints = data.folder.file("checkpoints");
  REQUIRE(data.run({"--epochs", "1", "--checkpoint", checkpoints, "--hash-size", "50", "--embedding-lr", "0.02", "--seed", "3"}).status ==
          0);
  auto const folder = tessera::list_step_folders(checkpoints).back().path;
  auto const original = tessera::read_manifest(folder, "tessera.checkpoint", 3);
  using nlohmann::json;
  for (auto const& [name, value, shown] :
       std::vector<std::tuple<std::string, json, std::string>>{{"model", "dcn3", "dcn3"},
                                                               {"cross-layers", -1, "-1"},
                                                               {"cross-rank", "low", "low"},
                                                               {"row-format", "fp8", "fp8"},
                                                               {"lr-schedule", "cosine", "cosine"},
                                                               {"warmup-steps", -5, "-5"},
                                                               {"clip-norm", -0.5, "-0.5"},
                                                               {"embedding-weight-decay", nullptr, "null"},
                                                               {"optimizer", "lamb", "lamb"},
                                                               {"optimizer", 5, "5"},
                                                               {"embedding-optimizer", "lamb", "lamb"},
                                                               {"dense", "cube", "cube"},
                                                               {"dense-as-category", nullptr, "null"},
                                                               {"embedding-init", "wide", "wide"},
                                                               {"embedding-dim", 0, "0"},
                                                               {"bottom", {64, -1}, "-1"},
                                                               {"top", json::array(), ""},
                                                               {"hash-size", 1.5, "1.5"},
                                                               {"min-count", "few", "few"},
                                                               {"seed", -4, "-4"},
                                                               {"lr", -1, "-1"},
                                                               {"embedding-lr", nullptr, "null"},
                                                               {"batch-size", 0, "0"},
                                                               {"epochs", "x", "x"}}) {
    std::string const option = name;  // clang 14 captures no structured binding
    CAPTURE(option);
    auto changed = original;
    changed.state.at("options").at(name) = value;
    tessera::write_manifest(folder, changed);
    for (std::string const mode : {"--resume", "--eval-only"})
      check_refused(data.run({mode, "--checkpoint", checkpoints}), {"--" + name, shown, folder + "/manifest.json"});
  }
  tessera::write_manifest(folder, original);
  CHECK(data.run({"--resume", "--checkpoint", checkpoints}).status == 0);
}

TEST_CASE("a single checkpoint can be tested; to go on from one takes the folder above") {
  small_data const data;
  auto const checkpoints = data.folder.file("checkpoints");
  auto const trained = data.run({"--epochs", "1", "--checkpoint", checkpoints, "--checkpoint-every", "5"});
  REQUIRE_MESSAGE(trained.status == 0, trained.output);
  auto const newest = tessera::list_step_folders(checkpoints).back().path;
  auto const tested = data.run({"--eval-only", "--checkpoint", newest});
  CHECK_MESSAGE(tested.status == 0, tested.output);
  CHECK(figures(tested) == figures(trained));
  check_refused(data.run({"--resume", "--checkpoint", newest}), {"--checkpoint", newest, "the folder above", "damaged, remove"});
  check_refused(data.run({"--checkpoint", newest}), {"--checkpoint", newest, "the folder above"});
  CHECK(tessera::list_step_folders(newest).empty());
}

TEST_CASE("a folder in use is not overwritten, and an empty one has nothing to resume") {
  small_data const data;
  auto const checkpoints = data.folder.file("checkpoints");
  check_refused(data.run({"--checkpoint", checkpoints, "--resume"}), {"checkpoint: none in this folder", checkpoints});
  check_refused(data.run({"--checkpoint", checkpoints, "--eval-only"}), {"checkpoint: none in this folder", checkpoints});
  CHECK_FALSE(std::filesystem::exists(checkpoints));
  REQUIRE(data.run({"--epochs", "1", "--checkpoint", checkpoints}).status == 0);
  auto const tensors = tensors_of(checkpoints);
  check_refused(data.run({"--epochs", "1", "--checkpoint", checkpoints}), {"--checkpoint", checkpoints, "--resume"});
  CHECK(tensors_of(checkpoints) == tensors);
}

TEST_CASE("a damaged checkpoint is refused with the file's name and the one before") {
  small_data const data;
  auto const checkpoints = data.folder.file("checkpoints");
  REQUIRE(data.run({"--epochs", "2", "--batch-size", "100", "--checkpoint", checkpoints, "--checkpoint-every", "10"}).status == 0);
  auto const steps = tessera::list_step_folders(checkpoints);
  REQUIRE(steps.size() == 2);
  auto const tables = steps[1].path + "/tables.safetensors";
  auto bytes = contents(tables);
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
  write_file(tables, bytes);
  check_refused(data.run({"--resume", "--checkpoint", checkpoints}), {"tables.safetensors", "checkpoint before " + steps[0].path});
  CHECK(data.run({"--eval-only", "--checkpoint", steps[0].path}).status == 0);
  // The way on: without the damaged one, the one before is the newest.
  std::filesystem::remove_all(steps[1].path);
  CHECK(data.run({"--resume", "--checkpoint", checkpoints}).status == 0);
}

TEST_CASE("impossible options are refused by name") {
  small_data const data;
  auto const output = data.folder.file("checkpoints");
  auto const with = [&](arguments more) {
    more.insert(more.end(), {"--epochs", "1"});
    return data.run(more);
  };
  check_refused(with({"--batch-size", "0"}), {"--batch-size"});
  check_refused(with({"--batch-size", "-5"}), {"--batch-size"});
  check_refused(with({"--batch-size", "many"}), {"--batch-size"});
  check_refused(with({"--threads", "0"}), {"--threads"});
  check_refused(with({"--model", "foo"}), {"--model", "foo", "dlrm"});
  check_refused(with({"--dense", "foo"}), {"--dense", "foo", "standard"});
  check_refused(with({"--dense-as-category", "perhaps"}), {"--dense-as-category", "perhaps", "off"});
  check_refused(with({"--optimizer", "foo"}), {"--optimizer", "foo"});
  check_refused(with({"--embedding-optimizer", "lamb"}), {"--embedding-optimizer", "lamb"});
  for (std::string const option : {"--lr", "--embedding-lr"})
    for (std::string const value : {"nan", "-1", "0", "inf", "1e99", "fast", "0.1x", ""}) {
      CAPTURE(value);
      check_refused(with({option, value}), {option + ": not a number from 1e-45 to 1e+30: " + value});
    }
  for (std::string const option : {"--hash-size", "--min-count", "--bottom", "--top"})
    for (std::string const value : {"0", "-3", "x", "1.5", "99999999999999999999"}) {
      CAPTURE(value);
      check_refused(with({option, value}), {option + ": not an integer from 1 to "});
    }
  check_refused(with({"--bottom", "64,0"}), {"--bottom", "0"});
  check_refused(data.run({"--epochs", "0"}), {"--epochs"});
  check_refused(with({"--embedding-dim", "0"}), {"--embedding-dim"});
  for (std::string const value : {"nan", "-0.1", "columns", "inf"})
    check_refused(with({"--embedding-init", value}), {"--embedding-init", value});
  check_refused(with({"--seed", "-1"}), {"--seed"});
  check_refused(with({"--row-format", "fp8"}), {"--row-format", "fp8", "bf16"});
  check_refused(with({"--cross-layers", "2"}), {"--cross-layers", "dcn"});
  check_refused(with({"--model", "deepfm", "--cross-rank", "2"}), {"--cross-rank", "dcn"});
  check_refused(with({"--model", "dcn", "--cross-rank", "-2"}), {"--cross-rank", "not an integer from 0 to 536870911: -2"});
  check_refused(with({"--model", "dcn", "--cross-rank", "100000"}), {"rank", "100000"});
  check_refused(with({"--lr-schedule", "cosine"}), {"--lr-schedule", "cosine", "linear"});
  check_refused(with({"--lr-schedule", "linear"}), {"--lr-schedule", "--decay-steps"});
  check_refused(with({"--decay-steps", "5"}), {"--decay-steps", "--lr-schedule"});
  check_refused(with({"--warmup-steps", "5", "--optimizer", "ftrl"}), {"--warmup-steps", "ftrl"});
  for (std::string const option : {"--clip-norm", "--embedding-weight-decay"})
    for (std::string const value : {"nan", "-1", "inf", "much"}) {
      CAPTURE(value);
      check_refused(with({option, value}), {option + ": not a number from 1e-45 to ", ", or 0: " + value});
    }
  check_refused(with({"--hash-size", "100", "--min-count", "2"}), {"--hash-size", "--min-count"});
  check_refused(with({"--resume"}), {"--resume", "--checkpoint"});
  check_refused(with({"--eval-only"}), {"--eval-only", "--checkpoint"});
  check_refused(with({"--checkpoint-every", "5"}), {"--checkpoint-every", "--checkpoint"});
  check_refused(with({"--checkpoint", output, "--checkpoint-every", "0"}), {"--checkpoint-every"});
  check_refused(with({"--resume", "--eval-only", "--checkpoint", output}), {"--resume", "--eval-only"});
  check_refused(with({"--velocity", "9"}), {"--velocity"});
  check_refused(with({"stray"}), {"stray"});
  check_refused(run_program({TESSERA_TRAIN_CTR}), {"--train"});
  check_refused(run_program({TESSERA_TRAIN_CTR, "--test", data.test}), {"--train"});
  check_refused(run_program({TESSERA_TRAIN_CTR, "--train", data.train}), {"--test"});
  CHECK_FALSE(std::filesystem::exists(output));
}

TEST_CASE("the version is the library's") {
  auto const version = run_program({TESSERA_TRAIN_CTR, "--version"});
  CHECK(version.status == 0);
  CHECK(version.output == "train_ctr " + std::to_string(TESSERA_VERSION_MAJOR) + "." + std::to_string(TESSERA_VERSION_MINOR) + "." +
                              std::to_string(TESSERA_VERSION_PATCH) + "\n");
}

TEST_CASE("the help names every option") {
  auto const help = run_program({TESSERA_TRAIN_CTR, "--help"});
  CHECK(help.status == 0);
  for (std::string const option : {"--train",
                                   "--test",
                                   "--model",
                                   "--cross-layers",
                                   "--cross-rank",
                                   "--row-format",
                                   "--embedding-weight-decay",
                                   "--lr-schedule",
                                   "--warmup-steps",
                                   "--decay-start",
                                   "--decay-steps",
                                   "--clip-norm",
                                   "--progressive",
                                   "--embedding-dim",
                                   "--bottom",
                                   "--top",
                                   "--hash-size",
                                   "--min-count",
                                   "--dense",
                                   "--dense-as-category",
                                   "--embedding-init",
                                   "--embedding-optimizer",
                                   "--embedding-lr",
                                   "--optimizer",
                                   "--lr",
                                   "--batch-size",
                                   "--epochs",
                                   "--threads",
                                   "--seed",
                                   "--checkpoint",
                                   "--checkpoint-every",
                                   "--resume",
                                   "--metrics",
                                   "--eval-only",
                                   "--predict",
                                   "--report",
                                   "--pipeline",
                                   "--version"})
    CHECK(std::regex_search(help.output, std::regex("\n +" + option + " ")));
  CHECK(help.last_line().starts_with("  train_ctr --train "));
}

TEST_CASE("bad data is refused with file, line, field and text, and leaves nothing behind") {
  small_data const data;
  auto const bad = data.folder.file("bad.tsv"), checkpoints = data.folder.file("checkpoints"), csv = data.folder.file("out.csv");
  auto const good = head(train_tsv, 50);
  auto const refused = [&](std::string const& path, std::vector<std::string> parts) {
    parts.push_back(path);
    arguments const outputs{"--checkpoint", checkpoints, "--predict", csv, "--metrics", data.folder.file("out.jsonl")};
    for (bool const as_test : {false, true}) {
      CAPTURE(as_test);
      check_refused(as_test ? train_ctr(data.train, path, outputs) : train_ctr(path, data.test, outputs), parts);
      CHECK_FALSE(std::filesystem::exists(checkpoints));
      CHECK_FALSE(std::filesystem::exists(csv));
      CHECK_FALSE(std::filesystem::exists(data.folder.file("out.jsonl")));
    }
  };
  auto const refused_text = [&](std::string const& text, std::vector<std::string> const& parts) {
    write_file(bad, text);
    refused(bad, parts);
  };
  auto const refused_field = [&](int line, int field, std::string const& value, std::string const& name) {
    refused_text(with_field(good, line, field, value), {"line " + std::to_string(line), "field " + name, "text \"" + value + "\""});
  };
  refused_field(3, 0, "2", "label");
  refused_field(1, 0, "", "label");
  refused_field(50, 0, "-1", "label");
  refused_field(7, 2, "12a", "I2");
  refused_field(9, 14, "xyz", "C1");
  refused_field(9, 39, "12345678901234567", "C26");
  auto const line = head(train_tsv, 1);
  refused_text(good + line.substr(0, line.rfind('\t')) + '\n', {"line 51", "field C26"});
  refused_text(good + line.substr(0, line.size() - 1) + "\t\n" + good, {"line 51", "field field 41"});
  refused_text(good + "\n" + good, {"line 51", "field I1"});
  refused_text("", {"line 1", "empty"});
  refused(data.folder.file("missing.tsv"), {"No such file"});
  auto const empty = data.folder.file("empty");
  std::filesystem::create_directory(empty);
  refused(empty, {"a folder without data files"});
  refused(data.folder.file("no*.tsv"), {"no file fits the pattern"});
  refused_text(contents(TESSERA_TRAIN_CTR).substr(0, 100000), {"line 1", "\\x"});
  refused_text(good.substr(0, 400) + '\0' + good.substr(401), {"line"});
  if (::geteuid() != 0) {  // nothing is unreadable for root
    write_file(bad, good);
    std::filesystem::permissions(bad, std::filesystem::perms::none);
    refused(bad, {"Permission denied"});
  }
}

TEST_CASE("line endings change nothing, nor does cutting the data into files") {
  small_data const data;
  auto const text = head(train_tsv, 1000);
  auto const expected = data.run({"--epochs", "1"});
  REQUIRE(expected.status == 0);
  std::string crlf;
  for (char const c : text) crlf += c == '\n' ? std::string("\r\n") : std::string(1, c);
  auto const other = data.folder.file("other.tsv");
  write_file(other, crlf);
  CHECK(figures(train_ctr(other, data.test, {"--epochs", "1"})) == figures(expected));
  write_file(other, text.substr(0, text.size() - 1));
  CHECK(figures(train_ctr(other, data.test, {"--epochs", "1"})) == figures(expected));
  write_file(other, crlf.substr(0, crlf.size() - 1));  // the last line ends in a lone carriage return
  CHECK(figures(train_ctr(other, data.test, {"--epochs", "1"})) == figures(expected));

  // Several files are one data set; only the order of shuffling differs.
  auto const first = data.folder.file("first half.tsv"), second = data.folder.file("second half.tsv");
  write_file(first, head(train_tsv, 500));
  write_file(second, text.substr(head(train_tsv, 500).size()));
  auto const both = run_program({TESSERA_TRAIN_CTR, "--train", first, second, "--test", data.test, "--epochs", "1"});
  CHECK_MESSAGE(both.status == 0, both.output);
  CHECK(both.says("train: 1000 samples"));
  CHECK(figure(both, "auc") == doctest::Approx(figure(expected, "auc")).epsilon(0.1));
}

TEST_CASE("every kind of preprocessing and optimizer runs") {
  small_data const data;
  for (arguments const& options :
       {arguments{"--hash-size", "100", "--optimizer", "sgd", "--embedding-optimizer", "sgd"},
        arguments{"--hash-size", "1", "--optimizer", "adagrad", "--embedding-optimizer", "momentum", "--row-format", "fp16"},
        arguments{"--min-count", "5", "--dense", "log", "--optimizer", "momentum", "--embedding-optimizer", "adagrad"},
        arguments{"--min-count", "100000", "--optimizer", "ftrl", "--embedding-optimizer", "adam", "--row-format", "bf16"},
        arguments{"--dense-as-category", "off", "--embedding-init", "rows", "--embedding-optimizer", "rowwise-adam"},
        arguments{"--embedding-init", "0", "--embedding-optimizer", "ftrl", "--bottom", "8", "--top", "5,4,3"},
        arguments{"--embedding-init", "1e-45", "--embedding-weight-decay", "1e-5", "--model", "dcn"},
        arguments{"--model", "dcn", "--cross-layers", "0", "--batch-size", "1000000"},
        arguments{"--model", "dcn", "--cross-layers", "2", "--cross-rank", "8"}, arguments{"--model", "deepfm", "--batch-size", "1"},
        arguments{"--model", "deepfm", "--embedding-dim", "1"}, arguments{"--embedding-dim", "1", "--seed", "18446744073709551615"}}) {
    CAPTURE(options[0]);
    CAPTURE(options[1]);
    auto all = options;
    all.insert(all.end(), {"--epochs", "1"});
    auto const result = data.run(all);
    CHECK_MESSAGE(result.status == 0, result.output);
    CHECK(figure(result, "auc") > 0.3);
  }
}

TEST_CASE("metrics are one JSON object a line, and a resumed run adds to them") {
  small_data const data;
  auto const metrics = data.folder.file("metrics.jsonl"), checkpoints = data.folder.file("checkpoints");
  auto const run = data.run({"--epochs", "3", "--batch-size", "8", "--metrics", metrics, "--checkpoint", checkpoints});
  REQUIRE_MESSAGE(run.status == 0, run.output);
  auto lines = json_lines(metrics);
  std::int64_t tests = 0, trains = 0, step = 0;
  for (auto const& line : lines) {
    CHECK(line.at("step") >= step);
    step = line.at("step");
    if (line.at("event") == "train") {
      ++trains;
      CHECK(step == 100 * trains);
      CHECK(line.at("samples") == (step - 1) % 125 * 8 + 8);
      CHECK(line.at("epoch") == (step - 1) / 125);
      CHECK(line.at("loss") > 0.1);
      CHECK(line.at("loss") < 0.6);  // the mean over 100 steps, epochs' ends or not
      CHECK(line.at("auc") > 0.5);
    } else {
      CHECK(line.at("event") == "test");
      CHECK(line.at("epoch") == tests);
      ++tests;
      CHECK(step == 125 * tests);
      for (char const* name : {"auc", "logloss", "ne", "calibration", "samples_per_second"}) CHECK(line.at(name).is_number());
    }
  }
  CHECK(trains == 3);
  CHECK(tests == 3);
  CHECK(lines.back().at("auc").get<double>() == doctest::Approx(figure(run, "auc")).epsilon(1e-4));

  // The checkpoint is before its epoch's test, which is made again: as it was, but for its speed.
  auto const without_speed = [&] { return std::regex_replace(contents(metrics), std::regex("\"samples_per_second\":[^,}]*"), ""); };
  auto const before = without_speed();
  REQUIRE(data.run({"--resume", "--epochs", "4", "--metrics", metrics, "--checkpoint", checkpoints}).status == 0);
  CHECK(without_speed().starts_with(before));
  lines = json_lines(metrics);
  CHECK(lines.size() == 6 + 3);  // steps 400 and 500, and the end of the epoch
  CHECK(lines.back().at("event") == "test");
  CHECK(lines.back().at("step") == 500);
  REQUIRE(data.run({"--eval-only", "--metrics", metrics, "--checkpoint", checkpoints}).status == 0);
  CHECK(json_lines(metrics).size() == 10);
  CHECK(json_lines(metrics).back().at("auc") == lines.back().at("auc"));
  // A new run begins anew.
  REQUIRE(data.run({"--epochs", "1", "--metrics", metrics}).status == 0);
  CHECK(json_lines(metrics).size() == 1);
}

TEST_CASE("a run resumed in the midst of an epoch goes on in its metrics, too, and writes no step twice") {
  small_data const data;
  auto const metrics = data.folder.file("metrics.jsonl");
  // What a run does that is killed after its checkpoint of step `step`: the later checkpoints are gone, the metrics are not.
  auto const killed_after = [&](std::int64_t step) {
    auto const checkpoints = data.folder.file("killed after " + std::to_string(step));
    auto const run = data.run({"--epochs", "2", "--batch-size", "2", "--metrics", metrics, "--checkpoint", checkpoints,
                               "--checkpoint-every", std::to_string(step)});
    REQUIRE_MESSAGE(run.status == 0, run.output);
    auto const steps = tessera::list_step_folders(checkpoints);
    REQUIRE(steps.size() == 2);
    REQUIRE(steps[0].step.value == step);
    std::filesystem::remove_all(steps[1].path);
    return checkpoints;
  };
  for (std::int64_t const step : {550, 600, 500}) {  // between two lines, at one, and at the end of an epoch before its test
    CAPTURE(step);
    auto const checkpoints = killed_after(step);
    auto const expected = json_lines(metrics);
    std::ofstream(metrics, std::ios::app) << "{\"event\": \"tra";
    auto const resumed = data.run({"--resume", "--metrics", metrics, "--checkpoint", checkpoints});
    REQUIRE_MESSAGE(resumed.status == 0, resumed.output);
    CHECK_FALSE(resumed.says("nan"));
    CHECK(resumed.says("epoch 1/2: test auc") == (step == 500));
    auto const lines = json_lines(metrics);
    REQUIRE(lines.size() == expected.size());
    for (std::size_t i = 0; i < lines.size(); ++i)
      for (char const* name : {"event", "step", "epoch"}) CHECK(lines[i].at(name) == expected[i].at(name));
    for (std::size_t i = 0; i < lines.size(); ++i)
      if (lines[i].at("event") == "train") CHECK(lines[i].at("samples") == expected[i].at("samples"));
  }
  // What is no metrics file is not taken for one.
  auto const other = data.folder.file("other");
  write_file(other, "something\nelse\n");
  check_refused(data.run({"--resume", "--metrics", other, "--checkpoint", data.folder.file("killed after 600")}), {other, "not JSON"});
  CHECK(contents(other) == "something\nelse\n");
}

TEST_CASE("odd data sets are trained and tested, with nan where a figure has no meaning") {
  temporary_folder folder;
  std::string zeros, ones, no_integers, no_categories;
  {
    std::istringstream lines(head(train_tsv, 400));
    for (std::string line; std::getline(lines, line);) {
      (line[0] == '0' ? zeros : ones) += line + '\n';
      std::size_t tabs = 0, integers_end = 0;
      for (std::size_t i = 0; i < line.size(); ++i)
        if (line[i] == '\t' && ++tabs == 14) integers_end = i;
      no_integers += line[0] + std::string(13, '\t') + line.substr(integers_end) + '\n';
      no_categories += line.substr(0, integers_end) + std::string(26, '\t') + '\n';
    }
  }
  auto const path = [&](std::string const& name, std::string const& text) {
    write_file(folder.file(name), text);
    return folder.file(name);
  };
  auto const all = path("all", head(train_tsv, 400)), one = path("one", head(train_tsv, 1)), zero = path("zeros", zeros),
             click = path("ones", ones), without_integers = path("no integers", no_integers),
             without_categories = path("no categories", no_categories);
  auto const run = [&](std::string const& train, std::string const& test) {
    auto const result = train_ctr(train, test, {"--epochs", "2", "--metrics", folder.file("metrics")});
    CHECK_MESSAGE(result.status == 0, result.output);
    CHECK_FALSE(result.says("-nan"));
    CHECK(std::regex_match(result.last_line(), std::regex("test auc=(0\\.\\d{4}|1\\.0000|nan) logloss=\\d+\\.\\d{4} ne=(\\d+\\.\\d{4}|nan) "
                                                          "calibration=(\\d+\\.\\d{3}|inf) samples_per_second=\\d+")));
    json_lines(folder.file("metrics"));
    return result.last_line();
  };
  // Trained on one sample, or on one label only.
  CHECK(run(one, all).find("nan") == std::string::npos);
  CHECK(run(zero, all).find("nan") == std::string::npos);
  CHECK(run(click, all).find("nan") == std::string::npos);
  // Tested on one label only: no AUC, no entropy to compare with; without clicks, no calibration.
  for (auto const& test : {one, zero}) {
    auto const line = run(all, test);
    CHECK(line.find("auc=nan ") != std::string::npos);
    CHECK(line.find("ne=nan ") != std::string::npos);
    CHECK(line.find("calibration=inf ") != std::string::npos);
    auto const last = json_lines(folder.file("metrics")).back();
    CHECK(last.at("auc").is_null());
    CHECK(last.at("ne").is_null());
    CHECK(last.at("calibration").is_null());
  }
  auto const clicks_only = run(all, click);
  CHECK(clicks_only.find("auc=nan ") != std::string::npos);
  CHECK(clicks_only.find("calibration=0.") != std::string::npos);
  // A test set may lack whole columns that training has, and has values that training lacks.
  CHECK(run(all, without_integers).find("nan") == std::string::npos);
  CHECK(run(all, without_categories).find("nan") == std::string::npos);
  // Without integers there is no bottom MLP; without categories the integers can be categories.
  CHECK(run(without_integers, all).find("nan") == std::string::npos);
  CHECK(run(without_categories, all).find("nan") == std::string::npos);
  CHECK(train_ctr(without_categories, all, {"--dense-as-category", "off"}).says("0 tables"));
  auto const empty = path("empty", "0" + std::string(39, '\t') + "\n");
  check_refused(train_ctr(empty, all), {"--train", "all columns are empty"});
}

TEST_CASE("training that diverges says so and is not saved") {
  small_data const data;
  auto const checkpoints = data.folder.file("checkpoints");
  auto const result = data.run({"--lr", "1e30", "--checkpoint", checkpoints});
  check_refused(result, {"diverged", "lower --lr", "step", "--lr 1e+30", "--embedding-lr 0.03"});
  CHECK(tessera::list_step_folders(checkpoints).empty());
}

TEST_CASE("a file that is missing or cannot be written is found before the training data are read") {
  small_data const data;
  write_file(data.train, head(train_tsv, 100) + "no sample\n");  // reading it would say so
  auto const missing = data.folder.file("missing.tsv"), nowhere = data.folder.file("missing/file");
  auto const found_first = [&](program_result const& result, std::string const& path) {
    check_refused(result, {path});
    CHECK_FALSE(result.says("line 101"));
  };
  check_refused(data.run(), {"line 101"});
  found_first(train_ctr(data.train, missing), missing);
  found_first(run_program({TESSERA_TRAIN_CTR, "--train", data.train, missing, "--test", data.test}), missing);
  found_first(data.run({"--predict", nowhere}), nowhere);
  found_first(data.run({"--metrics", nowhere}), nowhere);
  found_first(data.run({"--checkpoint", data.test + "/below"}), data.test + "/below");
  auto const bad_test = data.folder.file("bad test.tsv");
  write_file(bad_test, head(test_tsv, 30) + "no sample\n");
  auto const result = train_ctr(data.train, bad_test);
  found_first(result, bad_test);
  CHECK(result.says("line 31"));
}

#endif
