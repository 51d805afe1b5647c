// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-labels: threads
#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <tessera/core/memory.hpp>
#include <tessera/data/memory_log.hpp>
#include <tessera/data/preprocessing_fit.hpp>
#include <tessera/data/sample_reader.hpp>
#include <tessera/tensor/expand.hpp>

#include "hosts.hpp"
#include "random.hpp"
#include "sample_source_suite.hpp"
#include "temporary_folder.hpp"

// What batches have beside the order of their samples: numbers, single ids, pipelines of keys, sizes.
namespace sample_reader_features_test {

namespace {

using namespace tessera;
using sample_tests::suite_table;
using sample_tests::table_shape;
using tessera_tests::error_of;

constexpr auto every_order = {sample_order::stored, sample_order::samples, sample_order::sessions};

memory_log log_of(host_exec const& exec, suite_table const& table, std::int64_t block_rows) {
  sample_columns columns;
  sample_tests::fill(exec, table.schema, table.samples, columns);
  return {table.schema, std::move(columns), block_rows};
}

// Doubles ids, and gives missing ones the id -7; in place.
struct doubled {
  inverse_keyed_jagged<> operator()(host_exec const&, inverse_keyed_jagged<>&& batch) const {
    for (auto& id : batch.view().distinct.flat().all_values()) id = id == missing_id ? -7 : id < (1 << 20) && id > 0 ? 2 * id : 0;
    return std::move(batch);
  }
};

// As a preprocessing: bound to keys, of which it drops some; numbers times ten, for each column one, missing ones -1.
struct fake_preprocessing {
  static constexpr bool takes_missing = true;

  struct numbers {
    std::vector<std::string> names;
    std::vector<std::string> const& columns() const { return names; }
    std::int64_t features() const { return 2; }
    void operator()(host_exec const&, matrix_view<float const> columns, std::int64_t first, std::int64_t count,
                    matrix_view<float> out) const {
      for (std::int64_t i = 0; i < count; ++i) write(columns, first + i, out.row(i));
    }
    void operator()(host_exec const&, matrix_view<float const> columns, vector_view<std::int64_t const> rows,
                    matrix_view<float> out) const {
      for (std::int64_t i = 0; i < rows.size(); ++i) write(columns, rows[i], out.row(i));
    }
    static void write(matrix_view<float const> columns, std::int64_t row, float* out) {
      for (std::int64_t c = 0; c < 2; ++c) out[c] = std::isnan(columns(c, row)) ? -1 : 10 * columns(c, row);
    }
  };
  struct bound : doubled {
    std::vector<std::string> kept;
    std::vector<std::string> const& keys() const { return kept; }
  };

