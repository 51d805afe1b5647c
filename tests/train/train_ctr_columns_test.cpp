// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-cost: 6
#include <doctest/doctest.h>

#include "../support/skip.hpp"

#ifndef TESSERA_TRAIN_CTR

TEST_CASE("train_ctr on text of other layouts") { tessera_tests::skip("the examples are not built"); }

#else

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "../support/sanitizers.hpp"
#include "run_program.hpp"
#include "temporary_folder.hpp"
#include "train_ctr_support.hpp"

namespace {

using namespace tessera_tests;

/// Clicks that depend on a number, on a word and on the last id of a list, as text with a header line.
class click_table {
 public:
  click_table(std::int64_t dense, std::int64_t words, bool lists) : dense_(dense), words_(words), lists_(lists) {}

  std::string text(char separator, std::int64_t samples, unsigned seed) const {
    std::mt19937 random(seed);
    std::string out = "day";  // a column that nobody names
    for (std::int64_t i = 0; i < dense_; ++i) out += separator + ("number" + std::to_string(i));
    for (std::int64_t i = 0; i < words_; ++i) out += separator + ("word" + std::to_string(i));
    if (lists_) out += std::string(1, separator) + "history";
    out += std::string(1, separator) + "click\n";
    for (std::int64_t s = 0; s < samples; ++s) {
      double score = 0;
      out += "monday";
      for (std::int64_t i = 0; i < dense_; ++i) {
        auto const value = static_cast<int>(random() % 2001) - 1000;
        if (i == 0) score += value / 500.0;
        out += separator;
        if (random() % 20 != 0) out += std::to_string(value) + "e-3";
      }
      for (std::int64_t i = 0; i < words_; ++i) {
        auto const word = random() % 20;
        if (i == 0) score += word % 2 == 0 ? 1.5 : -1.5;
        out += separator;
        if (random() % 20 != 0) out += "w" + std::to_string(word);
      }
      if (lists_) {
        out += separator;
        auto const length = random() % 5;
        std::uint64_t last = 0;
        for (unsigned k = 0; k < length; ++k) out += (k > 0 ? "|" : "") + std::to_string(last = random() % 30);
        if (length > 0) score += last % 2 == 0 ? 1.5 : -1.5;
      }
      out += std::string(1, separator) + (static_cast<double>(random() % 1000) / 1000 < 1 / (1 + std::exp(-2 * score)) ? "1" : "0") + "\n";
    }
    return out;
  }

  arguments columns() const {
    auto const names = [](char const* prefix, std::int64_t count) {
      std::string all;
      for (std::int64_t i = 0; i < count; ++i) all += (i > 0 ? "," : "") + (prefix + std::to_string(i));
      return all;
    };
    arguments all{"--label-column", "click"};
    if (dense_ > 0) all.insert(all.end(), {"--dense-columns", names("number", dense_)});
    auto sparse = names("word", words_);
    if (lists_) sparse += (sparse.empty() ? "" : ",") + std::string("history[]");
    if (!sparse.empty()) all.insert(all.end(), {"--sparse-columns", sparse});
    return all;
  }

