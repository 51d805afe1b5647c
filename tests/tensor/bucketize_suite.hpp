// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include <tessera/tensor/bucketize.hpp>

#include "rows_harness.hpp"

namespace bucketize_tests {

using namespace tensor_tests;
using tessera::block_buckets;
using tessera::hashed_buckets;
using tessera::outside_blocks;

template <class Policy>
model bucketized(model const& keys, std::int64_t buckets, Policy const& policy) {
  model expected;
  for (std::int64_t bucket = 0; bucket < buckets; ++bucket)
    for (std::size_t key = 0; key < keys.size(); ++key) {
      expected.emplace_back();
      for (auto const& row : keys[key]) {
        expected.back().emplace_back();
        for (std::size_t i = 0; i < row.values.size(); ++i) {
          auto const [to, id] = policy(key, row.values[i]);
          if (to != bucket) continue;
          expected.back().back().values.push_back(id);
          if (!row.weights.empty()) expected.back().back().weights.push_back(row.weights[i]);
        }
      }
    }
  return expected;
}

struct place {
  std::int64_t bucket;
  std::int64_t id;
};

// A policy of one's own: what an id is called is more than a byte.
struct shifted {
  TESSERA_HOST_DEVICE constexpr tessera::placed_id place(std::int64_t, std::int64_t id, std::int64_t) const noexcept {
    return {0, id << 8};
  }
};
struct by_parity {
  TESSERA_HOST_DEVICE constexpr tessera::placed_id place(std::int64_t, std::int64_t id, std::int64_t) const noexcept {
    return {id == 4 ? 9 : id % 2, -id};
  }
};

template <class Harness>
void batches(Harness const& harness) {
  auto const& exec = harness.exec;
  for_each_batch_of(harness, [&](auto view, auto host_view, model const& keys, std::mt19937_64& random) {
    auto const check = [&](std::int64_t buckets, auto const& policy, auto const& naive) {
      CAPTURE(buckets);
      auto const size = host_view.size();
      auto places = harness.numbers(ids(static_cast<std::size_t>(size), -1));
      auto const result = harness.get(
          tessera::bucketize(exec, view, buckets, policy,
                             places.size() == 0 ? tessera::vector_view<std::int64_t>{} : tessera::vector_view<std::int64_t>(places)));
      check_batch(result, bucketized(keys, buckets, naive));
      CHECK(equal(harness.get(tessera::bucketize(exec, view, buckets, policy, {}, {.most_values = size})).view(), result.view()));
      // Positions are a permutation; what each value is in its bucket, and its weight, lie there.
      auto const positions = harness.get(places);
      std::vector<char> seen(positions.size(), 0);
      bool right = true;
      std::size_t next = 0;
      for (std::size_t key = 0; key < keys.size(); ++key)
        for (auto const& row : keys[key])
          for (std::size_t i = 0; i < row.values.size(); ++i, ++next) {
            auto const at = positions[next];
            right = right && at >= 0 && at < size && seen[static_cast<std::size_t>(at)]++ == 0;
            right = right && result.view().values[at] == naive(key, row.values[i]).id;
            if (view.weighted()) right = right && result.view().weights[at] == row.weights[i];
          }
      CHECK(right);
    };
    // Ids are below 1000.
    for (std::int64_t const buckets : {1, 2, 7}) {
      auto const size = 1000 / buckets + 1;
      check(buckets, block_buckets{.block_size = size}, [&](std::size_t, std::int64_t id) { return place{id / size, id % size}; });
      check(buckets, hashed_buckets{}, [&](std::size_t, std::int64_t id) {
        auto const upper = tessera::mix_bits(static_cast<std::uint64_t>(id)) >> 32;
        return place{static_cast<std::int64_t>((upper * static_cast<std::uint64_t>(buckets)) >> 32), id};
      });
      auto const sizes = tessera_tests::random_integers<std::int64_t>(random, keys.size(), 1, 1500);
      check(buckets, block_buckets{.block_size = 1, .block_sizes = sizes, .outside = outside_blocks::spread},
            [&](std::size_t key, std::int64_t id) {
              return id < sizes[key] * buckets ? place{id / sizes[key], id % sizes[key]} : place{id % buckets, id / buckets};
            });
    }
    if (keys.size() != 1) return;
    for (std::int64_t const buckets : {1000, 4096, 5000})
      check_batch(harness.get(tessera::bucketize(exec, view, buckets, block_buckets{.block_size = 1})),
                  bucketized(keys, buckets, [](std::size_t, std::int64_t id) {
                    return place{id, 0};
                  }));
  });
}

template <class Harness>
void by_hand(Harness const& harness) {
  auto const batch = batch_in(harness, {{"a", {{5, 0, 9}, {}}}, {"b", {{4, 6}}}});
  auto positions = harness.numbers(ids(5));
  CHECK(text(harness.get(tessera::bucketize(harness.exec, batch, 2, block_buckets{.block_size = 5}, positions))) ==
        "{0: [[0], []], 1: [[4]], 2: [[0, 4], []], 3: [[1]]}");
  CHECK(harness.get(positions) == ids{2, 0, 3, 1, 4});
  auto const small = batch_in<std::int32_t>(harness, {{"a", {{1, 2, 3}}}});
  CHECK(text(harness.get(tessera::bucketize(harness.exec, small, 2, by_parity{}))) == "{0: [[-2]], 1: [[-1, -3]]}");
}

template <class Harness>
void outside_of_blocks(Harness const& harness) {
  auto const& exec = harness.exec;
  for (std::int64_t const wrong : {std::int64_t{20}, std::int64_t{21}, std::int64_t{-1}, INT64_MIN, INT64_MAX}) {
    CAPTURE(wrong);
    auto const batch = batch_in(harness, {{"a", {{1}, {2}}}, {"b", {{}, {3, 19, wrong}, {wrong}}}});
    auto e = refusal(harness, [&] { return tessera::bucketize(exec, batch.view(), 2, block_buckets{.block_size = 10}); });
    CHECK(std::string(e.what()) == "bucketize: no bucket for an id (key 1, row 1, position 2, id " + std::to_string(wrong) +
                                       ", buckets 2, id in the bucket " + std::to_string(wrong) + ")");
    e = refusal(harness, [&] { return tessera::bucketize(exec, batch.view().slice_keys(1, 1), 2, block_buckets{.block_size = 10}); });
    CHECK(e.value("key") == "0");
    CHECK(e.value("row") == "1");
    auto const spread = harness.get(tessera::bucketize(exec, batch, 2, block_buckets{.block_size = 10, .outside = outside_blocks::spread}));
    auto const bits = static_cast<std::uint64_t>(wrong);
    auto const spread_key = spread.view().slice_keys(bits % 2 == 0 ? 0 : 2, 2).key(1);
    CHECK(spread_key.row(2)[0] == static_cast<std::int64_t>(bits / 2));
    CHECK(spread_key.row(2)[0] >= 10);
    CHECK(harness.get(tessera::bucketize(exec, batch, 2, hashed_buckets{})).view().size() == 6);
  }
}

template <class Harness>
void blocks_of_any_size(Harness const& harness) {
  auto const& exec = harness.exec;
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  std::vector<std::int64_t> sizes{1, 2, 3, 64, 1000, std::int64_t{1} << 40, (std::int64_t{1} << 62) - 1, std::int64_t{1} << 62, INT64_MAX};
  for (int i = 0; i < 20; ++i) sizes.push_back(static_cast<std::int64_t>(random() >> (1 + random() % 60)) | 1);
  for (auto const size : sizes)
    for (std::int64_t const buckets : {1, 2, 3, 8}) {
      CAPTURE(size);
      CAPTURE(buckets);
      auto const last = size > INT64_MAX / buckets ? INT64_MAX : size * buckets - 1;
      model_rows rows;
      for (int r = 0; r < 30; ++r) {
        rows.push_back({{0, last, std::min(size - 1, last), std::min(size, last)}, {}});
        for (auto i = random() % 20; i > 0; --i)
          rows.back().values.push_back(last == INT64_MAX ? static_cast<std::int64_t>(random() >> 1)
                                                         : static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(last + 1)));
      }
      model const keys{rows};
      auto const batch = harness.put(batch_of<std::int64_t>(harness.on_host(), keys));
      check_batch(harness.get(tessera::bucketize(exec, batch, buckets, block_buckets{.block_size = size})),
                  bucketized(keys, buckets, [&](std::size_t, std::int64_t id) {
                    return place{id / size, id % size};
                  }));
      for (std::int64_t const negative : {INT64_MIN, INT64_MIN + 1, std::int64_t{-1}}) {
        auto const one = batch_in(harness, {{"a", {{negative}}}});
        CHECK(refusal(harness, [&] { return tessera::bucketize(exec, one, buckets, block_buckets{.block_size = size}); }).value("id") ==
              std::to_string(negative));
        CHECK(block_buckets{.block_size = size}.place(0, negative, buckets).bucket < 0);
      }
    }
}

