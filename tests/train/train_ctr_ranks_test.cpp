// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-cost: 15
#include <doctest/doctest.h>

#include "../support/skip.hpp"

#ifndef TESSERA_TRAIN_CTR

TEST_CASE("train_ctr on ranks") { tessera_tests::skip("the examples are not built"); }

#else

#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

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
/// So many processes, started by MPI's launcher.
program_result launched(int ranks, arguments const& command) {
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
  return run_program(with({TESSERA_MPIEXEC, "-n", std::to_string(ranks)}, command));
}
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

TEST_CASE("what ranks cannot do is refused by name, once") {
  small_data const data;
  auto const plan = data.folder.file("plan.json");
  auto const refused = [&](arguments const& more, std::vector<std::string> const& parts) { check_refused(data.run(more), parts); };
  refused({"--ranks", "some"}, {"--ranks", "neither auto, mpi, 1 nor threads:1 to threads:1024: some"});
  refused({"--ranks", "threads:0"}, {"--ranks", "threads:0"});
  refused({"--codec", "fp12"}, {"--codec", "fp12"});
  refused({"--ranks", "threads:2", "--plan", plan}, {plan, "No such file"});
  write_file(plan, R"({"shards": [{"table": 0, "rank": 0}]})");
  refused({"--ranks", "threads:2", "--plan", plan}, {"a table is not covered", "table 1"});
  write_file(plan, R"({"shards": [{"table": 0, "rank": 2}]})");
  refused({"--ranks", "threads:2", "--plan", plan}, {"no such rank", "rank 2", "ranks 2"});
  write_file(plan, R"({"shards": [{"table": 0, "rank": 0, "color": "red"}]})");
  refused({"--ranks", "threads:2", "--plan", plan}, {plan, "color"});
  refused({"--ranks", "threads:2", "--report", data.folder.file("page.html")}, {"--report", "one rank"});
  refused({"--ranks", "threads:2", "--dedup-sums", "expanded"}, {"expanded", "ranks 2"});
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
  CHECK(refused.output.find("--codec") == refused.output.rfind("--codec"));
#endif
}

#endif
