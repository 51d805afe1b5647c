// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <tessera/data/dealt_reader.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <tessera/data/memory_log.hpp>

#include "hosts.hpp"
#include "random.hpp"
#include "temporary_folder.hpp"

namespace dealt_reader_test {

using namespace tessera;
using tessera_tests::error_of;
using tessera_tests::serial_host;
using ids = std::vector<std::int64_t>;

constexpr auto orders = {sample_order::stored, sample_order::samples, sample_order::sessions};

// Sample i has label i % 2, number i, and one id, i; sessions of three.
memory_log make_log(host_exec const& exec, std::int64_t rows, std::int64_t block_rows) {
  sample_schema const schema{"label", {"x"}, {"a"}, "session", ""};
  sample_columns all(schema);
  all.resize(exec, rows);
  auto const offsets = all.offsets(0);
  offsets[0] = 0;
  for (std::int64_t i = 0; i < rows; ++i) {
    all.labels()[i] = static_cast<float>(i % 2);
    all.dense()(0, i) = static_cast<float>(i);
    all.sessions()[i] = i / 3;
    offsets[i + 1] = i + 1;
  }
  auto* const to = all.ids(exec, 0).data();
  for (std::int64_t i = 0; i < rows; ++i) to[i] = i;
  return {schema, std::move(all), block_rows};
}

using dealt = dealt_reader<memory_log>;

// The readers of all ranks.
std::deque<dealt> readers_of(host_exec const& exec, memory_log const& log, sample_reader_options options, int ranks) {
  std::deque<dealt> all;
  for (int r = 0; r < ranks; ++r) {
    options.slice = {r, ranks};
    all.emplace_back(exec, log, options);
  }
  return all;
}

// What each rank is given in at most so many batches: the ids of each batch. All ranks end an epoch after as many.
std::vector<std::vector<ids>> take(host_exec const& exec, std::deque<dealt>& readers, std::int64_t batches) {
  std::vector<std::vector<ids>> given(readers.size());
  for (; batches > 0; --batches) {
    std::set<bool> goes_on;
    for (std::size_t r = 0; r < readers.size(); ++r) {
      CHECK(readers[r].position() == readers[0].position());
      CHECK(readers[r].epoch_samples() == readers[0].epoch_samples());
    }
    for (std::size_t r = 0; r < readers.size(); ++r) {
      batch_view batch;
      goes_on.insert(readers[r].next(exec, batch));
      if (!*goes_on.begin()) continue;
      auto& one = given[r].emplace_back(batch.sample_ids.begin(), batch.sample_ids.end());
      REQUIRE(batch.samples() == static_cast<std::int64_t>(one.size()));
      for (std::int64_t i = 0; i < batch.samples(); ++i) {
        CHECK(batch.dense(i, 0) == static_cast<float>(one[static_cast<std::size_t>(i)]));
        CHECK(batch.sparse.values[i] == one[static_cast<std::size_t>(i)]);
      }
    }
    REQUIRE(goes_on.size() == 1);
    if (!*goes_on.begin()) break;
  }
  return given;
}

void add(std::multiset<std::int64_t>& seen, std::vector<std::vector<ids>> const& given) {
  for (auto const& rank : given)
    for (auto const& batch : rank) seen.insert(batch.begin(), batch.end());
}
// Whether each sample was seen once.
bool is_epoch(std::multiset<std::int64_t> const& seen, std::int64_t rows) {
  std::int64_t next = 0;
  for (auto const id : seen)
    if (id != next++) return false;
  return next == rows;
}

TEST_CASE("dealt_reader: an epoch has each sample once, each block on one rank, and as many batches on all") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  serial_host host;
  auto const exec = host.exec();
  for (auto const order : orders)
    for (int const ranks : {1, 2, 3, 4, 8}) {
      CAPTURE(ranks);
      auto const rows = static_cast<std::int64_t>(1 + random() % 300), block_rows = static_cast<std::int64_t>(1 + random() % 40);
      CAPTURE(rows);
      CAPTURE(block_rows);
      auto const log = make_log(exec, rows, block_rows);
      auto const batch_size = ranks + static_cast<std::int64_t>(random() % 40);
      auto readers = readers_of(exec, log, {.batch_size = batch_size, .order = order, .seed = random_seed{seed}}, ranks);
      for (int epoch = 0; epoch < 3; ++epoch) {
        auto const left = readers[0].batches_left();
        auto const given = take(exec, readers, rows + 1);
        std::multiset<std::int64_t> seen;
        add(seen, given);
        CHECK(is_epoch(seen, rows));
        std::map<std::int64_t, std::size_t> rank_of_block;
        for (std::size_t r = 0; r < given.size(); ++r) {
          CHECK(static_cast<std::int64_t>(given[r].size()) == left);
          auto const share = batch_slice{static_cast<int>(r), ranks}.size(batch_size);
          bool is_dry = false;
          for (auto const& batch : given[r]) {
            CHECK((is_dry ? batch.empty() : static_cast<std::int64_t>(batch.size()) <= share));
            is_dry = static_cast<std::int64_t>(batch.size()) < share;
            for (auto const id : batch) CHECK(rank_of_block.emplace(id / block_rows, r).first->second == r);
          }
        }
      }
    }
}

