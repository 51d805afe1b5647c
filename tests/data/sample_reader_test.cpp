// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>
#include <new>
#include <numeric>
#include <random>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <tessera/core/memory.hpp>
#include <tessera/data/memory_log.hpp>
#include <tessera/data/prefetching_reader.hpp>
#include <tessera/data/sample_reader.hpp>
#include <tessera/tensor/expand.hpp>
#include <tessera/tensor/id_pipeline.hpp>
#include <tessera/tensor/id_steps.hpp>

#include "hosts.hpp"
#include "random.hpp"
#include "sample_support.hpp"
#include "session_source.hpp"
#include "temporary_folder.hpp"

namespace sample_reader_test {

namespace {

using namespace tessera;
using ids = std::vector<std::int64_t>;
using tessera_tests::error_of;

static_assert(reader<sample_reader<memory_log>>);

constexpr auto orders = {sample_order::stored, sample_order::samples, sample_order::sessions};

sample_schema const schema{"label", {"x", "y"}, {"a", "b", "c", "d"}, "session", "time"};

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
struct delivered {
  std::int64_t id, session;
  float label, x, y;
  std::vector<ids> lists;

  friend bool operator==(delivered const&, delivered const&) = default;
};

std::vector<delivered> samples_of(host_exec const& exec, batch_view const& batch) {
  auto const expanded = expand(exec, batch.inverse_keyed());
  auto const view = expanded.view();
  std::vector<delivered> result;
  for (std::int64_t i = 0; i < batch.samples(); ++i) {
    auto& s = result.emplace_back(
        delivered{batch.sample_ids[i], batch.session_ids[i], batch.labels[i], batch.dense(i, 0), batch.dense(i, 1), {}});
    for (std::int64_t k = 0; k < view.keys; ++k) s.lists.emplace_back(view.key(k).row(i).begin(), view.key(k).row(i).end());
  }
  return result;
}

// All that a batch shows, bit by bit and as it is stored.
ids all_of(batch_view const& batch) {
  ids all{batch.id, batch.epoch, batch.samples()};
  auto const add = [&](auto const& values) { all.insert(all.end(), values.begin(), values.end()); };
  for (std::int64_t i = 0; i < batch.samples(); ++i) {
    all.push_back(std::bit_cast<std::int32_t>(batch.labels[i]));
    for (std::int64_t c = 0; c < batch.dense.columns(); ++c) all.push_back(std::bit_cast<std::int32_t>(batch.dense(i, c)));
  }
  add(batch.sample_ids);
  add(batch.session_ids);
  for (std::int64_t k = 0; k < batch.sparse.keys; ++k) {
    auto const rows = batch.sparse.key(k);
    all.push_back(rows.rows);
    for (std::int64_t i = 0; i < rows.rows; ++i) all.push_back(rows.length(i));
    add(rows.all_values());
  }
  for (auto const& group : batch.groups) add(vector_view<std::int64_t const>(group.inverse, batch.samples()));
  return all;
}

// The next batch, or nothing at the end of an epoch.
template <class Reader>
ids next_of(host_exec const& exec, Reader& reader) {
  batch_view batch;
  return reader.next(exec, batch) ? all_of(batch) : ids{};
}

template <class Reader>
std::vector<delivered> epoch_of(host_exec const& exec, Reader& reader) {
  std::vector<delivered> all;
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
std::vector<delivered> stored(host_exec const& exec, memory_log const& log, std::vector<std::size_t> const& order) {
  sample_columns block;
  std::vector<delivered> all;
  for (std::int64_t b = 0; b < log.block_count(); ++b) {
    log.read(exec, b, block);
    auto const view = block.view();
    for (std::int64_t i = 0; i < view.size(); ++i) {
      auto& s = all.emplace_back(delivered{log.first_row(b) + i, view.sessions[i], view.labels[i], view.dense(0, i), view.dense(1, i), {}});
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
  std::vector<delivered> first_shuffled;
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
      for (std::int64_t const batch_size : {30, 500}) {
        sample_reader grouped(exec, log, pipeline, with(batch_size, order, {{"d", "b"}, {"c"}}));
        auto with_groups = epoch_of(exec, grouped);
        for (auto& s : with_groups) s.lists = {s.lists[3], s.lists[1], s.lists[2], s.lists[0]};
        CHECK(with_groups == a);
      }
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

TEST_CASE("rows are distinct in any order, where a batch lies in one block and where it does not") {
  tessera_tests::serial_host host;
  auto const exec = host.exec();
  auto const log = make_log(exec, 21, 400, 100);
  stored_ids const pipeline;
  for (auto const order : orders)
    for (std::int64_t const batch_size : {30, 100, 130}) {
      sample_reader reader(exec, log, pipeline, with(batch_size, order, {{"b", "d"}, {"a"}}));
      batch_view batch;
      while (reader.next(exec, batch)) {
        auto const all = samples_of(exec, batch);
        std::set<std::vector<ids>> pairs, ones;
        for (auto const& s : all) {
          pairs.insert({s.lists[0], s.lists[1]});
          ones.insert({s.lists[2]});
        }
        CHECK(batch.sparse.rows(0) == static_cast<std::int64_t>(pairs.size()));
        CHECK(batch.sparse.rows(2) == static_cast<std::int64_t>(ones.size()));
        CHECK(batch.sparse.rows(3) == batch.samples());
      }
    }
}

TEST_CASE("a reader goes on from any position, a new one and one that has read on") {
  tessera_tests::serial_host host;
  auto const exec = host.exec();
  auto const log = make_log(exec, 9, 200, 64);
  stored_ids const pipeline;
  for (auto const order : orders) {
    auto const options = with(30, order, {{"a"}});
    sample_reader reader(exec, log, pipeline, options);
    std::vector<reader_position> positions;
    std::vector<ids> batches;
    for (int i = 0; i < 15; ++i) {
      positions.push_back(reader.position());
      batches.push_back(next_of(exec, reader));
    }
    CHECK(std::count(batches.begin(), batches.end(), ids{}) == 1);
    for (std::size_t i = positions.size(); i-- > 0;) {
      sample_reader other(exec, log, pipeline, options);
      other.seek(positions[i]);
      reader.seek(positions[i]);
      for (auto j = i; j < batches.size(); ++j) {
        CHECK(next_of(exec, other) == batches[j]);
        CHECK(next_of(exec, reader) == batches[j]);
      }
      // Within a block that is in memory, in the order of another epoch.
      reader.seek(positions[i]);
      CHECK(next_of(exec, reader) == batches[i]);
    }
    auto const before = reader.position();
    CHECK(error_of([&] { reader.seek({0, 9, 0, 0}); }).code() == errc::incompatible);
    CHECK(error_of([&] { reader.seek({0, 0, 64, 0}); }).code() == errc::incompatible);
    for (auto const batch : {std::int64_t{-1}, most_counted + 1, std::numeric_limits<std::int64_t>::max()})
      CHECK(error_of([&] { reader.seek({0, 0, 0, batch}); }).value("batch") == std::to_string(batch));
    CHECK(reader.position() == before);
  }
}

TEST_CASE("the slices of any number of ranks are the batches of one reader, and a position of one is that of all") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  tessera_tests::serial_host host;
  auto const exec = host.exec();
  auto const log = make_log(exec, seed, 200, 64);
  stored_ids const pipeline;
  for (auto const order : orders)
    for (int const ranks : {1, 2, 3, 8, 40}) {
      CAPTURE(ranks);
      auto options = with(30, order, {{"b", "d"}});
      sample_reader whole(exec, log, pipeline, options);
      std::vector<sample_reader<memory_log>> parts;
      options.slice.ranks = ranks;
      for (int r = 0; r < ranks; ++r) {
        options.slice.rank = r;
        parts.emplace_back(exec, log, pipeline, options);
        CHECK(parts.back().epoch_batches() == whole.epoch_batches());
      }
      for (int i = 0; i < 10; ++i) {
        batch_view batch, part;
        bool const more = whole.next(exec, batch);
        auto const expected = more ? samples_of(exec, batch) : std::vector<delivered>();
        std::vector<delivered> together;
        auto const at = parts[0].position();
        for (auto& reader : parts) {
          reader.seek(at);
          REQUIRE(reader.next(exec, part) == more);
          CHECK(reader.position() == whole.position());
          CHECK(reader.epoch_samples() == whole.epoch_samples());
          if (!more) continue;
          CHECK(part.id == batch.id);
          auto const mine = samples_of(exec, part);
          CHECK(mine.size() >= expected.size() / static_cast<std::size_t>(ranks));
          CHECK(mine.size() <= expected.size() / static_cast<std::size_t>(ranks) + 1);
          together.insert(together.end(), mine.begin(), mine.end());
        }
        CHECK(together == expected);
        if (i == 4) whole.seek(parts.back().position());
      }
    }
}

TEST_CASE("a reader knows how many samples of the epoch are behind it") {
  tessera_tests::serial_host host;
  auto const exec = host.exec();
  auto const log = make_log(exec, 10, 200, 64);
  stored_ids const pipeline;
  for (auto const order : orders) {
    auto options = with(30, order);
    options.blocks = {1, -1};
    sample_reader reader(exec, log, pipeline, options);
    for (int epoch = 0; epoch < 3; ++epoch) {
      std::int64_t samples = 0;
      for (batch_view batch;; samples += batch.samples()) {
        CHECK(reader.epoch_samples() == samples);
        sample_reader other(exec, log, pipeline, options);
        other.seek(reader.position());
        CHECK(other.epoch_samples() == samples);
        if (!reader.next(exec, batch)) break;
      }
      CHECK(samples == reader.rows());
      CHECK(samples == 136);
    }
    CHECK(reader.epoch_samples() == 0);
  }
}

TEST_CASE("an error loses nothing: the next call gives the same batch") {
  tessera_tests::serial_host host;
  std::mt19937_64 random(17);
  sample_tests::table_shape const shape{200};
  sample_tests::sample_list source(sample_tests::schema_of(shape), sample_tests::random_samples(random, shape), 64);
  bool must_fail = false;
  struct failing {
    bool const* must_fail;
    inverse_keyed_jagged<> operator()(host_exec const&, inverse_keyed_jagged<> batch) const {
      if (*must_fail) throw std::runtime_error("pipeline");
      return batch;
    }
  };
  failing const pipeline{&must_fail};
  stored_ids const plain;
  for (auto const order : orders) {
    auto const options = with(30, order, {{"s1", "s2"}, {"s0"}});
    std::vector<ids> expected;
    std::vector<reader_position> positions;
    source.set_before_read({});
    sample_reader undisturbed(host.exec(), source, plain, options);
    for (int i = 0; i < 18; ++i) {
      positions.push_back(undisturbed.position());
      expected.push_back(next_of(host.exec(), undisturbed));
    }

    bool reads_fail = true;
    int reads = 0, refusals = 0;
    source.set_before_read([&](std::int64_t) {
      if (reads_fail) throw std::runtime_error("source");
      ++reads;
    });
    sample_reader reader(host.exec(), source, pipeline, options);
    batch_view batch;
    for (std::size_t i = 0; i < expected.size(); ++i) {
      for (bool const fails : {true, false}) {
        reads_fail = fails;
        must_fail = true;
        CHECK(reader.position() == positions[i]);
        if (expected[i].empty()) break;
        CHECK_THROWS_AS(reader.next(host.exec(), batch), std::runtime_error);
        ++refusals;
      }
      must_fail = reads_fail = false;
      CHECK(next_of(host.exec(), reader) == expected[i]);
    }
    CHECK(refusals == 32);
    CHECK(reads >= 8);
  }
}

TEST_CASE("no memory loses nothing either, whichever allocation is refused") {
  tessera_tests::serial_host host;
  auto const log = make_log(host.exec(), 19, 200, 64);
  auto const pipeline = id_pipeline(host.exec(), {"b", "d", "a", "c"}, truncate_ids{.most = 3});
  for (auto const order : orders) {
    auto const options = with(30, order, {{"b", "d"}});
    std::vector<ids> expected;
    sample_reader undisturbed(host.exec(), log, pipeline, options);
    for (int i = 0; i < 4; ++i) expected.push_back(next_of(host.exec(), undisturbed));
    // The third batch of 30 is the first of two blocks.
    for (std::size_t const disturbed : {0U, 2U}) {
      int refusals = 0;
      for (bool refused = true; refused; ++refusals) {
        sample_reader reader(host.exec(), log, pipeline, options);
        for (std::size_t i = 0; i < disturbed; ++i) CHECK(next_of(host.exec(), reader) == expected[i]);
        auto const before = reader.position();
        batch_view batch;
        host.memory().fail_after(refusals);
        try {
          refused = !reader.next(host.exec(), batch);
        } catch (std::bad_alloc const&) {
          CHECK(reader.position() == before);
        }
        host.memory().never_fail();
        if (!refused) CHECK(all_of(batch) == expected[disturbed]);
        for (auto i = disturbed + (refused ? 0 : 1); i < expected.size(); ++i) CHECK(next_of(host.exec(), reader) == expected[i]);
      }
      CHECK(refusals > 15);
    }
  }
}

TEST_CASE("a source whose block is shorter than it said") {
  struct shorter : sample_tests::sample_list {
    using sample_list::sample_list;
    void read(host_exec const& exec, std::int64_t block, sample_columns& out) const {
      sample_list::read(exec, block, out);
      if (block == 1) out.resize(exec, 2);
    }
  };
  tessera_tests::serial_host host;
  auto const exec = host.exec();
  std::mt19937_64 random(3);
  shorter const source(sample_tests::schema_of({10}), sample_tests::random_samples(random, {10}), 5);
  stored_ids const pipeline;
  sample_reader reader(exec, source, pipeline, with(5, sample_order::stored));
  batch_view batch;
  REQUIRE(reader.next(exec, batch));
  for (int i = 0; i < 2; ++i) {
    auto const failure = error_of([&] { reader.next(exec, batch); });
    CHECK(failure.code() == errc::corrupt_file);
    CHECK(failure.value("block") == "1");
    CHECK(failure.value("expected") == "5");
  }
}

TEST_CASE("in an arena a reader soon takes no more, however long it reads") {
  for (auto const order : orders) {
    tessera_tests::serial_host host;
    arena<tessera_tests::counting_memory> workspace(host.memory(), 1 << 10);
    auto const exec = host.exec().with_memory(workspace);
    auto const log = make_log(host.exec(), 13, 1000, 250);
    auto const pipeline = id_pipeline(host.exec(), {"b", "d", "a", "c"}, truncate_ids{.most = 3}, hash_ids{.size = 40});
    sample_reader reader(exec, log, pipeline, with(60, order, {{"b", "d"}, {"a"}}));
    batch_view batch;
    int batches = 0;
    auto const read = [&](int count) {
      for (auto const last = batches + count; batches < last;) batches += reader.next(exec, batch);
    };
    read(70);
    auto const reserved = workspace.reserved_bytes();
    CHECK(reserved > reader.bytes());
    for (int i = 0; i < 300; ++i) {
      read(1);
      CHECK(workspace.reserved_bytes() == reserved);
    }
  }
}

TEST_CASE("a prefetching reader copies groups and inverses too") {
  tessera_tests::serial_host host;
  auto const exec = host.exec();
  auto const log = make_log(exec, 11, 200, 64);
  stored_ids const pipeline;
  auto const options = with(30, sample_order::stored, {{"b", "d"}});
  sample_reader inner(exec, log, pipeline, options), plain(exec, log, pipeline, options);
  background_thread thread;
  prefetching_reader ahead(exec, thread, inner);
  batch_view batch;
  std::vector<delivered> all;
  while (ahead.next(exec, batch)) {
    CHECK(batch.groups.size() == 1);
    auto const more = samples_of(exec, batch);
    all.insert(all.end(), more.begin(), more.end());
  }
  CHECK(all == epoch_of(exec, plain));
}

TEST_CASE("blocks of a share") {
  tessera_tests::serial_host host;
  auto const exec = host.exec();
  auto const log = make_log(exec, 3, 200, 32);  // the last of 7 blocks has 8
  stored_ids const pipeline;
  auto options = with(20, sample_order::stored);
  options.blocks = {1, 2};
  sample_reader share(exec, log, pipeline, options);
  CHECK(share.rows() == 64);
  auto const all = stored(exec, log, {0, 1, 2, 3});
  CHECK(epoch_of(exec, share) == std::vector<delivered>(all.begin() + 32, all.begin() + 96));

  for (auto const order : {sample_order::samples, sample_order::sessions}) {
    options = with(20, order, {{"a", "c"}});
    sample_reader whole(exec, log, pipeline, options);
    std::vector<std::vector<delivered>> shares;
    for (auto const& [first, count] : {std::pair(0, 3), std::pair(3, 0), std::pair(3, 1), std::pair(4, -1)}) {
      options.blocks = {first, count};
      sample_reader rank(exec, log, pipeline, options);
      for (int epoch = 0; epoch < 2; ++epoch) {
        shares.push_back(epoch_of(exec, rank));
        CHECK(static_cast<std::int64_t>(shares.back().size()) == rank.rows());
      }
    }
    for (std::size_t epoch = 0; epoch < 2; ++epoch) {
      // Shares have each sample once; a block has its samples in the order in which one reader of all blocks has them.
      std::vector<ids> of_block(7), of_share(7);
      for (auto const& s : epoch_of(exec, whole)) of_block[static_cast<std::size_t>(s.id / 32)].push_back(s.id);
      std::vector<delivered> samples;
      for (auto i = epoch; i < shares.size(); i += 2)
        for (auto const& s : shares[i]) {
          samples.push_back(s);
          of_share[static_cast<std::size_t>(s.id / 32)].push_back(s.id);
        }
      CHECK(of_share == of_block);
      std::sort(samples.begin(), samples.end(), [](auto const& a, auto const& b) { return a.id < b.id; });
      CHECK(samples == stored(exec, log, {0, 2, 1, 3}));
    }
    CHECK(shares[0] != shares[1]);
    CHECK(shares[2].empty());
    CHECK(shares[4] != shares[5]);
  }
}

TEST_CASE("options that do not fit") {
  tessera_tests::serial_host host;
  auto const exec = host.exec();
  auto const log = make_log(exec, 3, 200, 64);
  stored_ids const pipeline;
  auto const refusal = [&](sample_reader_options const& wrong) {
    return std::string(error_of([&] { sample_reader(exec, log, pipeline, wrong); }).what());
  };
  auto const refusal_of_blocks = [&](std::int64_t first, std::int64_t count) {
    auto options = with(20, sample_order::stored);
    options.blocks = {first, count};
    auto const message = refusal(options);
    auto const expected = "sample_reader: no such blocks (first " + std::to_string(first) + ", count " + std::to_string(count) +
                          ", blocks of the data set 4)";
    CHECK(message == expected);
  };
  constexpr auto most = std::numeric_limits<std::int64_t>::max(), least = std::numeric_limits<std::int64_t>::min();
  refusal_of_blocks(1, 4);
  refusal_of_blocks(5, -1);
  refusal_of_blocks(5, 0);
  refusal_of_blocks(-1, 1);
  refusal_of_blocks(0, -2);
  refusal_of_blocks(1, most);
  refusal_of_blocks(most, 1);
  refusal_of_blocks(most, most);
  refusal_of_blocks(least, -1);
  refusal_of_blocks(4, least);
  CHECK(refusal(with(0, sample_order::stored)) == "sample_reader: option batch_size (batch_size 0, least 1)");
  CHECK(refusal(with(1, static_cast<sample_order>(7))) == "sample_reader: no such order (order 7)");
  auto unknown = with(1, sample_order::stored);
  unknown.last_batch = static_cast<short_batch>(7);
  CHECK(refusal(unknown) == "sample_reader: no such last_batch (last_batch 7)");
  for (auto const& [rank, ranks] : {std::pair(0, 0), {-1, 2}, {2, 2}, {0, -1}}) {
    auto sliced = with(1, sample_order::stored);
    sliced.slice = {rank, ranks};
    CHECK(refusal(sliced) ==
          "sample_reader: option slice (rank " + std::to_string(rank) + ", ranks " + std::to_string(ranks) + ", chunk_samples 1)");
  }
  CHECK(refusal(with(1, sample_order::stored, {{"a", "x"}})) == "group_keys: no such key (group 0, key x)");
  CHECK(refusal(with(1, sample_order::stored, {{"a"}, {"a"}})) == "group_keys: a key twice (group 1, key a)");

  sample_schema const nameless{"label", {}, {"a"}};
  memory_log const no_sessions(nameless, sample_columns(nameless), 10);
  auto const no_order = error_of([&] { sample_reader(exec, no_sessions, pipeline, with(1, sample_order::sessions)); });
  CHECK(no_order.code() == errc::invalid_argument);
  CHECK(no_order.sentence() == "sample_reader: sessions to shuffle, and no column of sessions");
  sample_reader empty(exec, no_sessions, pipeline, with(1, sample_order::samples));
  batch_view batch;
  CHECK(!empty.next(exec, batch));
  CHECK(!empty.next(exec, batch));
  CHECK(empty.position() == reader_position{2, 0, 0, 0});
}

TEST_CASE("a pipeline of other keys, or of these in another order, is refused by name") {
  tessera_tests::serial_host host;
  auto const exec = host.exec();
  auto const log = make_log(exec, 3, 200, 64);
  auto const groups = std::vector<std::vector<std::string>>{{"b", "d"}, {"a"}};
  auto const refusal = [&](std::vector<std::string> const& keys) {
    id_pipeline const pipeline(exec, keys, modulo_ids{.size = 10});
    return std::string(error_of([&] { sample_reader(exec, log, pipeline, with(20, sample_order::stored, groups)); }).what());
  };
  CHECK(refusal({"a", "b", "c", "d"}) ==
        "sample_reader: a pipeline of other keys; it takes those that `group_keys` orders (key 0, name b, name in the pipeline a)");
  CHECK(refusal({"b", "d", "a"}).ends_with("(key 3, name c, name in the pipeline none)"));
  CHECK(refusal({"b", "d", "a", "c", "e"}).ends_with("(key 4, name none, name in the pipeline e)"));
  id_pipeline const pipeline(exec, group_keys({"a", "b", "c", "d"}, groups).keys, on_keys({"a"}, modulo_ids{.size = 1}));
  sample_reader reader(exec, log, pipeline, with(200, sample_order::stored, groups));
  batch_view batch;
  REQUIRE(reader.next(exec, batch));
  auto expected = stored(exec, log, {1, 3, 0, 2});
  for (auto& s : expected)
    for (auto& id : s.lists[2]) id = 0;
  CHECK(samples_of(exec, batch) == expected);
}

TEST_CASE("without a pipeline ids are as they are stored; what would be gone before the first batch does not compile") {
  tessera_tests::serial_host host;
  auto const exec = host.exec();
  auto const log = make_log(exec, 3, 200, 64);
  sample_reader reader(exec, log, with(200, sample_order::stored));
  batch_view batch;
  REQUIRE(reader.next(exec, batch));
  CHECK(samples_of(exec, batch) == stored(exec, log, {0, 1, 2, 3}));

  using log_type = memory_log;
  using plain = sample_reader<log_type>;
  CHECK(std::is_constructible_v<plain, host_exec const&, log_type const&>);
  CHECK(std::is_constructible_v<plain, host_exec const&, log_type const&, stored_ids const&>);
  CHECK(!std::is_constructible_v<plain, host_exec const&, log_type>);
  CHECK(!std::is_constructible_v<plain, host_exec const&, log_type, stored_ids const&>);
  CHECK(!std::is_constructible_v<plain, host_exec const&, log_type const&, stored_ids>);
  CHECK(!std::is_constructible_v<plain, host_exec const&, log_type, stored_ids>);
}

}  // namespace sample_reader_test
