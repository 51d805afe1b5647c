// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <tessera/plan/found_plan_file.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include <tessera/plan/plan_baselines.hpp>
#include <tessera/plan/plan_samples_file.hpp>
#include <tessera/plan/published_cost_file.hpp>
#include <tessera/plan/roofline_cost.hpp>

#include "random.hpp"
#include "random_models.hpp"
#include "temporary_folder.hpp"

namespace found_plan_file_test {

using tessera::errc;
using tessera::plan_prediction;
using tessera::plan_sample;
using tessera::predicted_plan;
using tessera::step_costs;

namespace {

struct problem {
  std::vector<tessera::table_profile> tables;
  std::vector<tessera::table_options> options;
  std::vector<tessera::table_shard> shards;
  int ranks = 0;
  predicted_plan planned;

  explicit problem(std::mt19937_64& random) : ranks(1 + static_cast<int>(random() % 5)) {
    for (std::int64_t t = 0; t < 1 + static_cast<std::int64_t>(random() % 6); ++t) {
      tables.push_back(tessera_tests::random_profile(random, 10'000, 64));
      auto& table = tables.back();
      table.bags = table.distinct_bags = 4096;
      options.push_back({.id = tessera::table_id{t}, .dim = table.dim, .rows = table.rows});
      std::vector<int> on(static_cast<std::size_t>(ranks));
      for (std::size_t r = 0; r < on.size(); ++r) on[r] = static_cast<int>(r);
      std::shuffle(on.begin(), on.end(), random);
      on.resize(1 + random() % on.size());
      auto const cut = random() % 2 == 0 ? tessera::row_wise(options, t, on) : tessera::column_wise(options, t, on);
      shards.insert(shards.end(), cut.begin(), cut.end());
    }
    tessera::roofline_cost const model({.memory_bytes_per_second = 2e10, .exchange_bytes_per_second = 5e9});
    auto const found = tessera::plan_of_shards(tables, model, {ranks, std::int64_t{1} << 40}, shards);
    planned = {found.plan(ranks), tessera::prediction_of(found, "0123456789abcdef", "a machine, of \"some\" kind", 0.125)};
    CHECK(planned.found->cost_ms() == doctest::Approx(static_cast<double>(found.cost_ms)).epsilon(1e-6));
    CHECK(planned.found->bytes == found.bytes);
    CHECK(planned.found->batch_samples == 4096);
    CHECK(planned.found->optimizer == "sgd");
    CHECK(planned.found->row_format == "float");
    for (std::size_t d = 0; d < planned.found->devices.size(); ++d) {
      CHECK(planned.found->devices[d].compute_ms == static_cast<double>(found.costs.compute[d]));
      CHECK(planned.found->devices[d].backward_ms == static_cast<double>(found.costs.backward[d]));
      CHECK(planned.found->devices[d].forward_ms == static_cast<double>(found.costs.forward[d]));
    }
  }
};

// Refused with this code, and words that the message has.
template <class F>
void check_refused(F const& f, errc code, std::vector<std::string> const& words) {
  try {
    f();
    FAIL_CHECK("accepted");
  } catch (tessera::error const& e) {
    CAPTURE(std::string(e.what()));
    CHECK(e.code() == code);
    for (auto const& word : words) {
      CAPTURE(word);
      CHECK(std::string(e.what()).find(word) != std::string::npos);
    }
  }
}

plan_sample sample_of(problem const& of, std::mt19937_64& random) {
  std::uniform_real_distribution<double> draw(0, 10);
  plan_sample sample{of.shards, tessera::plan_digest(of.planned.plan), of.planned.found->model, 4096, 17, of.planned.found->devices, {}};
  for (int r = 0; r < of.ranks; ++r) sample.measured.push_back({draw(random), draw(random), draw(random)});
  return sample;
}

}  // namespace

TEST_CASE("prediction_of: what networks say below 0 is written as 0") {
  tessera::found_plan found;
  found.bytes = {8, 8};
  found.costs = tessera::device_costs(2);
  found.costs.compute = {-0.5F, 2}, found.costs.backward = {1, -3}, found.costs.forward = {4, 5};
  auto const told = tessera::prediction_of(found, "0123456789abcdef");
  CHECK(told.devices == std::vector<tessera::step_costs>{{0, 1, 4}, {2, 0, 5}});
  CHECK(told.cost_ms() == 7);
}

TEST_CASE("prediction_of: a table that several columns read has more bags than the batch has samples") {
  tessera::found_plan found;
  found.tables.resize(3);
  found.tables[0].bags = 192, found.tables[1].bags = 64, found.tables[2].bags = 128;
  CHECK(tessera::prediction_of(found, "0123456789abcdef").batch_samples == 64);
}

TEST_CASE("prediction_of: it says how rows are stored and updated where all tables are alike") {
  tessera::found_plan found;
  found.tables.resize(2);
  for (auto& table : found.tables) table.optimizer = "adam", table.row_format = "float16";
  CHECK(tessera::prediction_of(found, "0123456789abcdef").optimizer == "adam");
  CHECK(tessera::prediction_of(found, "0123456789abcdef").row_format == "float16");
  found.tables[1].optimizer = "sgd";
  CHECK(tessera::prediction_of(found, "0123456789abcdef").optimizer.empty());
  CHECK(tessera::prediction_of(found, "0123456789abcdef").row_format == "float16");
}

TEST_CASE("predicted plans are read as they were written, and plans without predictions too") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  tessera_tests::temporary_folder const folder;
  auto const file = folder.file("plan.json");
  for (int round = 0; round < 50; ++round) {
    problem const of(random);
    tessera::write_predicted_plan(file, of.planned);
    CHECK(tessera::read_predicted_plan(file, of.options, of.ranks) == of.planned);
    CHECK(tessera::read_plan(file, of.options, of.ranks) == of.planned.plan);
    auto without = of.planned;
    without.found->machine.clear();
    without.found->relative_error = 0;
    without.found->optimizer.clear();
    without.found->row_format.clear();
    auto json = tessera::predicted_plan_json(without);
    for (char const* const field : {"machine", "optimizer", "row_format"}) CHECK(!json["found"].contains(field));
    json["found"].erase("relative_error");
    CHECK(tessera::predicted_plan_of_json(json, of.options, of.ranks, "P") == without);
    tessera::write_plan(file, of.planned.plan);
    CHECK(tessera::read_predicted_plan(file, of.options, of.ranks) == predicted_plan{of.planned.plan, {}});
    CHECK(tessera::predicted_plan_json({of.planned.plan, {}}) == tessera::plan_json(of.planned.plan));
    without.found->bytes.pop_back();
    CHECK_THROWS_AS(tessera::write_predicted_plan(folder.file("none.json"), without), tessera::error);
  }
}

TEST_CASE("what a plan was found with: what is missing, wrong or of another plan is refused by name") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  problem const of(random);
  auto const sound = tessera::predicted_plan_json(of.planned);
  auto const refused = [&](nlohmann::json const& json, errc code, std::vector<std::string> words) {
    words.emplace_back("file P");
    check_refused([&] { tessera::predicted_plan_of_json(json, of.options, of.ranks, "P"); }, code, words);
  };
  auto const with = [&](char const* field, nlohmann::json const& value) {
    auto json = sound;
    json["found"][field] = value;
    return json;
  };
  auto const with_device = [&](char const* field, nlohmann::json const& value) {
    auto json = sound;
    json["found"]["devices"][0][field] = value;
    return json;
  };
  for (char const* const field : {"plan", "model", "batch_samples", "cost_ms", "devices"}) {
    auto json = sound;
    json["found"].erase(field);
    refused(json, errc::parse_error, {"missing", std::string("field ") + field});
    refused(with(field, nlohmann::json::object()), errc::parse_error, {"wrong type", std::string("field ") + field});
  }
  for (char const* const field : {"compute_ms", "backward_ms", "forward_ms", "bytes"}) {
    auto json = sound;
    json["found"]["devices"][0].erase(field);
    refused(json, errc::parse_error, {"missing", std::string("field ") + field});
    refused(with_device(field, -1), errc::invalid_argument, {std::string("field ") + field, "value -1"});
  }
  refused(with("color", 1), errc::parse_error, {"unknown", "field color"});
  refused(with_device("color", 1), errc::parse_error, {"unknown", "field color"});
  refused(with("model", "a,b"), errc::invalid_argument, {"not a digest", "field model", "value a,b"});
  refused(with("model", ""), errc::invalid_argument, {"not a digest", "field model"});
  refused(with("model", std::string(65, 'a')), errc::invalid_argument, {"not a digest"});
  for (char const* const field : {"machine", "optimizer", "row_format"})
    refused(with(field, 3), errc::parse_error, {std::string("field ") + field});
  refused(with("batch_samples", 0), errc::invalid_argument, {"field batch_samples", "value 0"});
  refused(with("relative_error", -0.5), errc::invalid_argument, {"field relative_error", "value -0.5"});
  refused(with("cost_ms", 2 * of.planned.found->cost_ms() + 1), errc::corrupt_file, {"field cost_ms", "largest total"});
  refused(with_device("compute_ms", of.planned.found->cost_ms() + 1), errc::corrupt_file, {"field cost_ms"});
  refused(with("plan", "00000000"), errc::corrupt_file, {"other shards", "field plan", tessera::plan_digest(of.planned.plan)});
  {
    auto json = sound;
    json["found"] = 5;
    refused(json, errc::parse_error, {"found"});
    json = sound;
    json["found"]["devices"].push_back(json["found"]["devices"][0]);
    refused(json, errc::invalid_argument, {"one device a rank", "field devices", "ranks " + std::to_string(of.ranks)});
  }
  // Shards that were altered by hand: another order, a table twice, a table that is missing.
  auto moved = sound;
  moved["shards"].push_back(moved["shards"][0]);
  refused(moved, errc::invalid_argument, {"overlap"});
  moved = sound;
  moved["shards"].erase(0);
  refused(moved, errc::invalid_argument, {"table 0"});
  check_refused([&] { tessera::predicted_plan_of_json(sound, of.options, of.ranks + 1, "P"); }, errc::invalid_argument,
                {"one device a rank", "ranks " + std::to_string(of.ranks + 1)});
  if (of.ranks > 1) {
    moved = sound;
    moved["shards"][0]["rank"] = (moved["shards"][0]["rank"].get<int>() + 1) % of.ranks;
    refused(moved, errc::corrupt_file, {"other shards"});
  }
}

TEST_CASE("digests differ between plans and between published models") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  problem const of(random);
  auto plan = of.planned.plan;
  auto const digest = tessera::plan_digest(plan);
  CHECK(digest.size() == 8);
  CHECK(tessera::plan_digest(tessera::sharding_plan(plan)) == digest);
  ++plan.shards.back().rank;
  CHECK(tessera::plan_digest(plan) != digest);

