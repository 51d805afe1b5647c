// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <tessera/tower/tower_partition_file.hpp>

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "temporary_folder.hpp"

namespace tower_partition_file_test {

using tessera::errc;
using tessera::tower_partition;
using tessera_tests::error_of;

std::vector<std::string> const names{"user", "item", "hour", "caf\xc3\xa9"};

TEST_CASE("tower_partition_file: towers are read as they were written, by name") {
  tower_partition const partition{{{3, 0}, {1}, {2}}};
  tessera_tests::temporary_folder folder;
  tessera::write_towers(folder.file("towers.json"), partition, names);
  CHECK(tessera::read_towers(folder.file("towers.json"), names) == partition);
  CHECK(tessera::towers_json(partition, names) ==
        tessera::parse_json(R"({"version": 1, "towers": [["café", "user"], ["item"], ["hour"]]})", "expected"));
  // The features of a model may have another order.
  std::vector<std::string> const other{"hour", "caf\xc3\xa9", "item", "user"};
  CHECK(tessera::read_towers(folder.file("towers.json"), other) == tower_partition{{{1, 3}, {2}, {0}}});
}

TEST_CASE("tower_partition_file: what is no partition of the features is refused by file, field and value") {
  auto const refused = [&](std::string const& text, errc code, char const* value, std::string const& is) {
    auto const e = error_of([&] { tessera::towers_of_json(tessera::parse_json(text, "T"), names, "T"); });
    CAPTURE(std::string(e.what()));
    CHECK(e.code() == code);
    CHECK(e.value("file") == "T");
    CHECK(e.value(value) == is);
  };
  auto const towers = [&](std::string const& of, char const* value, std::string const& is) {
    refused(R"({"version": 1, "towers": )" + of + "}", errc::invalid_argument, value, is);
  };
  towers(R"([["user", "item"], ["hour", "user", "café"]])", "feature", "user");
  towers(R"([["user", "item"], ["hour", "user", "café"]])", "first tower", "0");
  towers(R"([["user", "user"], ["item", "hour", "café"]])", "field", "towers");
  towers(R"([["user", "item"], ["hour"]])", "feature", "caf\xc3\xa9");
  towers(R"([["user", "item"], ["hour", "café", "day"]])", "feature", "day");
  towers(R"([["user", "item"], ["hour", "café"], []])", "tower", "2");
  towers(R"([["user"], ["item"], ["hour"], ["café"], []])", "towers", "5");
  towers(R"([])", "feature", "user");
  refused(R"({"version": 1, "towers": 5})", errc::parse_error, "field", "towers");
  refused(R"({"version": 1, "towers": ["user"]})", errc::parse_error, "field", "towers");
  refused(R"({"version": 1, "towers": [[0]]})", errc::parse_error, "field", "towers");
  refused(R"({"version": 1})", errc::parse_error, "field", "towers");
  refused(R"({"towers": [["user", "item", "hour", "café"]]})", errc::parse_error, "field", "version");
  refused(R"({"version": "1", "towers": []})", errc::parse_error, "field", "version");
  refused(R"({"version": 2, "towers": []})", errc::incompatible, "version", "2");
  refused(R"({"version": 1, "towers": [["user", "item", "hour", "café"]], "points": []})", errc::parse_error, "field", "points");
  refused("[]", errc::parse_error, "field", "tower partition");
}

TEST_CASE("tower_partition_file: what cannot be written is refused") {
  auto e = error_of([&] { tessera::towers_json({{{0, 1}, {2}}}, names); });
  CHECK(e.code() == errc::invalid_argument);
  CHECK(e.value("feature") == "3");
  std::vector<std::string> const twice{"user", "item", "user"};
  e = error_of([&] { tessera::towers_json({{{0, 1}, {2}}}, twice); });
  CHECK(e.value("name") == "user");
  CHECK(e.value("other feature") == "2");
  CHECK(error_of([&] {
          tessera::towers_of_json(tessera::towers_json({{{0}}}, std::vector<std::string>{"a"}), twice, "T");
        }).value("file") == "T");
}

}  // namespace tower_partition_file_test
