// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-cost: 12
#include <doctest/doctest.h>

#include "../support/skip.hpp"

#ifndef TESSERA_TRAIN_CTR

TEST_CASE("train_ctr on ranks") { tessera_tests::skip("the examples are not built"); }

#else

#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include <tessera/files/step_folders.hpp>

#include "launched.hpp"
#include "random.hpp"
#include "run_program.hpp"
#include "temporary_folder.hpp"
#include "train_ctr_support.hpp"

namespace train_ctr_ranks_test {

namespace {

using namespace tessera_tests;

arguments with(arguments all, arguments const& more) {
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

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

TEST_CASE("with fixed sums any number of ranks predicts to the bits of one process, also where it goes on from others") {
  small_data const data;
  arguments const usual{"--sums", "fixed", "--batch-size", "100"}, chunks{"--chunk-samples", "16"};
  auto const predicted = [&](std::string const& name, arguments const& more, arguments const& by) {
    auto const file = data.folder.file(name + ".csv");
    auto const result = data.run(with(with(usual, by), with(more, {"--predict", file})));
    CAPTURE(result.output);
    CHECK(result.status == 0);
    return contents(file);
  };
  auto const alone = predicted("alone", {}, chunks);
  CHECK(predicted("two", {"--ranks", "threads:2"}, chunks) == alone);
  CHECK(predicted("three", {"--ranks", "threads:3", "--plan", "round-robin"}, chunks) == alone);
  CHECK(predicted("others", {}, {"--chunk-samples", "32"}) != alone);
  CHECK(data.run({"--sums", "fixed", "--chunk-samples", "64", "--batch-size", "100", "--ranks", "threads:3"})
            .says("--chunk-samples: a batch of 100 has 2 chunks, so 1 ranks have none"));

  auto const runs = data.folder.file("runs");
  predicted("begun", {"--ranks", "threads:3", "--checkpoint", runs, "--epochs", "1"}, chunks);
  CHECK(predicted("gone-on", {"--ranks", "threads:2", "--checkpoint", runs, "--resume", "--epochs", "3"}, chunks) == alone);
}

TEST_CASE("a run that goes on says what its ranks, plan and codec were; ranks write a report") {
  small_data const data;
  auto const runs = data.folder.file("runs"), page = data.folder.file("page.html"), alone = data.folder.file("alone.html");
  CHECK(data.run({"--checkpoint", runs, "--epochs", "1"}).status == 0);
  auto const result =
      data.run({"--checkpoint", runs, "--resume", "--epochs", "2", "--ranks", "threads:2", "--codec", "fp16", "--report", page});
  CAPTURE(result.output);
  CHECK(result.status == 0);
  CHECK(result.says("ranks: 2, and 1 before; the bits may be others"));
  CHECK(result.says("codec: fp16, and fp32 before"));
  CHECK(!result.says("plan: "));
  auto const other = data.run({"--checkpoint", runs, "--resume", "--epochs", "3", "--ranks", "threads:2", "--plan", "round-robin"});
  CHECK(other.status == 0);
  CHECK(other.says("plan: round-robin, and bytes before"));
  CHECK(other.says("codec: fp32, and fp16 before"));
  CHECK(!other.says("ranks: 2, and"));

  // All ranks' reads, and the bytes of all shards, stand in the page as one process writes them.
  CHECK(data.run({"--epochs", "1", "--sums", "fixed", "--chunk-samples", "16", "--batch-size", "64", "--report", alone}).status == 0);
  CHECK(data.run({"--epochs", "1", "--sums", "fixed", "--chunk-samples", "16", "--batch-size", "64", "--ranks", "threads:3", "--plan",
                  "round-robin", "--report", page})
            .status == 0);
  auto const tables = [](std::string const& text) {
    auto const first = text.find("Embedding tables");
    REQUIRE(first != std::string::npos);
    return text.substr(first, text.find("Options", first) - first);
  };
  CHECK(tables(contents(page)) == tables(contents(alone)));
}

TEST_CASE("with fixed sums, tables that lie whole, by columns, by rows and in grids predict to the bits of one process") {
  temporary_folder folder;
  auto const train = folder.file("train.tsv"), test = folder.file("test.tsv");
  write_file(train, head(train_tsv, 3000));
  write_file(test, head(test_tsv, 1000));
  auto const predicted = [&](std::string const& name, arguments const& more) {
    auto const file = folder.file(name + ".csv");
    auto const result = train_ctr(train, test,
                                  with({"--epochs", "1", "--sums", "fixed", "--chunk-samples", "16", "--hash-size", "64",
                                        "--embedding-optimizer", "adagrad", "--predict", file},
                                       more));
    CAPTURE(result.output);
    CHECK(result.status == 0);
    return contents(file);
  };
  auto const alone = predicted("alone", {});
  for (int const ranks : {2, 3, 4, 8}) {
    CAPTURE(ranks);
    nlohmann::json shards = nlohmann::json::array();
    for (int t = 0; t < 13; ++t) {
      // Whole, by columns, by rows, or both ways; no rank has two pieces of a table.
      int const columns = t % 2 == 1 ? 2 : 1, rows = t % 4 < 2 ? 1 : ranks / columns;
      for (int piece = 0; piece < rows * columns; ++piece) {
        nlohmann::json shard{{"table", t}, {"rank", (t + piece) % ranks}};
        int const row = piece / columns, first = 65 * row / rows;  // a row more than --hash-size, for what is empty
        if (rows > 1) shard.update({{"first_row", first}, {"rows", 65 * (row + 1) / rows - first}});
        if (columns > 1) shard.update({{"first_column", 8 * (piece % 2)}, {"columns", 8}});
        shards.push_back(shard);
      }
    }
    auto const plan = folder.file("plan.json");
    write_file(plan, nlohmann::json{{"shards", shards}}.dump());
    bool const same = predicted("ranks", {"--ranks", "threads:" + std::to_string(ranks), "--plan", plan}) == alone;
    CHECK(same);
  }
}

TEST_CASE("a plan that cuts tables by rows predicts to the bits what one of whole tables does, and goes on under others") {
  small_data const data;
  auto const plan = data.folder.file("plan.json"), whole = data.folder.file("whole.csv"), cut = data.folder.file("cut.csv");
  // A table has a row more than --hash-size, for what is empty.
  nlohmann::json shards = nlohmann::json::array();
  shards.push_back({{"table", "C1"}, {"kind", "row_wise"}, {"ranks", {2, 0, 1}}});
  shards.push_back({{"table", 1}, {"kind", "data_parallel"}});
  for (int t = 2; t < 13; ++t)
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
  refused({"--ranks", "threads:2", "--plan", plan}, {plan, "--plan", "neither bytes, cut nor round-robin, nor a file"});
  write_file(plan, R"({"shards": [{"table": 0, "rank": 0}]})");
  refused({"--ranks", "threads:2", "--plan", plan}, {"a table is not covered", "table 1"});
  write_file(plan, R"({"shards": [{"table": 0, "rank": 2}]})");
  refused({"--ranks", "threads:2", "--plan", plan}, {"no such rank", "rank 2", "ranks 2"});
  write_file(plan, R"({"shards": [{"table": 0, "rank": 0, "color": "red"}]})");
  refused({"--ranks", "threads:2", "--plan", plan}, {plan, "color"});
  write_file(plan, R"({"shards": [{"table": "C0", "rank": 0}]})");
  refused({"--ranks", "threads:2", "--plan", plan}, {plan, "no table has this name", "C0"});
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

TEST_CASE("a process that is killed at any moment ends all, which go on on fewer: from their last checkpoint, if there is one") {
#ifndef TESSERA_MPIEXEC
  skip("this build has no MPI");
#else
  auto const seed = draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  small_data const data;
  // Hangs alone last so long.
  auto const within_a_minute = [](auto const& done) {
    auto const end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (!done() && std::chrono::steady_clock::now() < end) ::usleep(1000);
    return done();
  };
  // Soon after the start, often before there is a checkpoint; and some time after the first one.
  for (bool const waits : {false, true}) {
    CAPTURE(waits);
    auto const checkpoints = data.folder.file(waits ? "later" : "soon");
    auto const command = command_of(data.train, data.test, {"--checkpoint", checkpoints, "--checkpoint-every", "5", "--epochs", "1000000"});
    running_program first(launch(3, command));
    REQUIRE(within_a_minute([&] { return first.ended() || first.children().size() == 3; }));
    if (waits) CHECK(within_a_minute([&] { return first.ended() || !tessera::list_step_folders(checkpoints).empty(); }));
    auto const processes = first.children();
    REQUIRE(processes.size() == 3);
    auto const wait_ms = static_cast<unsigned>(random() % (waits ? 300 : 1500));
    CAPTURE(wait_ms);
    ::usleep(1000 * wait_ms);
    ::kill(processes[random() % 3], SIGKILL);
    bool const has_ended = within_a_minute([&] { return first.ended(); });
    CHECK(has_ended);
    if (!has_ended) first.kill();
    auto const ended = first.wait();
    CAPTURE(ended.output);
    CHECK(ended.status != 0);
    auto const steps = tessera::list_step_folders(checkpoints);
    CHECK((!waits || !steps.empty()));
    arguments more{"--checkpoint", checkpoints, "--epochs", "1"};
    if (!steps.empty()) more.push_back("--resume");
    auto const result = launched(2, command_of(data.train, data.test, more));
    CAPTURE(result.output);
    CHECK(result.status == 0);
    CHECK(result.says("resumed from " + checkpoints) == !steps.empty());
    CHECK(figure(result, "auc") > 0.7);
  }
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
  // The launcher ends the others as soon as one has ended, so the message is of rank 1 itself or of a rank that heard of it.
  CHECK((result.says("rank 1: ") || result.says("(rank 1, ")));
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

}  // namespace train_ctr_ranks_test

#endif
