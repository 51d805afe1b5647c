// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include "../support/skip.hpp"

#ifndef TESSERA_TRAIN_CTR

TEST_CASE("tables of train_ctr") { tessera_tests::skip("the examples are not built"); }

#else

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include <tessera/files/json.hpp>
#include <tessera/files/manifest.hpp>
#include <tessera/files/safetensors.hpp>
#include <tessera/files/step_folders.hpp>

#include "train_ctr_support.hpp"

namespace {

using namespace tessera_tests;

struct table_data : small_data {
  table_data() {
    write_file(train, head(train_tsv, 3000));
    write_file(test, head(test_tsv, 1000));
  }

  // Two epochs at once, and in two runs of other threads: the same figures and tensors, which a test of the checkpoint has too.
  program_result goes_on(std::string const& name, arguments const& options) const {
    auto const whole = folder.file(name + " whole"), parts = folder.file(name + " parts");
    auto const train_with = [&](std::string const& checkpoints, arguments more) {
      more.insert(more.end(), {"--checkpoint", checkpoints});
      auto result = run(more);
      CHECK_MESSAGE(result.status == 0, result.output);
      return result;
    };
    auto first = options, second = options;
    first.insert(first.end(), {"--epochs", "1", "--threads", "2"});
    second.insert(second.end(), {"--epochs", "2", "--threads", "1", "--report", folder.file("report")});
    auto const through = train_with(whole, second);
    train_with(parts, first);
    auto const resumed = train_with(parts, {"--resume", "--epochs", "2", "--threads", "3"});
    CHECK(figures(resumed) == figures(through));
    CHECK(tensors_of(parts) == tensors_of(whole));
    auto const tested = run_program({TESSERA_TRAIN_CTR, "--eval-only", "--test", test, "--checkpoint", parts});
    CHECK_MESSAGE(figures(tested) == figures(through), tested.output);
    return through;
  }

