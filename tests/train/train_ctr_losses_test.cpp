// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include "../support/skip.hpp"

#ifndef TESSERA_TRAIN_CTR

TEST_CASE("what failures cost train_ctr") { tessera_tests::skip("the examples are not built"); }

#else

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <tessera/files/step_folders.hpp>

#include "run_program.hpp"
#include "temporary_folder.hpp"
#include "train_ctr_support.hpp"

namespace {

using namespace tessera_tests;

/// Runs many epochs, calls `disturb` once the first has been tested, and changes the test data in place.
template <class F>
program_result run_with_changed_test(small_data const& data, std::string const& checkpoints, F const& disturb) {
  auto const pipe = data.folder.file("pipe");
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  running_program program(
      command_of(data.train, data.test, {"--epochs", "500", "--batch-size", "8", "--metrics", pipe, "--checkpoint", checkpoints}));
  std::ifstream lines(pipe);
  for (std::string line; std::getline(lines, line) && line.find("\"test\"") == line.npos;) {
  }
  disturb();
  std::fstream test(data.test, std::ios::in | std::ios::out);
  auto const label = test.get();
  test.seekp(0);
  test.put(label == '0' ? '1' : '0');
  test.close();
  for (std::string line; std::getline(lines, line);) {
  }
  return program.wait();
}

}  // namespace

TEST_CASE("a test that fails in the midst of a run costs it no training") {
  small_data const data;
  auto const checkpoints = data.folder.file("run");
  check_refused(run_with_changed_test(data, checkpoints, [] {}), {data.test});
  auto const steps = tessera::list_step_folders(checkpoints);
  REQUIRE(steps.size() == 1);
  CHECK(steps.back().step.value % 125 == 0);
  write_file(data.test, head(test_tsv, 300));
  CHECK(data.run({"--eval-only", "--checkpoint", checkpoints}).status == 0);
}

TEST_CASE("where the model cannot be saved either, the run says what failed first, and that") {
  small_data const data;
  auto const checkpoints = data.folder.file("run");
  auto const run = run_with_changed_test(data, checkpoints, [&] {
    std::filesystem::rename(checkpoints, data.folder.file("away"));
    write_file(checkpoints, "no folder");
  });
  check_refused(run, {data.test, "the model could not be saved", checkpoints});
  CHECK(run.last_line().find(data.test) != std::string::npos);
}

TEST_CASE("a model that has diverged is not saved, whatever else fails") {
  if (!std::filesystem::exists("/dev/full")) return skip("no /dev/full");
  small_data const data;
  auto const checkpoints = data.folder.file("run");
  REQUIRE(data.run({"--epochs", "1", "--batch-size", "8", "--checkpoint-every", "99", "--checkpoint", checkpoints}).status == 0);
  auto const newest = tessera::list_step_folders(checkpoints).back();
  REQUIRE(newest.step.value == 125);
  std::filesystem::remove_all(newest.path);
  // Step 100 has a loss, and writes a line of it, but leaves a model that has none.
  check_refused(data.run({"--resume", "--lr", "1e30", "--checkpoint", checkpoints, "--metrics", "/dev/full"}), {"diverged"});
  CHECK(names_in(checkpoints) == std::vector<std::string>{"step-000000000099"});
}

TEST_CASE("a model whose test comes to no number is not saved") {
  small_data const data;
  auto const checkpoints = data.folder.file("run");
  std::string sample = "0";
  for (int integer = 0; integer < 13; ++integer) sample += integer < 5 ? "\t2147483647" : "\t";
  write_file(data.test, sample + std::string(26, '\t') + "\n");
  check_refused(data.run({"--epochs", "3", "--dense", "standard", "--model", "dcn", "--cross-layers", "8", "--checkpoint", checkpoints}),
                {"diverged", "step 8"});
  CHECK_FALSE(std::filesystem::exists(checkpoints));
}

TEST_CASE("predictions and a report that fail in the midst leave the file behind a link as it was") {
  small_data const data;
  auto const old = data.folder.file("old"), link = data.folder.file("link");
  for (std::string const option : {"--predict", "--report"}) {
    CAPTURE(option);
    write_file(old, "of an earlier run\n");
    std::filesystem::remove(link);
    std::filesystem::create_symlink("old", link);
    auto const run =
        run_program({"/bin/sh", "-c", "ulimit -f 4; trap '' XFSZ; exec \"$0\" --train \"$1\" --test \"$2\" --epochs 1 \"$3\" \"$4\"",
                     TESSERA_TRAIN_CTR, data.train, data.test, option, link});
    check_refused(run, {option, link});
    CHECK(contents(old) == "of an earlier run\n");
    CHECK(names_in(data.folder.path()) == std::vector<std::string>{"link", "old", "test.tsv", "train.tsv"});
    auto const good = data.run({"--epochs", "1", option, link});
    CHECK_MESSAGE(good.status == 0, good.output);
    CHECK(std::filesystem::is_symlink(link));
    CHECK(contents(old).size() > 4096);
  }
}

TEST_CASE("a run that is resumed behind its last epoch writes the line of its test") {
  small_data const data;
  auto const checkpoints = data.folder.file("run"), whole = data.folder.file("whole"), fresh = data.folder.file("fresh");
  REQUIRE(data.run({"--epochs", "2", "--checkpoint", checkpoints, "--metrics", whole}).status == 0);
  auto const before = contents(whole);
  for (int again = 0; again < 2; ++again) {
    for (auto const& metrics : {fresh, whole})
      REQUIRE(data.run({"--resume", "--epochs", "1", "--checkpoint", checkpoints, "--metrics", metrics}).status == 0);
    CHECK(contents(whole) == before);
    auto const lines = contents(fresh);
    CHECK(lines.find("\"event\":\"test\"") != std::string::npos);
    CHECK(lines.find("\"epoch\":1") != std::string::npos);
    CHECK(lines.find('\n') == lines.size() - 1);
  }
}

TEST_CASE("a test in the midst of an epoch does not stand for the one at its end") {
  small_data const data;
  auto const checkpoints = data.folder.file("run"), metrics = data.folder.file("m");
  REQUIRE(data.run({"--epochs", "2", "--batch-size", "100", "--checkpoint-every", "15", "--checkpoint", checkpoints}).status == 0);
  auto const steps = tessera::list_step_folders(checkpoints);
  REQUIRE(steps.size() == 2);
  REQUIRE(steps.front().step.value == 15);
  std::filesystem::remove_all(steps.back().path);
  auto const tests_with = [&](std::string const& epochs) {
    auto const run = data.run({"--resume", "--epochs", epochs, "--checkpoint", checkpoints, "--metrics", metrics});
    REQUIRE_MESSAGE(run.status == 0, run.output);
    auto const lines = contents(metrics);
    return std::pair(lines.find("\"step\":15") != std::string::npos, lines.find("\"epoch\":1") != std::string::npos);
  };
  CHECK(tests_with("1") == std::pair(true, false));
  CHECK(tests_with("2") == std::pair(true, true));
}

#endif
