// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-labels: threads
#include "keyed_support.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <tessera/tensor/bucketize.hpp>

using namespace tensor_tests;
using tessera::block_buckets;
using tessera::hashed_buckets;
using tessera::outside_blocks;

namespace {

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

}  // namespace

TEST_CASE("blocks of ids, hashed ids, and the way back") {
  for_each_batch([](tessera::host_exec const& exec, auto view, model const& keys, std::mt19937_64& random) {
    auto const check = [&](std::int64_t buckets, auto const& policy, auto const& naive) {
      CAPTURE(buckets);
      ids positions(static_cast<std::size_t>(view.size()), -1);
      auto const result = tessera::bucketize(exec, view, buckets, policy, positions);
      check_batch(result, bucketized(keys, buckets, naive));
      CHECK(equal(tessera::bucketize(exec, view, buckets, policy).view(), result.view()));
      // Positions are a permutation; what each value is in its bucket, and its weight, lie there.
      std::vector<char> seen(positions.size(), 0);
      bool right = true;
      std::size_t next = 0;
      for (std::size_t key = 0; key < keys.size(); ++key)
        for (auto const& row : keys[key])
          for (std::size_t i = 0; i < row.values.size(); ++i, ++next) {
            auto const at = positions[next];
            right = right && at >= 0 && at < view.size() && seen[static_cast<std::size_t>(at)]++ == 0;
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
  });
}

TEST_CASE("more buckets than ids") {
  for_each_batch([](tessera::host_exec const& exec, auto view, model const& keys, std::mt19937_64&) {
    if (keys.size() != 1) return;
    for (std::int64_t const buckets : {1000, 4096, 5000}) {
      auto const result = tessera::bucketize(exec, view, buckets, block_buckets{.block_size = 1});
      check_batch(result, bucketized(keys, buckets, [](std::size_t, std::int64_t id) { return place{id, 0}; }));
    }
  });
}

TEST_CASE("buckets by hand: all keys of the first, then of the second") {
  tessera_tests::serial_host host;
  auto const batch = tessera::keyed_jagged<>::from_rows(host.exec(), {{"a", {{5, 0, 9}, {}}}, {"b", {{4, 6}}}});
  ids positions(5);
  CHECK(text(tessera::bucketize(host.exec(), batch, 2, block_buckets{.block_size = 5}, positions)) ==
        "{0: [[0], []], 1: [[4]], 2: [[0, 4], []], 3: [[1]]}");
  CHECK(positions == ids{2, 0, 3, 1, 4});
}

TEST_CASE("ids outside the blocks are refused by name, or spread so that no block holds them") {
  tessera_tests::for_each_host([](tessera::host_exec const& exec, tessera_tests::counting_memory&) {
    for (std::int64_t const wrong : {std::int64_t{20}, std::int64_t{21}, std::int64_t{-1}, INT64_MIN, INT64_MAX}) {
      CAPTURE(wrong);
      auto const batch = tessera::keyed_jagged<>::from_rows(exec, {{"a", {{1}, {2}}}, {"b", {{}, {3, 19, wrong}, {wrong}}}});
      auto e = error_of([&] { tessera::bucketize(exec, batch, 2, block_buckets{.block_size = 10}); });
      CHECK(e.code() == tessera::errc::out_of_range);
      CHECK(e.value("key") == "b");
      CHECK(e.value("row") == "1");
      CHECK(e.value("position") == "2");
      CHECK(e.value("id") == std::to_string(wrong));
      e = error_of([&] { tessera::bucketize(exec, batch.view().slice_keys(1, 1), 2, block_buckets{.block_size = 10}); });
      CHECK(e.value("key") == "0");
      CHECK(e.value("row") == "1");
      auto const spread = tessera::bucketize(exec, batch, 2, block_buckets{.block_size = 10, .outside = outside_blocks::spread});
      auto const bits = static_cast<std::uint64_t>(wrong);
      auto const there = spread.view().slice_keys(bits % 2 == 0 ? 0 : 2, 2).key(1);
      CHECK(there.row(2)[0] == static_cast<std::int64_t>(bits / 2));
      CHECK(there.row(2)[0] >= 10);
      CHECK(tessera::bucketize(exec, batch, 2, hashed_buckets{}).view().size() == 6);
    }
  });
}

TEST_CASE("blocks of any size, ids up to the largest") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  std::vector<std::int64_t> sizes{1, 2, 3, 64, 1000, std::int64_t{1} << 40, (std::int64_t{1} << 62) - 1, std::int64_t{1} << 62, INT64_MAX};
  for (int i = 0; i < 20; ++i) sizes.push_back(static_cast<std::int64_t>(random() >> (1 + random() % 60)) | 1);
  tessera_tests::for_each_host([&](tessera::host_exec const& exec, tessera_tests::counting_memory&) {
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
        auto const batch = batch_of<std::int64_t>(exec, keys);
        check_batch(tessera::bucketize(exec, batch, buckets, block_buckets{.block_size = size}),
                    bucketized(keys, buckets, [&](std::size_t, std::int64_t id) {
                      return place{id / size, id % size};
                    }));
        for (std::int64_t const negative : {INT64_MIN, INT64_MIN + 1, std::int64_t{-1}}) {
          auto const one = tessera::keyed_jagged<>::from_rows(exec, {{"a", {{negative}}}});
          CHECK(error_of([&] { tessera::bucketize(exec, one, buckets, block_buckets{.block_size = size}); }).value("id") ==
                std::to_string(negative));
          CHECK(block_buckets{.block_size = size}.place(0, negative, buckets).bucket < 0);
        }
      }
  });
}

