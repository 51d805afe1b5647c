// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-labels: threads
#include <tessera/data/prefetching_reader.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <numeric>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include <tessera/core/thread_team.hpp>
#include <tessera/synth/planted_reader.hpp>

#include "counting_memory.hpp"
#include "random.hpp"
#include "temporary_folder.hpp"

namespace prefetching_reader_test {

namespace {

using namespace tessera;
using tessera_tests::counting_memory;
using tessera_tests::error_of;

struct taken {
  std::vector<float> dense, labels, weights, sample_weights;
  std::vector<std::int64_t> ids, offsets, first_row, sample_ids, session_ids;
  std::int64_t id = 0, epoch = 0, prepared = 0;
  batch_class kind = batch_class::mixed;

  bool operator==(taken const&) const = default;
};

taken taken_from(batch_view const& b) {
  taken t;
  for (std::int64_t i = 0; i < b.samples(); ++i) t.dense.insert(t.dense.end(), b.dense.row(i), b.dense.row(i) + b.dense.columns());
  t.labels.assign(b.labels.begin(), b.labels.end());
  t.sample_ids.assign(b.sample_ids.begin(), b.sample_ids.end());
  t.sample_weights.assign(b.weights.begin(), b.weights.end());
  t.session_ids.assign(b.session_ids.begin(), b.session_ids.end());
  for (std::int64_t key = 0; key <= b.sparse.keys && b.sparse.keys > 0; ++key)
    t.first_row.push_back(b.sparse.first_row[key] - b.sparse.first_row[0]);
  auto const flat = b.sparse.flat();
  for (std::int64_t row = 0; row < flat.rows; ++row) {
    t.offsets.push_back(flat.offsets[row + 1] - flat.offsets[0]);
    t.ids.insert(t.ids.end(), flat.row(row).begin(), flat.row(row).end());
    if (b.sparse.weighted())
      t.weights.insert(t.weights.end(), b.sparse.weights + flat.offsets[row], b.sparse.weights + flat.offsets[row + 1]);
  }
  t.id = b.id;
  t.epoch = b.epoch;
  t.kind = b.kind;
  return t;
}

/// A team, its memory, and the execution over both, for one thread alone, and a thread to lend.
struct place {
  thread_pool pool;
  counting_memory memory;
  host_exec exec;
  background_thread thread{};

  explicit place(int threads = 1) : pool(threads), exec(pool, memory) {}
};

planted_clicks bags(host_exec const& exec, std::uint64_t seed) {
  planted_clicks_options options{{{.ids = 50, .shortest_bag = 0, .longest_bag = 4, .more = 0.5}, {.ids = 7}}};
  options.dense_features = 3;
  options.seed = random_seed{seed};
  return {exec, options};
}

struct step {
  taken batch;  // empty at the end of an epoch
  reader_position after;
  std::int64_t epoch_samples = 0;

  bool operator==(step const&) const = default;
};

template <class Reader>
std::vector<step> take(host_exec const& exec, Reader& from, std::size_t count) {
  std::vector<step> steps;
  batch_view batch;
  while (steps.size() < count) {
    bool const more = from.next(exec, batch);
    steps.push_back({more ? taken_from(batch) : taken(), from.position(), from.epoch_samples()});
  }
  return steps;
}

/// Gives batches of one sample each, three an epoch, and throws where it is told to.
class failing_reader {
 public:
  std::vector<std::int64_t> failures;  // calls of next, from 0, that throw
  std::atomic<std::int64_t> calls{0};
  bool loses_batch = false;  // steps forward all the same: not what a reader may do, but what a failed copy amounts to

