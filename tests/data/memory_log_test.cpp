// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-labels: threads
#include <doctest/doctest.h>

#include <bit>
#include <cstdint>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <tessera/core/dlpack.hpp>
#include <tessera/data/memory_log.hpp>

#include "hosts.hpp"
#include "random.hpp"
#include "sample_source_suite.hpp"
#include "sample_support.hpp"
#include "temporary_folder.hpp"

namespace memory_log_test {

namespace {

using namespace tessera;
using sample_tests::sample;
using tessera_tests::error_of;

// The samples of a table as vectors, a column each.
struct vectors {
  std::map<std::string, std::vector<float>> numbers{};
  std::map<std::string, std::vector<std::int64_t>> integers{}, values{}, offsets{};
  std::vector<float> dense{};  // (n, dense columns)

  vectors(sample_schema const& schema, std::vector<sample> const& samples) {
    for (auto const& s : samples) {
      numbers[schema.label].push_back(std::bit_cast<float>(s.label));
      numbers[schema.weight].push_back(std::bit_cast<float>(s.weight));
      integers[schema.session].push_back(s.session);
      integers[schema.time].push_back(s.time);
      for (std::size_t c = 0; c < s.dense.size(); ++c) {
        numbers[schema.dense[c]].push_back(std::bit_cast<float>(s.dense[c]));
        dense.push_back(std::bit_cast<float>(s.dense[c]));
      }
      for (std::size_t c = 0; c < s.other_labels.size(); ++c)
        numbers[schema.other_labels[c]].push_back(std::bit_cast<float>(s.other_labels[c]));
      for (std::size_t c = 0; c < s.sparse.size(); ++c) {
        auto const& name = schema.sparse[c];
        if (schema.is_single(name)) {
          integers[name].push_back(s.sparse[c][0]);
          continue;
        }
        if (offsets[name].empty()) offsets[name].push_back(0);
        values[name].insert(values[name].end(), s.sparse[c].begin(), s.sparse[c].end());
        offsets[name].push_back(static_cast<std::int64_t>(values[name].size()));
      }
    }
  }

  column_views views() const {
    column_views all;
    for (auto const& [name, column] : numbers) all.numbers[name] = column;
    for (auto const& [name, column] : integers) all.integers[name] = column;
    for (auto const& [name, column] : values) all.lists[name] = {column, offsets.at(name)};
    return all;
  }
};

}  // namespace

TEST_CASE("memory_log: blocks of given samples") {
  tessera_tests::serial_host host;
  auto const exec = host.exec();
  std::mt19937_64 random(23);
  sample_tests::table_shape const shape{103};
  auto const samples = sample_tests::random_samples(random, shape);
  auto const columns = [&](bool with_session, bool with_time) {
    sample_columns result;
    sample_tests::fill(exec, sample_tests::schema_of(shape, with_session, with_time), samples, result);
    return result;
  };
  for (std::int64_t const block_rows : {std::int64_t{1}, std::int64_t{20}, std::int64_t{103}, std::numeric_limits<std::int64_t>::max()}) {
    memory_log const log(sample_tests::schema_of(shape), columns(true, true), block_rows);
    CHECK(log.block_count() == divide_up(103, block_rows));
    CHECK(sample_tests::read_all(exec, log) == samples);
    sample_columns out;
    CHECK(error_of([&] { log.read(exec, log.block_count(), out); }).code() == errc::out_of_range);
    CHECK(error_of([&] { log.read(exec, -1, out); }).value("block") == "-1");
  }
  // What the schema does not name stays unread.
  for (bool const with_session : {false, true})
    for (bool const with_time : {false, true}) {
      memory_log const log(sample_tests::schema_of(shape, with_session, with_time), columns(true, true), 50);
      auto expected = samples;
      for (auto& s : expected) {
        if (!with_session) s.session = 0;
        if (!with_time) s.time = 0;
      }
      CHECK(sample_tests::read_all(exec, log) == expected);
    }

  auto const refusal = [&](sample_schema const& wanted, sample_columns found) {
    return error_of([&] { memory_log(wanted, std::move(found)); });
  };
  auto const whole = sample_tests::schema_of(shape);
  CHECK(refusal(whole, columns(false, true)).code() == errc::shape_mismatch);
  CHECK(refusal(whole, columns(false, true)).value("column") == "session");
  CHECK(refusal(whole, columns(true, false)).value("column") == "time");
  CHECK(std::string(refusal(sample_schema{"label", {"x"}}, columns(true, true)).what()) ==
        "memory_log: samples with other columns than the schema's (columns dense, found 3, expected 1)");
  CHECK(error_of([&] { memory_log(whole, columns(true, true), 0); }).value("block_rows") == "0");
}

TEST_CASE("memory_log: what it owns, what a view shows, and columns of the caller are the same data set") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  tessera_tests::serial_host host;
  auto const exec = host.exec();
  sample_tests::suite_table const table(seed);
  sample_columns columns;
  sample_tests::fill(exec, table.schema, table.samples, columns);