  auto const one = tessera_tests::random_published_cost(random, 2, true), other = tessera_tests::random_published_cost(random, 2, true);
  CHECK(tessera::published_cost_digest(one).size() == 24);
  CHECK(tessera::published_cost_digest(one) == tessera::published_cost_digest(tessera::published_cost(one)));
  CHECK(tessera::published_cost_digest(one) != tessera::published_cost_digest(other));
  tessera_tests::temporary_folder const folder;
  tessera::write_published_cost(one, folder.file("c"), folder.file("b"), folder.file("f"));
  CHECK(tessera::published_cost_digest(tessera::read_published_cost(folder.file("c"), folder.file("b"), folder.file("f"))) ==
        tessera::published_cost_digest(one));
}

TEST_CASE("the error of a prediction is that of the rank that is furthest off") {
  std::vector<step_costs> const predicted{{1, 2, 1}, {10, 0, 0}, {0, 0, 0}};
  CHECK(tessera::prediction_error(predicted, predicted) == 0);
  CHECK(tessera::prediction_error(predicted, std::vector<step_costs>{{2, 1, 1}, {10, 1, 0}, {5, 5, 5}}) == doctest::Approx(0.1));
  CHECK(tessera::prediction_error(predicted, std::vector<step_costs>{{0, 0, 1}, {5, 0, 0}, {0, 0, 0}}) == doctest::Approx(0.75));
  CHECK(tessera::prediction_error({}, {}) == 0);
  check_refused([&] { (void)tessera::prediction_error(predicted, std::vector<step_costs>(2)); }, errc::shape_mismatch,
                {"predicted 3", "measured 2"});
}

