// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-weight: 4
#include "bucket_table_device.hpp"

#include <cmath>

#include "emulated_verbs.hpp"

using namespace embed_tests;
using tessera::bucket_table;
using tessera::evict_lfu;
using tessera::evict_lru;
using tessera::keep_all;
using tessera_tests::emulated_exec;

TEST_CASE_TEMPLATE("bucket_table on an emulated device", Store, bucket_table<float, emulated_exec>,
                   bucket_table<tessera::float16, emulated_exec>, bucket_table<tessera::bfloat16, emulated_exec, evict_lru>,
                   bucket_table<float, emulated_exec, evict_lfu>, bucket_table<tessera::scaled_int8, emulated_exec, evict_lru>) {
  tessera_tests::emulated_device device;
  bucket_table_suite<Store>(device.exec());
}

TEST_CASE_TEMPLATE("bucket_table on an emulated device: bytes are counted, and building fails whole", Store,
                   bucket_table<float, emulated_exec>, bucket_table<tessera::scaled_int8, emulated_exec, evict_lru>) {
  tessera_tests::emulated_device device;
  auto options = bucket_options;
  for (std::int64_t const rows : {0, 1, 31, 32, 33, 5000}) {
    CAPTURE(rows);
    options.rows = rows;
    auto const before = device.live_bytes();
    Store const store(device.exec(), options, states_of_five{});
    CHECK(store.bytes() == device.live_bytes() - before);
    CHECK(store.bytes() == Store::bytes_for(options, store.state_layout()).total());
  }
  auto const before = device.live_bytes();
  for (int allocations = 0; allocations < 5; ++allocations) {
    device.fail_after(allocations);
    CHECK_THROWS_AS(Store(device.exec(), options, states_of_five{}), std::bad_alloc);
    device.never_fail();
    CHECK(device.live_bytes() == before);
  }
}

TEST_CASE_TEMPLATE("bucket_table on an emulated device against a model", Eviction, keep_all, evict_lru, evict_lfu) {
  tessera_tests::emulated_device device;
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  device.seed(seed);
  auto const exec = device.exec();
  SUBCASE("one bucket, more ids a call than it has slots") { bucket_table_against_model<Eviction>(exec, 32, 60, 50, 1); }
  SUBCASE("one bucket, all of whose rows are in flight now and then") { bucket_table_against_model<Eviction>(exec, 20, 90, 25, 3); }
  SUBCASE("several buckets") { bucket_table_against_model<Eviction>(exec, 200, 400, 150, 2); }
  SUBCASE("too many ids for buckets of many groups, or for many buckets") {
    bucket_table_against_model<Eviction>(exec, Eviction::evicts ? 500 : 2100, 6000, Eviction::evicts ? 300 : 900, 1);
  }
}

TEST_CASE("bucket_table: nothing waits but what says so; lost memory leaves the table whole") {
  tessera_tests::emulated_device device;
  auto const exec = device.exec();
  auto options = bucket_options;
  options.rows = 32;
  bucket_table<float, emulated_exec, evict_lru> store(exec, options, tessera::sgd{});
  auto const ids = tessera_tests::put(exec, id_list{1, 2, 3});
  auto slots = tessera_tests::put(exec, id_list(3));
  auto const waits = device.waits;
  store.locate(exec, ids.view(), slots.view());
  store.find(exec, ids.view(), slots.view());
  store.erase(exec, ids.view());
  CHECK(device.waits == waits);
  std::mt19937_64 random(1);
  locate_there(exec, store, shuffled_ids(random, 32));
  store.keep_evicted(true);
  store.begin_batch();
  // Two of the call's arrays, its begins, the tables and the list come first, then the memory for those that left.
  for (int allocations = 0; allocations < 12; ++allocations) {
    auto const more = tessera_tests::put(exec, id_list{100 + allocations});
    auto slot = tessera_tests::put(exec, id_list{-7});
    device.fail_after(allocations);
    bool thrown = false;
    try {
      store.locate(exec, more.view(), slot.view());
    } catch (std::bad_alloc const&) {
      thrown = true;
    }
    device.never_fail();
    CHECK(store.rows() == 32);
    auto const found = find_there(exec, store, {100 + allocations});
    if (found[0] >= 0) CHECK(initial_there(exec, store, {100 + allocations}, found));
    if (!thrown) CHECK(found[0] >= 0);
  }
}