  bool next(host_exec const&, batch_view& out) {
    auto const call = calls++;
    if (std::find(failures.begin(), failures.end(), call) != failures.end()) {
      if (loses_batch) ++at_.offset;
      throw std::runtime_error("call " + std::to_string(call));
    }
    if (at_.offset == 3) {
      at_ = {at_.epoch + 1, 0, 0, at_.batch};
      return false;
    }
    sample_ = 10 * at_.epoch + at_.offset;
    out = {};
    out.dense = {nullptr, 1, 0};
    out.sample_ids = {&sample_, 1};
    out.sparse = {nullptr, nullptr, nullptr, &zero_, 0};
    out.id = at_.batch++;
    out.epoch = at_.epoch;
    ++at_.offset;
    return true;
  }
  reader_position position() const { return at_; }
  std::int64_t epoch_samples() const { return at_.offset; }
  std::atomic<std::int64_t> refused_seeks{0};
  void seek(reader_position position) {
    if (refused_seeks > 0 && refused_seeks-- > 0) throw error(errc::io_error, "not now");
    if (position.block != 0) throw error(errc::incompatible, "no such block");
    at_ = position;
  }

 private:
  reader_position at_;
  std::int64_t sample_ = 0, zero_ = 0;
};
static_assert(reader<failing_reader>);

/// Sums a batch's ids, and counts how often a slot was used.
struct sum_ids {
  struct state {
    std::int64_t sum = 0, uses = 0;
    buffer<std::int64_t> copy;
  };
  void operator()(host_exec const& exec, batch_view const& batch, state& to) const {
    auto const flat = batch.sparse.flat();
    to.copy.resize(exec, flat.size());
    std::copy_n(flat.values, flat.size(), to.copy.begin());
    to.sum = std::accumulate(flat.values, flat.values + flat.size(), std::int64_t{0});
    ++to.uses;
  }
};

/// Throws for one sample, once.
struct refuse_once {
  struct state {};
  std::int64_t sample;
  std::atomic<bool>* done;
  void operator()(host_exec const&, batch_view const& batch, state&) const {
    if (batch.sample_ids[0] == sample && !done->exchange(true)) throw std::logic_error("refused");
  }
};

}  // namespace

TEST_CASE("prefetching_reader: the same batches, positions and ends of epochs as without") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  place ahead(2), here;
  background_thread other_thread;
  auto const clicks = bags(here.exec, seed);
  for (std::int64_t const depth : {1, 2, 7}) {
    CAPTURE(depth);
    planted_reader_options const options{.first = 5, .samples = 100, .batch_size = 1 + static_cast<std::int64_t>(random() % 40)};
    CAPTURE(options.batch_size);
    planted_reader plain(clicks, options), wrapped(clicks, options);
    auto const expected = take(here.exec, plain, 60);
    prefetching_reader reader(ahead.exec, ahead.thread, wrapped, {.depth = depth});
    static_assert(tessera::reader<decltype(reader)>);
    CHECK(reader.position() == reader_position{});
    CHECK(reader.epoch_samples() == 0);
    CHECK(take(here.exec, reader, 60) == expected);
    CHECK(reader.bytes() > 100);

    // From any position on, back and forth, and by a reader that begins there.
    for (int cut = 0; cut < 6; ++cut) {
      auto const at = static_cast<std::size_t>(random() % 59);
      CAPTURE(at);
      std::vector<step> const rest(expected.begin() + static_cast<std::ptrdiff_t>(at) + 1, expected.end());
      auto const some = std::min<std::size_t>(rest.size(), random() % 20);
      reader.seek(expected[at].after);
      CHECK(reader.position() == expected[at].after);
      CHECK(reader.epoch_samples() == expected[at].epoch_samples);
      CHECK(take(here.exec, reader, some) == std::vector<step>(rest.begin(), rest.begin() + static_cast<std::ptrdiff_t>(some)));
      planted_reader other(clicks, options);
      other.seek(expected[at].after);
      prefetching_reader resumed(ahead.exec, other_thread, other, {.depth = depth});
      CHECK(resumed.position() == expected[at].after);
      CHECK(take(here.exec, resumed, some) == std::vector<step>(rest.begin(), rest.begin() + static_cast<std::ptrdiff_t>(some)));
    }
  }
}

TEST_CASE("prefetching_reader: one that is never asked, or only once, stops") {
  place ahead, here;
  auto const clicks = bags(here.exec, 3);
  for (int asked = 0; asked < 3; ++asked)
    for (int round = 0; round < 20; ++round) {
      planted_reader wrapped(clicks, {.samples = 64, .batch_size = 4});
      prefetching_reader reader(ahead.exec, ahead.thread, wrapped, {.depth = 3});
      take(here.exec, reader, static_cast<std::size_t>(asked));
    }
  CHECK(ahead.memory.live_pieces() == 0);
}