  SUBCASE("a view") { sample_tests::check_sample_source(memory_log(table.schema, columns.view(), 20), table.samples); }
  SUBCASE("owned, moved, as a source of any kind") {
    memory_log log(table.schema, std::move(columns), 40);
    any_sample_source const moved(std::move(log));
    sample_tests::check_sample_source(moved, table.samples);
  }
  SUBCASE("vectors") {
    vectors const own(table.schema, table.samples);
    auto const allocations = host.memory().allocations();
    memory_log const log(table.schema, own.views(), 13);
    CHECK(host.memory().allocations() == allocations);
    sample_tests::check_sample_source(log, table.samples);
  }
  SUBCASE("tensors, dense ones as a matrix whose rows lie apart") {
    vectors const own(table.schema, table.samples);
    constexpr std::int64_t n = 103;
    std::vector<float> apart(5 * n, -1);
    for (std::int64_t i = 0; i < n; ++i) std::copy_n(own.dense.data() + 3 * i, 3, apart.data() + 5 * i);
    to_dlpack label(vector_view<float const>(own.numbers.at("label"))), weight(vector_view<float const>(own.numbers.at("weight"))),
        other(vector_view<float const>(own.numbers.at("l0"))), dense(matrix_view<float const>(apart.data(), n, 3, 5));
    std::map<std::string, dlpack::owned<>> ids;
    for (auto const* const group : {&own.integers, &own.values})
      for (auto const& [name, column] : *group) ids[name] = export_dlpack(column, vector_view<std::int64_t const>(column));
    auto const floats = [](to_dlpack& tensor) { return from_dlpack<vector_view<float const>>(*tensor.get()); };
    auto const integers = [&](char const* name) { return from_dlpack<vector_view<std::int64_t const>>(*ids.at(name)); };
    memory_log const log(
        table.schema,
        {.numbers = {{"label", floats(label)}, {"weight", floats(weight)}, {"l0", floats(other)}},
         .integers = {{"session", integers("session")}, {"time", integers("time")}, {"s2", integers("s2")}, {"s3", integers("s3")}},
         .lists = {{"s0", {integers("s0"), own.offsets.at("s0")}}, {"s1", {integers("s1"), own.offsets.at("s1")}}},
         .dense = from_dlpack<matrix_view<float const>>(*dense.get())},
        50);
    sample_tests::check_sample_source(log, table.samples);
  }
}

TEST_CASE("memory_log: shows what the caller has written, without a copy") {
  tessera_tests::serial_host host;
  std::vector<float> labels{0, 1, 0};
  std::vector<std::int64_t> items{5, 6, 7}, values{1, 2, 3}, offsets{0, 1, 1, 3};
  sample_schema const schema{.label = "label", .sparse = {"list", "item"}, .single = {"item"}};
  memory_log const log(schema, {.numbers = {{"label", labels}}, .integers = {{"item", items}}, .lists = {{"list", {values, offsets}}}});
  items[1] = missing_id;
  values[2] = 9;
  sample_columns out;
  log.read(host.exec(), 0, out);
  CHECK(out.view().sparse[1].row(1)[0] == missing_id);
  CHECK(out.view().sparse[0].row(2)[1] == 9);
  CHECK(out.view().sparse[0].length(1) == 0);
}

TEST_CASE("memory_log: columns that do not fit the schema are refused by name") {
  sample_tests::suite_table const table(7);
  vectors const own(table.schema, table.samples);
  auto const refusal = [&](auto const& change) {
    auto views = own.views();
    change(views);
    return std::string(error_of([&] { memory_log(table.schema, views); }).what());
  };
  for (auto const* const name : {"label", "d1", "weight", "l0"})
    CHECK(refusal([&](column_views& v) { v.numbers.erase(name); }) ==
          "memory_log: no such column of this kind (column " + std::string(name) + ")");
  for (auto const* const name : {"session", "time", "s2"})
    CHECK(refusal([&](column_views& v) { v.integers.erase(name); }).ends_with("(column " + std::string(name) + ")"));
  CHECK(refusal([](column_views& v) { v.lists.erase("s1"); }).ends_with("(column s1)"));
  CHECK(refusal([](column_views& v) { --v.numbers["d2"].count; }) ==
        "memory_log: a column of another number of samples than the label's (column d2, samples 102, expected 103)");
  CHECK(refusal([](column_views& v) { --v.integers["s3"].count; }).ends_with("(column s3, samples 102, expected 103)"));
  CHECK(refusal([](column_views& v) { --v.lists["s0"].offsets.count; }).ends_with("(column s0, samples 102, expected 103)"));
  CHECK(refusal([](column_views& v) {
          v.lists["s0"].values.count = 3;
        }).starts_with("memory_log: jagged: offsets reach past the values (column s0"));
  auto falling = own.offsets.at("s1");
  std::swap(falling[50], falling[60]);
  CHECK(refusal([&](column_views& v) { v.lists["s1"].offsets = falling; }).starts_with("memory_log: jagged: offsets decrease (column s1"));
  CHECK(refusal([&](column_views& v) {
          v.dense = {own.dense.data(), 103, 2};
        }) == "memory_log: samples with other columns than the schema's (columns dense, found 2, expected 3)");
  CHECK(refusal([&](column_views& v) { v.dense = {own.dense.data(), 102, 3}; }).ends_with("(column dense, samples 102, expected 103)"));

  tessera_tests::serial_host host;
  sample_columns columns;
  sample_tests::fill(host.exec(), table.schema, table.samples, columns);
  auto wanted = table.schema;
  wanted.single = {"s3"};
  CHECK(error_of([&] { memory_log(wanted, columns.view()); }).value("column") == "s2");
}

}  // namespace memory_log_test
