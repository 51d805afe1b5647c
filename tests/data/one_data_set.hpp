// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <tessera/data/delimited_log.hpp>
#include <tessera/data/delimited_writer.hpp>
#include <tessera/data/memory_log.hpp>
#include <tessera/data/parquet_log.hpp>
#include <tessera/data/parquet_writer.hpp>
#include <tessera/data/preprocessing_fit.hpp>
#include <tessera/data/sample_source.hpp>

#include "sample_source_suite.hpp"
#include "temporary_folder.hpp"

namespace sample_tests {

// The samples in files of each kind and in memory, which have blocks of different sizes.
struct data_set {
  tessera_tests::temporary_folder folder{};
  tessera::sample_schema schema;
  std::vector<sample> samples;
  std::vector<tessera::any_sample_source> sources{};

  data_set(tessera::host_exec const& exec, suite_table table) : schema(std::move(table.schema)), samples(std::move(table.samples)) {
    tessera::sample_columns columns;
    fill(exec, schema, samples, columns);
    for (char const delimiter : {'\t', ','}) {
      tessera::delimited_layout const layout{.delimiter = delimiter, .header = true, .ids = tessera::id_format::decimal};
      auto const path = folder.file(delimiter == ',' ? "log.csv" : "log.tsv");
      tessera::delimited_writer out(path, schema, layout);
      out.append(exec, columns.view());
      out.close();
      sources.emplace_back(tessera::delimited_log(exec, {path}, schema, layout, {.block_bytes = delimiter == ',' ? 1500 : 4000}));
    }
    tessera::parquet_writer out(folder.file("log.parquet"), schema, {.row_group_rows = 30});
    out.write(exec, columns.view());
    out.finish();
    sources.emplace_back(tessera::parquet_log({folder.file("log.parquet")}, schema));
    sources.emplace_back(tessera::memory_log(schema, std::move(columns), 64));
  }
};

/// Samples with columns of all kinds, and what is made of them.
inline constexpr table_shape mixed_shape{.rows = 300, .sparse = 5, .single = 2, .other_labels = 1, .weights = true};
inline tessera::preprocessing unfitted_of(tessera::sample_schema const& schema) {
  using namespace tessera;
  return tessera::preprocessing(
      schema,
      {{.columns = {"d0"}, .steps = {log_values{}, standardise{}}}, {.columns = {"d1"}, .steps = {bucketise{{}, 5}, indicate_missing{}}}},
      {{.columns = {"s0"}, .steps = {truncate_ids{.most = 3}, hash_ids{.size = 50}}},
       {.columns = {"s1", "s3"}, .steps = {vocabulary{.min_count = 2}}, .share = "both"},
       {.columns = {"s4"}, .steps = {vocabulary{.limit = 20}}}});
}

/// What a fit to a source gives.
inline tessera::preprocessing fitted_to(tessera::host_exec const& exec, tessera::any_sample_source const& source,
                                        tessera::preprocessing const& unfitted) {
  tessera::preprocessing_fit fit(unfitted);
  tessera::sample_columns block;
  for (std::int64_t b = 0; b < source.block_count(); ++b) {
    source.read(exec, b, block);
    fit.add(exec, block.view());
  }
  return std::move(fit).finish(exec);
}

}  // namespace sample_tests