TEST_CASE("plan samples: a file gives back what runs added, and refuses what was altered") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  tessera_tests::temporary_folder const folder;
  auto const file = folder.file("samples.csv");
  CHECK(tessera::plan_sample_log(file).samples().empty());
  std::vector<plan_sample> all;
  for (int run = 0; run < 8; ++run) {
    tessera::plan_sample_log log(file);
    CHECK(log.samples() == all);
    all.push_back(sample_of(problem(random), random));
    log.append(all.back());
    CHECK(log.samples() == all);
  }
  auto const text = tessera::read_text(file, 1 << 20);
  // A run that was killed while it wrote leaves a part of a line.
  tessera::write_text(file, text.substr(0, text.size() - 5));
  CHECK(tessera::plan_sample_log(file).samples() == std::vector<plan_sample>(all.begin(), all.end() - 1));
  auto altered = text;
  auto const digit = text.find("4096");
  altered[digit] = '5';
  tessera::write_text(file, altered);
  check_refused([&] { tessera::plan_sample_log log(file); }, errc::corrupt_file, {file, "line 3", "field crc32"});
  CHECK(tessera::read_text(file, 1 << 20) == altered);
  tessera::write_text(file, "# another log\n");
  check_refused([&] { tessera::plan_sample_log log(file); }, errc::incompatible, {file, "line 1"});

  tessera::plan_sample_log log(folder.file("other.csv"));
  auto const refused = [&](auto const& alter, std::vector<std::string> const& words) {
    auto sample = all.back();
    alter(sample);
    check_refused([&] { log.append(sample); }, errc::invalid_argument, words);
    CHECK(log.samples().empty());
  };
  refused([](auto& s) { s.measured.pop_back(); }, {"one measurement a rank"});
  refused([](auto& s) { s.measured.clear(), s.predicted.clear(); }, {"no ranks"});
  refused([](auto& s) { s.model = "a,b"; }, {"field model", "value a,b"});
  refused([](auto& s) { s.plan_digest.clear(); }, {"field plan"});
  refused([](auto& s) { s.batch_samples = 0; }, {"field batch"});
  refused([](auto& s) { s.steps = 0; }, {"field steps"});
  refused([](auto& s) { s.shards[0].rank = tessera::table_shard::all_ranks; }, {"field shards", "rank -1"});
  refused([](auto& s) { s.measured[0].forward_ms = NAN; }, {"finite"});
}

