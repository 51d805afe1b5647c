// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <tessera/plan/table_profile_file.hpp>

#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "random.hpp"
#include "temporary_folder.hpp"

namespace table_profile_test {

using tessera::errc;
using tessera::table_profile;
using tessera_tests::error_of;

namespace {

table_profile good() {
  table_profile p{.name = "user", .rows = 1000, .dim = 16, .pooling_factor = 2.5};
  p.access[0] = 0.75;
  p.access[3] = 0.25;
  return p;
}

std::string const good_text =
    R"({"row": 1000, "dim": 16, "pooling_factor": 2.5, "bin_0": 0.75, "bin_1": 0, "bin_2": 0, "bin_3": 0.25, "bin_4": 0, "bin_5": 0,
        "bin_6": 0, "bin_7": 0, "bin_8": 0, "bin_9": 0, "bin_10": 0, "bin_11": 0, "bin_12": 0, "bin_13": 0, "bin_14": 0, "bin_15": 0,
        "bin_16": 0)";

}  // namespace

TEST_CASE("table_profile: the mean of a bin's reads is that of the law 1 / count") {
  CHECK(tessera::mean_reads(0) == 1);
  CHECK(tessera::mean_reads(1) == 2);
  for (std::int64_t bin = 2; bin < table_profile::bins; ++bin) {
    auto const first = (std::int64_t{1} << (bin - 1)) + 1, last = std::int64_t{1} << bin;
    double shares = 0;
    for (auto count = first; count <= last; ++count) shares += 1 / static_cast<double>(count);
    CAPTURE(bin);
    CHECK(tessera::mean_reads(bin) == doctest::Approx(static_cast<double>(last - first + 1) / shares).epsilon(1e-4));
  }
}

TEST_CASE("table_profile: shares of rows by how often a batch reads them") {
  std::vector<std::int64_t> const reads{1, 1, 2, 3, 4, 5, 0, 1 << 15, (1 << 15) + 1};
  auto const access = tessera::access_of_reads(reads);
  CHECK(access[0] == 0.25);
  CHECK(access[1] == 0.125);
  CHECK(access[2] == 0.25);
  CHECK(access[3] == 0.125);
  CHECK(access[15] == 0.125);
  CHECK(access[16] == 0.125);
  CHECK(tessera::access_of_reads({}) == std::array<double, table_profile::bins>{});
}

TEST_CASE("batch_samples_of: the fewest bags of a table that has any") {
  std::vector<table_profile> tables(3, good());
  CHECK(tessera::batch_samples_of(tables) == 65536);
  tables[0].bags = 300;  // three columns read it
  tables[1].bags = 0;    // none does
  tables[2].bags = 100;
  CHECK(tessera::batch_samples_of(tables) == 100);
  tables[2].bags = 99.6;  // a part of a batch, rounded
  CHECK(tessera::batch_samples_of(tables) == 100);
  tables.resize(2);
  CHECK(tessera::batch_samples_of(tables) == 300);
  tables[0].bags = 0;
  CHECK(tessera::batch_samples_of(tables) == 0);
  CHECK(tessera::batch_samples_of({}) == 0);
}

TEST_CASE("check_row_kinds: tables of another optimizer or row format are refused by name") {
  std::vector<table_profile> tables(2, good());
  tables[1].name = "item";
  CHECK_NOTHROW(tessera::check_row_kinds(tables, "sgd", "float"));
  CHECK_NOTHROW(tessera::check_row_kinds({}, "adam", "float16"));
  auto const refused = [&](char const* field, char const* expected, char const* found) {
    auto const e = error_of([&] { tessera::check_row_kinds(tables, "sgd", "float"); });
    CHECK(e.code() == errc::incompatible);
    CHECK(e.value("table") == "item");
    CHECK(e.value("field") == field);
    CHECK(e.value("expected") == expected);
    CHECK(e.value("found") == found);
  };
  tables[1].optimizer = "adam";
  refused("optimizer", "sgd", "adam");
  CHECK_NOTHROW(tessera::check_row_kinds(tables, "", "float"));
  tables[1].optimizer = "sgd";
  tables[1].row_format = "bfloat16";
  refused("row_format", "float", "bfloat16");
  CHECK_NOTHROW(tessera::check_row_kinds(tables, "sgd", ""));
}