TEST_CASE("prefetching_reader: reads no further than it may") {
  place ahead, here;
  failing_reader wrapped;
  {
    prefetching_reader reader(ahead.exec, ahead.thread, wrapped, {.depth = 2});
    batch_view batch;
    REQUIRE(reader.next(here.exec, batch));
    REQUIRE(reader.next(here.exec, batch));
    CHECK(batch.sample_ids[0] == 1);
  }
  CHECK(wrapped.calls <= 4);  // one in use, two ahead of it, and the one before
  CHECK(wrapped.calls >= 2);
}

TEST_CASE("prefetching_reader: prepares a state for each batch, on its thread, with its memory") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  place ahead(2), here;
  auto const clicks = bags(here.exec, seed);
  planted_reader wrapped(clicks, {.samples = 90, .batch_size = 20});
  {
    prefetching_reader reader(ahead.exec, ahead.thread, wrapped, {.depth = 2}, sum_ids{});
    CHECK(error_of([&] { reader.prepared(); }).code() == errc::invalid_argument);
    batch_view batch;
    std::int64_t used_again = 0;
    for (int i = 0; i < 23; ++i) {
      if (!reader.next(here.exec, batch)) {
        CHECK(error_of([&] { reader.prepared(); }).code() == errc::invalid_argument);
        continue;
      }
      auto const flat = batch.sparse.flat();
      CHECK(reader.prepared().sum == std::accumulate(flat.values, flat.values + flat.size(), std::int64_t{0}));
      CHECK(std::equal(flat.values, flat.values + flat.size(), reader.prepared().copy.begin(), reader.prepared().copy.end()));
      used_again = std::max(used_again, reader.prepared().uses);
    }
    CHECK(used_again > 5);
    auto const before = here.memory.allocations();
    for (int i = 0; i < 5; ++i) reader.next(here.exec, batch);
    CHECK(here.memory.allocations() == before);
  }
  CHECK(ahead.memory.allocations() > 0);
}

TEST_CASE("prefetching_reader: an exception comes where its batch would have, and the next call tries again") {
  place ahead, here;
  for (bool const loses_batch : {false, true})
    for (std::int64_t const depth : {1, 5}) {
      CAPTURE(loses_batch);
      CAPTURE(depth);
      failing_reader wrapped;
      wrapped.failures = {2, 3, 6};
      wrapped.loses_batch = loses_batch;
      prefetching_reader reader(ahead.exec, ahead.thread, wrapped, {.depth = depth});
      std::vector<std::string> seen;
      batch_view batch;
      for (int call = 0; call < 10; ++call) {
        auto const before = reader.position();
        try {
          seen.push_back(reader.next(here.exec, batch) ? std::to_string(batch.sample_ids[0]) : "end");
        } catch (std::runtime_error const& e) {
          seen.push_back(e.what());
          CHECK(reader.position() == before);
        }
      }
      CHECK(seen == std::vector<std::string>{"0", "1", "call 2", "call 3", "2", "end", "call 6", "10", "11", "12"});
    }
}

TEST_CASE("prefetching_reader: a batch that could not be prepared is read again") {
  place ahead, here;
  failing_reader wrapped;
  std::atomic<bool> done{false};
  prefetching_reader reader(ahead.exec, ahead.thread, wrapped, {.depth = 3}, refuse_once{1, &done});
  batch_view batch;
  REQUIRE(reader.next(here.exec, batch));
  CHECK_THROWS_AS(reader.next(here.exec, batch), std::logic_error);
  for (std::int64_t const expected : {1, 2}) {
    REQUIRE(reader.next(here.exec, batch));
    CHECK(batch.sample_ids[0] == expected);
    CHECK(batch.id == expected);
  }
}

