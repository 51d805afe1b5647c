// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include "../support/skip.hpp"

#ifndef TESSERA_TRAIN_CTR

TEST_CASE("train_ctr on categories alone") { tessera_tests::skip("the examples are not built"); }

#else

#include <filesystem>
#include <sstream>
#include <string>

#include <tessera/files/step_folders.hpp>

#include "train_ctr_support.hpp"

namespace {

using namespace tessera_tests;

// Samples whose integers are empty.
std::string without_integers(std::string const& lines) {
  std::istringstream text(lines);
  std::string result;
  for (std::string line; std::getline(text, line);) {
    std::size_t at = 0;
    for (int field = 0; field < 14; ++field) at = line.find('\t', at) + 1;
    result += line[0] + std::string(14, '\t') + line.substr(at) + '\n';
  }
  return result;
}

struct category_data {
  temporary_folder folder;
  std::string train = folder.file("train.tsv"), test = folder.file("test.tsv");

  category_data() {
    write_file(train, without_integers(head(train_tsv, 3000)));
    write_file(test, without_integers(head(test_tsv, 1000)));
  }
};

}  // namespace

TEST_CASE("logs of categories alone train every model, go on from checkpoints, and show in reports") {
  category_data const data;
  for (std::string const model : {"dlrm", "dcn", "deepfm"}) {
    CAPTURE(model);
    auto const whole = data.folder.file(model + " whole"), parts = data.folder.file(model + " parts"), report = data.folder.file("report");
    auto const train = [&](std::string const& checkpoints, arguments more) {
      more.insert(more.end(), {"--checkpoint", checkpoints});
      auto result = train_ctr(data.train, data.test, more);
      CHECK_MESSAGE(result.status == 0, result.output);
      return result;
    };
    auto const through =
        train(whole, {"--model", model, "--epochs", "2", "--threads", "1", "--report", report, "--metrics", data.folder.file("metrics")});
    CHECK(through.says("empty everywhere, dropped: I1, "));
    CHECK(through.says("model: no dense features, no bottom MLP, 8 tables"));
    CHECK(figure(through, "auc") > 0.85);
    CHECK(contents(report).find("C8") != std::string::npos);

    train(parts, {"--model", model, "--epochs", "1", "--threads", "2"});
    auto const resumed = train(parts, {"--resume", "--epochs", "2", "--threads", "3"});
    CHECK(figures(resumed) == figures(through));
    CHECK(tensors_of(parts) == tensors_of(whole));
    auto const tested = run_program(
        {TESSERA_TRAIN_CTR, "--eval-only", "--test", data.test, "--checkpoint", parts, "--predict", data.folder.file("predictions")});
    CHECK(figures(tested) == figures(through));
  }
}

TEST_CASE("of categories alone, vocabularies, hashes and rows of other formats do") {
  category_data const data;
  for (arguments const& options :
       {arguments{"--hash-size", "100"}, arguments{"--vocabulary-limit", "20"}, arguments{"--row-format", "int8"},
        arguments{"--dense-as-category", "off"}, arguments{"--dense", "log"}, arguments{"--progressive", "--clip-norm", "1"}}) {
    CAPTURE(options[0]);
    auto all = options;
    all.insert(all.end(), {"--epochs", "1"});
    auto const result = train_ctr(data.train, data.test, all);
    REQUIRE_MESSAGE(result.status == 0, result.output);
    CHECK(figure(result, "auc") > 0.8);
  }
}

TEST_CASE("a model of categories alone is none of data with integers, nor the other way round") {
  category_data const data;
  auto const checkpoints = data.folder.file("checkpoints"), others = data.folder.file("others");
  REQUIRE(train_ctr(data.train, data.test, {"--epochs", "1", "--checkpoint", checkpoints}).status == 0);
  check_refused(train_ctr(train_tsv, data.test, {"--resume", "--checkpoint", checkpoints}), {"--train", "other data"});
  // Tested on data with integers, which it does not read.
  CHECK(run_program({TESSERA_TRAIN_CTR, "--eval-only", "--test", test_tsv, "--checkpoint", checkpoints}).status == 0);
}

#endif
