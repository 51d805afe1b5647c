// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-cost: 5
#include <doctest/doctest.h>

#include "../support/skip.hpp"

#ifndef TESSERA_TRAIN_CTR

TEST_CASE("train_ctr with towers") { tessera_tests::skip("the examples are not built"); }

#else

#include <filesystem>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "launched.hpp"
#include "run_program.hpp"
#include "temporary_folder.hpp"
#include "train_ctr_support.hpp"

namespace train_ctr_towers_test {

namespace {

using namespace tessera_tests;

/// Runs with fixed sums, which predict.
struct towers_data : small_data {
  program_result trained(arguments more) const {
    for (char const* const word : {"--sums", "fixed", "--chunk-samples", "16", "--batch-size", "100", "--predict"}) more.push_back(word);
    more.push_back(folder.file("predictions.csv"));
    auto const result = run(more);
    CAPTURE(result.output);
    REQUIRE(result.status == 0);
    return result;
  }
  std::string predictions() const { return contents(folder.file("predictions.csv")); }
  std::string predicted(arguments const& more) const {
    trained(more);
    return predictions();
  }
};

arguments with(arguments all, arguments const& more) {
  all.insert(all.end(), more.begin(), more.end());
  return all;
}
arguments on(std::string const& ranks, std::string const& hosts, std::string const& exchange) {
  return {"--ranks", "threads:" + ranks, "--topology", "hosts:" + hosts, "--exchange", exchange};
}

}  // namespace

TEST_CASE("with fixed sums, flat, two-hop and sptt predict to the bits of one process, whatever the hosts and towers") {
  towers_data const data;
  for (std::string const model : {"dlrm", "deepfm"}) {
    CAPTURE(model);
    arguments const usual{"--epochs", "1", "--model", model};
    auto const alone = data.predicted(usual);
    CHECK(data.predicted(with(usual, on("4", "2", "two-hop"))) == alone);
    CHECK(data.predicted(with(with(usual, on("4", "2", "sptt")), {"--towers", "2"})) == alone);
    if (model == "deepfm") continue;
    CHECK(data.predicted(with(usual, on("8", "4", "flat"))) == alone);
    CHECK(data.predicted(with(with(usual, on("8", "4", "sptt")), {"--towers", "4"})) == alone);
    CHECK(data.predicted(with(with(usual, on("4", "4", "sptt")), {"--towers", "2", "--ids-ahead", "2"})) == alone);  // of two hosts each
    CHECK(data.predicted(with(with(usual, on("2", "2", "sptt")), {"--towers", "6"})) == alone);                      // three a host
    CHECK(data.predicted(with(usual, {"--exchange", "sptt", "--towers", "3"})) == alone);                            // on one rank
  }
}

TEST_CASE("with fixed sums, modules predict to the bits of one process") {
  towers_data const data;
  for (arguments const& module : {arguments{"--tower-module", "dlrm", "--tower-dim", "8", "--tower-p", "1"},
                                  {"--tower-module", "dcn", "--model", "dcn", "--tower-p", "2", "--cross-rank", "4"},
                                  {"--tower-module", "dot", "--tower-dim", "12", "--tower-p", "1"}}) {
    CAPTURE(module[1]);
    auto const usual = with({"--epochs", "1", "--towers", "4"}, module);
    auto const result = data.trained(usual);
    CHECK(result.says("tower 0: "));
    auto const alone = data.predictions();
    auto const of_ranks = data.trained(with(usual, on("8", "4", "sptt")));
    CHECK(data.predictions() == alone);
    CHECK(figures(of_ranks) == figures(result));
    CHECK(of_ranks.says("exchange: sptt, 8 ranks on 4 hosts"));
    // The parameters of all towers count, each once.
    auto const parameters = [](program_result const& of) {
      auto const end = of.output.find(" dense parameters");
      REQUIRE(end != std::string::npos);
      return of.output.substr(of.output.rfind(' ', end - 1), end - of.output.rfind(' ', end - 1));
    };
    CHECK(parameters(of_ranks) == parameters(result));
    CHECK(of_ranks.says("a compression ratio of "));
    if (module[1] != "dlrm") continue;
    CHECK(result.says("towers: modules make 136 numbers of 208, a compression ratio of 1.53"));  // (13 features + 4 towers) * 8
    CHECK(data.predicted(with(usual, on("4", "2", "sptt"))) == alone);
    CHECK(data.predicted(with(usual, {"--exchange", "sptt"})) == alone);
  }
}

TEST_CASE("checkpoints go on under other exchanges, hosts and ranks to the same bits") {
  towers_data const data;
  auto const runs = data.folder.file("runs"), modules = data.folder.file("modules");
  auto const of_runs = [&](std::string const& folder, std::string const& epochs) {
    return arguments{"--checkpoint", folder, "--resume", "--epochs", epochs};
  };
  auto const alone = data.predicted({"--epochs", "3"});
  data.trained(with(on("4", "2", "sptt"), {"--towers", "2", "--checkpoint", runs, "--epochs", "1"}));
  auto const second = data.trained(with(of_runs(runs, "2"), on("6", "3", "two-hop")));
  CHECK(second.says("exchange: two-hop, and sptt before; the bits may be others"));
  CHECK(data.predicted(of_runs(runs, "3")) == alone);

  arguments const of_modules{"--tower-module", "dlrm", "--tower-p", "1", "--tower-c", "0"};
  auto const whole = data.predicted(with(of_modules, {"--towers", "4", "--epochs", "3"}));
  data.trained(with(with(of_modules, on("8", "4", "sptt")), {"--towers", "4", "--checkpoint", modules, "--epochs", "1"}));
  CHECK(data.trained(with(of_runs(modules, "2"), on("4", "2", "sptt"))).says("tower 3: "));  // which it was not told
  CHECK(data.predicted(of_runs(modules, "3")) == whole);
  auto const tested = run_program({TESSERA_TRAIN_CTR, "--eval-only", "--test", data.test, "--checkpoint", modules, "--predict",
                                   data.folder.file("predictions.csv"), "--ranks", "threads:2", "--exchange", "sptt"});
  CAPTURE(tested.output);
  CHECK(tested.status == 0);
  CHECK(data.predictions() == whole);

  check_refused(data.run(with(of_runs(modules, "4"), {"--towers", "2"})), {"a model of other towers", "dlrm_tower: 0 4 8"});
  check_refused(data.run(with(of_runs(modules, "4"), {"--tower-p", "2"})), {"option --tower-p", "another value"});
  check_refused(data.run(with(of_runs(modules, "4"), {"--tower-module", "dot"})), {"option --tower-module", "another value"});
}

TEST_CASE("more towers than features: tables are cut by columns, to the bits of whole ones") {
  towers_data const data;
  auto const runs = data.folder.file("runs"), file = data.folder.file("towers.json");
  arguments const usual{"--embedding-optimizer", "adagrad"};
  auto const epochs = [&](char const* n, arguments const& more) { return with(with(usual, {"--epochs", n}), more); };
  auto const alone = data.predicted(epochs("2", {}));
  auto const cut = data.trained(epochs("1", with(on("4", "2", "sptt"), {"--towers", "20", "--checkpoint", runs})));
  CHECK(cut.says("tower 19: "));
  CHECK(cut.says(" from column 8"));
  // The checkpoint is one of whole tables, and keeps the towers.
  auto const kept = data.trained(epochs("2", with(on("2", "2", "sptt"), {"--checkpoint", runs, "--resume"})));
  CHECK(kept.says("tower 19: "));
  CHECK(data.predictions() == alone);
  CHECK(data.predicted(epochs("3", {"--checkpoint", runs, "--resume"})) == data.predicted(epochs("3", {})));

  // Modules make of pieces what they make of features; a file names pieces too.
  arguments const modules{"--tower-module", "dlrm", "--tower-dim", "8"};
  auto const of_pieces = data.trained(epochs("1", with(modules, {"--towers", "14"})));
  auto const predictions = data.predictions();
  CHECK(of_pieces.says("tower 13: "));
  CHECK(data.predicted(epochs("1", with(with(modules, on("2", "2", "sptt")), {"--towers", "14"}))) == predictions);
  nlohmann::json named{{"version", 1}, {"towers", nlohmann::json::array()}};
  for (auto rest = of_pieces.output; rest.find("\ntower ") != std::string::npos;) {
    rest = rest.substr(rest.find("\ntower ") + 1);
    named["towers"].push_back({rest.substr(rest.find(": ") + 2, rest.find('\n') - rest.find(": ") - 2)});
  }
  CHECK(named["towers"].size() == 14);
  write_file(file, named.dump());
  CHECK(data.predicted(epochs("1", with(modules, {"--towers", file}))) == predictions);
  check_refused(data.run(epochs("1", {"--exchange", "sptt", "--towers", "14", "--plan", file})),
                {"option --plan", "features 13", "towers 14"});
}

TEST_CASE("a plan that cuts says why, and learns what whole tables do") {
  towers_data const data;
  arguments const adagrad{"--epochs", "1", "--embedding-optimizer", "adagrad", "--embedding-dim", "64"}, towers{"--towers", "2"},
      cut{"--plan", "cut"};
  auto const on_hosts = with(on("8", "2", "sptt"), towers);
  auto const alone = data.predicted(adagrad);
  auto const by_columns = data.trained(with(with(adagrad, on_hosts), cut));
  CHECK(data.predictions() == alone);
  CHECK(by_columns.says(" tables are larger than the share of a rank of their tower"));
  CHECK(by_columns.says(" by columns over "));
  CHECK(by_columns.says(" bytes a step inside its tower; whole "));
  CHECK(!data.trained(with(adagrad, on_hosts)).says("larger than the share"));
  // A state of a whole row: by rows.
  arguments const rowwise{"--epochs", "1", "--embedding-optimizer", "rowwise-adagrad"};
  auto const whole = data.predicted(rowwise);
  auto const by_rows = data.trained(with(with(rowwise, on_hosts), cut));
  CHECK(by_rows.says(" by rows over "));
  CHECK(by_rows.says("; by columns cannot be"));
  CHECK(!by_rows.says(" by columns over "));
  CHECK(data.predictions() == whole);  // a bag has one id: the other blocks add zeros
  check_refused(data.run(with(on("2", "2", "flat"), cut)), {"--plan", "cut: with --exchange sptt alone"});
}

TEST_CASE("towers are learned, the same ones on any ranks, and are kept beside checkpoints") {
  towers_data const data;
  auto const runs = data.folder.file("runs"), others = data.folder.file("others");
  arguments const usual{"--epochs", "1", "--tower-module", "dlrm", "--tower-probe", "10"};
  auto const first = data.trained(with(usual, {"--towers", "learn:4", "--checkpoint", runs}));
  auto const alone = data.predictions();
  CHECK(first.says("learned from a model of one process, trained on 10 batches"));
  auto const file = runs + "/towers.json";
  auto const towers = nlohmann::json::parse(contents(file))["towers"];
  CHECK(towers.size() == 4);
  for (auto const& tower : towers) CHECK((tower.size() == 3 || tower.size() == 4));
  CHECK(contents(runs + "/towers.html").find("coloured by tower") != std::string::npos);

  data.trained(with(with(usual, on("8", "4", "sptt")), {"--towers", "learn", "--checkpoint", others}));  // as many as hosts
  CHECK(contents(others + "/towers.json") == contents(file));
  CHECK(data.predictions() == alone);
  auto const read = data.trained({"--epochs", "1", "--tower-module", "dlrm", "--towers", file});
  CHECK(data.predictions() == alone);
  CHECK(!read.says("learned"));

  // A run that goes on learns none.
  auto const resumed = data.trained({"--checkpoint", runs, "--resume", "--epochs", "2", "--towers", "learn:4"});
  CHECK(resumed.says("tower 3: "));
  CHECK(!resumed.says("learned"));
}

TEST_CASE("what towers and exchanges cannot do is refused by name") {
  small_data const data;
  auto const refused = [&](arguments const& more, std::vector<std::string> const& parts) { check_refused(data.run(more), parts); };
  auto const file = data.folder.file("file.json"), missing = data.folder.file("missing.json");
  refused({"--exchange", "ring"}, {"--exchange", "ring"});
  refused({"--exchange", "sptt"}, {"--towers", "T, a file, learn or learn:T", "sptt"});
  refused({"--tower-module", "dlrm"}, {"--towers", "T, a file, learn or learn:T", "--tower-module dlrm"});
  refused({"--towers", "2"}, {"--towers", "2: of --exchange sptt or a --tower-module", "flat"});
  refused({"--tower-module", "cnn", "--towers", "2"}, {"--tower-module", "cnn"});
  refused({"--tower-dim", "8"}, {"--tower-dim", "of a --tower-module alone"});
  refused({"--tower-module", "dot", "--towers", "2", "--tower-c", "2"}, {"--tower-c", "not of dot"});
  refused({"--tower-module", "dlrm", "--towers", "2", "--tower-c", "0"}, {"p and c are both 0"});
  refused({"--tower-module", "dlrm", "--towers", "2", "--model", "deepfm"}, {"--tower-module", "dlrm: of a dlrm or a dcn"});
  refused({"--tower-module", "dlrm", "--towers", "2", "--ranks", "threads:2"},
          {"--tower-module", "on several ranks", "--exchange sptt", "--exchange flat", "ranks 2"});
  refused({"--tower-module", "dlrm", "--towers", "2", "--ranks", "threads:2", "--exchange", "two-hop"}, {"--tower-module", "two-hop"});
  refused({"--exchange", "sptt", "--towers", "0"}, {"option --towers", "towers 0"});
  refused({"--exchange", "sptt", "--towers", "53"}, {"option --towers", "towers 53", "features 13", "pieces 52"});
  refused({"--exchange", "sptt", "--towers", missing}, {"option --towers", "neither T, learn nor learn:T, nor a file", missing});
  write_file(file, R"({"version": 1, "towers": [["I1", "C99"]]})");
  refused({"--exchange", "sptt", "--towers", file}, {file, "C99"});
  refused({"--exchange", "sptt", "--towers", "learn"}, {"option --towers", "learn:T", "hosts 1"});
  refused({"--exchange", "sptt", "--towers", "learn:20"}, {"option --towers", "learn:20", "features 13"});
  refused({"--exchange", "sptt", "--towers", "learn:2", "--progressive"}, {"--towers", "--progressive"});
  refused({"--exchange", "sptt", "--towers", "2", "--tower-probe", "5"}, {"--tower-probe", "of --towers learn alone"});
  refused(with(on("6", "3", "sptt"), {"--towers", "2"}), {"option --towers", "towers 2", "hosts 3"});
  refused(with(on("2", "2", "sptt"), {"--towers", "2", "--plan", "round-robin"}), {"--plan", "round-robin"});
  refused(with(on("2", "2", "sptt"), {"--towers", "2", "--dedup-sums", "expanded"}), {"--dedup-sums", "expanded"});
  refused({"--ranks", "threads:3", "--topology", "hosts:2"}, {"option --topology", "hosts:2", "ranks 3"});
  refused({"--ranks", "threads:2", "--topology", missing}, {"option --topology", "neither hosts:N nor a file"});
  write_file(file, R"({"ranks": 2, "levels": [{"name": "chip", "domains": [[0], [1]]}]})");
  refused({"--ranks", "threads:2", "--topology", file, "--exchange", "two-hop"}, {"option --exchange", "no level has this name", "host"});
  nlohmann::json shards = nlohmann::json::array();
  for (int t = 0; t < 13; ++t) shards.push_back({{"table", t}, {"rank", 0}});
  write_file(file, nlohmann::json{{"shards", shards}}.dump());
  refused(with(on("2", "2", "sptt"), {"--towers", "2", "--plan", file}),
          {"a shard lies outside of its tower's ranks", "table 1", "rank 0"});
}

TEST_CASE("processes of MPI's launcher train with towers to the bits of one process") {
#ifndef TESSERA_MPIEXEC
  skip("this build has no MPI");
#else
  towers_data const data;
  arguments const usual{"--epochs",     "1",   "--sums",   "fixed", "--chunk-samples", "16",
                        "--batch-size", "100", "--towers", "2",     "--tower-module",  "dlrm"};
  auto const alone = data.folder.file("alone.csv"), of_processes = data.folder.file("processes.csv");
  CHECK(data.run(with(usual, {"--predict", alone})).status == 0);
  auto const result = launched(
      2, command_of(data.train, data.test, with(usual, {"--topology", "hosts:2", "--exchange", "sptt", "--predict", of_processes})));
  CAPTURE(result.output);
  CHECK(result.status == 0);
  CHECK(contents(of_processes) == contents(alone));
#endif
}

}  // namespace train_ctr_towers_test

#endif
