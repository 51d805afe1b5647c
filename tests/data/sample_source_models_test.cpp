// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-labels: threads
#include <doctest/doctest.h>

#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <tessera/data/delimited_log.hpp>
#include <tessera/data/delimited_writer.hpp>
#include <tessera/data/derived_columns.hpp>
#include <tessera/data/picked_samples.hpp>
#include <tessera/data/sampled_blocks.hpp>

#include "random.hpp"
#include "sample_source_suite.hpp"
#include "session_source.hpp"
#include "temporary_folder.hpp"

using namespace sample_tests;

namespace sample_source_models_test {

namespace {

// Writes the samples, and reads them in blocks of some rows.
tessera::delimited_log as_text(tessera::host_exec const& exec, suite_table const& table, std::string const& path, char delimiter) {
  tessera::delimited_layout const layout{.delimiter = delimiter, .header = true, .ids = tessera::id_format::decimal};
  tessera::sample_columns columns;
  fill(exec, table.schema, table.samples, columns);
  tessera::delimited_writer out(path, table.schema, layout);
  out.append(exec, columns.view());
  out.close();
  return {exec, {path}, table.schema, layout, {.block_bytes = 2000}};
}

}  // namespace

TEST_CASE(
    "sample_source: text with tabs or commas, sources with columns derived, parts of a source, sources of any kind and of one's own") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  plain_host h;
  tessera_tests::temporary_folder const folder;
  suite_table const table(seed);
  sample_list const own(table.schema, table.samples, 10);
  SUBCASE("tabs") { check_sample_source(as_text(h.exec, table, folder.file("log.tsv"), '\t'), table.samples); }
  SUBCASE("commas, as a source of any kind") {
    check_sample_source(tessera::any_sample_source(as_text(h.exec, table, folder.file("log.csv"), ',')), table.samples);
  }
  SUBCASE("derived columns") {
    auto expected = table.samples;
    for (auto& s : expected) {
      auto both = s.sparse[0];
      both.insert(both.end(), s.sparse[1].begin(), s.sparse[1].end());
      s.sparse.push_back(both);
    }
    check_sample_source(tessera::derived_columns(own, {tessera::combined_columns{"both", {"s0", "s1"}}}), expected);
  }
  SUBCASE("blocks drawn") {
    tessera::sampled_blocks const drawn(own, {.percent = 40, .seed = tessera::random_seed{seed}});
    std::vector<sample> expected;
    for (std::int64_t block = 0; block < drawn.block_count(); ++block) {
      auto const first = table.samples.begin() + own.first_row(drawn.block_of(block));
      expected.insert(expected.end(), first, first + drawn.rows(block));
    }
    check_sample_source(drawn, expected);
  }
  SUBCASE("samples of a class") {
    std::mt19937_64 random(seed);
    tessera::sample_classes classes(own.rows());
    std::vector<sample> hot, cold;
    for (std::int64_t i = 0; i < own.rows(); ++i) {
      bool const is_hot = i / 10 != 3 && random() % 3 != 0;  // a block without hot ones
      if (is_hot) classes.set_hot(i);
      (is_hot ? hot : cold).push_back(table.samples[static_cast<std::size_t>(i)]);
    }
    check_sample_source(tessera::picked_samples(own, classes, tessera::batch_class::hot), hot);
    check_sample_source(tessera::picked_samples(own, classes, tessera::batch_class::cold), cold);
  }
  SUBCASE("one's own") { check_sample_source(own, table.samples); }
}

}  // namespace sample_source_models_test