TEST_CASE("dealt_reader: one rank is a sample_reader") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  serial_host host;
  auto const exec = host.exec();
  auto const log = make_log(exec, 101, 7);
  for (auto const order : orders)
    for (auto const last : {short_batch::keep, short_batch::drop}) {
      sample_reader_options const options{.batch_size = 8, .order = order, .seed = random_seed{seed}, .last_batch = last};
      auto readers = readers_of(exec, log, options, 1);
      sample_reader<memory_log> other(exec, log, options);
      for (int epoch = 0; epoch < 2; ++epoch) {
        auto const given = take(exec, readers, 1000);
        std::vector<ids> expected;
        for (batch_view batch; other.next(exec, batch);) expected.emplace_back(batch.sample_ids.begin(), batch.sample_ids.end());
        CHECK(given[0] == expected);
      }
    }
}

TEST_CASE("dealt_reader: any ranks go on where others stopped, and lose and repeat no sample") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  serial_host host;
  auto const exec = host.exec();
  for (int round = 0; round < 60; ++round) {
    CAPTURE(round);
    auto const rows = static_cast<std::int64_t>(50 + random() % 400), block_rows = static_cast<std::int64_t>(1 + random() % 60);
    auto const log = make_log(exec, rows, block_rows);
    auto const order = *(orders.begin() + random() % 3);
    std::multiset<std::int64_t> seen;
    dealt_position position;
    auto const epoch = static_cast<std::int64_t>(random() % 2);
    for (bool is_first = true;; is_first = false) {
      int const ranks = 1 + static_cast<int>(random() % 8);
      sample_reader_options const options{
          .batch_size = ranks + static_cast<std::int64_t>(random() % 30), .order = order, .seed = random_seed{seed}};
      auto readers = readers_of(exec, log, options, ranks);
      if (is_first && epoch == 1) take(exec, readers, rows + 1);  // the first epoch
      for (auto& reader : readers)
        if (!is_first) reader.seek(position);
      CHECK(readers[0].epoch_samples() == static_cast<std::int64_t>(seen.size()));
      auto const left = readers[0].batches_left();
      add(seen, take(exec, readers, static_cast<std::int64_t>(random() % 6)));
      position = readers[0].position();
      if (position.epoch > epoch || readers[0].batches_left() == 0) break;
      CHECK(readers[0].batches_left() <= left);
    }
    CHECK(is_epoch(seen, rows));
  }
}

TEST_CASE("dealt_reader: the same ranks go on with the batches that came after") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  serial_host host;
  auto const exec = host.exec();
  auto const log = make_log(exec, 300, 11);
  sample_reader_options const options{.batch_size = 20, .order = sample_order::samples, .seed = random_seed{seed}};
  auto whole = readers_of(exec, log, options, 3);
  take(exec, whole, 4);
  auto const position = whole[2].position();
  auto const expected = take(exec, whole, 1000), next_epoch = take(exec, whole, 5);
  auto again = readers_of(exec, log, options, 3);
  for (auto& reader : again) reader.seek(position);
  CHECK(take(exec, again, 1000) == expected);
  CHECK(take(exec, again, 5) == next_epoch);
}

TEST_CASE("dealt_reader: with short batches dropped all ranks have full ones alone") {
  serial_host host;
  auto const exec = host.exec();
  auto const log = make_log(exec, 200, 9);
  auto readers = readers_of(exec, log, {.batch_size = 25, .last_batch = short_batch::drop}, 3);
  auto const given = take(exec, readers, 1000);
  for (std::size_t r = 0; r < 3; ++r) {
    CHECK(!given[r].empty());
    for (auto const& batch : given[r]) CHECK(static_cast<std::int64_t>(batch.size()) == batch_slice{static_cast<int>(r), 3}.size(25));
  }
}

TEST_CASE("dealt_reader: what it cannot be, and positions of other data, are refused, and leave the reader where it was") {
  serial_host host;
  auto const exec = host.exec();
  auto const log = make_log(exec, 60, 7);
  CHECK(std::string(error_of([&] {
                      dealt(exec, log, {.batch_size = 2, .slice = {0, 3}});
                    }).what())
            .find("batch_size 2, least 3") != std::string::npos);
  CHECK(std::string(error_of([&] {
                      dealt(exec, log, {.batch_size = 8, .slice = {0, 2, 4}});
                    }).what())
            .find("chunk_samples 4") != std::string::npos);
  dealt reader(exec, log, {.batch_size = 8, .slice = {1, 2}});
  batch_view batch;
  reader.next(exec, batch);
  auto const before = reader.position();
  std::vector<dealt_position> bad(6, before);
  bad[0].epoch = -1;
  bad[1].offset = 3;
  bad[2].deals = {{2, 8, 1000}};
  bad[3].deals = {{0, 8, 1}};
  bad[4].deals = {{9, 8, 1}};
  bad[5].batch = -2;
  for (auto const& position : bad) {
    CHECK(std::string(error_of([&] { reader.seek(position); }).what()).find("of another data set") != std::string::npos);
    CHECK(reader.position() == before);
  }
  reader.seek(before);
  CHECK(reader.next(exec, batch));
}

}  // namespace dealt_reader_test