  nlohmann::json manifest(std::string const& name) const {
    return tessera::read_json(tessera::list_step_folders(folder.file(name + " whole")).back().path + "/manifest.json");
  }
  // Of the newest checkpoint in a folder of this name.
  tessera::safetensors_reader tables(std::string const& name) const {
    return tessera::safetensors_reader(tessera::list_step_folders(folder.file(name)).back().path + "/tables.safetensors");
  }
  // How many rows each table has there.
  std::vector<std::int64_t> rows(std::string const& name) const {
    auto const file = tables(name);
    std::vector<std::int64_t> all;
    while (auto const* const table = file.find("table." + std::to_string(all.size()) + ".weight")) all.push_back(table->shape[0]);
    return all;
  }
  std::vector<float> weights(std::string const& name, int table) const {
    auto const file = tables(name);
    auto const tensor = "table." + std::to_string(table) + ".weight";
    std::vector<float> values(static_cast<std::size_t>(file.at(tensor).elements()));
    file.read<float>(tensor, 0, values);
    return values;
  }
};

// How often a word is in a text.
std::int64_t count(std::string const& text, std::string const& word) {
  std::int64_t found = 0;
  for (auto at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++found;
  return found;
}

}  // namespace

TEST_CASE("features have tables of their own, of any dims, formats, stores and optimizers in one model") {
  table_data const data;
  auto const file = data.folder.file("tables.json");
  write_file(file, R"({"C1": {"embedding-dim": 5, "row-format": "int8", "embedding-optimizer": "sgd", "embedding-lr": 0.1},
                       "C2": {"hash-table": 7, "evict": "lfu", "embedding-optimizer": "adam", "embedding-lr": 0.01},
                       "C3": {"embedding-dim": 33, "row-format": "bf16", "embedding-init": "rows"},
                       "I1": {"hash-table": 1000, "admit": 2, "evict": "none", "embedding-weight-decay": 0.001}})");
  for (std::string const model : {"dlrm", "dcn"}) {
    CAPTURE(model);
    auto const result = data.goes_on(model, {"--model", model, "--tables", file, "--warmup-steps", "20", "--clip-norm", "1"});
    CHECK(figure(result, "auc") > 0.87);
    CHECK_MESSAGE(result.says("tables of dim 5 to 33 ("), result.output);
    auto const text = data.manifest(model).dump();
    CHECK(count(text, R"("optimizer":"sgd)") == 1);
    CHECK(count(text, R"("eviction":"lfu")") == 1);
    CHECK(count(text, R"("admission":"sightings")") == 1);
  }
  CHECK(contents(data.folder.file("report")).find("<td>C3</td>") != std::string::npos);
}

TEST_CASE("deepfm has tables of their own, of one dim") {
  table_data const data;
  auto const result = data.goes_on("deepfm", {"--model", "deepfm", "--tables", R"({"C1": {"row-format": "fp16", "hash-table": 50}})"});
  CHECK(figure(result, "auc") > 0.87);
  check_refused(data.run({"--model", "deepfm", "--tables", R"({"C1": {"embedding-dim": 8}})"}),
                {"--tables", "deepfm", "one dim", "feature C1"});
}

TEST_CASE("hashed tables take any id: as well as a vocabulary where there is room, and in what room there is") {
  table_data const data;
  auto const vocabulary = data.run({"--threads", "1"});
  auto const roomy = data.goes_on("roomy", {"--hash-table", "100000"});
  CHECK(figure(roomy, "auc") > figure(vocabulary, "auc") - 0.01);
  auto const narrow = data.goes_on("narrow", {"--hash-table", "40", "--admit", "2", "--model", "dcn"});
  CHECK(figure(narrow, "auc") > 0.8);
  auto const rows = data.rows("narrow whole");
  CHECK(rows.size() > 8);
  CHECK(*std::max_element(rows.begin(), rows.end()) == 40);
  auto const text = data.manifest("narrow").dump();
  CHECK(count(text, R"("eviction":"lru")") == count(text, R"("admission":"sightings")"));
  CHECK(count(text, R"("eviction":"lru")") > 8);
}

TEST_CASE("ids that are not seen often enough get no rows") {
  table_data const data;
  auto const checkpoints = data.folder.file("unseen");
  auto const result = data.run({"--checkpoint", checkpoints, "--epochs", "1", "--hash-table", "40", "--admit", "1000000"});
  REQUIRE_MESSAGE(result.status == 0, result.output);
  for (auto const rows : data.rows("unseen")) CHECK(rows == 0);
}

TEST_CASE("a schedule keeps to each table's own rate") {
  table_data const data;
  auto const train_for = [&](std::string const& epochs) {
    auto const result = data.run({"--checkpoint", data.folder.file(epochs), "--epochs", epochs, "--embedding-optimizer", "sgd",
                                  "--embedding-lr", "0.1", "--warmup-steps", "10", "--tables", R"({"C1": {"embedding-lr": 1e-30}})"});
    REQUIRE_MESSAGE(result.status == 0, result.output);
  };
  train_for("1");
  train_for("2");
  CHECK(data.weights("1", 0) == data.weights("2", 0));
  CHECK(data.weights("1", 1) != data.weights("2", 1));
}

TEST_CASE("a checkpoint that kept its data otherwise is refused") {
  table_data const data;
  auto const checkpoints = data.folder.file("old");
  data.run({"--checkpoint", checkpoints, "--epochs", "1"});
  auto const folder = tessera::list_step_folders(checkpoints).back().path;
  auto manifest = tessera::read_manifest(folder, "tessera.checkpoint", 3);
  CHECK(manifest.state["options"].erase("columns") == 1);
  tessera::write_manifest(folder, manifest);
  check_refused(data.run({"--checkpoint", checkpoints, "--epochs", "2", "--resume"}), {"kept data otherwise", folder});
}

TEST_CASE("what --tables cannot mean is refused with feature, option and value") {
  small_data const data;
  auto const refused = [&](std::string const& tables, std::vector<std::string> const& parts, arguments const& more = {}) {
    arguments all{"--tables", tables};
    all.insert(all.end(), more.begin(), more.end());
    CAPTURE(tables);
    check_refused(data.run(all), parts);
  };
  refused(data.folder.file("none.json"), {"none.json", "No such file"});
  refused("{\"C1\": ", {"--tables", "JSON"});
  refused(R"({"C1": 3})", {"--tables", "object", "C1"});
  refused(R"({"C99": {"row-format": "bf16"}})", {"--tables", "no such feature", "C99"});
  refused(R"({"C1": {"rows": 3}})", {"--tables", "no such option", "C1", "rows"});
  refused(R"({"C1": {"model": "dcn"}})", {"--tables", "no such option", "model"});
  refused(R"({"C1": {"help": true}})", {"--tables", "no such option", "help"});
  refused(R"({"C1": {"row-format": "fp12"}})", {"--tables", "--row-format", "fp12", "C1"});
  refused(R"({"C1": {"embedding-dim": 0}})", {"--tables", "--embedding-dim", "0"});
  refused(R"({"C1": {"embedding-dim": [4, 4]}})", {"--tables", "--embedding-dim", "[4,4]"});
  refused(R"({"C1": {"embedding-lr": -1}})", {"--tables", "--embedding-lr", "-1"});
  refused(R"({"C1": {"evict": "lfu"}})", {"--tables", "only a hashed table", "C1"});
  refused(R"({"C1": {"hash-table": 0}})", {"--tables", "--hash-table", "C1"}, {"--hash-table", "10"});
  refused(R"({"C1": {"embedding-optimizer": "ftrl"}})", {"--warmup-steps", "ftrl"}, {"--warmup-steps", "5"});
  check_refused(data.run({"--evict", "lfu"}), {"--evict", "--hash-table"});
  check_refused(data.run({"--admit", "2"}), {"--admit", "--hash-table"});
  check_refused(data.run({"--hash-table", "10", "--hash-size", "10"}), {"--hash-size", "--hash-table"});
  check_refused(data.run({"--hash-table", "10", "--min-count", "2"}), {"--min-count", "--hash-table"});
}

#endif