TEST_CASE("the first id without a bucket is named, wherever it stands") {
  tessera_tests::for_each_host([](tessera::host_exec const& exec, tessera_tests::counting_memory&) {
    auto const check = [&]<class T>(T) {
      for (std::size_t length = 1; length < 140; length += length < 20 ? 1 : 17)
        for (std::size_t wrong = 0; wrong < length; ++wrong) {
          std::vector<T> ids(length, 1);
          ids[wrong] = 20;
          ids.back() = wrong + 1 < length ? 21 : 20;
          auto const batch = tessera::keyed_jagged<T>::from_rows(exec, {{"a", {{1}, ids}}});
          auto const e = error_of([&] { tessera::bucketize(exec, batch, 2, block_buckets{.block_size = 10}); });
          CHECK(e.value("row") == "1");
          CHECK(e.value("position") == std::to_string(wrong));
          CHECK(e.value("id") == "20");
        }
    };
    check(std::int64_t{});
    check(std::int32_t{});
    check(std::int8_t{});
  });
}

TEST_CASE("ids that spread to what their type cannot hold are refused") {
  tessera_tests::serial_host host;
  // Of 2^64 - 1, a third: its lower 32 bits alone are an id that a large block holds.
  block_buckets const policy{.block_size = 1'500'000'000, .outside = outside_blocks::spread};
  auto const narrow = tessera::keyed_jagged<std::int32_t>::from_rows(host.exec(), {{"a", {{7}, {2'000'000'000, -1}}}});
  auto const e = error_of([&] { tessera::bucketize(host.exec(), narrow, 3, policy); });
  CHECK(e.code() == tessera::errc::out_of_range);
  CHECK(e.value("key") == "a");
  CHECK(e.value("row") == "1");
  CHECK(e.value("position") == "1");
  CHECK(e.value("id") == "-1");
  CHECK(e.value("id in the bucket") == "6148914691236517205");
  // Ids past the blocks that are not negative fit as they are.
  block_buckets const small{.block_size = 10, .outside = outside_blocks::spread};
  auto const past = tessera::keyed_jagged<std::int32_t>::from_rows(host.exec(), {{"a", {{41, 2'000'000'001}}}});
  CHECK(text(tessera::bucketize(host.exec(), past, 2, small)) == "{0: [[]], 1: [[20, 1000000000]]}");
  // A policy of one's own, too.
  struct shifted {
    constexpr tessera::placed_id place(std::int64_t, std::int64_t id, std::int64_t) const noexcept { return {0, id << 8}; }
  };
  auto const bytes = tessera::keyed_jagged<std::uint8_t>::from_rows(host.exec(), {{"a", {{0, 1}}}});
  CHECK(error_of([&] { tessera::bucketize(host.exec(), bytes, 1, shifted{}); }).value("id in the bucket") == "256");
}

TEST_CASE("a policy of one's own") {
  struct by_parity {
    constexpr tessera::placed_id place(std::int64_t, std::int64_t id, std::int64_t) const noexcept { return {id == 4 ? 9 : id % 2, -id}; }
  };
  tessera_tests::serial_host host;
  auto const batch = tessera::keyed_jagged<std::int32_t>::from_rows(host.exec(), {{"a", {{1, 2, 3}}}});
  CHECK(text(tessera::bucketize(host.exec(), batch, 2, by_parity{})) == "{0: [[-2]], 1: [[-1, -3]]}");
  auto const four = tessera::keyed_jagged<std::int32_t>::from_rows(host.exec(), {{"a", {{1, 4, 3}}}});
  CHECK(error_of([&] { tessera::bucketize(host.exec(), four, 2, by_parity{}); }).value("id") == "4");
}

TEST_CASE("hashed buckets are even") {
  ids counts(10);
  for (std::int64_t id = -5000; id < 5000; ++id) ++counts[static_cast<std::size_t>(hashed_buckets{}.place(0, id, 10).bucket)];
  // Binomial: mean 1000, deviation 30.
  for (auto const count : counts) {
    CHECK(count > 850);
    CHECK(count < 1150);
  }
}

TEST_CASE("buckets and block sizes that cannot be") {
  tessera_tests::serial_host host;
  auto const batch = named_batch(host.exec());
  auto const refused = [&](std::int64_t buckets, block_buckets const& policy, ids positions = {}) {
    return error_of([&] { tessera::bucketize(host.exec(), batch, buckets, policy, positions); });
  };
  CHECK(refused(0, {.block_size = 10}).code() == tessera::errc::invalid_argument);
  CHECK(refused(std::int64_t{1} << 31, {.block_size = 10}).code() == tessera::errc::invalid_argument);
  CHECK(refused(2, {}).value("block size") == "0");
  ids const one{10}, zero{10, 0};
  CHECK(refused(2, {.block_sizes = one}).code() == tessera::errc::shape_mismatch);
  CHECK(refused(2, {.block_sizes = zero}).value("key") == "1");
  CHECK(refused(2, {.block_size = 10}, ids(6)).value("positions") == "6");
}

TEST_CASE("division by a number that stays") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  constexpr auto most = ~std::uint64_t{0};
  std::vector<std::uint64_t> divisors{1, 2, 3, 5, 7, 641, (std::uint64_t{1} << 32) - 1, std::uint64_t{1} << 32, most / 2, most / 2 - 1};
  for (int i = 0; i < 300; ++i) divisors.push_back((random() >> (1 + random() % 62)) | 1);
  for (auto const divisor : divisors) {
    CAPTURE(divisor);
    tessera::detail::fixed_divisor const by(divisor);
    std::vector<std::uint64_t> numbers{0, 1, divisor - 1, divisor, divisor + 1, most, most - 1, most / divisor * divisor};
    for (int i = 0; i < 100; ++i) {
      numbers.push_back(random() >> (random() % 63));
      numbers.push_back(random() / divisor * divisor - 1);
    }
    std::size_t wrong = 0;
    for (auto const n : numbers) wrong += by.quotient(n) != n / divisor;
    CHECK(wrong == 0);
  }
}
