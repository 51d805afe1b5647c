// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <tessera/shard/sharding_plan_file.hpp>

#include <doctest/doctest.h>

#include <functional>
#include <string>
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
  refused(R"({"shards": 5})", "shards");
  refused(R"({"shards": [7]})", "shards");
}
