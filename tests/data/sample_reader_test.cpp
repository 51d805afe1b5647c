// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-labels: threads
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <tessera/data/memory_log.hpp>
#include <tessera/data/prefetching_reader.hpp>
#include <tessera/data/sample_reader.hpp>
#include <tessera/tensor/expand.hpp>

#include "hosts.hpp"
#include "random.hpp"
#include "temporary_folder.hpp"

namespace {

using namespace tessera;
using ids = std::vector<std::int64_t>;

sample_schema const schema("label", {"x", "y"}, {"a", "b", "c", "d"}, "session", "time");

// Session s has s % 7 + 1 samples; b and d change together.
memory_log make_log(host_exec const& exec, std::uint64_t seed, std::int64_t rows, std::int64_t block_rows) {
  std::mt19937_64 random(seed);
  sample_columns all(schema);
  all.resize(exec, rows);
  std::vector<std::vector<ids>> lists(4);
  std::int64_t session = 0, left = 0;
  for (std::int64_t i = 0; i < rows; ++i) {
    bool const is_new = left == 0;
    if (is_new) left = ++session % 7 + 1;
    --left;
    all.labels()[i] = static_cast<float>(random() % 2);
    all.dense()(0, i) = static_cast<float>(i) - 3;
    all.dense()(1, i) = static_cast<float>(random() % 100);
    all.sessions()[i] = session;
    all.times()[i] = i;
    bool const together = is_new || random() % 3 == 0;
    for (std::size_t k = 0; k < 4; ++k) {
      bool const changes = k % 2 == 1 ? together : is_new || random() % 2 == 0;
      lists[k].push_back(changes ? tessera_tests::random_integers<std::int64_t>(random, random() % 5, 0, 50) : ids(lists[k].back()));
    }
  }
  for (std::int64_t k = 0; k < 4; ++k) {
    auto const offsets = all.offsets(k);
    offsets[0] = 0;
    auto const& rows_of = lists[static_cast<std::size_t>(k)];
    for (std::int64_t i = 0; i < rows; ++i)
      offsets[i + 1] = offsets[i] + static_cast<std::int64_t>(rows_of[static_cast<std::size_t>(i)].size());
    auto* to = all.ids(exec, k).data();
    for (auto const& row : rows_of) to = std::copy(row.begin(), row.end(), to);
  }
  return {schema, std::move(all), block_rows};
}

// What a batch says of each of its samples, however its rows are stored.
struct sample {
  std::int64_t id, session;
  float label, x, y;
  std::vector<ids> lists;

  friend bool operator==(sample const&, sample const&) = default;
};

std::vector<sample> samples_of(host_exec const& exec, batch_view const& batch) {
  auto const expanded = expand(exec, batch.inverse_keyed());
  auto const view = expanded.view();
  std::vector<sample> result;
  for (std::int64_t i = 0; i < batch.samples(); ++i) {
    auto& s =
        result.emplace_back(sample{batch.sample_ids[i], batch.session_ids[i], batch.labels[i], batch.dense(i, 0), batch.dense(i, 1), {}});
    for (std::int64_t k = 0; k < view.keys; ++k) s.lists.emplace_back(view.key(k).row(i).begin(), view.key(k).row(i).end());
  }
  return result;
}

template <class Reader>
std::vector<sample> epoch_of(host_exec const& exec, Reader& reader) {
  std::vector<sample> all;
  batch_view batch;
  while (reader.next(exec, batch)) {
    auto const more = samples_of(exec, batch);
    all.insert(all.end(), more.begin(), more.end());
  }
  return all;
}

sample_reader_options with(std::int64_t batch_size, sample_order order, std::vector<std::vector<std::string>> groups = {}) {
  sample_reader_options options;
  options.batch_size = batch_size;
  options.order = order;
  options.groups = std::move(groups);
  options.seed = random_seed{7};
  return options;
}

// The lists of the stored samples with keys in this order.
std::vector<sample> stored(host_exec const& exec, memory_log const& log, std::vector<std::size_t> const& order) {
  sample_columns block;
  std::vector<sample> all;
  for (std::int64_t b = 0; b < log.block_count(); ++b) {
    block = sample_columns(schema);
    log.read(exec, b, block);
    auto const view = block.view();
    for (std::int64_t i = 0; i < view.size(); ++i) {
      auto& s = all.emplace_back(sample{log.first_row(b) + i, view.sessions[i], view.labels[i], view.dense(0, i), view.dense(1, i), {}});
      for (auto const k : order) {
        auto const row = view.sparse[static_cast<std::int64_t>(k)].row(i);
        s.lists.emplace_back(row.begin(), row.end());
      }
    }
  }
  return all;
}

}  // namespace