TEST_CASE("table_profile: ids and distinct rows of a batch") {
  auto p = good();
  CHECK(tessera::ids_of_batch(p) == 65536 * 2.5);
  p.distinct_bags = 1000;
  CHECK(tessera::distinct_ids_of_batch(p) == 2500);
  // No more rows than the table has.
  CHECK(tessera::distinct_rows_of_batch(p) == 1000);
  p.rows = 10'000'000;
  CHECK(tessera::distinct_rows_of_batch(p) == doctest::Approx(65536 * 2.5 / (0.75 + 0.25 * tessera::mean_reads(3))));
  // Rows of a batch that were drawn are counted as they are.
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  std::vector<std::int64_t> reads(1 << 20);
  std::int64_t distinct = 0, ids = 0;
  p.access = {};
  for (int i = 0; i < 20000; ++i) {
    // Reads of the law 1 / count up to 64: a uniform bin, then the law in it.
    auto const bin = std::uniform_int_distribution<std::int64_t>(0, 6)(random);
    std::int64_t const first = bin == 0 ? 1 : (std::int64_t{1} << (bin - 1)) + 1, last = std::int64_t{1} << bin;
    std::vector<double> law;
    for (auto c = first; c <= last; ++c) law.push_back(1 / static_cast<double>(c));
    ids += first + std::discrete_distribution<std::int64_t>(law.begin(), law.end())(random);
    ++distinct;
    p.access[static_cast<std::size_t>(bin)] += 1.0 / 20000;
  }
  p.bags = 1000;
  p.pooling_factor = static_cast<double>(ids) / p.bags;
  CHECK(tessera::distinct_rows_of_batch(p) == doctest::Approx(static_cast<double>(distinct)).epsilon(0.03));
  p.pooling_factor = 0;
  CHECK(tessera::distinct_rows_of_batch(p) == 0);
}

TEST_CASE("table_profile: a shard of columns reads as its table, a shard of rows its share") {
  auto const p = good();
  auto const columns = tessera::profile_of_shard(p, 1000, 4);
  CHECK(columns.dim == 4);
  CHECK(columns.rows == 1000);
  CHECK(columns.pooling_factor == 2.5);
  CHECK(columns.access == p.access);
  auto const rows = tessera::profile_of_shard(p, 250, 16);
  CHECK(rows.rows == 250);
  CHECK(rows.pooling_factor == 0.625);
  CHECK(tessera::profile_of_shard(p, 1000, 16) == p);
}

TEST_CASE("table_profile: what no table has is refused by table, field and value") {
  auto const refused = [](auto const& change, std::string const& field, std::string const& value) {
    auto p = good();
    change(p);
    auto const e = error_of([&] { tessera::check_table_profile(p); });
    CAPTURE(std::string(e.what()));
    CHECK(e.code() == errc::invalid_argument);
    CHECK(e.value("table") == "user");
    CHECK(e.value("field") == field);
    CHECK(e.value("value") == value);
  };
  auto const nan = std::numeric_limits<double>::quiet_NaN(), infinity = std::numeric_limits<double>::infinity();
  refused([](auto& p) { p.rows = 0; }, "row", "0");
  refused([](auto& p) { p.rows = -5; }, "row", "-5");
  refused([](auto& p) { p.rows = std::int64_t{1} << 60; }, "row", "1.1529215e+18");
  refused([](auto& p) { p.dim = 0; }, "dim", "0");
  refused([&](auto& p) { p.pooling_factor = nan; }, "pooling_factor", "nan");
  refused([&](auto& p) { p.pooling_factor = infinity; }, "pooling_factor", "inf");
  refused([](auto& p) { p.pooling_factor = -1; }, "pooling_factor", "-1");
  refused([&](auto& p) { p.access[16] = nan; }, "bin_16", "nan");
  refused([](auto& p) { p.access[2] = -0.25; }, "bin_2", "-0.25");
  refused([](auto& p) { p.access[2] = 0.5; }, "bin_0 to bin_16", "1.5");
  refused([](auto& p) { p.bags = -1; }, "bags", "-1");
  refused([](auto& p) { p.bags = 1e300; }, "bags", "1e+300");
  refused([](auto& p) { p.pooling_factor = 1e300; }, "pooling_factor", "1e+300");
  refused([](auto& p) { p.distinct_bags = 65537; }, "distinct_bags", "65537");
  refused([](auto& p) { p.group = -2; }, "group", "-2");
  refused([](auto& p) { p.tower = -2; }, "tower", "-2");
  auto empty = good();
  empty.access = {};
  CHECK_NOTHROW(tessera::check_table_profile(empty));
  CHECK(error_of([] { tessera::check_table_profiles(std::vector<table_profile>{}); }).value("tables") == "0");
}