TEST_CASE("plan samples: the first run of a plan says what error is expected, before it the model does") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  auto const now = sample_of(problem(random), random);
  std::vector<plan_sample> before;
  CHECK(!tessera::expected_error(now, before, 0));
  CHECK(tessera::expected_error(now, before, 0.25) == 0.25);
  before.push_back(now);
  before.back().model = "another";
  before.push_back(now);
  before.back().plan_digest = "another";
  before.push_back(now);
  before.back().batch_samples = 1;
  CHECK(tessera::expected_error(now, before, 0.25) == 0.25);
  before.push_back(now);
  before.push_back(now);
  before.back().measured[0].compute_ms += 100;
  CHECK(tessera::expected_error(now, before, 0.25) == now.error());
}

TEST_CASE("plan samples are what models learn from: profiles of each rank's shards, and exchanges whose ranks start when they are done") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  problem const of(random);
  std::vector<plan_sample> const runs{sample_of(of, random), sample_of(of, random)};
  auto const steps = tessera::samples_of_steps(runs, of.tables);
  auto const forward = tessera::samples_of_exchanges(runs, tessera::exchange_way::forward),
             backward = tessera::samples_of_exchanges(runs, tessera::exchange_way::backward);
  auto const ranks = static_cast<std::size_t>(of.ranks);
  REQUIRE(steps.size() == 2 * ranks);
  REQUIRE(forward.size() == 2);
  REQUIRE(backward.size() == 2);
  for (std::size_t run = 0; run < 2; ++run) {
    auto const& measured = runs[run].measured;
    double first = 1e9;
    for (auto const& costs : measured) first = std::min(first, costs.compute_ms + costs.backward_ms);
    for (std::size_t r = 0; r < ranks; ++r) {
      CHECK(steps[run * ranks + r].cost_ms == measured[r].compute_ms);
      std::vector<tessera::table_profile> expected;
      std::int64_t columns = 0;
      for (auto const& shard : of.shards)
        if (shard.rank == static_cast<int>(r)) {
          expected.push_back(tessera::profile_of_shard(of.tables[static_cast<std::size_t>(shard.table)], shard.rows, shard.columns));
          columns += shard.columns;
        }
      CHECK(steps[run * ranks + r].shards == expected);
      CHECK(forward[run].exchange.dims[r] == columns);
      CHECK(forward[run].exchange.start_ms[r] == doctest::Approx(measured[r].compute_ms + measured[r].backward_ms - first));
      CHECK(forward[run].cost_ms[r] == measured[r].forward_ms);
      CHECK(backward[run].cost_ms[r] == measured[r].backward_ms);
    }
    CHECK(forward[run].exchange.batch_samples == 4096);
  }
  auto tables = of.tables;
  tables.pop_back();
  check_refused([&] { tessera::samples_of_steps(runs, tables); }, errc::out_of_range, {"without a profile", "run 0"});
  tables = of.tables;
  tables[0].bags = 4097;
  check_refused([&] { tessera::samples_of_steps(runs, tables); }, errc::incompatible,
                {"other batches", "run 0", "table 0", "bags 4097", "samples of the batch 4096"});
  tables[0].bags = 0;
  check_refused([&] { tessera::samples_of_steps(runs, tables); }, errc::incompatible, {"other batches", "table 0", "bags 0"});
  tables = of.tables;
  tables[0].rows = 0;
  check_refused([&] { tessera::samples_of_steps(runs, tables); }, errc::out_of_range, {"past its table", "table 0"});
}