TEST_CASE("an epoch has each sample once, in its order, whatever the batch size, the groups and the threads") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::vector<sample> first_shuffled;
  tessera_tests::for_each_host([&](host_exec const& exec, tessera_tests::counting_memory&) {
    auto const log = make_log(exec, seed, 500, 64);
    stored_ids const pipeline;
    for (std::int64_t const batch_size : {1, 17, 64, 100, 1000}) {
      CAPTURE(batch_size);
      sample_reader plain(exec, log, pipeline, with(batch_size, sample_order::stored));
      CHECK(plain.keys() == schema.sparse);
      CHECK(epoch_of(exec, plain) == stored(exec, log, {0, 1, 2, 3}));
      sample_reader grouped(exec, log, pipeline, with(batch_size, sample_order::stored, {{"d", "b"}, {"c"}}));
      CHECK(grouped.keys() == std::vector<std::string>{"d", "b", "c", "a"});
      CHECK(epoch_of(exec, grouped) == stored(exec, log, {3, 1, 2, 0}));
    }
    auto const expected = stored(exec, log, {0, 1, 2, 3});
    for (auto const order : {sample_order::samples, sample_order::sessions}) {
      sample_reader one(exec, log, pipeline, with(30, order)), other(exec, log, pipeline, with(97, order));
      auto const a = epoch_of(exec, one), b = epoch_of(exec, other), second = epoch_of(exec, one);
      CHECK(a == b);
      CHECK(a != second);
      auto sorted = a;
      std::sort(sorted.begin(), sorted.end(), [](auto const& x, auto const& y) { return x.id < y.id; });
      CHECK(sorted == expected);
      CHECK(a != expected);
      if (order == sample_order::sessions) {
        int breaks = 0;  // where the next sample is neither the next of the session nor another session's first
        for (std::size_t i = 1; i < a.size(); ++i) breaks += a[i].session == a[i - 1].session && a[i].id != a[i - 1].id + 1;
        CHECK(breaks == 0);
        if (first_shuffled.empty()) first_shuffled = a;
        CHECK(a == first_shuffled);
      }
    }
  });
}

TEST_CASE("rows of a group are there once, and the pipeline sees each once") {
  tessera_tests::serial_host host;
  auto const exec = host.exec();
  auto const log = make_log(exec, 5, 300, 300);
  struct counting {
    std::int64_t* values;
    inverse_keyed_jagged<> operator()(host_exec const&, inverse_keyed_jagged<> batch) const {
      *values += batch.view().distinct.size();
      for (auto& id : batch.view().distinct.flat().all_values()) id += 1000;
      return batch;
    }
  };
  std::int64_t seen = 0;
  counting const pipeline{&seen};
  sample_reader reader(exec, log, pipeline, with(300, sample_order::stored, {{"b", "d"}, {"a"}, {"c"}}));
  batch_view batch;
  REQUIRE(reader.next(exec, batch));
  CHECK(batch.groups.size() == 3);
  CHECK(batch.sparse.rows(0) == batch.sparse.rows(1));
  CHECK(batch.sparse.rows(0) < 250);
  CHECK(seen == batch.sparse.size());
  auto expected = stored(exec, log, {1, 3, 0, 2});
  for (auto& s : expected)
    for (auto& list : s.lists)
      for (auto& id : list) id += 1000;
  CHECK(samples_of(exec, batch) == expected);
  CHECK(reader.times().convert > 0);
}

