// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-labels: threads
#include <tessera/embed/bucket_rows.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <cstddef>
#include <cstdint>
#include <map>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include <tessera/core/buffer.hpp>

#include "bucket_model.hpp"
#include "hosts.hpp"
#include "random.hpp"

using namespace embed_tests;
using tessera::detail::claim_kind;
using tessera::detail::slot_claim;
using id_list = std::vector<std::int64_t>;

namespace {

/// What a block offers that shares nothing: atomics between the host's threads, no stronger than a device's.
struct thread_block {
  int number = 0;

  std::int64_t index() const noexcept { return 0; }
  int thread() const noexcept { return number; }
  template <class T>
  T add(T* p, T value) const noexcept {
    return std::atomic_ref(*p).fetch_add(value, std::memory_order_relaxed);
  }
  template <class T>
  T maximum(T* p, T value) const noexcept {
    std::atomic_ref at(*p);
    auto seen = at.load(std::memory_order_relaxed);
    while (seen < value && !at.compare_exchange_weak(seen, value, std::memory_order_relaxed)) continue;
    return seen;
  }
  template <class T>
  T compare_exchange(T* p, T expected, T desired) const noexcept {
    std::atomic_ref(*p).compare_exchange_strong(expected, desired, std::memory_order_acq_rel);
    return expected;
  }
  template <class T>
  T load(T* p) const noexcept {
    return std::atomic_ref(*p).load(std::memory_order_acquire);
  }
  template <class T>
  void store(T* p, T value) const noexcept {
    std::atomic_ref(*p).store(value, std::memory_order_release);
  }
};

/// The ids of a bucket table without its rows, asked by several threads at once.
template <class Eviction>
class shared_buckets {
 public:
  using rows_type = tessera::bucket_rows<float, Eviction>;

  shared_buckets(tessera::table_options const& options, int threads)
      : groups_(options.rows / 32),
        threads_(threads),
        entries_(host_.exec(), options.rows * rows_type::words),
        tags_(static_cast<std::size_t>(groups_)),
        counts_(tessera::detail::count_words),
        leaving_(static_cast<std::size_t>(2 * options.rows)) {
    std::fill(entries_.begin(), entries_.end(), -1);
    rows_ = {nullptr,
             nullptr,
             entries_.data(),
             tags_.data(),
             counts_.data(),
             leaving_.data(),
             options,
             0,
             0,
             {groups_, rows_type::groups_each},
             0,
             0,
             {}};
  }

  rows_type const& rows() const { return rows_; }
  void begin_batch() {
    ++rows_.batch;
    rows_.first_kept = rows_.batch - rows_.table.batches_in_flight + 1;
    counts_[3] = 0;
  }
  std::multiset<std::int64_t> left() const {
    std::multiset<std::int64_t> ids;
    for (std::int64_t i = 0; i < counts_[3]; ++i) ids.insert(leaving_[static_cast<std::size_t>(2 * i + 1)]);
    return ids;
  }

  /// Each thread locates its ids, all at once in each of the three steps; slots, and how each came to its own.
  std::vector<std::vector<slot_claim>> locate(std::vector<id_list> const& ids) {
    std::vector<std::vector<slot_claim>> all(ids.size());
    std::barrier together(threads_);
    std::vector<std::thread> team;
    for (int t = 0; t < threads_; ++t)
      team.emplace_back([&, t] {
        auto const& own = ids[static_cast<std::size_t>(t)];
        auto& claims = all[static_cast<std::size_t>(t)];
        thread_block block{t};
        std::vector<std::size_t> missing;
        claims.resize(own.size());
        together.arrive_and_wait();
        for (std::size_t i = 0; i < own.size(); ++i) {
          claims[i] = {rows_.find(own[i]), claim_kind::repeated};
          if (claims[i].slot >= 0)
            rows_.use(block, claims[i].slot);
          else
            missing.push_back(i);
        }
        together.arrive_and_wait();
        for (auto const i : missing) claims[i] = rows_.claim(block, own[i]);
        together.arrive_and_wait();
        for (auto const i : missing)
          if (!rows_.settle(block, own[i], claims[i])) claims[i] = {};
      });
    for (auto& thread : team) thread.join();
    return all;
  }