 private:
  std::int64_t dense_, words_;
  bool lists_;
};

arguments with(arguments all, arguments const& more) {
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

}  // namespace

// Other cases run all of it, in less time.
TEST_CASE("logs of other shapes are learned from CSV and from TSV alike, and tested without names again" * doctest::skip(under_asan)) {
  temporary_folder folder;
  for (click_table const& table :
       {click_table(2, 40, false), click_table(0, 5, false), click_table(4, 0, false), click_table(1, 2, true), click_table(0, 0, true)}) {
    auto const columns = table.columns();
    CAPTURE(columns.back());
    std::string expected;
    for (std::string const kind : {"csv", "tsv"}) {
      auto const train = folder.file("train." + kind), test = folder.file("test." + kind), checkpoints = folder.file("checkpoints " + kind);
      std::filesystem::remove_all(checkpoints);
      write_file(train, table.text(kind == "csv" ? ',' : '\t', 4000, 1));
      write_file(test, table.text(kind == "csv" ? ',' : '\t', 1000, 2));
      for (std::string const model : {"dlrm", "dcn"}) {
        CAPTURE(model);
        if ((model == "dcn") != (kind == "tsv")) continue;
        auto const result = train_ctr(train, test, with(columns, {"--model", model, "--epochs", "3", "--embedding-lr", "0.1"}));
        REQUIRE_MESSAGE(result.status == 0, result.output);
        CHECK_MESSAGE(figure(result, "auc") > 0.65, result.output);
      }
      auto const run = train_ctr(train, test, with(columns, {"--epochs", "1", "--checkpoint", checkpoints}));
      REQUIRE_MESSAGE(run.status == 0, run.output);
      if (expected.empty()) expected = figures(run);
      CHECK(figures(run) == expected);
      auto const tested = run_program(
          {TESSERA_TRAIN_CTR, "--eval-only", "--test", test, "--checkpoint", checkpoints, "--predict", folder.file("predictions.csv")});
      CHECK_MESSAGE(figures(tested) == expected, tested.output);
      CHECK(contents(folder.file("predictions.csv")).starts_with("sample,label,probability\n0,"));
    }
  }
}

TEST_CASE("--columns says what names cannot, and a run goes on from its checkpoint without it") {
  temporary_folder folder;
  click_table const table(2, 3, true);
  auto const train = folder.file("train.txt"), test = folder.file("test.txt"), schema = folder.file("schema.json");
  write_file(train, table.text(';', 3000, 1));
  write_file(test, table.text(';', 1000, 2));
  write_file(schema, R"({
    "label": "click",
    "dense": ["number0", {"name": "number1", "steps": ["log", {"clip": [0, 10]}, "missing-indicator"]}],
    "sparse": ["word0", {"name": "word1", "steps": [{"hash": 7}]}, {"name": "history", "list": true, "steps": [{"truncate": 3}, {"hash": 50}]}],
    "derived": [{"name": "word0 x word1", "ngram": ["word0", "word1"]}],
    "file": {"delimiter": ";", "missing": ["w7"]}})");
  auto const whole = folder.file("whole"), parts = folder.file("parts");
  arguments const columns{"--columns", schema};
  auto const expected = train_ctr(train, test, with(columns, {"--epochs", "2", "--checkpoint", whole}));
  REQUIRE_MESSAGE(expected.status == 0, expected.output);
  CHECK_MESSAGE(expected.says("model: 3 dense features, 4 tables"), expected.output);
  CHECK(figure(expected, "auc") > 0.65);
  REQUIRE(train_ctr(train, test, with(columns, {"--epochs", "1", "--checkpoint", parts})).status == 0);
  auto const resumed = train_ctr(train, test, {"--resume", "--epochs", "2", "--checkpoint", parts});
  CHECK_MESSAGE(figures(resumed) == figures(expected), resumed.output);
  CHECK(tensors_of(parts) == tensors_of(whole));
  check_refused(train_ctr(train, test, {"--resume", "--checkpoint", parts, "--columns", R"({"label": "click"})"}),
                {"--columns", "another value"});
  check_refused(train_ctr(train, test, with(columns, {"--label-column", "click"})), {"--label-column", "--columns"});
  check_refused(train_ctr(train, test, {"--columns", R"({"label": "click", "denze": []})"}), {"denze"});
  arguments const unbounded{"--columns", R"({"label": "click", "sparse": [{"name": "history", "list": true, "steps": [{"truncate": 3}]}],
                                             "file": {"delimiter": ";", "header": true}})"};
  check_refused(train_ctr(train, test, unbounded), {"--columns", "column history", "--hash-table"});
  CHECK(train_ctr(train, test, with(unbounded, {"--hash-table", "100", "--epochs", "1"})).status == 0);
  check_refused(
      train_ctr(train, test, {"--columns", R"({"label": "click", "dense": ["number9"], "file": {"delimiter": ";", "header": true}})"}),
      {"number9", test});
}

TEST_CASE("folders, patterns and several test files are data sets") {
  temporary_folder folder;
  click_table const table(1, 2, false);
  auto const logs = folder.file("logs"), empty = folder.file("empty");
  std::filesystem::create_directories(logs + "/day=2");
  std::filesystem::create_directories(logs + "/_temporary");
  std::filesystem::create_directories(empty);
  write_file(logs + "/a.csv", table.text(',', 900, 1));
  write_file(logs + "/day=2/b.csv", table.text(',', 600, 2));
  write_file(logs + "/_SUCCESS", "");
  write_file(logs + "/_temporary/c.csv", "no log");
  auto const run = [&](arguments const& train, arguments const& test) {
    return run_program(with(with(with({TESSERA_TRAIN_CTR, "--epochs", "1", "--train"}, train), with({"--test"}, test)), table.columns()));
  };
  auto const by_name = run({logs + "/a.csv", logs + "/day=2/b.csv"}, {logs + "/a.csv", logs + "/day=2/b.csv"});
  REQUIRE_MESSAGE(by_name.status == 0, by_name.output);
  CHECK(by_name.says("train: 1500 samples"));
  CHECK(by_name.says("test: 1500 samples"));
  CHECK(figures(run({logs}, {logs})) == figures(by_name));
  CHECK(figures(run({logs + "/*.csv", logs + "/day=*/*.csv"}, {logs})) == figures(by_name));
  check_refused(run({empty}, {logs}), {"--train", "without data files", empty});
  check_refused(run({logs + "/*.tsv"}, {logs}), {"--train", "pattern"});
  write_file(logs + "/d.tsv", "");
  check_refused(run({logs}, {logs + "/a.csv"}), {"--train", "files of one kind", "d.tsv"});
}