TEST_CASE("table_profile_file: profiles are read as they were written") {
  auto second = good();
  second.name = "item";
  second.bags = 512;
  second.distinct_bags = 100.5;
  second.group = 3;
  second.tower = 1;
  second.row_format = "float16";
  second.optimizer = "adam";
  second.hashed = true;
  second.pooling_factor = 0.1;
  std::vector<table_profile> const tables{good(), second};
  tessera_tests::temporary_folder folder;
  tessera::write_table_profiles(folder.file("tables.json"), tables);
  CHECK(tessera::read_table_profiles(folder.file("tables.json")) == tables);
  // The authors' fields are enough.
  auto least = good();
  least.name = "0";
  CHECK(tessera::table_profiles_of_json(tessera::parse_json("[" + good_text + "}]", "T"), "T") == std::vector<table_profile>{least});
  least.bags = least.distinct_bags = 100;
  CHECK(tessera::table_profiles_of_json(tessera::parse_json("[" + good_text + ", \"bags\": 100}]", "T"), "T") ==
        std::vector<table_profile>{least});
}

TEST_CASE("table_profile_file: bad files are refused by file, field and value") {
  auto const refused = [](std::string const& text, errc code, char const* value, std::string const& is) {
    auto const e = error_of([&] { tessera::table_profiles_of_json(tessera::parse_json(text, "T"), "T"); });
    CAPTURE(std::string(e.what()));
    CHECK(e.code() == code);
    CHECK(e.value("file") == "T");
    CHECK(e.value(value) == is);
  };
  refused("{}", errc::parse_error, "field", "tables");
  refused("[]", errc::invalid_argument, "tables", "0");
  refused("[5]", errc::parse_error, "field", "table");
  refused("[" + good_text + ", \"depth\": 1}]", errc::parse_error, "field", "depth");
  refused("[" + good_text + ", \"name\": 1}]", errc::parse_error, "field", "name");
  refused("[" + good_text + ", \"hashed\": 1}]", errc::parse_error, "field", "hashed");
  refused("[" + good_text + ", \"bags\": -3}]", errc::invalid_argument, "value", "-3");
  refused(R"([{"row": 10, "dim": 4}])", errc::parse_error, "field", "pooling_factor");
  refused(R"([{"row": 10, "dim": 4, "pooling_factor": 1, "bin_0": 1}])", errc::parse_error, "field", "bin_1");
  refused(R"([{"row": 1.5, "dim": 4}])", errc::parse_error, "field", "row");
  auto nan = good();
  nan.pooling_factor = std::numeric_limits<double>::quiet_NaN();
  tessera_tests::temporary_folder folder;
  CHECK(error_of([&] { tessera::write_table_profiles(folder.file("t.json"), std::vector<table_profile>{nan}); }).value("field") ==
        "pooling_factor");
}

}  // namespace table_profile_test