TEST_CASE("prefetching_reader: memory that runs out is an exception of its batch") {
  place ahead, here;
  auto const clicks = bags(here.exec, 9);
  planted_reader plain(clicks, {.samples = 40, .batch_size = 8});
  auto const expected = take(here.exec, plain, 6);
  for (std::int64_t allowed = 0; allowed < 12; ++allowed) {
    CAPTURE(allowed);
    place small;
    planted_reader fresh(clicks, {.samples = 40, .batch_size = 8});
    small.memory.fail_after(allowed);
    std::optional<prefetching_reader<planted_reader>> reader;
    reader.emplace(small.exec, small.thread, fresh, prefetching_options{.depth = 1});
    batch_view batch;
    bool failed = false;
    std::vector<step> steps;
    while (steps.size() < 6) {
      try {
        bool const more = reader->next(here.exec, batch);
        steps.push_back({more ? taken_from(batch) : taken(), reader->position(), reader->epoch_samples()});
      } catch (std::bad_alloc const&) {
        failed = true;
        auto const at = reader->position();
        reader.reset();
        small.memory.never_fail();
        fresh.seek(at);
        reader.emplace(small.exec, small.thread, fresh, prefetching_options{.depth = 1});
      }
    }
    CHECK(failed);
    CHECK(steps == expected);
  }
}

TEST_CASE("prefetching_reader: what cannot be is named, and a refused position changes nothing") {
  place ahead, here;
  failing_reader wrapped;
  for (std::int64_t const depth : {0, -1})
    CHECK(error_of([&] { prefetching_reader(ahead.exec, ahead.thread, wrapped, {.depth = depth}); }).value("depth") ==
          std::to_string(depth));
  prefetching_reader reader(ahead.exec, ahead.thread, wrapped, {.depth = 2});
  batch_view batch;
  REQUIRE(reader.next(here.exec, batch));
  CHECK(error_of([&] { reader.seek({0, 7, 0, 0}); }).code() == errc::incompatible);
  CHECK(reader.position() == reader_position{0, 0, 1, 1});
  REQUIRE(reader.next(here.exec, batch));
  CHECK(batch.sample_ids[0] == 1);
}

namespace {

// Drops every other batch: which one is next depends on more than the place in the data.
struct every_other {
  struct place_and_turn : reader_position {
    bool drops = false;
    friend bool operator==(place_and_turn const&, place_and_turn const&) = default;
  };
  failing_reader wrapped;
  bool drops = false;

  bool next(host_exec const& exec, batch_view& out) {
    while (wrapped.next(exec, out))
      if (!std::exchange(drops, !drops)) return true;
    return false;
  }
  place_and_turn position() const { return {wrapped.position(), drops}; }
  std::int64_t epoch_samples() const { return wrapped.epoch_samples(); }
  void seek(place_and_turn position) {
    wrapped.seek(position);
    drops = position.drops;
  }
};
static_assert(reader<every_other>);

}  // namespace

TEST_CASE("prefetching_reader: a reader that wraps another goes on from a position with a state of its own") {
  place ahead, here;
  every_other plain;
  std::vector<every_other::place_and_turn> positions;
  std::vector<std::int64_t> samples;
  batch_view batch;
  for (int turn = 0; turn < 12; ++turn) {
    positions.push_back(plain.position());
    samples.push_back(plain.next(here.exec, batch) ? batch.sample_ids[0] : -1);
  }
  CHECK(std::count(samples.begin(), samples.end(), 2) == 1);
  CHECK(std::count(samples.begin(), samples.end(), 11) == 1);  // of the second epoch the other turn
  for (std::size_t from = 0; from < positions.size(); ++from) {
    CAPTURE(from);
    every_other wrapped;
    prefetching_reader reader(ahead.exec, ahead.thread, wrapped, {.depth = 2});
    reader.seek(positions[from]);
    for (auto at = from; at < positions.size(); ++at) {
      CHECK(reader.position() == positions[at]);
      CHECK((reader.next(here.exec, batch) ? batch.sample_ids[0] : -1) == samples[at]);
    }
  }
}