TEST_CASE("lists may read the table of another column, and positions let attention see their order") {
  temporary_folder folder;
  click_table const table(1, 1, true);
  auto const train = folder.file("train.csv"), test = folder.file("test.csv");
  write_file(train, table.text(',', 4000, 1));
  write_file(test, table.text(',', 1000, 2));
  arguments const attention = with(table.columns(), {"--pooling", "history=transformer", "--epochs", under_asan ? "1" : "3"});
  auto const plain = train_ctr(train, test, attention), ordered = train_ctr(train, test, with(attention, {"--positions", "6"}));
  REQUIRE_MESSAGE(plain.status == 0, plain.output);
  REQUIRE_MESSAGE(ordered.status == 0, ordered.output);
  MESSAGE(figures(plain) << " without, " << figures(ordered) << " with positions");
  CHECK((under_asan || figure(ordered, "auc") > figure(plain, "auc")));  // clicks depend on the last id
  auto const shared = train_ctr(train, test, with(attention, {"--share", "history=word0"}));
  CHECK_MESSAGE(shared.says("1 tables of dim 16"), shared.output);
  check_refused(train_ctr(train, test, with(attention, {"--share", "history=word9"})), {"--share", "word9"});
  check_refused(train_ctr(train, test, with(attention, {"--share", "history"})), {"--share", "NAME=OTHER"});

  auto const by_steps = [&](std::string const& of_word, std::string const& of_history) {
    auto const columns = R"({"label": "click", "sparse": [{"name": "word0", "steps": [)" + of_word +
                         R"(]}, {"name": "history", "list": true, "steps": [)" + of_history + "]}]}";
    return train_ctr(train, test, {"--columns", columns, "--share", "history=word0", "--epochs", "1"});
  };
  CHECK(by_steps(R"("vocabulary")", R"({"truncate": 3}, "vocabulary")").says("1 tables of dim 16"));
  CHECK(by_steps(R"({"hash": 50})", R"({"hash": 50})").says("1 tables of dim 16"));
  check_refused(by_steps(R"({"hash": 50})", R"({"hash": 20})"), {"other steps", "column history"});
  CHECK(by_steps(R"("vocabulary")", R"({"truncate": 3})").says("1 tables of dim 16"));
}

TEST_CASE("text without names says which columns it has, and what is wrong in it by line and column") {
  temporary_folder folder;
  click_table const table(2, 2, false);
  auto const train = folder.file("train.csv"), test = folder.file("test.csv"), tsv = folder.file("train.tsv");
  auto const good = table.text(',', 100, 1);
  write_file(train, good);
  write_file(test, good);
  write_file(tsv, table.text('\t', 100, 1));
  check_refused(train_ctr(train, test), {"--sparse-columns", "its first line day,number0,number1,word0,word1,click", train});
  check_refused(train_ctr(tsv, tsv), {"--sparse-columns", "its first line day,number0", tsv});
  auto const refused = [&](std::string const& line, std::vector<std::string> const& parts) {
    write_file(train, good + line);
    check_refused(train_ctr(train, test, table.columns()), parts);
  };
  refused("monday,1,2,a,b\n", {train, "line 102"});
  refused("monday,1,two,a,b,0\n", {train, "line 102", "number1", "two"});
  refused("monday,1,2,a,b,\n", {train, "line 102", "click"});
  refused("monday,1,2,a,b,2\n", {"neither 0 nor 1", train, "line 102", "click"});
  write_file(train, good);
  check_refused(train_ctr(train, test, {"--label-column", "clicked", "--dense-columns", "number0"}), {"clicked"});
}

#endif
