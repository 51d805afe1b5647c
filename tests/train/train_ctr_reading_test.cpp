// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-cost: 5
#include <doctest/doctest.h>

#include "../support/skip.hpp"

#ifndef TESSERA_TRAIN_CTR

TEST_CASE("train_ctr reads on ranks") { tessera_tests::skip("the examples are not built"); }

#else

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include <tessera/files/json.hpp>
#include <tessera/files/safetensors.hpp>
#include <tessera/files/step_folders.hpp>
#include <tessera/train/merged_checkpoint.hpp>

#include "hosts.hpp"
#include "launched.hpp"
#include "run_program.hpp"
#include "temporary_folder.hpp"
#include "train_ctr_support.hpp"

namespace train_ctr_reading_test {

namespace {

using namespace tessera_tests;

arguments with(arguments all, arguments const& more) {
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

// Files of unlike sizes, each a block; every sample has a user of its own.
struct uneven_files {
  static constexpr int sizes[] = {300, 10, 250, 37, 403}, samples = 1000;

  temporary_folder folder;
  arguments columns{"--label-column", "label", "--sparse-columns", "user,item", "--dense-columns", "x"};
  arguments files{"--train"};

  uneven_files() {
    int user = 0;
    auto const write = [&](std::string const& name, int size) {
      std::string text = "label,user,item,x\n";
      for (int i = 0; i < size; ++i, ++user)
        text += std::to_string(user % 3 == 0) + ",u" + std::to_string(user) + "," + std::to_string(user % 7) + "," +
                std::to_string(user % 5) + "\n";
      write_file(folder.file(name), text);
      return folder.file(name);
    };
    for (std::size_t f = 0; f < std::size(sizes); ++f) files.push_back(write("train" + std::to_string(f) + ".csv", sizes[f]));
    files = with(files, {"--test", write("test.csv", 50)});
  }
  arguments command(arguments const& more) const { return with(with(arguments{TESSERA_TRAIN_CTR}, files), with(columns, more)); }
  program_result run(arguments const& more) const {
    auto result = run_program(command(more));
    CHECK_MESSAGE(result.status == 0, result.output);
    return result;
  }
};

// The part of a report about tables: how often each row was read.
std::string reads_of(std::string const& page) {
  auto const text = contents(page);
  auto const first = text.find("Embedding tables");
  REQUIRE(first != std::string::npos);
  return text.substr(first, text.find("Options", first) - first);
}

nlohmann::json deals_of(std::string const& checkpoints) {
  return tessera::read_json(tessera::list_step_folders(checkpoints).back().path + "/manifest.json")["state"]["position"]["deals"];
}

}  // namespace

TEST_CASE("ids that travel ahead and sums that begin early change no bit of predictions and checkpoints") {
  small_data const data;
  auto const trained = [&](std::string const& ranks, arguments const& more) {
    auto const file = data.folder.file("predictions.csv"), runs = data.folder.file("runs");
    std::filesystem::remove_all(runs);
    auto const result = data.run(with({"--ranks", "threads:" + ranks, "--batch-size", "60", "--checkpoint", runs, "--checkpoint-every", "7",
                                       "--epochs", "2", "--predict", file},
                                      more));
    CHECK_MESSAGE(result.status == 0, result.output);
    return contents(file) + contents(tessera::list_step_folders(runs).back().path + "/dense.safetensors");
  };
  auto const check = [&](std::string const& ranks, std::vector<arguments> const& ways) {
    CAPTURE(ranks);
    auto const expected = trained(ranks, {});
    for (auto const& more : ways) {
      CAPTURE(more[1]);
      bool const same = trained(ranks, more) == expected;
      CHECK(same);
    }
  };
  check("2", {{"--ids-ahead", "1", "--threads", "1"}, {"--bucket-bytes", "20000"}});
  check("3", {{"--ids-ahead", "3", "--threads", "2"},
              {"--ids-ahead", "100"},
              {"--bucket-bytes", "1"},
              {"--ids-ahead", "2", "--bucket-bytes", "4096", "--plan", "round-robin"}});
  bool const same = trained("3", {"--clip-norm", "0.5", "--ids-ahead", "2"}) == trained("3", {"--clip-norm", "0.5"});
  CHECK(same);
}

TEST_CASE("ids that travel ahead: a run goes on from a checkpoint in the midst of them, and one process has none") {
  small_data const data;
  auto const predicted = [&](std::string const& name, arguments const& more) {
    auto const file = data.folder.file(name);
    auto const result = data.run(with({"--batch-size", "60", "--predict", file}, more));
    CHECK_MESSAGE(result.status == 0, result.output);
    return contents(file);
  };
  arguments const ranks{"--ranks", "threads:3", "--ids-ahead", "4"};
  auto const runs = data.folder.file("runs");
  auto const whole = predicted("whole.csv", with(ranks, {"--epochs", "2", "--checkpoint", runs, "--checkpoint-every", "10"}));
  auto const steps = tessera::list_step_folders(runs);  // 30 and 34
  REQUIRE(steps.size() == 2);
  std::filesystem::remove_all(steps.back().path);
  CHECK(predicted("parts.csv", with(ranks, {"--checkpoint", runs, "--resume"})) == whole);
  CHECK(predicted("one.csv", {"--epochs", "1", "--ids-ahead", "4"}) == predicted("alone.csv", {"--epochs", "1"}));
}

TEST_CASE("with --read blocks an epoch has each sample once, on any number of ranks, also of more ranks than blocks") {
  uneven_files const data;
  auto const page = data.folder.file("page.html"), alone = data.folder.file("alone.html");
  data.run({"--epochs", "2", "--report", alone});
  for (std::string const ranks : {"1", "3", "7"})
    for (arguments const& more : {arguments{"--ids-ahead", "2", "--bucket-bytes", "1000"}, {"--order", "stored", "--threads", "1"}}) {
      CAPTURE(ranks);
      auto const result = data.run(
          with({"--epochs", "2", "--read", "blocks", "--ranks", "threads:" + ranks, "--batch-size", "60", "--report", page}, more));
      CHECK(reads_of(page) == reads_of(alone));
      CHECK(result.says("epoch 2/2: train auc"));
    }
}

TEST_CASE("with --read blocks a checkpoint of three ranks goes on on two, who share out what is unread") {
  uneven_files const data;
  auto const runs = data.folder.file("runs"), lines = data.folder.file("m.jsonl"), page = data.folder.file("page.html");
  arguments const usual{"--read",    "blocks", "--batch-size",          "3",       "--checkpoint", runs,
                        "--metrics", lines,    "--embedding-optimizer", "adagrad", "--plan",       "round-robin"};
  data.run(with(usual, {"--epochs", "1", "--ranks", "threads:3", "--checkpoint-every", "100"}));
  auto const steps = tessera::list_step_folders(runs);
  REQUIRE(steps.size() == 2);
  std::filesystem::remove_all(steps.back().path);
  CHECK(deals_of(runs).size() == 1);
  std::int64_t taken = 0;
  std::istringstream text(contents(lines));
  for (std::string line; std::getline(text, line);) {
    auto const event = nlohmann::json::parse(line);
    if (event["event"] == "train" && event["step"] == steps[0].step.value) taken = event["samples"].get<std::int64_t>();
  }
  CHECK(taken >= 100);
  REQUIRE(taken < uneven_files::samples);

  auto const result = data.run(with(usual, {"--resume", "--ranks", "threads:2", "--report", page}));
  CHECK(result.says("ranks: 2, and 3 before"));
  auto const found = deals_of(runs);
  REQUIRE(found.size() == 2);
  CHECK(found[0]["ranks"] == 3);
  CHECK(found[0]["batches"] == steps[0].step.value);
  CHECK(found[1]["ranks"] == 2);
  // Every user was read once, as so many reads were left and all rows have learned.
  auto const reads = reads_of(page);
  CHECK(reads.find("<td>" + std::to_string(uneven_files::samples - taken) + "</td>") != std::string::npos);
  serial_host host;
  auto const merged = data.folder.file("merged");
  tessera::merge_checkpoint(host.exec(), runs, merged);
  tessera::safetensors_reader const tables(tessera::list_step_folders(merged).back().path + "/tables.safetensors");
  auto const shape = tables.at("table.0.state").shape;
  std::vector<float> states(static_cast<std::size_t>(shape[0] * shape[1]));
  tables.read("table.0.state", 0, tessera::vector_view<float>(states));
  std::int64_t learned = 0;
  for (auto row = states.begin(); row != states.end(); row += shape[1])
    learned += std::any_of(row, row + shape[1], [](float state) { return state > 0; }) ? 1 : 0;
  CHECK(learned == uneven_files::samples);

  // Ranks as many as before have the batches of a run that did not stop.
  auto const whole = data.folder.file("whole"), parts = data.folder.file("parts");
  auto const predicted = [&](std::string const& folder, arguments const& more) {
    auto const file = data.folder.file("predictions.csv");
    data.run(with({"--read", "blocks", "--batch-size", "30", "--ranks", "threads:3", "--checkpoint", folder, "--predict", file}, more));
    return contents(file);
  };
  auto const uninterrupted = predicted(whole, {"--epochs", "2"});
  predicted(parts, {"--epochs", "2", "--checkpoint-every", "9"});
  std::filesystem::remove_all(tessera::list_step_folders(parts).back().path);
  CHECK(predicted(parts, {"--resume"}) == uninterrupted);
}

TEST_CASE("what cannot go with --read blocks, --bucket-bytes and --ids-ahead is refused by name") {
  small_data const data;
  auto const refused = [&](arguments const& more, std::vector<std::string> const& parts) { check_refused(data.run(more), parts); };
  refused({"--read", "rows"}, {"--read", "rows", "slices", "blocks"});
  refused({"--read", "blocks", "--sums", "fixed"}, {"--read", "whole chunks", "--sums ranks"});
  refused({"--read", "blocks", "--progressive"}, {"--progressive", "--read slices"});
  refused({"--read", "blocks", "--ranks", "threads:3", "--batch-size", "2"}, {"--read", "batch-size 2", "ranks 3"});
  refused({"--bucket-bytes", "1000", "--sums", "fixed"}, {"--bucket-bytes", "--sums ranks"});
  refused({"--bucket-bytes", "1000", "--clip-norm", "1"}, {"--bucket-bytes", "clipped"});
  refused({"--bucket-bytes", "-1"}, {"--bucket-bytes: not an integer from 0 to 1099511627776: -1"});
  refused({"--ids-ahead", "1025"}, {"--ids-ahead: not an integer from 0 to 1024: 1025"});
  auto const runs = data.folder.file("runs");
  REQUIRE(data.run({"--epochs", "1", "--checkpoint", runs}).status == 0);
  refused({"--resume", "--epochs", "2", "--checkpoint", runs, "--read", "blocks"}, {"--read", "another value", "slices"});
}

TEST_CASE("processes that read blocks, look ahead and sum early have the bits of threads, and go on on fewer") {
#ifndef TESSERA_MPIEXEC
  skip("this build has no MPI");
#else
  uneven_files const data;
  auto const of_threads = data.folder.file("threads.csv"), of_processes = data.folder.file("processes.csv"),
             runs = data.folder.file("runs");
  arguments const usual{"--read", "blocks", "--batch-size", "60", "--epochs", "1"};
  data.run(with(usual, {"--ranks", "threads:3", "--predict", of_threads}));
  auto const result = launched(
      3, data.command(with(usual, {"--ids-ahead", "2", "--bucket-bytes", "1000", "--predict", of_processes, "--checkpoint", runs})));
  CHECK_MESSAGE(result.status == 0, result.output);
  CHECK(contents(of_processes) == contents(of_threads));
  auto const fewer = launched(2, data.command({"--checkpoint", runs, "--resume", "--epochs", "2", "--ids-ahead", "1"}));
  CHECK_MESSAGE(fewer.status == 0, fewer.output);
#endif
}

}  // namespace train_ctr_reading_test

#endif