  std::set<std::string> drops;
  numbers of_numbers;
  numbers const& dense() const { return of_numbers; }
  bound of_keys(std::vector<std::string> const& keys) const {
    bound result;
    for (auto const& key : keys)
      if (drops.count(key) == 0) result.kept.push_back(key);
    return result;
  }
};

struct expected_row {
  std::vector<std::int64_t> lists;  // of all keys, each behind its length
  friend bool operator==(expected_row const&, expected_row const&) = default;
};

expected_row row_of(batch_view const& batch, std::int64_t i) {
  expected_row row;
  auto const all = batch.inverse_keyed();
  for (std::int64_t k = 0; k < batch.sparse.keys; ++k) {
    auto const inverse = all.inverse(k);
    auto const list = batch.sparse.key(k).row(inverse.empty() ? i : inverse[i]);
    row.lists.push_back(list.size());
    row.lists.insert(row.lists.end(), list.begin(), list.end());
  }
  return row;
}

}  // namespace

TEST_CASE("sample_reader: keys of single ids, of lists and of both, missing ids kept for the pipeline or left out") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  tessera_tests::for_each_host([&](host_exec const& exec, tessera_tests::counting_memory&) {
    for (std::int64_t const single : {0, 2, 4}) {
      CAPTURE(single);
      suite_table const table(seed, {.rows = 650, .mean_ids = 2, .sessions = 40, .single = single});
      auto const log = log_of(exec, table, 300);
      fake_preprocessing const keeps{{}, {table.schema.dense}};
      doubled const leaves_out;
      auto const check = [&](auto const& pipeline, bool takes_missing, sample_reader_options const& options) {
        sample_reader reader(exec, log, pipeline, options);
        std::int64_t wrong = 0, samples = 0;
        for (batch_view batch; reader.next(exec, batch); samples += batch.samples()) {
          CHECK(batch.key_names.size() == batch.sparse.keys);
          validate(batch.sparse, batch.sparse.size());
          for (std::int64_t i = 0; i < batch.samples(); ++i) {
            auto const& s = table.samples[static_cast<std::size_t>(batch.sample_ids[i])];
            expected_row expected;
            for (auto const& name : batch.key_names) {
              auto const column = std::find(table.schema.sparse.begin(), table.schema.sparse.end(), name) - table.schema.sparse.begin();
              auto list = s.sparse[static_cast<std::size_t>(column)];
              if (!takes_missing && table.schema.is_single(name) && list[0] == missing_id) list.clear();
              for (auto& id : list) id = id == missing_id ? -7 : id < (1 << 20) && id > 0 ? 2 * id : 0;
              expected.lists.push_back(static_cast<std::int64_t>(list.size()));
              expected.lists.insert(expected.lists.end(), list.begin(), list.end());
            }
            wrong += row_of(batch, i) != expected;
          }
        }
        CHECK(wrong == 0);
        CHECK(samples == 650);
      };
      for (auto const order : every_order)
        for (std::int64_t const batch_size : {1, 50, 520}) {
          if (batch_size == 1 && order != sample_order::samples) continue;
          for (bool const has_groups : {false, true}) {
            sample_reader_options options{.batch_size = batch_size, .order = order, .seed = random_seed{seed}};
            if (has_groups) options.groups = {{"s3", "s0"}, {"s2"}};
            check(keeps, true, options);
            check(leaves_out, false, options);
          }
        }
    }
  });
}

TEST_CASE("sample_reader: labels, weights, labels of further tasks and numbers of each sample") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  tessera_tests::pool_host<2> host;
  auto const exec = host.exec();
  suite_table const table(seed, {.rows = 700, .other_labels = 2, .weights = true});
  auto const log = log_of(exec, table, 300);
  fake_preprocessing const tenfold{{}, {table.schema.dense}};
  auto const bits = [](float x) { return std::bit_cast<std::uint32_t>(x); };
  for (auto const order : every_order)
    for (std::int64_t const batch_size : {50, 320}) {
      sample_reader_options const options{.batch_size = batch_size, .order = order};
      sample_reader plain(exec, log, options);
      sample_reader piped(exec, log, tenfold, options);
      std::int64_t wrong = 0;
      batch_view batch, other;
      while (plain.next(exec, batch)) {
        REQUIRE(piped.next(exec, other));
        CHECK(batch.dense.columns() == 3);
        CHECK(other.dense.columns() == 2);
        CHECK(batch.weights.size() == batch.samples());
        CHECK(batch.other_labels.columns() == 2);
        for (std::int64_t i = 0; i < batch.samples(); ++i) {
          auto const& s = table.samples[static_cast<std::size_t>(batch.sample_ids[i])];
          wrong += bits(batch.labels[i]) != s.label || bits(batch.weights[i]) != s.weight || batch.session_ids[i] != s.session;
          for (std::int64_t c = 0; c < 2; ++c) wrong += bits(batch.other_labels(i, c)) != s.other_labels[static_cast<std::size_t>(c)];
          for (std::int64_t c = 0; c < 3; ++c) {
            auto const stored = std::bit_cast<float>(s.dense[static_cast<std::size_t>(c)]);
            wrong += batch.dense(i, c) != (std::isnan(stored) ? 0 : stored);
            if (c < 2) wrong += other.dense(i, c) != (std::isnan(stored) ? -1 : 10 * stored);
          }
        }
      }
      CHECK(wrong == 0);
    }

  sample_schema const bare{"label", {}, {"s0"}};
  memory_log const without(bare, sample_columns(bare));
  suite_table const few(seed, {.rows = 5, .dense = 0, .sparse = 0});
  auto const labels_alone = log_of(exec, few, 5);
  sample_reader reader(exec, labels_alone);
  batch_view batch;
  REQUIRE(reader.next(exec, batch));
  CHECK(batch.samples() == 5);
  CHECK(batch.sparse.keys == 0);
  CHECK(batch.weights.empty());
  CHECK(batch.other_labels.rows() == 0);
  CHECK(batch.key_names.empty());
}

