// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-cost: 10
// ctest-weight: 2
#include <doctest/doctest.h>

#include "../support/skip.hpp"

#ifndef TESSERA_PLAN_TABLES

TEST_CASE("plan_tables") { tessera_tests::skip("this build has no examples"); }

#else

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <iostream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <tessera/comm/topology.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/files/manifest.hpp>
#include <tessera/plan/found_plan_file.hpp>
#include <tessera/plan/learned_cost_file.hpp>
#include <tessera/plan/plan_search.hpp>
#include <tessera/plan/sample_log_file.hpp>
#include <tessera/plan/table_profile_file.hpp>
#include <tessera/shard/sharding_plan_file.hpp>

#include "hosts.hpp"
#include "plan_tables_pipeline.hpp"
#include "temporary_folder.hpp"

namespace plan_tables_test {

using nlohmann::json;
using tessera_tests::contents;
using tessera_tests::program_result;
using tessera_tests::write_file;

namespace {

// What is in docs/planning.md.
void plan_for_ranks(tessera::host_exec const& exec, tessera::topology const& topology) {
  auto const tables = tessera::read_table_profiles("tables.json");
  auto cost = tessera::load_learned_cost(exec, "models/this_machine");
  tessera::check_measured_tables(cost, tables);
  cost.batch_samples = tessera::batch_samples_of(tables);  // of all devices
  auto const found = tessera::plan_search(
      exec, tables, cost, {.devices = 8, .bytes_per_device = std::int64_t{4} << 30, .evaluations = 20'000, .deadline_ms = 1000});
  std::cout << found;
  tessera::write_plan("plan.json", found.plan(topology));
}

// What `f` prints, with this folder as that of relative paths.
template <class F>
std::string printed_in(std::string const& folder, F const& f) {
  auto const before = std::filesystem::current_path();
  std::ostringstream text;
  auto* const screen = std::cout.rdbuf(text.rdbuf());
  std::filesystem::current_path(folder);
  try {
    f();
  } catch (...) {
    std::cout.rdbuf(screen);
    std::filesystem::current_path(before);
    throw;
  }
  std::cout.rdbuf(screen);
  std::filesystem::current_path(before);
  return text.str();
}

}  // namespace

TEST_CASE("plan_tables profile: bags, distinct bags, ids and rows are those of the log") {
  auto const tables = tessera::read_table_profiles(made().tables);
  REQUIRE(tables.size() == 4);
  auto const of = [&](std::string const& name) {
    for (auto const& one : tables)
      if (one.name == name) return one;
    FAIL(name);
    return tables[0];
  };
  for (auto const& one : tables) CHECK(one.bags == 64);
  CHECK(of("user").distinct_bags == 8);
  CHECK(of("tags").distinct_bags == 8);
  CHECK(of("tags").pooling_factor == 2);
  CHECK(of("shop").distinct_bags == 64);
  CHECK(of("item").dim == 32);
  CHECK(of("shop").dim == 16);
  CHECK(of("user").access[3] == 1);  // each is there 8 times
  CHECK(of("item").access[0] == doctest::Approx(16.0 / 40));
  CHECK(of("item").access[1] == doctest::Approx(24.0 / 40));
  CHECK(of("user").group == of("tags").group);
  CHECK(of("user").group >= 0);
  CHECK(of("shop").group == -1);
}

TEST_CASE("plan_tables tasks: of other tables, and the synthetic pool") {
  tessera_tests::temporary_folder folder;
  auto const out = folder.file("tasks"), pool = folder.file("pool.json");
  std::vector<std::string> const command{"tasks",
                                         "--tables",
                                         made().tables,
                                         "--out",
                                         out,
                                         "--tasks",
                                         "3",
                                         "--devices",
                                         "2",
                                         "--least-tables",
                                         "3",
                                         "--most-tables",
                                         "6",
                                         "--most-dim",
                                         "16",
                                         "--bytes-per-device",
                                         "1MB",
                                         "--slack-bytes",
                                         "0"};
  succeeds(command, {"3 tasks in"});
  CHECK(tessera_tests::names_in(out) == std::vector<std::string>{"task_0000.json", "task_0001.json", "task_0002.json"});
  auto const before = contents(out + "/task_0001.json");
  for (auto const& name : tessera_tests::names_in(out)) {
    auto const task = tessera::read_table_profiles(out + "/" + name);
    CHECK(task.size() >= 3);
    CHECK(task.size() <= 6);
    for (std::size_t t = 0; t < task.size(); ++t)
      for (std::size_t u = 0; u < t; ++u) CHECK(task[t].name != task[u].name);
  }
  succeeds(command);
  CHECK(contents(out + "/task_0001.json") == before);
  succeeds({"tasks", "--pool", pool}, {"856 tables"});
  CHECK(tessera::read_table_profiles(pool).size() == 856);
  refused({"tasks"}, {"--pool or --out"}, true);
  refused({"tasks", "--out", out, "--devices", "0"}, {"--devices", "0"}, true);
}

TEST_CASE("plan_tables collect: goes on where it stopped, and refuses what differs") {
  tessera_tests::temporary_folder folder;
  auto command = made().collecting;
  command[1] = folder.file("samples");
  auto const steps = folder.file("samples/steps.csv"), exchanges = folder.file("samples/exchanges_2.csv");
  auto first = command;
  first[5] = "5", first[7] = "0";
  succeeds(with(first, {"--pool", made().tables}), {"steps: 5 of 5"});
  auto const before = lines_of(steps);
  CHECK(before.size() == 7);
  write_file(steps, contents(steps) + "5,0,24,");  // killed in a line
  // The folder has the options and the tables.
  succeeds({"collect", command[1], "--samples", "21", "--exchanges", "3", "--ranks", "threads:2", "--threads", "1"}, {"noise"});
  auto const after = lines_of(steps);
  REQUIRE(after.size() == 2 + 21 + 1);  // one of twenty twice
  for (std::size_t l = 0; l < before.size(); ++l) CHECK(after[l] == before[l]);
  CHECK(lines_of(exchanges).size() == 5);

  std::vector<std::string> const again{"collect", command[1], "--samples", "24", "--threads", "1"};
  refused(with(again, {"--dims", "4"}), {"--dims", "collected.json", "[4,8]", "[4]"});
  refused(with(again, {"--seed", "7"}), {"--seed", "of the folder 0", "asked for 7"});
  refused({"collect", command[1], "--samples", "24", "--threads", "2"}, {"another machine", "threads"});
  refused({"collect", folder.file("new"), "--samples", "1"}, {"--pool", "new"});
  std::vector<std::string> const of_pool{"collect",       folder.file("of_pool"),
                                         "--pool",        made().tables,
                                         "--samples",     "1",
                                         "--limit-bytes", "1MB",
                                         "--warm-up",     "0",
                                         "--runs",        "1",
                                         "--threads",     "1"};
  refused(with(of_pool, {"--batches", "64,65"}), {"--batches", "tables.json", "65", "64"});
  CHECK_FALSE(std::filesystem::exists(folder.file("of_pool")));
  succeeds(of_pool, {"steps: 1 of 1"});
  CHECK(lines_of(folder.file("of_pool") + "/steps.csv").back().find(",64,") != std::string::npos);
  refused({"collect", command[1], "--ranks", "threads:0"}, {"threads:0"}, true);
  auto other = json::parse(contents(made().tables));
  other[0]["row"] = 1000;
  write_file(folder.file("other.json"), other.dump());
  refused(with(again, {"--pool", folder.file("other.json")}), {"--pool", "other.json"});

  // A digit of a time, a field that is gone, another pool.
  auto const good = contents(steps);
  auto bad = good;
  auto const line = good.rfind("\n20,");
  auto const digit = good.find('.', line) + 1;
  bad[digit] = bad[digit] == '1' ? '2' : '1';
  write_file(steps, bad);
  refused(again, {"steps.csv", "line 24", "altered", "crc32"});
  CHECK(contents(steps) == bad);
  bad = good;
  bad.erase(good.find(',', line), 1);
  write_file(steps, bad);
  refused(again, {"steps.csv", "line 24", "number of fields"});
  write_file(steps, good);
  write_file(folder.file("samples/pool.json"), other.dump());
  refused(again, {"steps.csv", "line 1", "expected", "pool"});
}

TEST_CASE("plan_tables: from samples to a plan that is shown") {
  auto const& p = made();
  tessera_tests::temporary_folder folder;
  auto const plan = folder.file("plan.json"), report = folder.file("report.json"), page = folder.file("page.html"),
             measured = folder.file("measured.csv"), csv = folder.file("compare.csv");
  std::vector<std::string> const roof{"--roofline", "--bytes-per-device", "1MiB"};
  succeeds(p.search({"--model", p.learned, "--bytes-per-device", "1MiB", "--out", plan, "--report", report}),
           {"4 tables in", "on 2 devices", "device 1:", "of 1048576 bytes"});
  auto const tables = tessera::read_table_profiles(p.tables);
  std::vector<tessera::table_options> options;
  for (auto const& one : tables) options.push_back({.dim = one.dim, .rows = one.rows});
  auto const read = tessera::read_plan(plan, options, 2);
  auto const predicted = tessera::read_predicted_plan(plan, options, 2);  // which says what it was found with
  REQUIRE(predicted.found.has_value());
  CHECK(predicted.found->devices.size() == 2);
  CHECK(predicted.found->model == tessera::learned_cost_digest(p.learned));
  auto const said = json::parse(contents(report));
  CHECK(said["shards"] >= read.shards.size());  // in the plan those of a table on one rank are one
  CHECK(said["devices"].size() == 2);
  double most = 0;
  for (auto const& device : said["devices"]) most = std::max(most, device["total_ms"].get<double>());
  CHECK(most == doctest::Approx(said["cost_ms"].get<double>()));

  // The same by the library.
  std::filesystem::copy(p.tables, folder.file("tables.json"));
  std::filesystem::create_directory(folder.file("models"));
  std::filesystem::copy(p.learned, folder.file("models/this_machine"));
  std::filesystem::remove(plan);
  auto const shown = printed_in(folder.path(), [] {
    tessera_tests::serial_host host;
    plan_for_ranks(host.exec(), tessera::topology::flat(8));
  });
  CHECK(shown.find("4 tables in ") != std::string::npos);
  CHECK(shown.find("device 7:") != std::string::npos);
  CHECK(!tessera::read_plan(plan, options, 8).shards.empty());
  succeeds(p.search({"--model", p.learned, "--bytes-per-device", "1MiB", "--out", plan}));

  succeeds(p.search(with(roof, {"--method", "published", "--out", folder.file("published.json")})), {"4 tables in"});
  succeeds(p.search(with(roof, {"--method", "exhaustive"})), {"4 tables in 4 shards"});
  succeeds(p.search({"--model", p.published, "--bytes-per-device", "1MiB", "--cut-rows"}), {"4 tables in"});
  succeeds({"measure", p.tables, plan, "--devices", "2", "--warm-up", "0", "--runs", "1", "--threads", "1", "--out", measured},
           {"1 plans, 2 devices"});
  CHECK(lines_of(measured).size() == 3);
  succeeds({"show", p.tables, plan, "--model", p.learned, "--devices", "2", "--bytes-per-device", "1MiB", "--measured", measured, "--page",
            page, "--threads", "1"},
           {"predicted / measured", "slowest device"});
  auto const text = contents(page);
  for (char const* const part :
       {"<!doctype html>", "backward exchange", "measured costs of each device", "free", "item", "predicted / measured"})
    CHECK_MESSAGE(text.find(part) != std::string::npos, part);
  CHECK(text.find("http") == std::string::npos);  // nothing to be fetched

  auto const tasks = folder.file("tasks");
  succeeds({"tasks", "--tables", p.tables, "--out", tasks, "--tasks", "2", "--devices", "2", "--least-tables", "3", "--most-tables", "4",
            "--most-dim", "16", "--bytes-per-device", "1MB", "--slack-bytes", "0"});
  succeeds(with({"compare", tasks, "--devices", "2", "--evaluations", "100", "--threads", "1", "--csv", csv}, roof),
           {"plan", "published", "greedy-dim", "random", "2 of 2"});
  auto const lines = lines_of(csv);
  REQUIRE(lines.size() == 1 + 2 * 10);
  CHECK(lines[0] == "task,method,cost_ms,seconds");
  CHECK(lines[10].find("task_0000.json,plan,") != std::string::npos);
  CHECK(lines[20].find("task_0001.json,plan,") != std::string::npos);
  auto other = json::parse(contents(tasks + "/task_0001.json"));
  for (auto& table : other) table["bags"] = 2 * table["bags"].get<double>();
  write_file(tasks + "/task_0001.json", other.dump());
  refused(with({"compare", tasks, "--devices", "2"}, roof), {"task_0001.json", "field bags", "expected", "task_0000.json"});
}

TEST_CASE("plan_tables: tables, plans, models and measurements that cannot be are named") {
  auto const& p = made();
  tessera_tests::temporary_folder folder;
  auto const file = folder.file("bad.json"), plan = folder.file("plan.json");
  std::vector<std::string> const roof{"--roofline", "--bytes-per-device", "1MiB"};
  auto const good = json::parse(contents(p.tables));
  auto const bad_tables = [&](json const& tables, std::vector<std::string> const& parts) {
    write_file(file, tables.dump());
    auto command = p.search(roof);
    command[1] = file;
    refused(command, parts);
  };
  auto changed = [&](char const* field, json value) {
    auto tables = good;
    tables[1][field] = std::move(value);
    return tables;
  };
  auto const name = good[1]["name"].get<std::string>();
  bad_tables(changed("pooling_factor", -1), {"bad.json", name, "pooling_factor", "-1"});
  bad_tables(changed("pooling_factor", nullptr), {"bad.json", "pooling_factor", "null"});  // as JSON has a NaN
  bad_tables(changed("dim", 0), {"bad.json", name, "dim", "0"});
  bad_tables(changed("dim", 4.5), {"bad.json", "dim", "integer"});
  bad_tables(changed("bin_3", 7), {"bad.json", name, "bin_0 to bin_16"});
  bad_tables(changed("colour", 1), {"bad.json", "colour", "unknown"});
  auto without = good;
  without[1].erase("row");
  bad_tables(without, {"bad.json", "missing", "row"});
  bad_tables(json::array(), {"bad.json", "at least one table"});
  write_file(file, contents(p.tables).substr(0, 300));
  auto of_file = p.search(roof);
  of_file[1] = file;
  refused(of_file, {"bad.json", "not JSON"});
  write_file(file, R"([{"row": NaN}])");
  refused(of_file, {"bad.json", "not JSON"});
  of_file[1] = folder.file("none.json");
  refused(of_file, {"none.json"});

  // What has no plan: too many bytes in all; one table that no cut makes small enough, and a cut that does.
  refused(p.search({"--roofline", "--bytes-per-device", "100"}), {"file " + p.tables, "bytes_per_device 100"});
  auto large = good;
  large[1]["row"] = 1'000'000, large[1]["dim"] = 6;
  write_file(file, large.dump());
  of_file = p.search({"--roofline", "--bytes-per-device", "20MB", "--weights-alone"});
  of_file[1] = file;
  refused(of_file, {"bad.json", name, "cut no further", "6", "24000000"});
  refused(with(of_file, {"--method", "whole"}), {"bad.json", name, "not to be cut", "24000000"});
  refused(with(of_file, {"--method", "whole", "--cut-rows"}), {"--cut-rows", "whole"});
  succeeds(with(of_file, {"--cut-rows"}), {"table " + name + ": rows 0 to"});
  auto of_other_rows = good;
  of_other_rows[1]["row_format"] = "float7";
  write_file(file, of_other_rows.dump());
  of_file = p.search(roof);
  of_file[1] = file;
  refused(of_file, {"bad.json", "row_format", "float7"});
  of_file[1] = p.tables;
  refused(p.search(with(roof, {"--evaluations", "0"})), {"--evaluations", "0"}, true);
  refused({"search", p.tables, "--roofline", "--bytes-per-device", "1MB", "--devices", "0"}, {"--devices", "0"}, true);
  refused({"search", p.tables, "--roofline", "--bytes-per-device", "1MB", "--devices", "-3"}, {"--devices", "-3"}, true);
  refused({"search", p.tables, "--roofline", "--bytes-per-device", "0", "--devices", "2"}, {"bytes_per_device 0"});

  // Outputs that would replace inputs, or cannot be written.
  refused(p.search(with(roof, {"--out", p.tables})), {"--out", "TABLES"});
  refused(p.search(with(roof, {"--report", folder.file("none/report.json")})), {"--report", "none/report.json"});
  CHECK(json::parse(contents(p.tables)) == good);

  // Models: none, of other devices, of another order of features, machine and version, and altered.
  refused(p.search({"--bytes-per-device", "1MiB"}), {"--model"});
  refused({"search", p.tables, "--model", p.published, "--bytes-per-device", "1MiB", "--devices", "3"},
          {"other numbers of devices", "devices 3", "2"});
  auto const model = folder.file("model");
  std::vector<std::string> const by_model{"--model", model, "--bytes-per-device", "1MiB"};
  auto const bad_model = [&](auto const& change, std::vector<std::string> const& parts) {
    std::filesystem::remove_all(model);
    std::filesystem::copy(p.learned, model);
    auto manifest = tessera::read_manifest(model, "tessera.learned_cost", tessera::learned_cost_version);
    change(manifest);
    tessera::write_manifest(model, manifest);
    refused(p.search(by_model), parts);
  };
  bad_model([](auto& m) { std::swap(m.state["compute"]["feature_order"][0], m.state["compute"]["feature_order"][1]); },
            {"manifest.json", "feature_order", "expected log_rows", "found log_dim"});
  bad_model([](auto& m) { m.state["forward"]["feature_order"].erase(6); }, {"feature_order", "most_wait_ms", "nothing"});
  bad_model([](auto& m) { m.version = 2; }, {"manifest.json", "version", "2"});
  bad_model([](auto& m) { m.state["machine"]["processor"] = "abacus"; }, {"another machine", "processor", "abacus"});
  succeeds(p.search(with(by_model, {"--any-machine"})));
  bad_model([](auto& m) { m.state["optimizer"] = "rowwise_adagrad"; },
            {"model", "table", "field optimizer", "expected rowwise_adagrad", "found sgd"});
  refused({"predict", p.samples, "--model", model, "--out", folder.file("predicted.csv"), "--threads", "1"},
          {"model", "field optimizer", "expected rowwise_adagrad", "found sgd"});
  write_file(file, changed("row_format", "float16").dump());
  refused({"search", file, "--devices", "2", "--threads", "1", "--model", p.learned, "--bytes-per-device", "1MiB"},
          {p.learned, "table " + name, "field row_format", "expected float", "found float16"});
  auto const tasks = folder.file("tasks");
  std::filesystem::create_directory(tasks);
  write_file(tasks + "/a.json", good.dump());
  write_file(tasks + "/b.json", changed("optimizer", "adam").dump());
  refused({"compare", tasks, "--devices", "2", "--threads", "1", "--model", p.learned, "--bytes-per-device", "1MiB"},
          {p.learned, "table " + name, "field optimizer", "expected sgd", "found adam"});
  write_file(model + "/manifest.json", contents(p.learned + "/manifest.json").substr(0, 700));
  refused(p.search(by_model), {"manifest.json"});
  std::filesystem::copy(p.learned + "/manifest.json", model + "/manifest.json", std::filesystem::copy_options::overwrite_existing);
  auto networks = contents(model + "/networks.safetensors");
  networks.back() = static_cast<char>(networks.back() ^ 1);
  write_file(model + "/networks.safetensors", networks);
  refused(p.search(by_model), {"networks.safetensors"});
  std::filesystem::remove_all(model);
  refused(p.search({"--model", model, "--bytes-per-device", "1MiB"}), {"model"});
  std::filesystem::copy(p.published, model);
  auto network = json::parse(contents(model + "/computation.json"));
  std::swap(network["feature_order"][0], network["feature_order"][19]);
  write_file(model + "/computation.json", network.dump());
  refused(p.search({"--model", model, "--bytes-per-device", "1MiB"}), {"computation.json", "feature_order", "row", "bin_0"});

  // Plans: without a table, of other devices, of another table, on all devices; measurements.
  succeeds(p.search(with(roof, {"--out", plan})));
  std::vector<std::string> const show{"show", p.tables, plan, "--roofline", "--devices", "2", "--threads", "1"};
  auto const whole = json::parse(contents(plan));
  auto const bad_plan = [&](json const& other, std::vector<std::string> const& parts) {
    write_file(plan, other.dump());
    refused(show, parts);
  };
  auto shards = json::array();
  for (auto const& one : whole["shards"])
    if (one["table"] != 2) shards.push_back(one);
  bad_plan({{"shards", shards}}, {"plan.json", "not covered", "table 2"});
  auto other = whole;
  other["shards"][0]["rank"] = 5;
  bad_plan(other, {"plan.json", "no such rank", "rank 5", "ranks 2"});
  write_file(plan, whole.dump());
  auto more_devices = show;
  more_devices[5] = "3";
  refused(more_devices, {"plan.json", "field devices", "value 2", "ranks 3"});
  other = whole;
  other["shards"][0]["rows"] = 12345;
  bad_plan(other, {"plan.json", "reaches past its table", "12345"});
  // All devices may have the shop, but not the item, whose rows are more than a device's ids.
  shards = json::array();
  auto const names = json::parse(contents(p.tables));
  for (auto const& one : whole["shards"])
    if (names[one["table"].get<std::size_t>()]["name"] != "item") shards.push_back(one);
  for (std::size_t t = 0; t < names.size(); ++t)
    if (names[t]["name"] == "item") shards.push_back({{"table", t}, {"kind", "data_parallel"}});
  bad_plan({{"shards", shards}}, {"plan.json", "on all devices", "table item"});
  write_file(plan, whole.dump());
  refused(with(show, {"--bytes-per-device", "10"}), {"plan.json", "device", "bytes_per_device 10"});
  auto const csv = folder.file("measured.csv");
  auto const bad_csv = [&](std::string const& lines, std::vector<std::string> const& parts) {
    write_file(csv, lines);
    refused(with(show, {"--measured", csv}), with(parts, {"measured.csv"}));
  };
  std::string const head = "plan,rank,compute_ms,backward_ms,forward_ms,crc32\n";
  auto const line_of = [&](std::string const& of, std::string const& fields) {
    auto all = tessera::detail::split_text(fields, ',');
    all.insert(all.begin(), of);
    return tessera::detail::line_with_checksum(all);
  };
  auto const line = [&](std::string const& fields) { return line_of(plan, fields); };
  write_file(csv, head + line("1,1,2,3") + line_of("other.json", "1,7,7,7") + line("0,1,2,3.5"));
  succeeds(with(show, {"--measured", csv}), {"6.5"});
  bad_csv("rank;compute\n", {"line 1", "rank;compute"});
  bad_csv("plan,rank,compute_ms,backward_ms,forward_ms\n", {"line 1", "crc32"});  // of before there were checksums
  bad_csv(head + line("0,1,2"), {"line 2", "fields 5", "expected 6"});
  // A number that was altered, and a line that another plan's was made of.
  for (auto const& [from, to] : {std::pair(std::string(",2,"), std::string(",1,")), {plan, "other.json"}}) {
    auto altered = line("0,1,2,3");
    altered.replace(altered.find(from), from.size(), to);
    bad_csv(head + line("1,1,2,3") + altered, {"line 3", "altered", "crc32"});
  }
  bad_csv(head + line("0,1,2,nan"), {"line 2", "forward_ms", "nan"});
  bad_csv(head + line("0,-1,2,3"), {"line 2", "compute_ms", "-1"});
  bad_csv(head + line("0,1,2,3") + line("0,1,2,3"), {"line 3", "rank"});
  bad_csv(head + line("0,1,2,3") + line("2,1,2,3"), {"line 3", "rank", "2"});
  bad_csv(head + line("0,1,2,3") + line("1e30,1,2,3"), {"line 3", "rank", "1e30"});
  bad_csv(head + line("0,1,2,3") + line("0.5,1,2,3"), {"line 3", "rank", "0.5"});
  bad_csv(head + line("0,1,2,3"), {"device 1"});
  auto const last = line("1,1,2,3.5");
  bad_csv(head + line("0,1,2,3") + last.substr(0, last.size() - 1), {"line 3", "cut off", ",1,1,2,3.5"});
  bad_csv(head + line("0,1,,") + line("1,1,,"), {"without exchanges"});
  bad_csv(head + line_of("other.json", "0,1,2,3"), {"no line of this plan", "plan.json"});
}

TEST_CASE("plan_tables: towers of columns become towers of tables, whose devices hold them") {
  auto const& p = made();
  tessera_tests::temporary_folder folder;
  auto const log = folder.file("log.csv"), towers = folder.file("towers.json"), tables = folder.file("t.json"),
             plan = folder.file("p.json");
  write_file(log, "label,a,b,c,d\n1,x,y,z,u\n0,v,w,x,y\n");
  write_file(towers, R"({"version": 1, "towers": [["c", "a"], ["d", "b"]]})");
  std::vector<std::string> const command{"profile", log,        "--label-column", "label", "--sparse-columns",
                                         "a,b,c,d", "--towers", towers,           "--out", tables};
  succeeds(command);
  auto const found = tessera::read_table_profiles(tables);
  REQUIRE(found.size() == 4);
  for (auto const& one : found) CHECK(one.tower == (one.name == "b" || one.name == "d" ? 1 : 0));
  std::vector<std::string> const search{"search", tables,     "--roofline", "--devices",         "4", "--bytes-per-device",
                                        "1MiB",   "--towers", "2",          "--devices-of-host", "2", "--out",
                                        plan};
  succeeds(search);
  auto const planned = json::parse(contents(plan));
  for (auto const& shard : planned["shards"]) {
    auto const tower = found[shard["table"].get<std::size_t>()].tower;
    CHECK(shard["rank"].get<std::int64_t>() / 2 == tower);
  }
  succeeds(with(search, {"--method", "whole"}));
  refused(with(search, {"--method", "published"}), {"--towers 2", "published"});
  refused({"compare", p.tables, "--roofline", "--devices", "4", "--bytes-per-device", "1MiB", "--towers", "2"}, {"--towers 2", "random"});
  auto wrong = search;
  wrong[8] = "3";
  refused(wrong, {"towers 3", "hosts 2"});
  refused(with(command, {"--share", "b=a"}), {"--towers", "two towers", "a"});
  write_file(towers, R"({"version": 1, "towers": [["c", "a"], ["d"]]})");
  refused(command, {"towers.json", "b"});
}

TEST_CASE("plan_tables profile and fit: what is missing is named") {
  tessera_tests::temporary_folder folder;
  auto const log = folder.file("log.csv");
  write_file(log, "label,user\n1,a\n");
  std::vector<std::string> const command{"profile",          log,    "--label-column", "label",
                                         "--sparse-columns", "user", "--out",          folder.file("t.json")};
  succeeds(command);
  refused(with(command, {"--dim-of", "shop=8"}), {"--dim-of", "shop=8", "user"});
  refused(with(command, {"--dim-of", "user=x"}), {"--dim-of", "user=x"});
  refused(with(command, {"--dedup", "shop"}), {"--dedup", "shop"});
  write_file(log, "label,user\n");
  refused(command, {"no samples", "log.csv"});
  refused({"fit", folder.file("none"), "--out", folder.file("model")}, {"none/collected.json"});
  refused({"fit", made().samples}, {"--out or --published"}, true);
  refused({}, {"subcommand"}, true);
}

}  // namespace plan_tables_test

#endif
