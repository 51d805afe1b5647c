// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-labels: threads
#include <tessera/data/delimited_writer.hpp>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <tessera/data/delimited_text.hpp>

#include "click_support.hpp"
#include "delimited_support.hpp"

using namespace click_tests;
using namespace delimited_tests;
using tessera::delimited_layout;
using tessera::delimited_writer;
using tessera::id_format;
using tessera::sample_schema;

namespace delimited_writer_test {

namespace {

std::vector<sample> read_back(tessera::host_exec const& exec, std::string const& text, sample_schema const& schema,
                              delimited_layout const& layout) {
  tessera::sample_columns columns;
  tessera::parse_delimited(exec, text, "log", schema, layout, columns);
  return sample_tests::samples_of(columns.view());
}

}  // namespace

TEST_CASE("delimited_writer: samples of every kind of column read back the same, whatever the layout and the threads") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  click_tests::temporary_folder folder;
  for (int const count : {0, 1, 511, 512, 513, 16'400}) {
    CAPTURE(count);
    sample_tests::table_shape shape;
    shape.rows = count;
    shape.mean_ids = 1;
    shape.single = 2;
    shape.other_labels = 2;
    shape.weights = true;
    auto const schema = sample_tests::schema_of(shape);
    auto const samples = sample_tests::random_samples(random, shape);
    auto expected = samples;
    expected.insert(expected.end(), samples.begin(), samples.end());
    delimited_layout csv{.delimiter = ',', .header = true, .quotes = true, .missing = {"NA"}};
    delimited_layout const tsv{
        .columns = {"s3", "s2", "nobody's", "label", "weight", "d1", "d2", "d0", "time", "l1", "session", "l0", "s1", "s0"},
        .format_of = {{"s0", id_format::decimal}}};
    for (auto const& layout : {csv, tsv}) {
      if (count > 10'000 && layout == tsv) continue;  // once is enough for several writes
      std::string first;
      for (int const threads : {1, 3}) {
        host h(threads);
        tessera::sample_columns columns;
        sample_tests::fill(h.exec, schema, samples, columns);
        delimited_writer out(folder.path("log"), schema, layout);
        out.append(h.exec, columns.view());
        out.append(h.exec, columns.view());
        out.close();
        auto const text = tessera_tests::contents(folder.path("log"));
        if (threads == 1) {
          CHECK(read_back(h.exec, text, schema, layout) == expected);
          first = text;
        }
        CHECK(text == first);
      }
    }
  }
}

TEST_CASE("delimited_writer: how values are spelled") {
  click_tests::temporary_folder folder;
  host h;
  sample_schema const schema{.label = "y,z", .dense = {"d", "b"}, .sparse = {"h", "list", "b"}, .single = {"h", "b"}};
  delimited_layout const layout{
      .delimiter = ',', .header = true, .quotes = true, .format_of = {{"h", id_format::hexadecimal}, {"list", id_format::decimal}}};
  std::string const text =
      "\"y,z\",d,b,h,list\n"
      "1,0.1,16777217,0000beef,1|-2|3\n"
      "0,-0,,,\n"
      "1,1000000,-5,00000001deadbeef,9223372036854775807\n"
      "0.5,1e-30,0,7fffffffffffffff,0\n";
  tessera::sample_columns columns;
  tessera::parse_delimited(h.exec, text, "log", schema, layout, columns);
  delimited_writer out(folder.path("log"), schema, layout);
  out.append(h.exec, columns.view());
  out.close();
  CHECK(tessera_tests::contents(folder.path("log")) == text);
}

TEST_CASE("delimited_writer: what would not be read back is refused") {
  click_tests::temporary_folder folder;
  host h;
  sample_schema const schema{.label = "y", .dense = {"d"}, .sparse = {"s", "d", "list"}, .single = {"s", "d"}};
  delimited_layout layout{.header = true, .missing = {"7"}};
  auto const refused = [&](auto const& change) {
    tessera::sample_columns columns;
    tessera::parse_delimited(h.exec, std::string("y\td\ts\tlist\n0\t1\t2\t3\n0\t1\t2\t3\n"), "log", schema, layout, columns);
    change(columns);
    auto const e = thrown_by([&] { delimited_writer(folder.path("log"), schema, layout).append(h.exec, columns.view()); });
    CHECK(e.code() == tessera::errc::invalid_argument);
    CHECK(e.value("row") == "1");
    return std::string(e.value("field"));
  };
  auto const infinity = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  CHECK(refused([&](auto& columns) { columns.labels()[1] = nan; }) == "y");
  CHECK(refused([&](auto& columns) { columns.labels()[1] = -infinity; }) == "y");
  CHECK(refused([&](auto& columns) { columns.labels()[1] = 7; }) == "y");
  CHECK(refused([&](auto& columns) { columns.dense()(0, 1) = 2; }) == "d");
  CHECK(refused([&](auto& columns) { columns.dense()(0, 1) = nan; }) == "d");
  CHECK(refused([&](auto& columns) { columns.single_ids(1)[1] = tessera::missing_id; }) == "d");
  CHECK(refused([&](auto& columns) { columns.single_ids(0)[1] = 7; }) == "s");
  CHECK(refused([&](auto& columns) { columns.ids(h.exec, 2)[1] = tessera::missing_id; }) == "list");
  layout.format_of["s"] = id_format::hexadecimal;
  CHECK(refused([&](auto& columns) { columns.single_ids(0)[1] = -1; }) == "s");
  layout.binary_labels = true;
  CHECK(refused([&](auto& columns) { columns.labels()[1] = 0.5F; }) == "y");
  for (auto const& of :
       {sample_schema{.label = "y", .dense = {"d"}, .sparse = {"s", "d", "list"}, .single = {"d"}},
        sample_schema{.label = "y", .dense = {"d"}, .sparse = {"s", "d"}, .single = {"s", "d"}},
        sample_schema{.label = "y", .dense = {"d"}, .sparse = {"s", "d", "list"}, .other_labels = {"z"}, .single = {"s", "d"}}}) {
    tessera::sample_columns other(of);
    other.resize(h.exec, 1);
    CHECK(thrown_by([&] { delimited_writer(folder.path("log"), schema, layout).append(h.exec, other.view()); }).code() ==
          tessera::errc::shape_mismatch);
  }

  auto const open = [&](sample_schema const& of, delimited_layout const& by) {
    return thrown_by([&] { delimited_writer(folder.path("log"), of, by); });
  };
  CHECK(open({.label = "y"}, {}).code() == tessera::errc::invalid_argument);
  CHECK(open({.label = ""}, {.header = true}).code() == tessera::errc::invalid_argument);
  CHECK(open({.label = "y\t"}, {.header = true}).value("column") == "y\t");
  CHECK(open({.label = "y"}, {.columns = {"z"}}).code() == tessera::errc::incompatible);
  CHECK(open({.label = "y"}, {.delimiter = '-', .header = true}).code() == tessera::errc::invalid_argument);
  CHECK(open({.label = "y"}, {.header = true, .list_separator = 'e'}).code() == tessera::errc::invalid_argument);
  CHECK(open({.label = "y", .sparse = {"s"}}, {.header = true, .ids = id_format::text}).value("column") == "s");
  CHECK(open({.label = "y", .dense = {"s"}, .sparse = {"s"}}, {.header = true}).value("column") == "s");
  CHECK(thrown_by([&] { delimited_writer(folder.path("none/log"), {.label = "y"}, {.header = true}); }).code() == tessera::errc::io_error);
  tessera::sample_columns other(sample_schema{.label = "y", .dense = {"d"}});
  other.resize(h.exec, 1);
  auto const misfit =
      thrown_by([&] { delimited_writer(folder.path("log"), {.label = "y"}, {.header = true}).append(h.exec, other.view()); });
  CHECK(misfit.code() == tessera::errc::shape_mismatch);
}

}  // namespace delimited_writer_test
