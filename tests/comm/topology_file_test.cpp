// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include <tessera/comm/topology_file.hpp>

#include "temporary_folder.hpp"

namespace topology_file_test {

namespace {

using tessera::topology;

tessera::error topology_text_error(std::string const& text) {
  try {
    tessera::parse_topology(text, "job.json");
  } catch (tessera::error const& e) {
    CHECK(e.value("file") == "job.json");
    return e;
  }
  return {tessera::errc::device_error, "nothing was thrown"};
}

}  // namespace

TEST_CASE("topology_file: written and read again") {
  tessera_tests::temporary_folder const folder;
  auto const path = folder.file("topology.json");
  for (auto const& t : {topology::flat(1), topology::of_hosts(3, 2), topology::of_hosts(4, 2).with_groups("rack", 2), topology(2, {}),
                        topology(5, {{"chip", {{4}, {0, 2}, {1, 3}}}, {"host", {{1, 3, 4}, {0, 2}}}})}) {
    tessera::write_topology(path, t);
    CHECK(tessera::read_topology(path) == t);
    CHECK(tessera::topology_of_json(tessera::topology_json(t), "here") == t);
  }
}

TEST_CASE("topology_file: by hand") {
  auto const t = tessera::parse_topology(
      R"({"ranks": 4, "levels": [{"name": "host", "domains": [[1, 0], [2, 3]]}, {"name": "rack", "domains": [[0, 1, 2, 3]]}]})",
      "job.json");
  CHECK(t == topology::of_hosts(2, 2).with_groups("rack", 2));
  CHECK(tessera::topology_json(topology::flat(2)).dump() == R"({"levels":[{"domains":[[0,1]],"name":"host"}],"ranks":2})");
}

TEST_CASE("topology_file: what it refuses") {
  using tessera::errc;
  CHECK(topology_text_error("{").code() == errc::parse_error);
  CHECK(topology_text_error("[]").value("field") == "topology");
  CHECK(topology_text_error(R"({"levels": []})").value("field") == "ranks");
  CHECK(topology_text_error(R"({"ranks": 2})").value("field") == "levels");
  CHECK(topology_text_error(R"({"ranks": 2.0, "levels": []})").value("expected") == "integer");
  CHECK(topology_text_error(R"({"ranks": 2, "levels": [], "host": 1})").value("field") == "host");
  CHECK(topology_text_error(R"({"ranks": 2, "levels": [3]})").value("field") == "levels");
  CHECK(topology_text_error(R"({"ranks": 2, "levels": [{"name": "host", "domain": []}]})").value("field") == "domain");
  CHECK(topology_text_error(R"({"ranks": 2, "levels": [{"name": "host"}]})").value("field") == "domains");
  CHECK(topology_text_error(R"({"ranks": 2, "levels": [{"name": 7, "domains": []}]})").value("field") == "name");
  CHECK(topology_text_error(R"({"ranks": 2, "levels": [{"name": "host", "domains": [0, 1]}]})").value("field") == "domains");
  CHECK(topology_text_error(R"({"ranks": 2, "levels": [{"name": "host", "domains": [[0, 1.5]]}]})").value("field") == "domains");
  CHECK(topology_text_error(R"({"ranks": 2, "levels": [{"name": "host", "domains": [[0, 9223372036854775808]]}]})").value("field") ==
        "domains");

  // What the constructor finds wrong is told of the file.
  auto const missing = topology_text_error(R"({"ranks": 2, "levels": [{"name": "host", "domains": [[0]]}]})");
  CHECK(missing.code() == errc::invalid_argument);
  CHECK(missing.value("rank") == "1");
  CHECK(topology_text_error(R"({"ranks": 0, "levels": []})").value("ranks") == "0");

  tessera_tests::temporary_folder const folder;
  CHECK_THROWS_AS(tessera::read_topology(folder.file("none.json")), tessera::error);
}

}  // namespace topology_file_test