TEST_CASE("a reader goes on from any position") {
  tessera_tests::serial_host host;
  auto const exec = host.exec();
  auto const log = make_log(exec, 9, 200, 64);
  stored_ids const pipeline;
  auto const options = with(30, sample_order::sessions, {{"a"}});
  sample_reader reader(exec, log, pipeline, options);
  std::vector<reader_position> positions;
  std::vector<std::vector<sample>> batches;
  batch_view batch;
  for (int i = 0; i < 15; ++i) {
    positions.push_back(reader.position());
    batches.push_back(reader.next(exec, batch) ? samples_of(exec, batch) : std::vector<sample>{});
  }
  for (std::size_t i = positions.size(); i-- > 0;) {
    sample_reader other(exec, log, pipeline, options);
    other.seek(positions[i]);
    for (auto j = i; j < batches.size(); ++j)
      CHECK((other.next(exec, batch) ? samples_of(exec, batch) : std::vector<sample>{}) == batches[j]);
  }
  CHECK(tessera_tests::error_of([&] { reader.seek({0, 9, 0, 0}); }).code() == errc::incompatible);
  CHECK(tessera_tests::error_of([&] { reader.seek({0, 0, 64, 0}); }).code() == errc::incompatible);
}

TEST_CASE("a prefetching reader copies groups and inverses too") {
  tessera_tests::serial_host host;
  auto const exec = host.exec();
  auto const log = make_log(exec, 11, 200, 64);
  stored_ids const pipeline;
  auto const options = with(30, sample_order::stored, {{"b", "d"}});
  sample_reader inner(exec, log, pipeline, options), plain(exec, log, pipeline, options);
  prefetching_reader ahead(exec, inner);
  batch_view batch;
  std::vector<sample> all;
  while (ahead.next(exec, batch)) {
    CHECK(batch.groups.size() == 1);
    auto const more = samples_of(exec, batch);
    all.insert(all.end(), more.begin(), more.end());
  }
  CHECK(all == epoch_of(exec, plain));
}

TEST_CASE("dense values may be logarithms") {
  tessera_tests::serial_host host;
  auto const exec = host.exec();
  auto const log = make_log(exec, 3, 20, 64);
  stored_ids const pipeline;
  auto options = with(20, sample_order::stored);
  options.dense = dense_values::log;
  sample_reader reader(exec, log, pipeline, options);
  batch_view batch;
  REQUIRE(reader.next(exec, batch));
  CHECK(batch.dense(0, 0) == 0);
  CHECK(batch.dense(10, 0) == doctest::Approx(std::log(8.0)));
}

TEST_CASE("blocks of a share, and options that do not fit") {
  tessera_tests::serial_host host;
  auto const exec = host.exec();
  auto const log = make_log(exec, 3, 200, 64);
  stored_ids const pipeline;
  auto options = with(20, sample_order::stored);
  options.first_block = 1;
  options.blocks = 2;
  sample_reader share(exec, log, pipeline, options);
  CHECK(share.rows() == 128);
  auto const all = stored(exec, log, {0, 1, 2, 3});
  CHECK(epoch_of(exec, share) == std::vector<sample>(all.begin() + 64, all.begin() + 192));
  auto const refusal = [&](sample_reader_options const& wrong) {
    return std::string(tessera_tests::error_of([&] { sample_reader(exec, log, pipeline, wrong); }).what());
  };
  options.blocks = 4;
  CHECK(refusal(options) == "sample_reader: no such blocks (first_block 1, blocks 4, blocks of the data set 4)");
  CHECK(refusal(with(0, sample_order::stored)) == "sample_reader: option batch_size (batch_size 0, least 1)");
  CHECK(refusal(with(1, sample_order::stored, {{"a", "x"}})) == "group_keys: no such key (group 0, key x)");
  CHECK(refusal(with(1, sample_order::stored, {{"a"}, {"a"}})) == "group_keys: a key twice (group 1, key a)");
}
