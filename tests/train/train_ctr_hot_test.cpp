// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-cost: 5
#include <doctest/doctest.h>

#include "../support/skip.hpp"

#ifndef TESSERA_TRAIN_CTR

TEST_CASE("train_ctr keeps hot rows on every rank") { tessera_tests::skip("the examples are not built"); }

#else

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include <tessera/files/step_folders.hpp>

#include "launched.hpp"
#include "train_ctr_support.hpp"

namespace train_ctr_hot_test {

namespace {

using namespace tessera_tests;

arguments with(arguments all, arguments const& more) {
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

// Tables that are large enough to be hot in part, and a budget of some hundred rows.
struct hot_data {
  small_data data;
  arguments usual{"--hash-size", "20000", "--epochs", "2",     "--batch-size",    "50",
                  "--threads",   "2",     "--sums",   "fixed", "--chunk-samples", "10"};
  arguments hot{"--hot-budget", "8KB"};

  // The usual options, but for those that are said otherwise.
  program_result run(arguments const& more) const {
    arguments all;
    for (std::size_t i = 0; i < usual.size(); i += 2)
      if (std::find(more.begin(), more.end(), usual[i]) == more.end()) all.insert(all.end(), {usual[i], usual[i + 1]});
    auto result = data.run(with(all, more));
    CHECK_MESSAGE(result.status == 0, result.output);
    return result;
  }
  std::string predicted(arguments const& more) const {
    auto const file = data.folder.file("predictions.csv");
    run(with(more, {"--predict", file}));
    return contents(file);
  }
};

}  // namespace

TEST_CASE("with all rows hot, a run predicts to the bits of one without hot rows") {
  small_data const data;
  auto const predicted = [&](arguments const& more) {
    auto const file = data.folder.file("predictions.csv");
    auto const result = data.run(with({"--epochs", "1", "--predict", file}, more));
    CHECK_MESSAGE(result.status == 0, result.output);
    return std::pair(result.output, contents(file));
  };
  auto const without = predicted({});
  for (std::string const threads : {"1", "2"}) {
    auto const [output, predictions] = predicted({"--hot-budget", "1GB", "--threads", threads});
    CHECK(output.find("so are 100.0 % of the samples") != std::string::npos);
    CHECK(output.find("hot: rows changed place 1 times, ") != std::string::npos);
    CHECK(predictions == without.second);
  }
}

TEST_CASE("rows that swap and rows that stay train to the same bits, on one rank and on several, where no bag mixes them") {
  hot_data const data;
  for (std::string const schedule : {"loss", "25"}) {
    CAPTURE(schedule);
    auto const usual = with(data.hot, {"--hot-schedule", schedule});
    auto const swapped = data.predicted(usual);
    CHECK(data.predicted(with(usual, {"--hot-batches", "stay"})) == swapped);
    CHECK(data.predicted(with(usual, {"--threads", "1"})) == swapped);
    CHECK(data.predicted(with(usual, {"--ranks", "threads:2"})) == swapped);
    CHECK(data.predicted(with(usual, {"--ranks", "threads:2", "--hot-batches", "stay"})) == swapped);
  }
  auto const counted = data.run(with(data.hot, {"--hot-schedule", "25"}));
  CHECK_FALSE(counted.says("so are 100.0 % of the samples"));
  CHECK_FALSE(counted.says("so are 0.0 % of the samples"));
  auto const swaps = [](program_result const& result) {
    std::string const before = "hot: rows changed place ";
    auto const at = result.output.find(before);
    REQUIRE_MESSAGE(at != std::string::npos, result.output);
    return std::stoi(result.output.substr(at + before.size()));
  };
  CHECK(swaps(counted) >= 14);  // up to four runs of each class an epoch, which begin with a swap but for the first
  CHECK(swaps(counted) <= 16);
  CHECK(swaps(data.run(with(data.hot, {"--hot-batches", "stay", "--epochs", "1"}))) == 0);
}

TEST_CASE("processes of MPI's launcher have hot rows, too, with the bits of one process") {
#ifndef TESSERA_MPIEXEC
  skip("this build has no MPI");
#else
  hot_data const data;
  auto const expected = data.predicted(data.hot);
  auto const file = data.data.folder.file("of processes.csv");
  for (int const ranks : {2, 4}) {
    auto const result = launched(ranks, command_of(data.data.train, data.data.test, with(with(data.usual, data.hot), {"--predict", file})));
    CHECK_MESSAGE(result.status == 0, result.output);
    CHECK(contents(file) == expected);
  }
#endif
}

TEST_CASE("hashed tables have hot rows, too") {
  small_data const data;
  auto const file = data.folder.file("predictions.csv");
  auto const predicted = [&](arguments const& more) {
    auto const result = data.run(with({"--hash-table", "100000", "--epochs", "1", "--hot-budget", "8KB", "--predict", file}, more));
    CHECK_MESSAGE(result.status == 0, result.output);
    return contents(file);
  };
  CHECK(predicted({}) == predicted({"--hot-batches", "stay"}));
}

TEST_CASE("a run with hot rows that was killed goes on to the same bits") {
  hot_data const data;
  auto const whole = data.data.folder.file("whole"), killed = data.data.folder.file("killed");
  auto const every = with(data.hot, {"--checkpoint-every", "7"});
  data.run(with(every, {"--checkpoint", whole}));
  std::filesystem::copy(whole, killed, std::filesystem::copy_options::recursive);
  std::filesystem::remove_all(tessera::list_step_folders(killed).back().path);
  auto const resume = [&](arguments const& more) { return data.data.run(with({"--resume", "--checkpoint", killed}, more)); };

  SUBCASE("with the same options") {
    auto const result = resume(with(every, {"--threads", "1"}));
    CHECK_MESSAGE(result.status == 0, result.output);
    CHECK(tensors_of(killed) == tensors_of(whole));
  }
  SUBCASE("in the midst of an epoch with no other batches") {
    check_refused(resume({}), {"option --hot-budget: the checkpoint is in the midst of an epoch of other batches", "--hot-budget 0",
                               "of the checkpoint 8192"});
    check_refused(resume({"--hot-budget", "6KB"}), {"option --hot-budget: the checkpoint is in the midst", "--hot-budget 6144"});
    check_refused(resume(with(data.hot, {"--batch-size", "25"})),
                  {"option --hot-budget: the checkpoint is in the midst", "--batch-size 25"});
  }
}

TEST_CASE("behind an epoch's end, a run goes on with other hot rows, with none, and is tested under any") {
  hot_data const data;
  auto const folder = data.data.folder.file("run");
  auto const done = data.run(with(data.hot, {"--epochs", "1", "--checkpoint", folder}));
  arguments const go_on{"--resume", "--checkpoint", folder};
  auto const tested = data.data.run({"--eval-only", "--checkpoint", folder});
  CHECK(figures(tested) == figures(done));
  for (auto const& [more, epochs] : {std::pair(arguments{"--hot-budget", "6KB"}, "2"), {{}, "3"}, {{"--hot-budget", "12KB"}, "4"}}) {
    auto const result = data.data.run(with(with(go_on, {"--epochs", epochs}), more));
    CHECK_MESSAGE(result.status == 0, result.output);
    CHECK_MESSAGE(result.says(std::string("epoch ") + epochs + "/" + epochs), result.output);
  }
}

TEST_CASE("a report shows what was hot, and metrics the runs") {
  hot_data const data;
  auto const page = data.data.folder.file("report.html"), metrics = data.data.folder.file("metrics.jsonl");
  data.run(with(data.hot, {"--report", page, "--metrics", metrics}));
  auto const text = contents(page);
  for (char const* const part : {"Hot rows", "hot runs", "cold runs", "(chosen)", "of all samples"})
    CHECK(text.find(part) != std::string::npos);
  CHECK(contents(metrics).find("\"event\":\"run\"") != std::string::npos);
}

TEST_CASE("what cannot go with hot rows is refused by name") {
  small_data const data;
  arguments const hot{"--hot-budget", "1MB"};
  check_refused(data.run({"--hot-budget", "a lot"}), {"--hot-budget"});
  check_refused(data.run({"--hot-schedule", "10"}), {"--hot-schedule: with a --hot-budget alone"});
  check_refused(data.run(with(hot, {"--hot-schedule", "0"})), {"--hot-schedule: neither loss nor a percentage above 0 and at most 100: 0"});
  check_refused(data.run(with(hot, {"--exchange", "sptt", "--towers", "2"})), {"--hot-budget: with --exchange flat and two-hop"});
  check_refused(data.run(with(hot, {"--read", "blocks"})), {"--hot-budget: ranks read the same batches"});
  check_refused(data.run(with(hot, {"--progressive"})), {"--hot-budget: --progressive"});
  check_refused(data.run(with(hot, {"--ids-ahead", "1"})), {"--hot-budget: what comes next"});
  check_refused(data.run({"--hot-budget", "1KB"}),
                {"option --hot-budget: ", "a budget below the bytes of the small tables", "budget_bytes 1024"});
}

}  // namespace train_ctr_hot_test

#endif
