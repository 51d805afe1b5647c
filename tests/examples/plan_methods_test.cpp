// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-cost: 10
#include <doctest/doctest.h>

#include "../support/skip.hpp"

#ifndef TESSERA_PLAN_TABLES

TEST_CASE("plan_tables: methods") { tessera_tests::skip("this build has no examples"); }

#else

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include <tessera/plan/table_profile_file.hpp>
#include <tessera/shard/sharding_plan_file.hpp>

#include "launched.hpp"
#include "plan_tables_pipeline.hpp"

namespace plan_methods_test {

using nlohmann::json;
using plan_tables_test::contents;
using plan_tables_test::lines_of;
using plan_tables_test::made;
using plan_tables_test::refused;
using plan_tables_test::succeeds;
using plan_tables_test::with;

namespace {

std::vector<std::string> const names{
    "random", "greedy-size", "greedy-dim", "greedy-lookup", "greedy-size-lookup", "greedy-log-rows-lookup", "whole-even-compute",
    "whole",  "published",   "plan"};

std::vector<std::string> fields_of(std::string const& line) {
  std::vector<std::string> fields(1);
  for (char const c : line)
    if (c == ',')
      fields.emplace_back();
    else
      fields.back() += c;
  return fields;
}

// A plan of the pipeline's tables by this method, with its report.
json planned(std::string const& method, std::string const& plan, std::vector<std::string> const& more = {}) {
  tessera_tests::temporary_folder folder;
  auto const report = folder.file("report.json");
  succeeds(made().search(with(
      with({"--roofline", "--bytes-per-device", "1MiB", "--seed", "3", "--method", method, "--out", plan, "--report", report}, {}), more)));
  return json::parse(contents(report));
}

}  // namespace

TEST_CASE("plan_tables search: each method that compare knows writes the plan that compare costs") {
  tessera_tests::temporary_folder folder;
  auto const tables = tessera::read_table_profiles(made().tables);
  std::vector<tessera::table_options> options;
  for (auto const& one : tables) options.push_back({.dim = one.dim, .rows = one.rows});
  auto const tasks = folder.file("tasks"), csv = folder.file("compare.csv"), plan = folder.file("plan.json");
  REQUIRE(std::system(("mkdir " + tasks + " && cp " + made().tables + " " + tasks).c_str()) == 0);
  std::vector<std::string> const compare{"compare", tasks, "--devices", "2", "--evaluations",      "200", "--threads", "1", "--roofline",
                                         "--seed",  "3",   "--csv",     csv, "--bytes-per-device", "1MiB"};
  succeeds(compare);
  std::map<std::string, double> costs;
  auto lines = lines_of(csv);
  REQUIRE(lines.size() == 1 + names.size());
  for (std::size_t l = 1; l < lines.size(); ++l) {
    auto const fields = fields_of(lines[l]);
    REQUIRE(fields.size() == 4);
    CHECK(fields[1] == names[l - 1]);
    costs[fields[1]] = std::stod(fields[2]);
    CHECK(std::stod(fields[3]) >= 0);
  }
  for (auto const& name : names) {
    CAPTURE(name);
    auto const report = planned(name, plan);
    CHECK(report["search"] == name);
    CHECK(report["cost_ms"].get<double>() == doctest::Approx(costs.at(name)).epsilon(1e-6));
    // The file's prediction is of the shards that it has.
    auto const shown = plan_tables_test::run({"show", made().tables, plan, "--devices", "2", "--roofline"});
    CHECK(json::parse(contents(plan))["found"]["cost_ms"].get<double>() == doctest::Approx(std::stod(shown.output)).epsilon(1e-4));
    auto const shards = tessera::read_plan(plan, options, 2).shards;
    bool const is_cut = std::any_of(shards.begin(), shards.end(),
                                    [&](auto const& s) { return s.columns != options[static_cast<std::size_t>(s.table)].dim; });
    if (name != "published" && name != "plan") CHECK(!is_cut);
  }
  CHECK(costs.at("plan") <= costs.at("published"));
  auto const best = planned("exhaustive", plan)["cost_ms"].get<double>();
  for (auto const& name : names)
    if (name != "published" && name != "plan") CHECK(costs.at(name) >= best * (1 - 1e-6));

  succeeds(with(compare, {"--methods", "greedy-dim,exhaustive"}), {"greedy-dim", "exhaustive"});
  lines = lines_of(csv);
  REQUIRE(lines.size() == 3);
  CHECK(fields_of(lines[2])[1] == "exhaustive");
  CHECK(std::stod(fields_of(lines[2])[2]) == doctest::Approx(best));
  refused(made().search({"--roofline", "--bytes-per-device", "1MiB", "--method", "guess"}), {"--method", "guess"}, true);
  refused(with(compare, {"--methods", "plan,guess"}), {"--methods", "guess"}, true);
}

TEST_CASE("plan_tables search --roofline: no plan costs less than the lower bound that it prints; of a model none is known") {
  std::string const says = "no plan of these tables costs less than ";
  auto const printed = [&](std::vector<std::string> const& more) {
    auto const result = plan_tables_test::run(made().search(with({"--bytes-per-device", "1MiB"}, more)));
    CAPTURE(result.output);
    REQUIRE(result.status == 0);
    return result.output;
  };
  for (char const* const method : {"plan", "greedy-dim", "exhaustive"}) {
    auto const output = printed({"--roofline", "--method", method});
    auto const at = output.find(says);
    REQUIRE(at != output.npos);
    auto const bound = std::stod(output.substr(at + says.size()));
    CHECK(bound > 0);
    CHECK(bound <= std::stod(output) * (1 + 1e-5));
  }
  CHECK(printed({"--roofline", "--objective", "slowest_stage"}).find("less than") == std::string::npos);
  CHECK(printed({"--model", made().learned}).find("less than") == std::string::npos);
  CHECK(printed({"--model", made().published}).find("less than") == std::string::npos);
  // Inside a host vectors may travel faster.
  CHECK(std::stod(printed({"--roofline", "--devices-of-host", "2", "--host-gb-per-second", "1000"})) < std::stod(printed({"--roofline"})));
  // What is on all devices may exchange fewer bytes than the bound reckons with.
  CHECK(printed({"--roofline", "--replicas"}).find("less than") == std::string::npos);
}

TEST_CASE("plan_tables search --replicas: tables are on all devices where exchanges are slow, in files, pages and whole steps too") {
  tessera_tests::temporary_folder folder;
  auto const plan = folder.file("plan.json"), page = folder.file("plan.html"), times = folder.file("times.csv");
  std::vector<std::string> const slow{"--roofline", "--bytes-per-device", "1MiB", "--exchange-gb-per-second", "0.0001", "--out", plan};
  auto const cost = [&](std::vector<std::string> const& more) {
    auto const result = plan_tables_test::run(made().search(with(slow, more)));
    CAPTURE(result.output);
    REQUIRE(result.status == 0);
    CHECK(result.says(": on all devices") == !more.empty());
    return std::stod(result.output);
  };
  auto const without = cost({});
  CHECK(cost({"--replicas"}) < without);
  CHECK(contents(plan).find("data_parallel") != std::string::npos);
  succeeds({"show", made().tables, plan, "--roofline", "--exchange-gb-per-second", "0.0001", "--devices", "2", "--page", page},
           {": on all devices"});
  CHECK(contents(page).find(">all<") != std::string::npos);
  // The steps of a rank alone are not those of a table that all ranks keep alike.
  refused({"measure", made().tables, plan, "--devices", "2", "--no-exchanges", "--out", times}, {"plan.json", "--whole-steps"});
  auto profiles = json::parse(contents(made().tables));
  for (auto& one : profiles) one["distinct_bags"] = one["bags"];
  plan_tables_test::write_file(folder.file("plain.json"), profiles.dump());
  succeeds({"measure", folder.file("plain.json"), plan, "--devices", "2", "--whole-steps", "--runs", "1", "--rounds", "1", "--out", times});
  CHECK(lines_of(times).size() == 3);
  refused(made().search({"--roofline", "--bytes-per-device", "1MiB", "--method", "published", "--replicas"}),
          {"--replicas", "method published"});
}

TEST_CASE("plan_tables search and compare --objective: what is asked for is made small, and methods without objectives refuse it") {
  tessera_tests::temporary_folder folder;
  auto const plan = folder.file("plan.json"), tasks = folder.file("tasks"), csv = folder.file("compare.csv");
  // The most and least computation of a device, and the slowest stage of any.
  struct stages {
    double most = 0, least = 1e300, slowest = 0;
  };
  auto const of = [&](std::string const& method, std::string const& objective) {
    auto const report = planned(method, plan, {"--objective", objective});
    CHECK(report["objective"] == objective);
    stages found;
    double cost = 0;
    for (auto const& device : report["devices"]) {
      auto const compute = device["compute_ms"].get<double>();
      found.most = std::max(found.most, compute);
      found.least = std::min(found.least, compute);
      for (char const* const stage : {"compute_ms", "backward_ms", "forward_ms"})
        found.slowest = std::max(found.slowest, device[stage].get<double>());
      cost = std::max(cost, device["total_ms"].get<double>());
    }
    CHECK(report["cost_ms"].get<double>() == doctest::Approx(cost));  // whatever was made small
    return found;
  };
  for (char const* const method : {"plan", "whole", "exhaustive"}) {
    CAPTURE(method);
    auto const cheapest = of(method, "cost"), even = of(method, "compute_balance"), staged = of(method, "slowest_stage");
    CHECK(even.least / even.most >= cheapest.least / cheapest.most * (1 - 1e-6));
    CHECK(staged.slowest <= cheapest.slowest * (1 + 1e-6));
  }
  REQUIRE(std::system(("mkdir " + tasks + " && cp " + made().tables + " " + tasks).c_str()) == 0);
  std::vector<std::string> const compare{"compare",    tasks,         "--devices",      "2", "--evaluations",      "200",
                                         "--threads",  "1",           "--csv",          csv, "--bytes-per-device", "1MiB",
                                         "--roofline", "--objective", "compute_balance"};
  succeeds(with(compare, {"--methods", "plan,whole,exhaustive"}), {"plan", "exhaustive"});
  CHECK(lines_of(csv).size() == 4);
  refused(compare, {"--objective compute_balance", "method random"});
  for (std::string const method : {"published", "greedy-dim", "whole-even-compute"})
    refused(made().search({"--roofline", "--bytes-per-device", "1MiB", "--method", method, "--objective", "slowest_stage"}),
            {"--objective slowest_stage", "method " + method});
  refused(made().search({"--roofline", "--bytes-per-device", "1MiB", "--objective", "guess"}), {"--objective", "guess"}, true);
}

TEST_CASE("plan_tables search: without halvings no table is cut; the bounds of the published search are those that are asked for") {
  tessera_tests::temporary_folder folder;
  auto const plan = folder.file("plan.json");
  auto const whole = planned("published", plan, {"--steps", "0"});
  CHECK(whole["shards"] == 4);
  auto const all = planned("published", plan);
  CHECK(all["cost_ms"].get<double>() <= whole["cost_ms"].get<double>());
  CHECK(all["evaluations"].get<int>() > whole["evaluations"].get<int>());
  auto const found = contents(plan);
  CHECK(planned("published", plan, {"--no-sums"})["evaluations"] == all["evaluations"]);
  CHECK(json::parse(contents(plan))["shards"] == json::parse(found)["shards"]);
  CHECK(planned("published", plan, {"--beams", "1", "--candidates", "1", "--grid", "3"})["evaluations"] < all["evaluations"]);
  CHECK(planned("published", plan, {"--steps", "0", "--grid", "0"})["evaluations"] == 1);  // one placement, without a limit
  refused(made().search({"--roofline", "--bytes-per-device", "1MiB", "--beams", "0"}), {"--beams", "0"}, true);
}

TEST_CASE("plan_tables measure: plans of the same tables take turns, and each is a line a device") {
  tessera_tests::temporary_folder folder;
  auto const dim = folder.file("dim.json"), random = folder.file("random.json"), rows = folder.file("rows.json"),
             steps = folder.file("steps.csv"), all = folder.file("all.csv");
  planned("greedy-dim", dim);
  planned("random", random);
  // The second table in two shards of rows.
  auto cut = json::parse(contents(dim));
  auto const table = cut["shards"][1];
  auto first = table, second = table;
  auto const half = table["rows"].get<std::int64_t>() / 2;
  first["rows"] = half, second["first_row"] = half, second["rows"] = table["rows"].get<std::int64_t>() - half;
  second["rank"] = 1 - table["rank"].get<int>();
  json shards = json::array();
  for (auto const& one : cut["shards"])
    if (one["table"] != table["table"]) shards.push_back(one);
  shards.push_back(first), shards.push_back(second);
  plan_tables_test::write_file(rows, json{{"shards", shards}, {"partial", {table["table"]}}}.dump());
  std::vector<std::string> const plans{dim, random, rows};
  std::vector<std::string> const command{"measure", made().tables, dim, random,      rows, "--devices", "2", "--runs",
                                         "2",       "--rounds",    "2", "--threads", "1",  "--warm-up", "0"};
  auto const times_of = [&](std::string const& csv) {
    auto const lines = lines_of(csv);
    REQUIRE(lines.size() == 7);
    CHECK(lines[0] == "plan,rank,compute_ms,backward_ms,forward_ms,crc32");
    std::vector<std::vector<std::string>> times;
    for (std::size_t l = 1; l < lines.size(); ++l) {
      auto fields = fields_of(lines[l]);
      REQUIRE(fields.size() == 6);
      CHECK(fields[0] == plans[(l - 1) / 2]);
      CHECK(fields[1] == std::to_string((l - 1) % 2));
      times.push_back(std::move(fields));
    }
    return times;
  };
  succeeds(with(command, {"--fastest", "--out", steps}), {"3 plans, 2 devices"});
  times_of(steps);
  succeeds(with(command, {"--no-exchanges", "--out", steps}), {"3 plans, 2 devices"});
  double sum = 0;
  for (auto const& fields : times_of(steps)) {
    sum += std::stod(fields[2]);
    CHECK(fields[3].empty());
    CHECK(fields[4].empty());
  }
  CHECK(sum > 0);
  succeeds(with(command, {"--compute", steps, "--out", all}), {"3 plans, 2 devices"});
  auto const before = times_of(steps), after = times_of(all);
  for (std::size_t l = 0; l < after.size(); ++l) {
    CHECK(after[l][2] == before[l][2]);  // taken from the file
    CHECK(std::stod(after[l][3]) >= 0);
    CHECK(std::stod(after[l][4]) > 0);
  }
  succeeds(with(command, {"--out", all}));
  for (auto const& fields : times_of(all)) CHECK(std::stod(fields[4]) > 0);

#ifdef TESSERA_MPIEXEC
  // Processes that MPI's launcher starts exchange; the steps come from the file.
  tessera_tests::write_file(all, "old\n");
  std::vector<std::string> launched{TESSERA_PLAN_TABLES};
  for (auto const& word : with(command, {"--compute", steps, "--ranks", "mpi", "--out", all})) launched.push_back(word);
  auto const result = tessera_tests::launched(2, launched);
  CAPTURE(result.output);
  REQUIRE(result.status == 0);
  auto const by_processes = times_of(all);
  for (std::size_t l = 0; l < by_processes.size(); ++l) {
    CHECK(by_processes[l][2] == before[l][2]);
    CHECK(std::stod(by_processes[l][4]) > 0);
  }
#endif

  // Whole steps, of tables without deduplication.
  auto profiles = json::parse(contents(made().tables));
  for (auto& one : profiles) one["distinct_bags"] = one["bags"];
  auto const plain = folder.file("plain.json");
  plan_tables_test::write_file(plain, profiles.dump());
  auto whole = with(command, {"--whole-steps", "--out", all});
  refused(whole, {"without deduplication", "distinct_bags"});
  whole[1] = plain;
  succeeds(whole);
  for (auto const& fields : times_of(all))
    for (std::size_t f = 2; f < 5; ++f) CHECK(std::stod(fields[f]) > 0);
  succeeds(with(whole, {"--fastest"}));
  refused(with(whole, {"--compute", steps}), {"--whole-steps", "--compute"}, true);

  refused({"measure", made().tables, dim, dim, "--devices", "2", "--no-exchanges", "--out", all}, {"each once", "dim.json"});
  refused(with(command, {"--no-exchanges", "--compute", steps}), {"--no-exchanges"}, true);
  refused(with(command, {"--compute", made().tables, "--out", all}), {"tables.json", "line 1"});
  auto altered = contents(steps);
  altered[altered.find(random + ",1,") + random.size() + 1] = '0';
  plan_tables_test::write_file(folder.file("altered.csv"), altered);
  refused(with(command, {"--compute", folder.file("altered.csv"), "--out", all}), {"altered.csv", "line 5", "a line was altered", "crc32"});
  refused(with(command, {"--out", random}), {"--out", "PLAN"});
  refused(with(command, {"--compute", steps, "--out", steps}), {"--out", "--compute"});
}

TEST_CASE("plan_tables tasks --batch: profiles of fewer samples") {
  tessera_tests::temporary_folder folder;
  auto const pool = folder.file("pool.json");
  succeeds({"tasks", "--tables", made().tables, "--batch", "32", "--pool", pool}, {"4 tables"});
  auto const whole = tessera::read_table_profiles(made().tables), part = tessera::read_table_profiles(pool);
  REQUIRE(part.size() == whole.size());
  for (std::size_t t = 0; t < part.size(); ++t) {
    CAPTURE(whole[t].name);
    CHECK(part[t].rows == whole[t].rows);
    CHECK(part[t].bags == std::llround(whole[t].distinct_bags / 2));
    CHECK(part[t].pooling_factor == doctest::Approx(whole[t].pooling_factor));
  }
  refused({"tasks", "--tables", made().tables, "--batch", "65", "--pool", pool}, {"bags", "65"});
}

TEST_CASE("plan_tables predict: what was measured beside what is predicted; fewer samples make another model") {
  tessera_tests::temporary_folder folder;
  auto const csv = folder.file("predicted.csv"), few = folder.file("few");
  auto const rows_of = [&](std::string const& model) {
    succeeds({"predict", made().samples, "--model", model, "--out", csv, "--threads", "1"}, {"10 steps and 10 exchanges"});
    auto const lines = lines_of(csv);
    REQUIRE(lines.size() == 1 + 10 + 2 * 2 * 10);
    CHECK(lines[0] == "part,devices,sample,repeat,rank,measured_ms,predicted_ms");
    std::map<std::string, std::vector<std::string>> rows;
    for (std::size_t l = 1; l < lines.size(); ++l) {
      auto const fields = fields_of(lines[l]);
      REQUIRE(fields.size() == 7);
      CHECK(std::isfinite(std::stod(fields[6])));
      rows[fields[0] + fields[1] + "/" + fields[2] + "/" + fields[4]] = fields;
    }
    CHECK(rows.size() == lines.size() - 1);
    return rows;
  };
  auto const learned = rows_of(made().learned), published = rows_of(made().published);
  // The folder's own numbers.
  auto const steps = lines_of(made().samples + "/steps.csv");
  for (std::size_t l = 2; l < steps.size(); ++l) {
    auto const fields = fields_of(steps[l]);
    auto const& of = learned.at("step1/" + fields[0] + "/0");
    CHECK(std::stod(of[5]) == doctest::Approx(std::stod(fields[6])).epsilon(1e-6));
    CHECK(of[5] == published.at("step1/" + fields[0] + "/0")[5]);
  }
  succeeds({"fit", made().samples, "--out", few, "--epochs", "3", "--starts", "2", "--batch", "4", "--threads", "1", "--samples", "6",
            "--exchanges", "7"});
  auto const of_few = rows_of(few);
  int other = 0;
  for (auto const& [key, fields] : learned) other += fields[6] != of_few.at(key)[6];
  CHECK(other > 0);
  // Steps of one folder and exchanges of another.
  auto command = made().collecting;
  auto const steps_alone = command[1] = folder.file("steps"), apart = folder.file("apart");
  command[7] = "0";
  succeeds(with(command, {"--pool", made().tables}));
  std::vector<std::string> const fit{"fit", steps_alone, "--out", apart,    "--epochs", "3",         "--starts",
                                     "2",   "--batch",   "4",     "--seed", "0",        "--threads", "1"};
  refused(fit, {"collected first", "exchanges 0"});
  succeeds(with(fit, {"--exchanges-of", made().samples}));
  auto const of_apart = rows_of(apart);
  for (auto const& [key, fields] : learned)
    if (key.find("ward") != key.npos) CHECK(fields[6] == of_apart.at(key)[6]);  // the same exchanges, the same networks
  refused(with(fit, {"--exchanges-of", folder.file("none")}), {"none/collected.json"});
  // The same steps, measured twice.
  auto both = fit;
  both[3] = folder.file("of_both");
  succeeds(with(both, {"--exchanges-of", made().samples, "--again", made().samples}));
  auto const of_medians = contents(both[3] + "/networks.safetensors");
  succeeds(with(both, {"--exchanges-of", made().samples, "--again", made().samples, "--fastest"}));
  CHECK(contents(both[3] + "/networks.safetensors") != of_medians);
  refused(with(both, {"--exchanges-of", made().samples, "--fastest"}), {"--fastest", "--again"}, true);
  refused(with(both, {"--exchanges-of", made().samples, "--again", folder.file("none")}), {"none/collected.json"});
  auto otherwise = made().collecting;
  otherwise[1] = folder.file("otherwise"), otherwise[7] = "0";
  succeeds(with(otherwise, {"--pool", made().tables, "--optimizer", "rowwise_adagrad"}));
  refused(with(both, {"--exchanges-of", made().samples, "--again", otherwise[1]}),
          {"otherwise", "--again", "field optimizer", "expected sgd", "found rowwise_adagrad"});
  for (auto const& model : {apart, made().published})
    succeeds({"predict", steps_alone, "--model", model, "--out", csv, "--threads", "1"}, {"10 steps and 0 exchanges"});
  refused({"predict", folder.file("none"), "--model", few, "--out", csv}, {"none/collected.json"});
  auto const before = contents(csv);
  refused({"predict", made().samples, "--out", csv}, {"--model"});
  CHECK(contents(csv) == before);
}

TEST_CASE("plan_tables measure --samples, fit --plans: a model learns from what its plans took") {
  tessera_tests::temporary_folder folder;
  auto const& p = made();
  auto const one = folder.file("one.json"), other = folder.file("other.json"), csv = folder.file("samples.csv"),
             again = folder.file("again"), out = folder.file("measured.csv");
  auto const search = [&](std::string const& plan, std::vector<std::string> const& more) {
    succeeds(p.search(with({"--model", p.learned, "--bytes-per-device", "1MiB", "--out", plan}, more)));
  };
  search(one, {}), search(other, {"--method", "greedy-dim"});
  std::vector<std::string> const measure{"measure",   p.tables, one,     other, "--devices", "2", "--runs",    "1",
                                         "--threads", "1",      "--out", out,   "--warm-up", "0", "--samples", csv};
  succeeds(measure), succeeds(measure);
  auto const lines = lines_of(csv);
  REQUIRE(lines.size() == 2 + 4);  // they are added
  auto const fields = fields_of(lines[2]), measured = fields_of(lines_of(out)[1]);
  CHECK(fields[1] == json::parse(contents(one))["found"]["plan"]);
  CHECK(fields[3] == "64");
  CHECK(fields_of(lines[5])[9].find(' ') != std::string::npos);  // a number of each device

  std::vector<std::string> const fit{"fit", p.samples, "--out", again,       "--epochs", "3",      "--starts",
                                     "2",   "--batch", "4",     "--threads", "1",        "--plans"};
  succeeds(with(fit, {p.tables + "=" + csv}));
  succeeds(p.search({"--model", again, "--bytes-per-device", "1MiB"}));
  CHECK(contents(again + "/networks.safetensors") != contents(p.learned + "/networks.safetensors"));
  refused(with(fit, {p.tables}), {"--plans", p.tables});
  refused(with(fit, {p.tables + "=" + folder.file("none.csv")}), {"--plans", "none.csv"});
  refused(with(fit, {p.tables + "=" + one}), {"one.json"});
  auto others = json::parse(contents(p.tables));
  for (auto& table : others) table["optimizer"] = "rowwise_adagrad";
  auto const other_tables = folder.file("others.json");
  tessera_tests::write_file(other_tables, others.dump());
  refused(with(fit, {other_tables + "=" + csv}), {"others.json", "field optimizer", "expected sgd", "found rowwise_adagrad"});
  auto measure_others = measure;
  measure_others[1] = other_tables;
  refused(measure_others, {"one.json", "field optimizer", "expected sgd", "found rowwise_adagrad"});
  // A plan of another batch than is measured.
  auto doubled = json::parse(contents(p.tables));
  for (auto& table : doubled) table["bags"] = 2 * table["bags"].get<double>();
  tessera_tests::write_file(other_tables, doubled.dump());
  refused(measure_others, {"one.json", "field batch_samples", "samples of TABLES"});
  auto fewer = json::parse(contents(p.tables));
  fewer.erase(3);
  tessera_tests::write_file(folder.file("fewer.json"), fewer.dump());
  refused(with(fit, {folder.file("fewer.json") + "=" + csv}), {"samples.csv", "run 0", "table 3", "tables 3"});
  auto plain = json::parse(contents(other));
  plain.erase("found");
  tessera_tests::write_file(other, plain.dump());
  refused(measure, {"--samples", "other.json"});
  CHECK(lines_of(csv) == lines);
}

TEST_CASE("plan_tables search --caution: what networks disagree about costs more") {
  tessera_tests::temporary_folder folder;
  auto const report = folder.file("report.json"), plan = folder.file("plan.json");
  std::string found;  // what the plan's file says
  auto const cost = [&](std::string const& caution) {
    succeeds(made().search({"--model", made().learned, "--bytes-per-device", "1MiB", "--method", "greedy-dim", "--caution", caution,
                            "--report", report, "--out", plan}));
    found = contents(plan);
    return json::parse(contents(report))["cost_ms"].get<double>();
  };
  auto const none = cost("0");
  auto const predicted = found;
  auto const some = cost("1");
  CHECK(found == predicted);  // the same plan, and caution is no prediction
  auto const more = cost("2");
  CHECK(none < some);
  CHECK(some < more);
  // A plan is shown, and samples predicted, at those costs too.
  auto const csv = folder.file("predicted.csv");
  std::ostringstream cost_of_more;
  cost_of_more << more << " ms";
  succeeds({"show", made().tables, plan, "--model", made().learned, "--devices", "2", "--threads", "1", "--caution", "2"},
           {cost_of_more.str()});
  std::vector<std::vector<std::string>> predicted_lines;
  for (char const* const caution : {"0", "1"}) {
    succeeds({"predict", made().samples, "--model", made().learned, "--out", csv, "--threads", "1", "--caution", caution});
    predicted_lines.push_back(lines_of(csv));
  }
  CHECK(predicted_lines[0] != predicted_lines[1]);
  refused(made().search({"--model", made().published, "--bytes-per-device", "1MiB", "--caution", "1"}), {"--caution", "published"});
  refused(made().search({"--model", made().learned, "--bytes-per-device", "1MiB", "--caution", "-1"}), {"--caution"}, true);
  refused(made().search({"--roofline", "--bytes-per-device", "1MiB", "--caution", "1"}), {"--caution", "--roofline"}, true);
}

}  // namespace plan_methods_test

#endif
