// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include "../support/skip.hpp"

#ifndef TESSERA_TRAIN_CTR

TEST_CASE("train_ctr with predicted plans") { tessera_tests::skip("the examples are not built"); }

#else

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include <tessera/plan/found_plan_file.hpp>
#include <tessera/plan/plan_samples_file.hpp>
#include <tessera/shard/sharding_plan_file.hpp>

#include "launched.hpp"
#include "run_program.hpp"
#include "temporary_folder.hpp"
#include "train_ctr_support.hpp"

namespace train_ctr_plan_test {

namespace {

using namespace tessera_tests;

constexpr std::int64_t batch = 100, rows = 65, dim = 16;  // a row more than --hash-size, for what is empty

arguments with(arguments all, arguments const& more) {
  all.insert(all.end(), more.begin(), more.end());
  return all;
}
arguments const usual{"--hash-size", "64", "--batch-size", "100", "--epochs", "1"};

/// Tables dealt out in turn, from rank `first` on; each third one is cut by columns.
tessera::sharding_plan plan_of(int ranks, int first) {
  std::vector<tessera::table_options> tables;
  tessera::sharding_plan plan;
  for (std::int64_t t = 0; t < 13; ++t) {
    tables.push_back({.id = tessera::table_id{t}, .dim = dim, .rows = rows});
    int const one = (first + static_cast<int>(t)) % ranks, other = (one + 1) % ranks;
    auto const shards = t % 3 == 0 && ranks > 1 ? tessera::column_wise(tables, t, {one, other}) : tessera::table_wise(tables, t, one);
    plan.shards.insert(plan.shards.end(), shards.begin(), shards.end());
  }
  return plan;
}

/// Predicts 1, 2 and 3 milliseconds of each rank, times `scale`, with such an error.
tessera::predicted_plan predicted(tessera::sharding_plan const& plan, int ranks, std::string const& model, double scale = 1,
                                  double error = 0) {
  tessera::plan_prediction found{model, "", batch, error, {}, {}};
  for (int r = 0; r < ranks; ++r) {
    found.devices.push_back({scale, 2 * scale, 3 * scale});
    found.bytes.push_back(1000);
  }
  return {plan, found};
}

}  // namespace

TEST_CASE("a plan's predicted and measured times are printed for each rank and added to its samples; no bit changes") {
  small_data const data;
  for (int const ranks : {1, 3}) {
    CAPTURE(ranks);
    auto const plain = data.folder.file("plain.json"), plan = data.folder.file(std::to_string(ranks) + ".json");
    auto const expected = data.folder.file("plain.csv"), found = data.folder.file("found.csv");
    auto const shards = plan_of(ranks, 0);
    tessera::write_plan(plain, shards);
    tessera::write_predicted_plan(plan, predicted(shards, ranks, "aaaa"));
    auto const on = with(usual, {"--ranks", "threads:" + std::to_string(ranks)});
    auto const without = data.run(with(on, {"--plan", plain, "--predict", expected}));
    CHECK(without.status == 0);
    CHECK(!without.says("predicted / measured"));
    for (std::size_t runs = 1; runs <= 2; ++runs) {
      auto const result = data.run(with(on, {"--plan", plan, "--predict", found}));
      CAPTURE(result.output);
      CHECK(result.status == 0);
      CHECK(result.says("predicted / measured (medians of 10 steps), by model aaaa"));
      for (int r = 0; r < ranks; ++r) CHECK(result.says("rank " + std::to_string(r) + ": compute 1.000 / "));
      CHECK(result.says(", backward exchange 2.000 / "));
      CHECK(result.says(", forward exchange 3.000 / "));
      CHECK(result.says(", all 6.000 / "));
      CHECK(!result.says("rank " + std::to_string(ranks) + ":"));
      CHECK(result.says("added to " + plan + ".samples.csv"));
      CHECK(contents(found) == contents(expected));
      auto const samples = tessera::plan_sample_log(plan + ".samples.csv").samples();
      REQUIRE(samples.size() == runs);
      auto const& last = samples.back();
      CHECK(last.shards == shards.shards);
      CHECK(last.plan_digest == tessera::plan_digest(shards));
      CHECK(last.model == "aaaa");
      CHECK(last.batch_samples == batch);
      CHECK(last.steps == 10);
      REQUIRE(last.measured.size() == static_cast<std::size_t>(ranks));
      for (auto const& measured : last.measured) {
        CHECK(measured.compute_ms > 0);
        CHECK((measured.backward_ms > 0) == (ranks > 1));
        CHECK((measured.forward_ms > 0) == (ranks > 1));
      }
      for (auto const& of_rank : last.predicted) CHECK(of_rank == tessera::step_costs{1, 2, 3});
    }
  }
}

TEST_CASE("a run warns where predictions are worse than the model states, or than they were in the plan's first run") {
  small_data const data;
  auto const plan = data.folder.file("plan.json"), first = data.folder.file("first.csv"), other = data.folder.file("other.csv");
  // A nanosecond is predicted: any measurement is far off.
  auto const shards = plan_of(2, 0);
  auto const on = with(usual, {"--ranks", "threads:2", "--plan", plan, "--plan-samples"});
  auto const run = [&](double stated, std::string const& samples) {
    tessera::write_predicted_plan(plan, predicted(shards, 2, "aaaa", 1e-6, stated));
    auto const result = data.run(with(on, {samples}));
    CAPTURE(result.output);
    CHECK(result.status == 0);
    return result.says("train_ctr: predictions of the plan are off by ") && result.says("measure again and fit anew");
  };
  CHECK(run(0.5, first));
  CHECK(!run(0, data.folder.file("unknown.csv")));
  CHECK(!run(1e15, data.folder.file("stated.csv")));
  // The first run of the plan was as predicted, but for a hundredth; the next two are no comparison.
  auto of_first = predicted(shards, 2, "aaaa", 1e-6).found->devices;
  auto measured = of_first;
  for (auto& one : measured) one.compute_ms *= 1.01;
  tessera::plan_sample const sample{shards.shards, tessera::plan_digest(shards), "aaaa", batch, 7, of_first, measured};
  tessera::plan_sample_log(other).append(sample);
  CHECK(run(1e15, other));
  auto const foreign = data.folder.file("foreign.csv");
  for (auto const& [model, samples] : {std::pair("bbbb", batch), {"aaaa", batch + 1}}) {
    auto of_another = sample;
    of_another.model = model;
    of_another.batch_samples = samples;
    tessera::plan_sample_log(foreign).append(of_another);
  }
  CHECK(!run(1e15, foreign));
  CHECK(tessera::plan_sample_log(foreign).samples().size() == 3);
  CHECK(!std::filesystem::exists(plan + ".samples.csv"));
}

TEST_CASE("a plan is not compared with a prediction of other steps, and a run says so") {
  small_data const data;
  auto const plan = data.folder.file("plan.json");
  tessera::write_predicted_plan(plan, predicted(plan_of(2, 0), 2, "aaaa"));
  arguments const on{"--hash-size", "64", "--epochs", "1", "--ranks", "threads:2", "--plan", plan};
  for (arguments const& more : {arguments{"--batch-size", "64"}, {"--batch-size", "100", "--exchange", "two-hop"}}) {
    auto const result = data.run(with(on, more));
    CAPTURE(result.output);
    CHECK(result.status == 0);
    CHECK(result.says("plan: not compared with its prediction"));
    CHECK(result.says("--batch-size 100"));
    CHECK(!result.says("predicted / measured"));
  }
  auto everywhere = plan_of(2, 0);
  everywhere.shards[2].rank = tessera::table_shard::all_ranks;
  tessera::write_predicted_plan(plan, predicted(everywhere, 2, "aaaa"));
  auto const result = data.run(with(on, {"--batch-size", "100"}));
  CAPTURE(result.output);
  CHECK(result.status == 0);
  CHECK(result.says("plan: not compared with its prediction"));
  CHECK(!std::filesystem::exists(plan + ".samples.csv"));
}

TEST_CASE("a plan is not compared with a prediction of other optimizers or row formats, and a run names the first table that differs") {
  small_data const data;
  auto const plan = data.folder.file("plan.json");
  auto of = predicted(plan_of(2, 0), 2, "aaaa");
  of.found->optimizer = "rowwise_adagrad";
  of.found->row_format = "float16";
  tessera::write_predicted_plan(plan, of);
  auto const on = with(usual, {"--ranks", "threads:2", "--plan", plan});
  auto const refused = [&](arguments const& more, std::vector<std::string> const& parts) {
    auto const result = data.run(with(on, more));
    CAPTURE(result.output);
    CHECK(result.status == 0);
    CHECK(result.says("plan: not compared with its prediction: "));
    for (auto const& part : parts) CHECK_MESSAGE(result.says(part), part);
    CHECK(!std::filesystem::exists(plan + ".samples.csv"));
  };
  refused({}, {"plan.json", "field row_format", "expected float16", "found float)"});
  refused({"--row-format", "fp16", "--embedding-optimizer", "adam"},
          {"plan.json", "field optimizer", "expected rowwise_adagrad", "found adam"});
  auto const result = data.run(with(on, {"--row-format", "fp16"}));
  CAPTURE(result.output);
  CHECK(result.status == 0);
  CHECK(result.says("predicted / measured"));
}

TEST_CASE("a checkpoint keeps its plan and what it was found with: under other models it goes on with them, and says so") {
  small_data const data;
  auto const first = data.folder.file("first.json"), second = data.folder.file("second.json"), plain = data.folder.file("plain.json");
  auto const same = data.folder.file("same.json"), runs = data.folder.file("runs");
  auto const whole = data.folder.file("whole.csv"), parts = data.folder.file("parts.csv");
  tessera::write_predicted_plan(first, predicted(plan_of(3, 0), 3, "aaaa"));
  tessera::write_predicted_plan(second, predicted(plan_of(3, 1), 3, "bbbb", 7));
  tessera::write_predicted_plan(same, predicted(plan_of(3, 2), 3, "aaaa", 9));
  tessera::write_plan(plain, plan_of(3, 2));
  arguments const on{"--hash-size", "64", "--batch-size", "100", "--ranks", "threads:3"};
  auto const goes_on = [&](char const* epochs, arguments const& more) {
    auto const result = data.run(with(on, with({"--checkpoint", runs, "--resume", "--epochs", epochs}, more)));
    CAPTURE(result.output);
    CHECK(result.status == 0);
    return result;
  };
  CHECK(data.run(with(on, {"--plan", first, "--epochs", "3", "--predict", whole})).status == 0);
  CHECK(data.run(with(on, {"--plan", first, "--epochs", "1", "--checkpoint", runs})).status == 0);

  // Nothing is said of a plan; the file may even be gone.
  std::filesystem::rename(first, first + ".old");
  auto result = goes_on("2", {});
  CHECK(result.says("plan: the checkpoint's stays, of " + first + "\n"));
  CHECK(result.says("rank 2: compute 1.000 / "));
  CHECK(!result.says("before; the bits may be others"));
  CHECK(tessera::plan_sample_log(first + ".samples.csv").samples().size() == 3);

  // A plan of another model.
  result = goes_on("3", {"--plan", second, "--predict", parts});
  CHECK(result.says("plan: the checkpoint's stays, of " + first + ", found with model aaaa; " + second + " was found with model bbbb"));
  CHECK(result.says("rank 2: compute 1.000 / "));
  CHECK(!result.says("before; the bits may be others"));
  CHECK(contents(parts) == contents(whole));
  CHECK(tessera::plan_sample_log(first + ".samples.csv").samples().size() == 4);
  CHECK(!std::filesystem::exists(second + ".samples.csv"));

  // Another plan of the same model.
  result = goes_on("4", {"--plan", same});
  CHECK(!result.says("stays"));
  CHECK(result.says("plan: " + same + ", and " + first + " before"));
  CHECK(result.says("rank 2: compute 9.000 / "));
  // The checkpoint has that one now. One that names no model is as the command line says.
  result = goes_on("5", {"--plan", plain});
  CHECK(!result.says("stays"));
  CHECK(result.says("plan: " + plain + ", and " + same + " before"));
  CHECK(!result.says("predicted / measured"));
  result = goes_on("6", {});
  CHECK(result.says("plan: the checkpoint's stays, of " + plain + "\n"));
  // Fewer ranks cannot have it, and the checkpoint of bytes keeps none.
  result = data.run({"--checkpoint", runs, "--resume", "--epochs", "7", "--ranks", "threads:2"});
  CAPTURE(result.output);
  CHECK(result.status == 0);
  CHECK(result.says("plan: bytes, and " + plain + " before"));
  result = goes_on("8", {"--plan", second});
  CHECK(result.says("plan: " + second + ", and bytes before"));
  CHECK(result.says("rank 2: compute 7.000 / "));
}

TEST_CASE("plans and samples that cannot be are refused by name, before training") {
  small_data const data;
  auto const plan = data.folder.file("plan.json"), samples = data.folder.file("samples.csv");
  auto const on = with(usual, {"--ranks", "threads:2", "--plan", plan});
  auto const refused = [&](arguments const& more, std::vector<std::string> const& parts) {
    auto const result = data.run(with(on, more));
    check_refused(result, parts);
    CHECK(!result.says("epoch 1/1"));
  };
  auto json = tessera::predicted_plan_json(predicted(plan_of(2, 0), 2, "aaaa"));
  auto const sound = json;
  std::swap(json["shards"][0]["rank"], json["shards"][1]["rank"]);  // the halves of a table
  tessera::write_json(plan, json);
  refused({}, {plan, "what was found is of other shards", "field plan"});
  json = sound;
  json["found"].erase("model");
  tessera::write_json(plan, json);
  refused({}, {plan, "JSON field is missing", "field model"});
  json = sound;
  json["found"]["devices"].erase(1);
  tessera::write_json(plan, json);
  refused({}, {plan, "one device a rank", "field devices", "value 1", "ranks 2"});
  tessera::write_json(plan, sound);
  write_file(samples, "something else\n");
  refused({"--plan-samples", samples}, {"option --plan-samples", "a file of other samples", samples});
  refused({"--plan-samples", data.folder.file("no/such.csv")}, {"option --plan-samples", "no/such.csv"});
  refused({"--plan-samples", data.test}, {"option --plan-samples", "the file of another option"});
  tessera::write_plan(plan, plan_of(2, 0));
  refused({"--plan-samples", data.folder.file("new.csv")}, {"--plan-samples", "of a --plan that says what was predicted of it"});
}

TEST_CASE("processes of MPI's launcher print and add what as many threads do") {
#ifndef TESSERA_MPIEXEC
  skip("this build has no MPI");
#else
  small_data const data;
  auto const plan = data.folder.file("plan.json");
  tessera::write_predicted_plan(plan, predicted(plan_of(2, 0), 2, "aaaa"));
  auto const result = launched(2, command_of(data.train, data.test, with(usual, {"--plan", plan})));
  CAPTURE(result.output);
  CHECK(result.status == 0);
  for (char const* const line : {"rank 0: compute 1.000 / ", "rank 1: compute 1.000 / "}) {
    CHECK(result.says(line));
    CHECK(result.output.find(line) == result.output.rfind(line));
  }
  CHECK(tessera::plan_sample_log(plan + ".samples.csv").samples().size() == 1);
#endif
}

}  // namespace train_ctr_plan_test

#endif
