// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <tessera/embed/table_bytes_report.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <sstream>
#include <string>
#include <vector>

#include <tessera/core/error.hpp>
#include <tessera/embed/dense_table.hpp>
#include <tessera/embed/hash_table.hpp>

#include "hosts.hpp"

using tessera::table_bytes;
using tessera::table_bytes_report;
using tessera::table_options;
using tessera_tests::serial_host;

namespace {

std::vector<table_options> const reported_tables{{.id = tessera::table_id(0), .dim = 16, .rows = 1'000'000},
                                                 {.id = tessera::table_id(7), .dim = 3, .rows = 10}};
auto const reported_layout = tessera::row_state_layout::of(tessera::rowwise_adagrad{});

template <class Store, class... Policies>
void tells_what_is_built(Policies const&... policies) {
  serial_host host;
  std::vector<table_options> const small{{.id = tessera::table_id(0), .dim = 16, .rows = 3000},
                                         {.id = tessera::table_id(7), .dim = 3, .rows = 10},
                                         {.id = tessera::table_id(8), .dim = 1, .rows = 0}};
  auto const report = table_bytes_report::of<Store>(small, tessera::row_state_layout::of(tessera::adam{}), {}, policies...);
  REQUIRE(report.tables.size() == 3);
  table_bytes sum;
  for (std::size_t t = 0; t < small.size(); ++t) {
    Store const table(host.exec(), small[t], tessera::adam{}, policies...);
    CHECK(table.bytes() == report.tables[t].bytes.total());
    CHECK(table.bytes() == host.memory().live_bytes());
    sum = sum + report.tables[t].bytes;
  }
  CHECK(report.sum == sum);
  CHECK(report.total() == sum.total());
}

}  // namespace

TEST_CASE("a report says before what a table takes once it is built") {
  using namespace tessera;
  tells_what_is_built<dense_table<>>();
  tells_what_is_built<dense_table<float16>>();
  tells_what_is_built<hash_table<>>();
  tells_what_is_built<dense_table<scaled_int8>>();
  tells_what_is_built<hash_table<bfloat16>>();
  tells_what_is_built<hash_table<float8_e4m3>>();
  tells_what_is_built<hash_table<scaled_int8, admit_all, evict_lru>>();
  tells_what_is_built<hash_table<float, admit_all, evict_lru>>();
  tells_what_is_built<hash_table<float, admit_all, evict_lfu>>();
  tells_what_is_built<hash_table<float, admit_by_probability, evict_ttl>>();
  tells_what_is_built<hash_table<float, admit_by_frequency, evict_lru>>(admit_by_frequency{.sightings = 3, .candidates = 77});
}

TEST_CASE("bytes by part, by hand") {
  auto const dense = tessera::dense_table<>::bytes_for(reported_tables[0], reported_layout);
  CHECK(dense.weights == 64'000'000);
  CHECK(dense.state == 4'000'000);
  CHECK(dense.index == 0);
  CHECK(dense.total() == 68'000'000);
  CHECK(tessera::dense_table<tessera::bfloat16>::bytes_for(reported_tables[0], reported_layout).weights == 32'000'000);
  CHECK(tessera::dense_table<tessera::bfloat16>::bytes_for(reported_tables[0], reported_layout).state == 4'000'000);
  CHECK(tessera::dense_table<tessera::float8_e5m2>::bytes_for(reported_tables[0], reported_layout).weights == 16'000'000);
  // 4 bytes for the scale, and 3 elements fill 4.
  CHECK(tessera::dense_table<tessera::scaled_int8>::bytes_for(reported_tables[0], reported_layout).weights == 20'000'000);
  CHECK(tessera::dense_table<tessera::scaled_int8>::bytes_for(reported_tables[1], reported_layout).weights == 80);
  CHECK(tessera::hash_table<tessera::scaled_int8>::bytes_for(reported_tables[1], reported_layout).weights == 1024 * 8);
  auto const hashed = tessera::hash_table<>::bytes_for(reported_tables[1], reported_layout);
  CHECK(hashed.weights == 1024 * 3 * 4);
  CHECK(hashed.state == 1024 * 4);
  CHECK(hashed.index == 32 * 16 + 10 * 8);
  using lru = tessera::hash_table<float, tessera::admit_all, tessera::evict_lru>;
  CHECK(lru::bytes_for(reported_tables[1], reported_layout).index == hashed.index + 10 * 24);
}

TEST_CASE("a report is printed as a table") {
  std::vector<std::string> const names{"item", "a rather long name"};
  auto const report =
      table_bytes_report::of<tessera::dense_table<>>(reported_tables, reported_layout, {.names = names, .values_per_batch = 100'000});
  CHECK(report.workspace == 4'000'000);
  CHECK(report.total() == 68'000'000 + 10 * (3 + 1) * 4 + 4'000'000);
  std::ostringstream out;
  out << report;
  CHECK(out.str() ==
        "                      dim         rows      weights        state        index        total\n"
        "item                   16      1000000     61.0 MiB      3.8 MiB          0 B     64.8 MiB\n"
        "a rather long name      3           10        120 B         40 B          0 B        160 B\n"
        "tables                                     61.0 MiB      3.8 MiB          0 B     64.9 MiB\n"
        "workspace                                                                          3.8 MiB\n"
        "all                                                                               68.7 MiB\n");
}

TEST_CASE("without names a table is called by its id; another workspace") {
  auto const report = table_bytes_report::of<tessera::dense_table<>>(reported_tables, reported_layout,
                                                                     {.values_per_batch = 10, .workspace_bytes_per_value = 7});
  CHECK(report.workspace == 70);
  CHECK(report.tables[1].name == "table 7");
  std::ostringstream out;
  out << table_bytes_report::of<tessera::dense_table<>>({}, reported_layout);
  CHECK(out.str().find("all") != std::string::npos);
}

TEST_CASE("what no table can be is refused") {
  auto const refused = [&](std::vector<table_options> const& wrong, tessera::table_bytes_report_options const& options) {
    try {
      table_bytes_report::of<tessera::dense_table<>>(wrong, reported_layout, options);
      FAIL("accepted");
    } catch (tessera::error const& e) {
      return e;
    }
    throw 0;
  };
  std::vector<std::string> const one{"one"};
  CHECK(refused(reported_tables, {.names = one}).code() == tessera::errc::shape_mismatch);
  CHECK(refused(reported_tables, {.names = one}).value("tables") == "2");
  CHECK(refused(reported_tables, {.values_per_batch = -1}).value("values_per_batch") == "-1");
  CHECK(refused({{.dim = 0, .rows = 1}}, {}).value("dim") == "0");
}
