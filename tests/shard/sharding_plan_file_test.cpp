// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <tessera/shard/sharding_plan_file.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include <temporary_folder.hpp>

TEST_CASE("sharding_plan_file: a plan is read as it was written, and what it leaves out is all of a table") {
  std::vector<tessera::table_options> const tables{{.id = tessera::table_id{1}, .dim = 8, .rows = 100},
                                                   {.id = tessera::table_id{2}, .dim = 12, .rows = 30}};
  tessera::sharding_plan const plan{{{0, 1, 0, 100, 0, 8}, {1, 0, 0, 30, 0, 4}, {1, 1, 0, 30, 4, 8}}};
  tessera_tests::temporary_folder folder;
  tessera::write_plan(folder.file("plan.json"), plan);
  CHECK(tessera::read_plan(folder.file("plan.json"), tables, 2) == plan);

  auto const parse = [&](std::string const& text) { return tessera::plan_of_json(tessera::parse_json(text, "P"), tables, 2, "P"); };
  CHECK(
      parse(
          R"({"shards": [{"table": 0, "rank": 1}, {"table": 1, "rank": 0, "columns": 4}, {"table": 1, "rank": 1, "first_column": 4}]})") ==
      plan);

  auto partial = plan;
  partial.partial = {1, 0};
  tessera::write_plan(folder.file("plan.json"), partial);
  CHECK(tessera::read_plan(folder.file("plan.json"), tables, 2) == partial);

  // What is written with tables and ranks is checked, and is of no other ranks.
  auto const checked = folder.file("checked.json");
  auto const message = [](auto const& f) {
    try {
      f();
    } catch (tessera::error const& e) {
      return std::string(e.what());
    }
    return std::string("nothing was thrown");
  };
  auto const without = message([&] { tessera::write_plan(checked, {{plan.shards[0]}}, tables, 2); });
  CHECK(without.find("not covered") != std::string::npos);
  CHECK(!std::filesystem::exists(checked));
  tessera::write_plan(checked, plan, tables, 3);
  CHECK(tessera::read_plan(checked, tables, 3) == plan);
  CHECK(message([&] { tessera::read_plan(checked, tables, 2); }) ==
        "sharding plan: of another number of ranks (file " + checked + ", field ranks, value 3, ranks 2)");

  auto const refused = [&](std::string const& text, char const* part) {
    try {
      parse(text);
      FAIL_CHECK(text);
    } catch (tessera::error const& e) {
      CAPTURE(std::string(e.what()));
      CHECK(e.value("file") == "P");
      CHECK(std::string(e.what()).find(part) != std::string::npos);
    }
  };
  refused(R"({"shards": [{"table": 0, "rank": 1}]})", "not covered");
  refused(R"({"shards": [{"table": 2, "rank": 1}]})", "no such table (file P, table 2");
  refused(R"({"shards": [{"table": 0, "rank": 2}]})", "no such rank");
  refused(R"({"shards": [{"table": 0, "rank": 4294967296}]})", "no such rank");
  refused(R"({"shards": [{"table": 0, "rank": 0, "row": 5}]})", "field row");
  refused(R"({"shards": [{"table": 0}]})", "rank");
  refused(R"({"shards": [{"table": 0, "rank": "1"}]})", "rank");
  refused(R"({"shards": [{"table": 0, "rank": 0}], "version": 3})", "field version");
  refused(R"({"shards": [{"table": 0, "rank": 1}, {"table": 1, "rank": 0}], "partial": [2]})", "partial sums of a table that is not there");
  refused(R"({"shards": [{"table": 0, "rank": 1}, {"table": 1, "rank": 0}], "partial": ["0"]})", "partial");
  refused(R"({"shards": [{"table": 0, "rank": 1}, {"table": 1, "rank": 0}], "ranks": "2"})", "ranks");
  refused(R"({"shards": 5})", "shards");
  refused(R"({"shards": [7]})", "shards");
}