TEST_CASE("samples_of_steps: profiles of tables that several columns read have a multiple of the batch's samples as bags") {
  std::vector<tessera::table_profile> tables(2, {.name = "t", .rows = 10, .dim = 8, .pooling_factor = 1});
  tables[0].bags = 3 * 64, tables[1].bags = 64;
  plan_sample run;
  run.shards = {{0, 0, 0, 10, 0, 8}, {1, 1, 0, 10, 0, 8}};
  run.batch_samples = 64;
  run.measured = {{1, 2, 3}, {4, 5, 6}};
  std::vector<plan_sample> const runs{run};
  auto const steps = tessera::samples_of_steps(runs, tables);
  REQUIRE(steps.size() == 2);
  CHECK(steps[0].shards[0].bags == 192);
  CHECK(steps[1].shards[0].bags == 64);
  tables[0].bags = 3 * 64 - 1;
  check_refused([&] { tessera::samples_of_steps(runs, tables); }, errc::incompatible, {"other batches", "table 0", "bags 191"});
  tables[0].bags = 32;
  check_refused([&] { tessera::samples_of_steps(runs, tables); }, errc::incompatible, {"other batches", "table 0", "bags 32"});
  tables[0].bags = 3 * 64, tables[1].bags = 2 * 64;  // batches twice as large
  check_refused([&] { tessera::samples_of_steps(runs, tables); }, errc::incompatible,
                {"larger batches", "run 0", "fewest bags of a table 128", "samples of the batch 64"});
}

}  // namespace found_plan_file_test