TEST_CASE("sample_reader: keys that a pipeline drops are not read, and a group without keys is none") {
  tessera_tests::serial_host host;
  auto const exec = host.exec();
  suite_table const table(5, {.rows = 60, .single = 1});
  auto const log = log_of(exec, table, 60);
  auto const keys_of = [&](std::set<std::string> drops, std::vector<std::vector<std::string>> groups, std::size_t groups_left) {
    fake_preprocessing const pipeline{std::move(drops), {table.schema.dense}};
    sample_reader reader(exec, log, pipeline, {.batch_size = 60, .groups = std::move(groups)});
    batch_view batch;
    REQUIRE(reader.next(exec, batch));
    CHECK(batch.groups.size() == static_cast<std::int64_t>(groups_left));
    CHECK(batch.sparse.keys == static_cast<std::int64_t>(reader.keys().size()));
    CHECK(std::equal(batch.key_names.begin(), batch.key_names.end(), reader.keys().begin(), reader.keys().end()));
    return reader.keys();
  };
  using names = std::vector<std::string>;
  CHECK(keys_of({}, {}, 0) == names{"s0", "s1", "s2", "s3"});
  CHECK(keys_of({"s1"}, {}, 0) == names{"s0", "s2", "s3"});
  CHECK(keys_of({"s0", "s2"}, {{"s3", "s2"}, {"s0"}}, 1) == names{"s3", "s1"});
  CHECK(keys_of({"s0", "s1", "s2", "s3"}, {{"s3", "s2"}}, 0).empty());

  fake_preprocessing const other{{}, {{"d0", "d2", "d1"}}};
  auto const refusal = error_of([&] { sample_reader(exec, log, other); });
  CHECK(refusal.code() == errc::shape_mismatch);
  CHECK(std::string(refusal.what()) == "sample_reader: a pipeline of other dense columns (column 1, name d1, name in the pipeline d2)");
}

TEST_CASE("sample_reader: with a fitted preprocessing, what it makes of each sample, deduplicated or not") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  tessera_tests::pool_host<2> host;
  auto const exec = host.exec();
  suite_table table(seed, {.rows = 400, .mean_ids = 2, .single = 2});
  for (auto& s : table.samples) s.dense[1] = std::bit_cast<std::uint32_t>(std::numeric_limits<float>::quiet_NaN());  // nowhere: dropped
  auto const log = log_of(exec, table, 150);
  preprocessing const unfitted(table.schema, {{.columns = {"d0"}, .steps = {log_values{}, indicate_missing{}}}},
                               {{.columns = {"s1"}, .steps = {truncate_ids{.most = 1}}}, {.steps = {vocabulary{}}}});
  preprocessing_fit fit(unfitted);
  sample_columns block;
  for (std::int64_t b = 0; b < log.block_count(); ++b) {
    log.read(exec, b, block);
    fit.add(exec, block.view());
  }
  auto const prepare = std::move(fit).finish(exec);
  REQUIRE(prepare.dropped() == std::vector<std::string>{"d1"});

  // Numbers of ids in the order of their first appearance, as a vocabulary has them.
  std::vector<std::map<std::int64_t, std::int64_t>> numbers(4);
  for (auto const& s : table.samples)
    for (std::size_t c = 0; c < 4; ++c)
      for (auto const id : s.sparse[c])
        if (c < 2 || id != missing_id) numbers[c].emplace(id, 2 + static_cast<std::int64_t>(numbers[c].size()));
  for (bool const has_groups : {false, true}) {
    sample_reader_options options{.batch_size = 64, .order = sample_order::samples};
    if (has_groups) options.groups = {{"s3", "s1"}, {"s0"}};
    sample_reader reader(exec, log, prepare, options);
    std::int64_t wrong = 0, samples = 0;
    for (batch_view batch; reader.next(exec, batch); samples += batch.samples()) {
      REQUIRE(batch.dense.columns() == 3);  // d0, whether it is missing, d2
      for (std::int64_t i = 0; i < batch.samples(); ++i) {
        auto const& s = table.samples[static_cast<std::size_t>(batch.sample_ids[i])];
        auto const d0 = std::bit_cast<float>(s.dense[0]), d2 = std::bit_cast<float>(s.dense[2]);
        wrong += batch.dense(i, 0) != doctest::Approx(std::isnan(d0) ? 0 : std::log1p(std::max(d0, 0.0F)));
        wrong += batch.dense(i, 1) != (std::isnan(d0) ? 1.0F : 0.0F) || batch.dense(i, 2) != (std::isnan(d2) ? 0 : d2);
        expected_row expected;
        for (auto const& name : batch.key_names) {
          auto const c = static_cast<std::size_t>(name[1] - '0');
          auto list = s.sparse[c];
          if (c == 1)
            list.erase(list.begin(), list.end() - std::min<std::ptrdiff_t>(1, static_cast<std::ptrdiff_t>(list.size())));
          else
            for (auto& id : list) id = c >= 2 && id == missing_id ? 1 : numbers[c].at(id);
          expected.lists.push_back(static_cast<std::int64_t>(list.size()));
          expected.lists.insert(expected.lists.end(), list.begin(), list.end());
        }
        wrong += row_of(batch, i) != expected;
      }
    }
    CHECK(wrong == 0);
    CHECK(samples == 400);
  }
}