TEST_CASE("sharding_plan_file: tables go by name, and kinds stand for rectangles") {
  std::vector<tessera::table_options> const tables{{.id = tessera::table_id{1}, .dim = 8, .rows = 100},
                                                   {.id = tessera::table_id{2}, .dim = 12, .rows = 30}};
  std::vector<std::string> const names{"user", "item"};
  auto const parse = [&](std::string const& text, auto const& named) {
    return tessera::plan_of_json(tessera::parse_json(text, "P"), tables, 4, "P", named);
  };
  auto const with = [](std::vector<tessera::table_shard> shards, std::vector<tessera::table_shard> const& more) {
    shards.insert(shards.end(), more.begin(), more.end());
    return tessera::sharding_plan{std::move(shards)};
  };
  auto const item = tessera::table_wise(tables, 1, 2);
  auto const said = [&](std::string const& user) {
    return parse(R"({"shards": [)" + user + R"(, {"table": 1, "kind": "table_wise", "ranks": [2]}]})", names);
  };
  CHECK(said(R"({"table": "user", "kind": "row_wise", "ranks": [3, 0, 1]})") == with(tessera::row_wise(tables, 0, {3, 0, 1}), item));
  CHECK(said(R"({"table": 0, "kind": "column_wise", "ranks": [0, 1]})") == with(tessera::column_wise(tables, 0, {0, 1}), item));
  CHECK(said(R"({"table": "user", "kind": "grid", "ranks": [[0, 1], [2, 3]]})") == with(tessera::grid(tables, 0, {{0, 1}, {2, 3}}), item));
  auto const everywhere = said(R"({"table": "user", "kind": "data_parallel"})");
  CHECK(everywhere == with(tessera::data_parallel(tables, 0), item));
  CHECK(tessera::plan_of_json(tessera::plan_json(everywhere), tables, 4, "P") == everywhere);
  CHECK(said(R"({"table": "user", "rank": 1})") == with(tessera::table_wise(tables, 0, 1), item));
  auto const partial = parse(R"({"shards": [{"table": "user", "rank": 0}, {"table": "item", "rank": 0}], "partial": ["item"]})", names);
  CHECK(partial.partial == std::vector<std::int64_t>{1});
  tessera_tests::temporary_folder folder;
  tessera::write_json(folder.file("plan.json"), {{"shards", {{{"table", "user"}, {"rank", 0}}, {{"table", "item"}, {"rank", 0}}}}});
  CHECK(tessera::read_plan(folder.file("plan.json"), tables, 1, names).shards ==
        with(tessera::table_wise(tables, 0, 0), tessera::table_wise(tables, 1, 0)).shards);

  auto const refused = [&](std::string const& user, char const* part) {
    try {
      said(user);
      FAIL_CHECK(user);
    } catch (tessera::error const& e) {
      CAPTURE(std::string(e.what()));
      CHECK(e.value("file") == "P");
      CHECK(std::string(e.what()).find(part) != std::string::npos);
    }
  };
  refused(R"({"table": "users", "rank": 0})", "no table has this name (file P, table users");
  refused(R"({"table": 2, "kind": "row_wise", "ranks": [0]})", "no such table (file P, table 2");
  refused(R"({"table": 0, "kind": "rows", "ranks": [0]})", "kind rows");
  refused(R"({"table": 0, "kind": "data_parallel", "ranks": [0]})", "field ranks");
  refused(R"({"table": 0, "rank": -1})", "no such rank");
  refused(R"({"table": 0, "kind": 5, "ranks": [0]})", "field kind");
  refused(R"({"table": 0, "kind": "row_wise"})", "field ranks");
  refused(R"({"table": 0, "kind": "row_wise", "ranks": []})", "ranks 0");
  refused(R"({"table": 0, "kind": "row_wise", "ranks": ["0"]})", "field ranks");
  refused(R"({"table": 0, "kind": "row_wise", "ranks": [0, 4]})", "no such rank");
  refused(R"({"table": 0, "kind": "row_wise", "ranks": [0], "rank": 1})", "field rank");
  refused(R"({"table": 0, "kind": "grid", "ranks": [0, 1]})", "field ranks");
  refused(R"({"table": 0, "kind": "table_wise", "ranks": [0, 1]})", "table_wise is of one rank");
  try {
    parse(R"({"shards": [{"table": "user", "rank": 0}]})", std::vector<std::string>{});
    FAIL_CHECK("a name without names");
  } catch (tessera::error const& e) {
    CHECK(std::string(e.what()).find("expected integer") != std::string::npos);
  }
}