 private:
  tessera_tests::serial_host host_;
  std::int64_t groups_;
  int threads_;
  tessera::buffer<std::int64_t> entries_;
  std::vector<tessera::detail::slot_tags> tags_;
  std::vector<std::int64_t> counts_, leaving_;
  rows_type rows_;
};

template <class Eviction>
void against_model(std::int64_t slots, std::int64_t id_range, std::int64_t ids_per_thread, std::int64_t batches_in_flight, int calls) {
  constexpr int threads = 4;
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  tessera::table_options const options{.dim = 1, .rows = slots, .batches_in_flight = batches_in_flight};
  shared_buckets<Eviction> table(options, threads);
  bucket_model<Eviction> model(options, table.rows().shape);
  for (int call = 0; call < calls; ++call) {
    CAPTURE(call);
    table.begin_batch();
    ++model.batch;
    // The same ids for all threads, each in an order of its own, so that they meet.
    auto const drawn = tessera_tests::random_integers<std::int64_t>(random, static_cast<std::size_t>(ids_per_thread), 0, id_range);
    std::vector<id_list> ids(threads, drawn);
    if (call % 2 == 0)
      for (auto& own : ids) std::shuffle(own.begin(), own.end(), random);
    auto const expected = model.locate(drawn);
    auto const claims = table.locate(ids);
    std::map<std::int64_t, std::int64_t> slot_of;
    std::map<std::int64_t, int> times_new;
    bool agree = true;
    for (std::size_t t = 0; t < threads; ++t)
      for (std::size_t i = 0; i < drawn.size(); ++i) {
        auto const id = ids[t][i];
        auto const& claim = claims[t][i];
        agree = agree && (claim.slot >= 0) == model.rows.contains(id) && table.rows().find(id) == claim.slot &&
                slot_of.emplace(id, claim.slot).first->second == claim.slot;
        times_new[id] += claim.kind == claim_kind::inserted || claim.kind == claim_kind::evicted;
      }
    CHECK(agree);
    for (auto const& [id, times] : times_new) REQUIRE(times == static_cast<int>(expected.came.contains(id)));
    std::set<std::int64_t> held;
    for (std::int64_t slot = 0; slot < slots; ++slot)
      if (auto const id = table.rows().id_of(slot); id != -1) REQUIRE(held.insert(id).second);
    CHECK(held.size() == model.rows.size());
    for (auto const& [id, row] : model.rows) REQUIRE(held.contains(id));
    CHECK(table.left() == expected.left);
  }
}

}  // namespace

TEST_CASE_TEMPLATE("bucket_rows: ids that many threads bring at once agree on slots, and who stays does not depend on them", Eviction,
                   tessera::keep_all, tessera::evict_lru, tessera::evict_lfu) {
  SUBCASE("one bucket, more new ids than slots") { against_model<Eviction>(32, 60, 45, 1, 300); }
  SUBCASE("one bucket, rows in flight") { against_model<Eviction>(32, 200, 14, 3, 300); }
  SUBCASE("several groups") { against_model<Eviction>(32 * 5, 400, 200, 2, 100); }
}

TEST_CASE("bucket_rows: counts of uses stop where their bits end") {
  using use = tessera::detail::slot_use<tessera::evict_lfu>;
  thread_block block;
  auto word = use::first(5);
  CHECK(use::last_batch(word) == 5);
  use::used(block, &word, 5);
  CHECK(word == use::first(5));
  use::used(block, &word, 9);
  CHECK(word == use::one + use::first(9));
  CHECK(use::last_batch(word) == 9);
  word = use::most_count * use::one + 9;
  use::used(block, &word, 10);
  CHECK(word == use::most_count * use::one + 10);
  CHECK(word > 0);
}