TEST_CASE("sample_reader: a pipeline that changes samples or keys is refused") {
  struct empty {
    inverse_keyed_jagged<> operator()(host_exec const&, inverse_keyed_jagged<>) const { return {}; }
  };
  tessera_tests::serial_host host;
  suite_table const table(5);
  auto const log = log_of(host.exec(), table, 60);
  empty const pipeline;
  sample_reader reader(host.exec(), log, pipeline, {.batch_size = 7});
  batch_view batch;
  auto const refusal = error_of([&] { reader.next(host.exec(), batch); });
  CHECK(refusal.code() == errc::shape_mismatch);
  CHECK(refusal.value("expected samples") == "7");
  CHECK(reader.position() == reader_position{});
}

TEST_CASE("sample_reader: batches of single ids take no memory once the reader has what it needs, and may be kept by a pipeline") {
  tessera_tests::serial_host host;
  auto const exec = host.exec();
  suite_table const table(6, {.rows = 500, .sparse = 5, .single = 5});
  auto const log = log_of(exec, table, 200);
  {
    fake_preprocessing const pipeline{{}, {table.schema.dense}};
    sample_reader reader(exec, log, pipeline, {.batch_size = 64, .order = sample_order::samples, .last_batch = short_batch::drop});
    std::set<std::int64_t const*> ids, offsets;
    batch_view batch;
    for (int epoch = 0; epoch < 3; ++epoch)
      while (reader.next(exec, batch)) {
        ids.insert(batch.sparse.values);
        offsets.insert(batch.sparse.offsets);
      }
    CHECK(ids.size() == 1);
    CHECK(offsets.size() == 1);
    auto moved = std::move(reader);  // the last batch's memory with it
    REQUIRE(moved.next(exec, batch));
    CHECK(batch.sparse.values == *ids.begin());
  }
  struct keeping {
    std::vector<inverse_keyed_jagged<>>* kept;
    inverse_keyed_jagged<> operator()(host_exec const& exec, inverse_keyed_jagged<>&& batch) const {
      std::vector<std::int64_t> const lengths(static_cast<std::size_t>(batch.view().distinct.rows()), 2);
      std::vector<std::int64_t> const rows(5, batch.samples());
      kept->push_back(std::move(batch));
      auto made = keyed_jagged<>::with_lengths(exec, lengths, rows);
      std::fill_n(made.view().values, made.room(), 3);
      return inverse_keyed_jagged<>::from_parts(std::move(made), {}, {}, rows[0]);
    }
  };
  // All ids are there, so that rows are of one id each without `takes_missing`.
  auto full = table;
  for (auto& s : full.samples)
    for (auto& list : s.sparse) list[0] = 11;
  auto const full_log = log_of(exec, full, 200);
  std::vector<inverse_keyed_jagged<>> kept;
  keeping const pipeline{&kept};
  sample_reader reader(exec, full_log, pipeline, {.batch_size = 100});
  for (batch_view batch; reader.next(exec, batch);) CHECK(batch.sparse.key(4).length(99) == 2);
  REQUIRE(kept.size() == 5);
  for (auto const& batch : kept) {
    validate(batch.view(), 500);
    CHECK(batch.view().distinct.size() == 500);
    for (auto const id : batch.view().distinct.flat().all_values()) CHECK(id == 11);
  }
  kept.clear();
}