TEST_CASE("bucket_place: an id's slots are those of its bucket, each once, its own group's first") {
  using tessera::detail::bucket_place;
  std::mt19937_64 random(3);
  for (std::int64_t const groups : {1, 2, 31, 32, 33, 63, 64, 65, 100, 1000})
    for (std::int64_t const each : {1, 32}) {
      std::map<std::int64_t, std::int64_t> size_of;  // of buckets by first group
      bool right = true;
      for (int draw = 0; draw < 16000; ++draw) {
        auto const id = static_cast<std::int64_t>(random() >> 1);
        bucket_place const place(id, {groups, each});
        auto first = place.group(0);
        for (int g = 1; g < place.groups(); ++g) first = std::min(first, place.group(g));
        size_of[first] = place.groups();
        if (draw >= 200) continue;  // enough for what holds of each id; the others find all buckets
        std::set<std::int64_t> slots;
        for (int k = 0; k < place.slots(); ++k) slots.insert(place.slot(k));
        right = right && static_cast<int>(slots.size()) == place.slots() && *slots.begin() == first * 32 &&
                *slots.rbegin() == *slots.begin() + place.slots() - 1 && *slots.rbegin() < groups * 32 &&
                place.slot(0) / 32 == place.group(0) && place.tag() >= 1 && place.tag() <= 255;
      }
      CHECK(right);
      std::int64_t next = 0;
      for (auto const& [group, size] : size_of) {
        CHECK(group == next);
        CHECK((size >= each || size == groups));
        CHECK(size < 2 * each + (each == 1));
        next += size;
      }
      CHECK(next == groups);
    }
  constexpr auto most = std::int64_t{1} << 32;
  bucket_place const far(7, {most, 1});
  CHECK(far.group(0) == static_cast<std::int64_t>(tessera::mix_bits(7) >> 32));
}

TEST_CASE("tag_bytes finds each equal byte, the lowest exactly") {
  using tessera::detail::tag_bytes;
  std::mt19937_64 random(5);
  bool right = true;
  for (int draw = 0; draw < 20000; ++draw) {
    auto word = random();
    auto const tag = draw % 3 == 0 ? 0 : random() % 256;
    for (int b = 0; b < 8; ++b)
      if (random() % 4 == 0) word = (word & ~(std::uint64_t{0xFF} << 8 * b)) | tag << 8 * b;
    std::set<int> found, expected;
    for (auto bits = tag_bytes::equal(word, tag); bits != 0; bits &= bits - 1) found.insert(tag_bytes::first(bits));
    for (int b = 0; b < 8; ++b)
      if ((word >> 8 * b & 0xFF) == tag) expected.insert(b);
    right = right && std::includes(found.begin(), found.end(), expected.begin(), expected.end()) && found.empty() == expected.empty() &&
            (found.empty() || *found.begin() == *expected.begin());
  }
  CHECK(right);
}

TEST_CASE("up to 4/5 full, buckets of a table that keeps all do not overflow") {
  // The tail of a Poisson distribution: more ids than slots in a bucket of 1024 of which 4/5 are expected.
  double const mean = 1024 * 0.8;
  double expected_past = 0;
  for (int n = 1025; n < 2048; ++n) expected_past += (n - 1024) * std::exp(-mean + n * std::log(mean) - std::lgamma(n + 1.0));
  CHECK(expected_past / mean < 5e-13);
}
