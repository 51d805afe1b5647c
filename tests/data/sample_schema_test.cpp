// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <tessera/data/sample_schema.hpp>
#include <tessera/data/sample_source.hpp>

#include <algorithm>
#include <string>
#include <vector>

#include <hosts.hpp>
#include <temporary_folder.hpp>

#include "sample_support.hpp"

using tessera::sample_schema;
using tessera_tests::error_of;

namespace sample_schema_test {

namespace {

/// Blocks of these sizes, of labels that count the rows.
struct counted_rows {
  std::vector<std::int64_t> sizes;
  sample_schema columns{.label = "label"};

  sample_schema const& schema() const { return columns; }
  std::int64_t block_count() const { return static_cast<std::int64_t>(sizes.size()); }
  std::int64_t rows() const { return first_row(block_count()); }
  std::int64_t rows(std::int64_t block) const { return sizes[static_cast<std::size_t>(block)]; }
  std::int64_t first_row(std::int64_t block) const {
    std::int64_t sum = 0;
    for (std::int64_t b = 0; b < block; ++b) sum += rows(b);
    return sum;
  }
  void read(tessera::host_exec const& exec, std::int64_t block, tessera::sample_columns& out) const {
    out = tessera::sample_columns(columns);
    out.resize(exec, rows(block));
    for (std::int64_t i = 0; i < rows(block); ++i) out.labels()[i] = static_cast<float>(first_row(block) + i);
  }
};

}  // namespace

TEST_CASE("check_schema: each column has a name and one role") {
  auto const refusal = [](sample_schema const& schema) {
    auto const e = error_of([&] { tessera::check_schema("caller", schema); });
    CHECK(e.code() == tessera::errc::invalid_argument);
    return std::string(e.what());
  };
  CHECK(refusal({.label = ""}) == "caller: a schema without a label (column )");
  CHECK(refusal({.label = "l", .dense = {""}}) == "caller: a column without a name (column )");
  CHECK(refusal({.label = "l", .dense = {"a", "b", "a"}}) == "caller: a column twice (column a)");
  CHECK(refusal({.label = "l", .sparse = {"a", "l"}}) == "caller: a column twice (column l)");
  CHECK(refusal({.label = "l", .dense = {"s"}, .session = "s"}) == "caller: a column twice (column s)");
  CHECK(refusal({.label = "l", .session = "s", .time = "s"}) == "caller: a column twice (column s)");
  CHECK(refusal({.label = "l", .weight = "l"}) == "caller: a column twice (column l)");
  CHECK(refusal({.label = "l", .other_labels = {"l"}}) == "caller: a column twice (column l)");
  CHECK(refusal({.label = "l", .sparse = {"a"}, .single = {"b"}}) == "caller: a single column that is not sparse (column b)");
  // The numbers of a column, and the same integers as ids.
  CHECK_NOTHROW(tessera::check_schema("caller", {.label = "l", .dense = {"a"}, .sparse = {"a"}, .single = {"a"}}));
}

TEST_CASE("part_of: parts have every block once, in order, near their share") {
  for (std::vector<std::int64_t> const& sizes :
       {std::vector<std::int64_t>{}, {5}, {1, 1, 1, 1, 1, 1, 1}, {100, 1, 1, 1}, {1, 1, 1, 100}, {3, 8, 2, 9, 4, 4, 7, 1}}) {
    counted_rows const source{sizes};
    for (std::int64_t parts : {1, 2, 3, 5, 20}) {
      std::int64_t next = 0;
      auto const largest = sizes.empty() ? 0 : *std::max_element(sizes.begin(), sizes.end());
      for (std::int64_t part = 0; part < parts; ++part) {
        auto const blocks = tessera::part_of(source, part, parts);
        CHECK(blocks.first == next);
        next += blocks.count;
        auto const rows = source.first_row(next) - source.first_row(blocks.first);
        CHECK(std::abs(rows * parts - source.rows()) <= (largest + 1) * parts);
      }
      CHECK(next == source.block_count());
    }
  }
  auto const e = error_of([] { tessera::part_of(counted_rows{{1}}, 2, 2); });
  CHECK(e.code() == tessera::errc::out_of_range);
  CHECK(e.value("part") == "2");
}

TEST_CASE("any_sample_source: what the wrapped source has") {
  tessera_tests::serial_host h;
  tessera::any_sample_source const source(counted_rows{{3, 2}});
  CHECK(sample_tests::read_all(h.exec(), source) == sample_tests::read_all(h.exec(), counted_rows{{3, 2}}));
  CHECK(source.schema() == sample_schema{.label = "label"});
  CHECK(source.fingerprint() == 0);
  CHECK(source.file_of(0).empty());
}

}  // namespace sample_schema_test
