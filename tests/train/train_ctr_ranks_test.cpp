// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-cost: 15
#include <doctest/doctest.h>

#include "../support/skip.hpp"

#ifndef TESSERA_TRAIN_CTR

TEST_CASE("train_ctr on ranks") { tessera_tests::skip("the examples are not built"); }

#else

#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <tessera/files/step_folders.hpp>

#include "run_program.hpp"
#include "temporary_folder.hpp"
#include "train_ctr_support.hpp"

namespace {

using namespace tessera_tests;

arguments with(arguments all, arguments const& more) {
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

#ifdef TESSERA_MPIEXEC
/// The command by which MPI's launcher starts so many processes.
arguments launch(int ranks, arguments const& command) {
  static bool const is_set = [] {
    for (auto const& [name, value] : {std::pair("OMPI_ALLOW_RUN_AS_ROOT", "1"),
                                      {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"},
                                      {"OMPI_MCA_rmaps_base_oversubscribe", "1"},
                                      {"OMPI_MCA_hwloc_base_binding_policy", "none"},
                                      {"OMPI_MCA_btl_vader_single_copy_mechanism", "none"},
                                      {"OMPI_MCA_mpi_yield_when_idle", "1"}})
      ::setenv(name, value, 0);
    return true;
  }();
  REQUIRE(is_set);
  return with({TESSERA_MPIEXEC, "-n", std::to_string(ranks)}, command);
}
program_result launched(int ranks, arguments const& command) { return run_program(launch(ranks, command)); }
#endif

/// The probabilities of a predictions file, in the order of its samples, which are all there once.
std::vector<double> probabilities(std::string const& path) {
  std::istringstream text(contents(path));
  std::string line;
  std::getline(text, line);
  CHECK(line == "sample,label,probability");
  std::vector<double> all;
  while (std::getline(text, line)) {
    CHECK(line.substr(0, line.find(',')) == std::to_string(all.size()));
    all.push_back(std::stod(line.substr(line.rfind(',') + 1)));
  }
  return all;
}

}  // namespace

TEST_CASE("ranks learn what one process learns, whoever holds the tables") {
  temporary_folder folder;
  auto const trained = [&](arguments const& more) {
    auto const result = train_ctr(train_tsv, test_tsv, with({"--epochs", "1"}, more));
    CAPTURE(result.output);
    CHECK(result.status == 0);
    return figure(result, "auc");
  };
  auto const alone = trained({});
  CHECK(alone > 0.925);
  auto const plan = folder.file("plan.json");
  nlohmann::json shards = nlohmann::json::array();
  for (int t = 0; t < 13; ++t)
    if (t % 2 == 0)
      shards.push_back({{"table", t}, {"rank", t % 3}});
    else
      for (int half = 0; half < 2; ++half)
        shards.push_back({{"table", t}, {"rank", (t + half) % 3}, {"first_column", 8 * half}, {"columns", 8}});
  write_file(plan, nlohmann::json{{"shards", shards}}.dump());
  for (arguments const& more : {arguments{"--ranks", "threads:2", "--plan", "round-robin"},
                                {"--ranks", "threads:3", "--plan", plan},
                                {"--ranks", "threads:3", "--codec", "fp16,bf16"},
                                {"--ranks", "threads:1"}}) {
    CAPTURE(more[1]);
    CHECK(trained(more) == doctest::Approx(alone).epsilon(0.003));
  }
}

TEST_CASE("every rank's samples are tested and predicted once, and the first rank speaks for all") {
  small_data const data;
  auto const predictions = data.folder.file("predictions.csv"), alone = data.folder.file("alone.csv"), lines = data.folder.file("m.jsonl");
  auto const result = data.run({"--ranks", "threads:3", "--predict", predictions, "--metrics", lines, "--batch-size", "100"});
  CAPTURE(result.output);
  CHECK(result.status == 0);
  CHECK(result.says("3 ranks, with at most"));
  CHECK(result.output.find("test: 300 samples") == result.output.rfind("test: 300 samples"));
  data.run({"--predict", alone, "--batch-size", "100"});
  auto const of_ranks = probabilities(predictions), of_one = probabilities(alone);
  REQUIRE(of_ranks.size() == 300);
  REQUIRE(of_one.size() == 300);
  for (std::size_t i = 0; i < of_one.size(); ++i) CHECK(of_ranks[i] == doctest::Approx(of_one[i]).epsilon(0.02));
  std::istringstream text(contents(lines));
  int tests = 0;
  for (std::string line; std::getline(text, line);) {
    auto const found = nlohmann::json::parse(line);
    if (found["event"] != "test") continue;
    ++tests;
    CHECK(found["step"] == 10 * tests);
  }
  CHECK(tests == 3);
}

TEST_CASE("a plan that cuts tables by rows predicts to the bits what one of whole tables does, and goes on under others") {
  small_data const data;
  auto const plan = data.folder.file("plan.json"), whole = data.folder.file("whole.csv"), cut = data.folder.file("cut.csv");
  // A table has a row more than --hash-size, for what is empty.
  nlohmann::json shards = nlohmann::json::array();
  for (int t = 0; t < 13; ++t)
    for (int r = 0; r < 3; ++r) {
      constexpr int first[]{0, 30, 31, 65};
      shards.push_back({{"table", t}, {"rank", (t + r) % 3}, {"first_row", first[r]}, {"rows", first[r + 1] - first[r]}});
    }
  write_file(plan, nlohmann::json{{"shards", shards}}.dump());
  arguments const usual{"--hash-size", "64", "--batch-size", "100", "--ranks", "threads:3"};
  CHECK(data.run(with(usual, {"--predict", whole})).status == 0);
  auto const result = data.run(with(usual, {"--predict", cut, "--plan", plan}));
  CAPTURE(result.output);
  CHECK(result.status == 0);
  CHECK(contents(whole) == contents(cut));

  auto const checkpoints = data.folder.file("checkpoints"), resumed = data.folder.file("resumed.csv");
  CHECK(data.run(with(usual, {"--plan", plan, "--checkpoint", checkpoints, "--epochs", "1"})).status == 0);
  auto const goes_on = [&](arguments const& more) {
    return data.run(with({"--hash-size", "64", "--batch-size", "100", "--checkpoint", checkpoints, "--resume"}, more));
  };
  for (arguments const& more : {arguments{"--ranks", "threads:3", "--plan", "round-robin", "--epochs", "3", "--predict", resumed},
                                {"--ranks", "threads:3", "--plan", plan, "--epochs", "4"},
                                {"--epochs", "5"}}) {
    auto const of = goes_on(more);
    CAPTURE(of.output);
    CHECK(of.status == 0);
    CHECK(of.says("resumed from " + checkpoints + "/step-"));
  }
  CHECK(contents(resumed) == contents(whole));
}

TEST_CASE("what ranks cannot do is refused by name, once") {
  small_data const data;
  auto const plan = data.folder.file("plan.json");
  auto const refused = [&](arguments const& more, std::vector<std::string> const& parts) { check_refused(data.run(more), parts); };
  refused({"--ranks", "some"}, {"--ranks", "neither auto, mpi, 1 nor threads:1 to threads:1024: some"});
  refused({"--ranks", "threads:0"}, {"--ranks", "threads:0"});
  refused({"--codec", "fp12"}, {"--codec", "fp12"});
  refused({"--ranks", "threads:2", "--plan", plan}, {plan, "--plan", "neither bytes nor round-robin, nor a file"});
  write_file(plan, R"({"shards": [{"table": 0, "rank": 0}]})");
  refused({"--ranks", "threads:2", "--plan", plan}, {"a table is not covered", "table 1"});
  write_file(plan, R"({"shards": [{"table": 0, "rank": 2}]})");
  refused({"--ranks", "threads:2", "--plan", plan}, {"no such rank", "rank 2", "ranks 2"});
  write_file(plan, R"({"shards": [{"table": 0, "rank": 0, "color": "red"}]})");
  refused({"--ranks", "threads:2", "--plan", plan}, {plan, "color"});
  refused({"--ranks", "threads:2", "--report", data.folder.file("page.html")}, {"--report", "one rank"});
  refused({"--ranks", "threads:2", "--dedup-sums", "expanded"}, {"expanded", "ranks 2"});
}

TEST_CASE("what ranks saved goes on on other ranks, under another plan, and alone") {
  small_data const data;
  auto const checkpoints = data.folder.file("run");
  auto const first = data.run({"--ranks", "threads:4", "--checkpoint", checkpoints, "--epochs", "1"});
  CAPTURE(first.output);
  REQUIRE(first.status == 0);
  auto const tested = [&](char const* ranks) {
    auto const csv = data.folder.file("of.csv");
    auto const result = run_program(
        {TESSERA_TRAIN_CTR, "--eval-only", "--test", data.test, "--checkpoint", checkpoints, "--predict", csv, "--ranks", ranks});
    CAPTURE(result.output);
    CHECK(result.status == 0);
    return probabilities(csv);
  };
  auto const expected = tested("threads:4");
  for (char const* const ranks : {"threads:3", "1"}) {
    auto const found = tested(ranks);
    REQUIRE(found.size() == expected.size());
    for (std::size_t i = 0; i < found.size(); ++i) CHECK(found[i] == doctest::Approx(expected[i]).epsilon(1e-5));
  }
  for (arguments const& more : {arguments{"--ranks", "threads:3", "--plan", "round-robin", "--epochs", "2"}, {"--epochs", "3"}}) {
    auto const result = data.run(with({"--checkpoint", checkpoints, "--resume"}, more));
    CAPTURE(result.output);
    CHECK(result.status == 0);
    CHECK(result.says("resumed from " + checkpoints + "/step-"));
  }
  auto const other = data.run({"--ranks", "threads:2", "--checkpoint", checkpoints, "--resume", "--embedding-dim", "8"});
  check_refused(other, {"--embedding-dim"});
}

TEST_CASE("ranks that are killed at any moment go on from their last checkpoint to the bits of ranks that were not") {
  small_data const data;
  auto const whole = data.folder.file("whole"), parts = data.folder.file("parts");
  auto const uninterrupted = data.folder.file("whole.csv"), resumed = data.folder.file("parts.csv");
  auto const with_checkpoints = [](std::string const& folder, std::string const& csv) {
    return arguments{"--ranks", "threads:3", "--checkpoint", folder, "--checkpoint-every", "2", "--epochs", "4", "--predict", csv};
  };
  REQUIRE(data.run(with_checkpoints(whole, uninterrupted)).status == 0);
  {
    running_program first(command_of(data.train, data.test, with_checkpoints(parts, resumed)));
    while (!first.ended() && tessera::list_step_folders(parts).empty()) ::usleep(1000);
    first.kill();
  }
  auto const result = data.run(with(with_checkpoints(parts, resumed), {"--resume"}));
  CAPTURE(result.output);
  CHECK(result.status == 0);
  CHECK(contents(resumed) == contents(uninterrupted));
}

TEST_CASE("a process that is killed ends all, which go on from their last checkpoint on fewer") {
#ifndef TESSERA_MPIEXEC
  skip("this build has no MPI");
#else
  small_data const data;
  auto const checkpoints = data.folder.file("run");
  auto const command = command_of(data.train, data.test, {"--checkpoint", checkpoints, "--checkpoint-every", "5", "--epochs", "1000000"});
  running_program first(launch(3, command));
  while (!first.ended() && tessera::list_step_folders(checkpoints).empty()) ::usleep(1000);
  auto const processes = first.children();
  REQUIRE(processes.size() == 3);
  ::kill(processes[1], SIGKILL);
  auto const ended = first.wait();
  CHECK(ended.status != 0);
  auto const steps = tessera::list_step_folders(checkpoints);
  REQUIRE(!steps.empty());
  auto const result = launched(2, command_of(data.train, data.test, {"--checkpoint", checkpoints, "--resume", "--epochs", "1"}));
  CAPTURE(result.output);
  CHECK(result.status == 0);
  CHECK(result.says("resumed from " + checkpoints));
#endif
}

TEST_CASE("processes with other data or options are refused") {
#ifndef TESSERA_MPIEXEC
  skip("this build has no MPI");
#else
  small_data const data;
  auto const other = data.folder.file("other.tsv");
  auto lines = contents(data.train);
  lines[0] = lines[0] == '0' ? '1' : '0';  // the label of the first sample
  write_file(other, lines);
  arguments const hashed{"--hash-size", "50"};
  auto const beside = [&](arguments const& second) {
    return run_program(with(with(launch(1, command_of(data.train, data.test, hashed)), {":", "-n", "1"}), second));
  };
  auto const other_data = beside(command_of(other, data.test, hashed));
  CAPTURE(other_data.output);
  CHECK(other_data.status != 0);
  CHECK(other_data.says("train: fingerprint"));
  auto const other_size = beside(command_of(data.train, data.test, with(hashed, {"--batch-size", "64"})));
  CAPTURE(other_size.output);
  CHECK(other_size.status != 0);
  CHECK(other_size.says("batch-size 64"));
  CHECK(other_size.says("batch-size 128"));
#endif
}

TEST_CASE("a process whose data are bad ends all, and is named") {
#ifndef TESSERA_MPIEXEC
  skip("this build has no MPI");
#else
  small_data const data;
  auto const bad = data.folder.file("bad.tsv");
  auto lines = contents(data.train);
  lines.replace(lines.rfind('\n', lines.size() - 2) + 1, 1, "x");  // the label of the last sample
  write_file(bad, lines);
  auto all = launch(1, command_of(data.train, data.test, {}));
  all = with(with(all, {":", "-n", "1"}), command_of(bad, data.test, {}));
  auto const result = run_program(all);
  CAPTURE(result.output);
  CHECK(result.status != 0);
  CHECK(result.says("rank 1: "));
  CHECK(result.says(bad));
#endif
}

TEST_CASE("processes of MPI's launcher have the bits of as many threads") {
#ifndef TESSERA_MPIEXEC
  skip("this build has no MPI");
#else
  small_data const data;
  auto const of_threads = data.folder.file("threads.csv"), of_processes = data.folder.file("processes.csv");
  for (int const ranks : {1, 2, 3}) {
    CAPTURE(ranks);
    auto const all = std::to_string(ranks);
    data.run({"--ranks", "threads:" + all, "--predict", of_threads});
    auto const result = launched(ranks, command_of(data.train, data.test, {"--predict", of_processes}));
    CAPTURE(result.output);
    CHECK(result.status == 0);
    CHECK(result.output.find("test: 300 samples") == result.output.rfind("test: 300 samples"));
    CHECK(contents(of_processes) == contents(of_threads));
  }
  auto const refused = launched(2, command_of(data.train, data.test, {"--ranks", "mpi", "--codec", "none"}));
  CHECK(refused.status != 0);
  CHECK(refused.says("--codec"));
  auto const threads = launched(2, command_of(data.train, data.test, {"--ranks", "threads:2"}));
  CHECK(threads.status != 0);
  CHECK(threads.says("MPI's launcher has started several processes"));
#endif
}

#endif
