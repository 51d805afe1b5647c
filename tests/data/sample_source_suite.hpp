// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include <tessera/core/thread_team.hpp>
#include <tessera/data/sample_reader.hpp>
#include <tessera/data/sample_source.hpp>

#include "sample_support.hpp"

/// What every model of `sample_source` promises. A file that uses it has `// ctest-labels: threads`.
///
///     auto const table = sample_tests::suite_table(seed);
///     my_log const log(…);  // of table.samples, with the columns of table.schema
///     sample_tests::check_sample_source(log, table.samples);
namespace sample_tests {

/// Samples with all that a table may have: missing numbers, missing single ids, empty lists, ids of either sign, sessions, times, weights, and a
/// label of a further task.
struct suite_table {
  explicit suite_table(std::uint64_t seed, table_shape shape = {.rows = 103, .single = 2, .other_labels = 1, .weights = true})
      : schema(schema_of(shape)) {
    std::mt19937_64 random(seed);
    samples = random_samples(random, shape);
  }

  tessera::sample_schema schema;
  std::vector<sample> samples;
};

namespace suite {

/// A source that somebody else owns.
template <tessera::sample_source Source>
struct shown {
  Source const* source;

  tessera::sample_schema const& schema() const { return source->schema(); }
  std::int64_t block_count() const { return source->block_count(); }
  std::int64_t rows() const { return source->rows(); }
  std::int64_t rows(std::int64_t block) const { return source->rows(block); }
  std::int64_t first_row(std::int64_t block) const { return source->first_row(block); }
  void read(tessera::host_exec const& exec, std::int64_t block, tessera::sample_columns& out) const { source->read(exec, block, out); }
};

using source = tessera::any_sample_source;  // so that what follows is compiled once

inline std::vector<sample> block_of(std::vector<sample> const& all, source const& log, std::int64_t block) {
  auto const first = all.begin() + log.first_row(block);
  return {first, first + log.rows(block)};
}

inline void check_columns(tessera::host_exec const& exec, source const& log) {
  tessera::check_schema("suite", log.schema());
  tessera::sample_columns columns;
  for (std::int64_t block = 0; block < log.block_count(); ++block) {
    log.read(exec, block, columns);
    CHECK(columns.has_columns_of(log.schema()));
    auto const view = columns.view();
    for (std::int64_t c = 0; c < view.sparse.size(); ++c) {
      bool const single = log.schema().is_single(log.schema().sparse[static_cast<std::size_t>(c)]);
      CHECK(view.single(c) == single);
      bool one_each = true;
      for (std::int64_t i = 0; single && i < view.size(); ++i) one_each = one_each && view.sparse[c].length(i) == 1;
      CHECK(one_each);
    }
  }
}

// Blocks again and again, into columns that hold other blocks, and by two threads.
inline void check_any_order(tessera::host_exec const& exec, source const& log, std::vector<sample> const& expected) {
  std::mt19937_64 random(1);
  std::vector<std::int64_t> order;
  for (int round = 0; round < 2; ++round)
    for (std::int64_t block = 0; block < log.block_count(); ++block) order.push_back(block);
  std::shuffle(order.begin(), order.end(), random);
  tessera::thread_pool pool(2);
  tessera::system_memory memory;
  tessera::host_exec const two(pool, memory);
  tessera::sample_columns kept, of_two;
  for (auto const block : order) {
    auto const wanted = block_of(expected, log, block);
    log.read(exec, block, kept);
    CHECK(samples_of(kept.view()) == wanted);
    log.read(two, block, of_two);
    CHECK(samples_of(of_two.view()) == wanted);
  }
}

inline void check_parts(source const& log) {
  for (std::int64_t const parts : {std::int64_t{1}, std::int64_t{2}, std::int64_t{3}, log.block_count() + 2}) {
    std::int64_t next = 0, rows = 0;
    for (std::int64_t part = 0; part < parts; ++part) {
      auto const blocks = tessera::part_of(log, part, parts);
      CHECK(blocks.first == next);
      next += blocks.count;
      rows += tessera::rows_of(log, blocks);
    }
    CHECK(next == log.block_count());
    CHECK(rows == log.rows());
  }
}

// What a reader gives of each sample, in the order of the data set: missing numbers are 0, missing ids are none.
inline void check_batches(tessera::host_exec const& exec, source const& log, std::vector<sample> const& expected) {
  tessera::sample_reader reader(exec, log, {.batch_size = 10});
  CHECK(reader.keys() == log.schema().sparse);
  std::vector<sample> found;
  for (tessera::batch_view batch; reader.next(exec, batch);)
    for (std::int64_t i = 0; i < batch.samples(); ++i) {
      CHECK(batch.sample_ids[i] == static_cast<std::int64_t>(found.size()));
      auto& s = found.emplace_back();
      s.label = std::bit_cast<std::uint32_t>(batch.labels[i]);
      for (std::int64_t c = 0; c < batch.dense.columns(); ++c) s.dense.push_back(std::bit_cast<std::uint32_t>(batch.dense(i, c)));
      for (std::int64_t k = 0; k < batch.sparse.keys; ++k) {
        auto const row = batch.sparse.key(k).row(i);
        s.sparse.emplace_back(row.begin(), row.end());
      }
      if (!batch.session_ids.empty()) s.session = batch.session_ids[i];
      if (!batch.weights.empty()) s.weight = std::bit_cast<std::uint32_t>(batch.weights[i]);
      for (std::int64_t c = 0; c < batch.other_labels.columns(); ++c)
        s.other_labels.push_back(std::bit_cast<std::uint32_t>(batch.other_labels(i, c)));
    }
  auto wanted = expected;
  for (auto& s : wanted) {
    s.time = 0;
    for (auto& x : s.dense)
      if (std::isnan(std::bit_cast<float>(x))) x = 0;
    for (std::size_t c = 0; c < s.sparse.size(); ++c)
      if (log.schema().is_single(log.schema().sparse[c]) && s.sparse[c][0] == tessera::missing_id) s.sparse[c].clear();
  }
  CHECK(found == wanted);

  tessera::sample_reader shuffled(exec, log, {.batch_size = 7, .order = tessera::sample_order::samples});
  std::vector<std::int64_t> ids, all(expected.size());
  for (tessera::batch_view batch; shuffled.next(exec, batch);) ids.insert(ids.end(), batch.sample_ids.begin(), batch.sample_ids.end());
  std::sort(ids.begin(), ids.end());
  std::iota(all.begin(), all.end(), std::int64_t{0});
  CHECK(ids == all);
}

inline void check(source const& log, std::vector<sample> const& expected) {
  plain_host h;
  CHECK(read_all(h.exec, log) == expected);
  check_columns(h.exec, log);
  check_any_order(h.exec, log, expected);
  check_parts(log);
  check_batches(h.exec, log, expected);
}

}  // namespace suite

/// `expected`: the samples that the source is to give, in their order.
template <tessera::sample_source Source>
void check_sample_source(Source const& source, std::vector<sample> const& expected) {
  suite::check(suite::source(suite::shown<Source>{&source}), expected);
}

}  // namespace sample_tests