// Of the ids without a bucket, and of those that do not fit, the first is named, wherever it stands.
template <class T, class Harness>
void first_wrong(Harness const& harness) {
  for (std::size_t length = 1; length < 140; length += length < 20 ? 1 : 17)
    for (std::size_t wrong = 0; wrong < length; wrong += length < 20 ? 1 : 5) {
      std::vector<T> values(length, 1);
      values[wrong] = 20;
      values.back() = wrong + 1 < length ? 21 : 20;
      auto const batch = batch_in<T>(harness, {{"a", {{1}, values}}});
      auto const e = refusal(harness, [&] { return tessera::bucketize(harness.exec, batch, 2, block_buckets{.block_size = 10}); });
      CHECK(e.value("row") == "1");
      CHECK(e.value("position") == std::to_string(wrong));
      CHECK(e.value("id") == "20");
    }
}

template <class Harness>
void unfit_ids(Harness const& harness) {
  auto const& exec = harness.exec;
  // Of 2^64 - 1, a third: its lower 32 bits alone are an id that a large block holds.
  block_buckets const policy{.block_size = 1'500'000'000, .outside = outside_blocks::spread};
  auto const ids_of_32_bits = batch_in<std::int32_t>(harness, {{"a", {{7}, {2'000'000'000, -1}}}});
  CHECK(refusal_of(harness, [&] { return tessera::bucketize(exec, ids_of_32_bits.view(), 3, policy); }) ==
        "bucketize: what an id is called in its bucket does not fit its type (key 0, row 1, position 1, id -1, buckets 3, id in the bucket "
        "6148914691236517205)");
  // Ids past the blocks that are not negative fit as they are.
  block_buckets const small{.block_size = 10, .outside = outside_blocks::spread};
  auto const past = batch_in<std::int32_t>(harness, {{"a", {{41, 2'000'000'001}}}});
  CHECK(text(harness.get(tessera::bucketize(exec, past, 2, small))) == "{0: [[]], 1: [[20, 1000000000]]}");
  // A policy of one's own, too.
  auto const bytes = batch_in<std::uint8_t>(harness, {{"a", {{0, 1}}}});
  CHECK(refusal(harness, [&] { return tessera::bucketize(exec, bytes, 1, shifted{}); }).value("id in the bucket") == "256");
  auto const four = batch_in<std::int32_t>(harness, {{"a", {{1, 4, 3}}}});
  CHECK(refusal(harness, [&] { return tessera::bucketize(exec, four, 2, by_parity{}); }).value("id") == "4");
}

template <class Harness>
void rooms(Harness const& harness) {
  auto const& exec = harness.exec;
  auto const batch = named_batch_in(harness);
  auto const view = batch.view();
  auto few = harness.numbers(ids(6));
  CHECK(refusal_of(harness, [&] { return tessera::bucketize(exec, view, 2, hashed_buckets{}, few); }) ==
        "bucketize: one position a value (values 7, positions 6)");
  check_room(harness, "bucketize", 7,
             [&](tessera::result_room room) { return tessera::bucketize(exec, view, 2, hashed_buckets{}, {}, room); });
  CHECK(equal(harness.get(tessera::bucketize(exec, without_room(view), 2, hashed_buckets{})).view(),
              harness.get(tessera::bucketize(exec, view, 2, hashed_buckets{})).view()));
  CHECK(waits_of(harness, 0, [&] { tessera::bucketize(exec, view, 2, hashed_buckets{}); }) == 0);
  CHECK(waits_of(harness, 0, [&] { tessera::bucketize(exec, without_room(view), 2, hashed_buckets{}, {}, {.most_values = 7}); }) == 0);
}

}  // namespace bucketize_tests

/// What every execution must show.
template <class Harness>
void bucketize_suite(Harness const& harness) {
  using namespace bucketize_tests;
  SUBCASE("blocks of ids, hashed ids, and the way back; more buckets than ids") { batches(harness); }
  SUBCASE("by hand: all keys of the first bucket, then of the second; a policy of one's own") { by_hand(harness); }
  SUBCASE("ids outside the blocks are refused by name, or spread so that no block holds them") { outside_of_blocks(harness); }
  SUBCASE("blocks of any size, ids up to the largest") { blocks_of_any_size(harness); }
  SUBCASE("the first id without a bucket is named, wherever it stands") {
    first_wrong<std::int64_t>(harness);
    first_wrong<std::int32_t>(harness);
    first_wrong<std::int8_t>(harness);
  }
  SUBCASE("ids that spread to what their type cannot hold are refused") { unfit_ids(harness); }
  SUBCASE("what there is room for") { rooms(harness); }
}