TEST_CASE("prefetching_reader: a position refused, and the way back too: the next batch is the one it would have been") {
  place ahead, here;
  failing_reader wrapped;
  prefetching_reader reader(ahead.exec, ahead.thread, wrapped, {.depth = 2});
  batch_view batch;
  REQUIRE(reader.next(here.exec, batch));
  wrapped.refused_seeks = 2;
  CHECK(error_of([&] { reader.seek({0, 0, 2, 0}); }).code() == errc::io_error);
  CHECK(reader.position() == reader_position{0, 0, 1, 1});
  CHECK(error_of([&] { reader.next(here.exec, batch); }).code() == errc::io_error);
  REQUIRE(reader.next(here.exec, batch));
  CHECK(batch.sample_ids[0] == 1);
  reader.seek({0, 0, 2, 0});
  REQUIRE(reader.next(here.exec, batch));
  CHECK(batch.sample_ids[0] == 2);
}

TEST_CASE("prefetching_reader: a thread works for one reader at a time, and for the next one after it") {
  place ahead, here;
  failing_reader first, second;
  batch_view batch;
  {
    prefetching_reader reader(ahead.exec, ahead.thread, first);
    REQUIRE(reader.next(here.exec, batch));
    CHECK(error_of([&] { prefetching_reader(ahead.exec, ahead.thread, second); }).code() == errc::invalid_argument);
    CHECK(second.calls == 0);
    reader.seek({0, 0, 2, 7});
    REQUIRE(reader.next(here.exec, batch));
    CHECK(batch.sample_ids[0] == 2);
    CHECK(batch.id == 7);
  }
  prefetching_reader reader(ahead.exec, ahead.thread, second);
  REQUIRE(reader.next(here.exec, batch));
  CHECK(batch.sample_ids[0] == 0);
}

TEST_CASE("batch_copy: everything a batch shows, offsets from 0") {
  place here;
  std::vector<float> const dense{1, 2, 3, 4, 5, 6}, labels{0, 1}, weights{9, 8, 7, 6, 5, 4}, counts{2, 0.5F};
  std::vector<std::int64_t> const values{10, 11, 12, 13, 14, 15}, offsets{0, 2, 3, 3, 5, 6}, first_row{1, 3, 5}, samples{4, 5},
      sessions{1, 1};
  batch_view batch;
  batch.dense = {dense.data(), 2, 2, 3};  // rows apart
  batch.labels = labels;
  batch.sample_ids = samples;
  batch.session_ids = sessions;
  batch.weights = counts;
  batch.sparse = {values.data(), weights.data(), offsets.data(), first_row.data(), 2};
  batch.id = 3;
  batch.epoch = 2;
  batch.kind = batch_class::hot;
  std::vector<std::string> names{"a key whose name is no short one", "b"};
  std::vector<float> const others{1, 0, 0, 1};
  batch.key_names = names;
  batch.other_labels = {others.data(), 2, 2};
  batch_copy copy;
  copy.assign(here.exec, batch);
  CHECK(taken_from(copy.view()) == taken_from(batch));
  CHECK(copy.view().sparse.first_row[0] == 0);
  CHECK(copy.view().sparse.offsets[0] == 0);
  CHECK(copy.view().sparse.values[0] == 12);
  CHECK(copy.view().sparse.weights[0] == 7);
  CHECK(copy.view().dense.data() != dense.data());
  CHECK(copy.view().weights[1] == 0.5F);
  names = {"of another reader", "c"};
  CHECK(copy.view().key_names[0] == "a key whose name is no short one");
  CHECK(copy.view().other_labels(1, 1) == 1);
  CHECK(copy.view().other_labels.data() != others.data());
  batch.key_names = {};
  auto const before = here.memory.allocations();
  batch.sparse.weights = nullptr;
  batch.session_ids = {};
  batch.weights = {};
  copy.assign(here.exec, batch);
  CHECK(taken_from(copy.view()) == taken_from(batch));
  copy.assign(here.exec, {});  // no samples, no keys
  CHECK(copy.view().samples() == 0);
  CHECK(copy.view().sparse.rows() == 0);
  CHECK(here.memory.allocations() == before);
}

}  // namespace prefetching_reader_test
