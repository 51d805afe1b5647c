// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <tessera/data/columns_file.hpp>

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "temporary_folder.hpp"

namespace columns_file_test {

namespace {

using namespace tessera;
using namespace tessera_tests;

data_description read(std::string const& text) {
  tessera_tests::temporary_folder const folder;
  write_file(folder.file("columns.json"), text);
  return read_columns_file(folder.file("columns.json"));
}

void comes_back(data_description const& description) {
  tessera_tests::temporary_folder const folder;
  write_columns_file(folder.file("columns.json"), description);
  CHECK(read_columns_file(folder.file("columns.json")) == description);
}

}  // namespace

TEST_CASE("columns_file: the example of its contract") {
  auto const d = read(R"({
    "label": "click",
    "dense": ["age", {"name": "price", "steps": ["log", {"clip": [0, 10]}, "missing-indicator"]}],
    "sparse": ["item", "hour", {"name": "history", "list": true, "steps": [{"truncate": 50}, {"hash": 100000}], "share": "item"},
               {"name": "places", "list": true, "format": "text"}],
    "derived": [{"name": "item x hour", "ngram": ["item", "hour"]}, {"name": "all", "combine": ["history", "places"]}],
    "session": "visit", "time": "at", "weight": "w", "other-labels": ["like"],
    "file": {"delimiter": ",", "header": true, "list-separator": ";", "missing": ["NA"], "binary-labels": true}})");
  CHECK(d.schema == sample_schema{.label = "click",
                                  .dense = {"age", "price"},
                                  .sparse = {"item", "hour", "history", "places"},
                                  .session = "visit",
                                  .time = "at",
                                  .weight = "w",
                                  .other_labels = {"like"},
                                  .single = {"item", "hour"}});
  CHECK(d.dense == std::vector<dense_rule>{{{"price"}, {log_values{}, clip_numbers{0, 10}, indicate_missing{}}}});
  CHECK(d.sparse ==
        std::vector<sparse_rule>{{{"history"}, {truncate_ids{.most = 50}, hash_ids{.size = 100'000}}, missing_policy::own_id, "item"}});
  CHECK(d.derived ==
        std::vector<derived_column>{column_ngram{"item x hour", "item", "hour"}, combined_columns{"all", {"history", "places"}}});
  REQUIRE(d.layout.has_value());
  CHECK(*d.layout == delimited_layout{.delimiter = ',',
                                      .header = true,
                                      .list_separator = ';',
                                      .missing = {"NA"},
                                      .format_of = {{"places", id_format::text}},
                                      .binary_labels = true});
  comes_back(d);
  CHECK(read(R"({"label": "y"})") == data_description{.schema = {.label = "y"}});
}

TEST_CASE("columns_file: what a layout leaves out is as is usual, and named columns stand in the place of a header") {
  delimited_layout const usual{.delimiter = ',', .header = true, .quotes = true};
  auto const layout_of = [&](char const* file) {
    return *parse_columns(nlohmann::json::parse(R"({"label": "y", "file": )" + std::string(file) + "}"), "here", usual).layout;
  };
  CHECK(layout_of("{}") == usual);
  CHECK(layout_of(R"({"missing": ["NA"], "quotes": false})") == delimited_layout{.delimiter = ',', .header = true, .missing = {"NA"}});
  CHECK(layout_of(R"({"columns": ["y", "x"]})") == delimited_layout{.delimiter = ',', .columns = {"y", "x"}, .quotes = true});
  CHECK_FALSE(parse_columns(nlohmann::json::parse(R"({"label": "y"})"), "here", usual).layout.has_value());
}

TEST_CASE("columns_file: each step comes back, and steps of the columns that have none") {
  comes_back({.schema = {.label = "y",
                         .dense = {"a", "b", "c", "d", "e"},
                         .sparse = {"f", "g", "h", "i", "j", "k", "l"},
                         .single = {"f", "h", "l"}},
              .derived = {column_ngram{"n", "f", "g", 7}, combined_columns{"m", {"f", "n"}}},
              .dense = {{{"a"}, {standardise{}, clip_numbers{.most = 0.1F}}},
                        {{"b"}, {standardise{0.1, 1e-300}, clip_numbers{}}},
                        {{"c"}, {bucketise{{0.1F, 3}, 0}, fill_missing{-2.5F}}},
                        {{"d"}, {bucketise{{}, 9}}},
                        {{}, {log_values{}, indicate_missing{}}}},
              .sparse = {{{"f"}, {hash_ids{.size = 8, .seed = ~std::uint64_t{0}, .as_key = "x"}}, missing_policy::no_id, ""},
                         {{"g"}, {truncate_ids{.most = 0, .kept = kept_values::first}, modulo_ids{.size = 3}}},
                         {{"h"}, {clip_ids{-3, 4}, bin_ids{{-1, 0}}}},
                         {{"i"}, {}},
                         {{"j"}, {vocabulary{}}, missing_policy::own_id, "one"},
                         {{"k"}, {vocabulary{}}, missing_policy::own_id, "one"},
                         {{"n"}, {vocabulary{.min_count = 3, .limit = 7}}},
                         {{}, {hash_ids{.size = 1000}}}},
              .layout = delimited_layout{.delimiter = ' ',
                                         .columns = {"y", "a"},
                                         .quotes = true,
                                         .ids = id_format::text,
                                         .format_of = {{"f", id_format::hexadecimal}, {"g", id_format::decimal}}}});
  // A column that says something else than steps takes those of all others.
  auto const d = read(R"({"label": "y", "sparse": ["b", {"name": "a", "missing": "no-id"}], "sparse-steps": [{"hash": 5}]})");
  CHECK(d.sparse == std::vector<sparse_rule>{{{"a"}, {hash_ids{.size = 5}}, missing_policy::no_id, ""}, {{}, {hash_ids{.size = 5}}}});
  CHECK(read(R"({"label": "y", "sparse": [{"name": "a", "list": false}], "file": {"columns": ["y", "a"]}})").schema.single ==
        std::vector<std::string>{"a"});
}

TEST_CASE("columns_file: what cannot be is named with its place") {
  auto const refusal = [](std::string const& text) { return error_of([&] { read(text); }); };
  auto const field_of = [&](std::string const& text) {
    auto const e = refusal(text);
    CHECK(e.code() == errc::parse_error);
    CHECK(e.value("file").ends_with("columns.json"));
    return std::string(e.value("field"));
  };
  auto const with = [](std::string const& rest) { return R"({"label": "y", )" + rest + "}"; };
  CHECK(field_of("{}") == "label");
  CHECK(field_of("[]") == "");
  CHECK(field_of(with(R"("labels": 1)")) == "labels");
  CHECK(refusal(with(R"("labels": 1)")).value("known").starts_with("label, dense"));
  CHECK(field_of(with(R"("dense": "age")")) == "dense");
  CHECK(field_of(with(R"("dense": ["a", 5])")) == "dense[1]");
  CHECK(field_of(with(R"("dense": [{"steps": []}])")) == "dense[0].name");
  CHECK(field_of(with(R"("dense": [{"name": "a", "step": []}])")) == "dense[0].step");
  CHECK(field_of(with(R"("dense": [{"name": "a", "steps": ["log", "cubic"]}])")) == "dense[0].steps[1]");
  CHECK(refusal(with(R"("dense": [{"name": "a", "steps": ["cubic"]}])")).value("found") == "\"cubic\"");
  CHECK(field_of(with(R"("dense-steps": [{"clip": [1]}])")) == "dense-steps[0].clip");
  CHECK(field_of(with(R"("dense-steps": [{"clip": [1, "x"]}])")) == "dense-steps[0].clip[1]");
  CHECK(field_of(with(R"("dense-steps": [{"bucketise": "x"}])")) == "dense-steps[0].bucketise");
  CHECK(field_of(with(R"("dense-steps": [{"log": 1, "fill": 2}])")) == "dense-steps[0]");
  CHECK(field_of(with(R"("dense-steps": [{"standardise": {"mean": 1}}])")) == "dense-steps[0].standardise.deviation");
  CHECK(field_of(with(R"("sparse-steps": [{"hash": 1.5}])")) == "sparse-steps[0].hash");
  CHECK(field_of(with(R"("sparse-steps": [{"hash": {"size": 5, "seed": -1}}])")) == "sparse-steps[0].hash.seed");
  CHECK(field_of(with(R"("sparse-steps": [{"truncate": {"most": 1, "keep": "middle"}}])")) == "sparse-steps[0].truncate.keep");
  CHECK(field_of(with(R"("sparse-steps": [{"vocabulary": {"count": 1}}])")) == "sparse-steps[0].vocabulary.count");
  CHECK(field_of(with(R"("sparse-steps": ["hash"])")) == "sparse-steps[0]");
  CHECK(field_of(with(R"("sparse": [{"name": "a", "list": 1}])")) == "sparse[0].list");
  CHECK(field_of(with(R"("sparse": [{"name": "a", "missing": "none"}])")) == "sparse[0].missing");
  CHECK(field_of(with(R"("sparse": [{"name": "a", "format": "text"}])")) == "sparse[0].format");
  CHECK(field_of(with(R"("file": {"header": true}, "sparse": [{"name": "a", "format": "octal"}])")) == "sparse[0].format");
  CHECK(field_of(with(R"("derived": [{"name": "a"}])")) == "derived[0]");
  CHECK(field_of(with(R"("derived": [{"name": "a", "ngram": ["b"]}])")) == "derived[0].ngram");
  CHECK(field_of(with(R"("derived": [{"name": "a", "combine": ["b", "c"], "most-pairs": 3}])")) == "derived[0].most-pairs");
  CHECK(field_of(with(R"("file": {"delimiter": ",,"})")) == "file.delimiter");
  CHECK(field_of(with(R"("file": {"separator": ","})")) == "file.separator");

  // What reads well and cannot be: the file is named beside what is wrong.
  auto const e = refusal(with(R"("sparse": [{"name": "a", "steps": [{"hash": 0}]}])"));
  CHECK(e.code() == errc::invalid_argument);
  CHECK(e.value("file").ends_with("columns.json"));
  CHECK(e.value("column") == "a");
  CHECK(e.value("size") == "0");
  CHECK(refusal(with(R"("dense": ["a", "a"])")).value("column") == "a");
  CHECK(refusal(with(R"("file": {"delimiter": ","})")).sentence() == "columns file: a layout has either a header or names of columns");
  CHECK(refusal(with(R"("derived": [{"name": "a", "ngram": ["b", "c"]}])")).value("column") == "b");
  CHECK(refusal("{").code() == errc::parse_error);
}

}  // namespace columns_file_test