TEST_CASE("sample_reader: the last batch of an epoch is kept or dropped, and a position at the end goes on alike") {
  tessera_tests::serial_host host;
  auto const exec = host.exec();
  suite_table const table(9, {.rows = 100});
  auto const log = log_of(exec, table, 30);
  for (auto const order : every_order)
    for (auto const& sizes : {std::tuple(10, 10, 10), std::tuple(30, 4, 3), std::tuple(99, 2, 1), std::tuple(101, 1, 0)}) {
      auto const batch_size = std::get<0>(sizes), kept = std::get<1>(sizes), dropped = std::get<2>(sizes);
      CAPTURE(batch_size);
      for (auto const last : {short_batch::keep, short_batch::drop}) {
        sample_reader_options const options{.batch_size = batch_size, .order = order, .last_batch = last};
        sample_reader reader(exec, log, options);
        auto const batches = last == short_batch::keep ? kept : dropped;
        CHECK(reader.epoch_batches() == batches);
        batch_view batch;
        std::int64_t id = 0;
        for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
          std::set<std::int64_t> samples;
          for (std::int64_t b = 0; b < batches; ++b) {
            sample_reader other(exec, log, options);
            other.seek(reader.position());
            batch_view same;
            REQUIRE(other.next(exec, same));
            REQUIRE(reader.next(exec, batch));
            CHECK(std::equal(batch.sample_ids.begin(), batch.sample_ids.end(), same.sample_ids.begin(), same.sample_ids.end()));
            CHECK(batch.epoch == epoch);
            CHECK(batch.id == id++);
            samples.insert(batch.sample_ids.begin(), batch.sample_ids.end());
          }
          CHECK(samples.size() == (last == short_batch::keep ? 100 : static_cast<std::size_t>(batches * batch_size)));
          sample_reader other(exec, log, options);
          other.seek(reader.position());
          CHECK(other.epoch_samples() == reader.epoch_samples());
          CHECK(!other.next(exec, batch));
          CHECK(!reader.next(exec, batch));
          CHECK(other.position() == reader.position());
          CHECK(reader.position() == reader_position{epoch + 1, 0, 0, id});
        }
      }
    }
}

TEST_CASE("sample_reader: parts of a data set say how many batches each has") {
  tessera_tests::serial_host host;
  auto const exec = host.exec();
  suite_table const table(9, {.rows = 100});
  auto const log = log_of(exec, table, 30);
  for (std::int64_t const parts : {1, 2, 3, 6})
    for (auto const last : {short_batch::keep, short_batch::drop}) {
      auto const batches = epoch_batches_of_parts(log, parts, 25, last);
      REQUIRE(static_cast<std::int64_t>(batches.size()) == parts);
      std::vector<int> seen(100, 0);
      for (std::int64_t part = 0; part < parts; ++part) {
        sample_reader reader(exec, log,
                             {.batch_size = 25, .order = sample_order::samples, .blocks = part_of(log, part, parts), .last_batch = last});
        CHECK(reader.epoch_batches() == batches[static_cast<std::size_t>(part)]);
        std::int64_t found = 0;
        for (batch_view batch; reader.next(exec, batch); ++found)
          for (auto const id : batch.sample_ids) ++seen[static_cast<std::size_t>(id)];
        CHECK(found == reader.epoch_batches());
      }
      if (last == short_batch::keep) CHECK(seen == std::vector<int>(100, 1));
      CHECK(*std::max_element(seen.begin(), seen.end()) == 1);
    }
  CHECK(epoch_batches_of_parts(log, 3, 20, short_batch::keep) == std::vector<std::int64_t>{2, 2, 2});
  CHECK(epoch_batches_of_parts(log, 3, 20, short_batch::drop) == std::vector<std::int64_t>{1, 1, 2});
  CHECK(error_of([&] { epoch_batches_of_parts(log, 0, 25, short_batch::keep); }).code() == errc::out_of_range);
  CHECK(error_of([&] { epoch_batches_of_parts(log, 2, 0, short_batch::keep); }).value("batch_size") == "0");
}

}  // namespace sample_reader_features_test
