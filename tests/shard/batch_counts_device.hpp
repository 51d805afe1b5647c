// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <device_arrays.hpp>
#include <hosts.hpp>
#include <random.hpp>
#include <temporary_folder.hpp>

#include <tessera/shard/batch_counts.cuh>
#include <tessera/tensor/keyed_jagged.hpp>

/// What the host learns of a batch on a device is what it sees of the batch itself.
namespace shard_tests {

/// A batch as arrays, on the host and on a device. The first offset is not 0, and `first_row` neither.
template <class Exec>
struct arrays_of_batch {
  std::vector<std::int64_t> values, offsets, first_row;
  tessera::buffer<std::int64_t, Exec> values_there, offsets_there;

  arrays_of_batch(Exec const& exec, std::mt19937_64& random, std::int64_t keys) {
    auto const unused = static_cast<std::int64_t>(random() % 4);
    offsets.assign(static_cast<std::size_t>(unused) + 1, 3);
    first_row.push_back(unused);
    for (std::int64_t key = 0; key < keys; ++key) {
      auto const rows = random() % 3 == 0 ? 0 : random() % 400;
      for (std::uint64_t row = 0; row < rows; ++row) offsets.push_back(offsets.back() + static_cast<std::int64_t>(random() % 4));
      first_row.push_back(first_row.back() + static_cast<std::int64_t>(rows));
    }
    values = tessera_tests::random_integers<std::int64_t>(random, static_cast<std::size_t>(offsets.back() + 2), 0, 99);
    send(exec);
  }
  void send(Exec const& exec) {
    values_there = tessera_tests::put(exec, values);
    offsets_there = tessera_tests::put(exec, offsets);
  }
  tessera::inverse_keyed_jagged_view<std::int64_t const> view(bool says_room) const {
    auto const keys = static_cast<std::int64_t>(first_row.size()) - 1;
    return {{values_there.data(), nullptr, offsets_there.data(), first_row.data(), keys,
             says_room ? static_cast<std::int64_t>(values.size()) : -1},
            {},
            0};
  }
};

template <class Exec>
void batch_counts_suite(Exec const& exec) {
  using tessera::count_batch;
  using tessera_tests::error_of;
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  for (int round = 0; round < 30; ++round) {
    CAPTURE(round);
    bool const says_room = round % 2 == 0;
    std::int64_t const keys = round % 6;
    arrays_of_batch<Exec> batch(exec, random, keys);
    auto const counts = count_batch(exec, "test", batch.view(says_room));
    std::int64_t rows = batch.first_row.back() - batch.first_row.front();
    auto const begin_of = [&](std::int64_t key) {
      return batch.offsets[static_cast<std::size_t>(batch.first_row[static_cast<std::size_t>(key)])];
    };
    CHECK(counts.first_value == (rows == 0 ? 0 : 3));
    CHECK(counts.first_refused == -1);
    REQUIRE(static_cast<std::int64_t>(counts.starts.size()) == keys + 1);
    for (std::int64_t key = 0; key < keys; ++key) CHECK(counts.values(key) == begin_of(key + 1) - begin_of(key));

    // Bounds that some values reach; some keys have none.
    std::vector<std::int64_t> bounds;
    for (std::int64_t key = 0; key < keys; ++key) bounds.push_back(random() % 3 == 0 ? -1 : 95 + static_cast<std::int64_t>(random() % 10));
    if (!batch.values.empty()) batch.values[random() % batch.values.size()] = -4;
    batch.send(exec);
    std::int64_t first = -1;
    for (auto key = keys - 1; key >= 0; --key)
      for (auto p = begin_of(key + 1) - 1; p >= begin_of(key); --p) {
        auto const id = batch.values[static_cast<std::size_t>(p)], bound = bounds[static_cast<std::size_t>(key)];
        if (bound >= 0 && (id < 0 || id >= bound)) first = p - 3;
      }
    auto const looked_at = count_batch(exec, "test", batch.view(says_room), bounds);
    CHECK(looked_at.first_refused == first);
    CHECK(looked_at.starts == counts.starts);
    if (first >= 0) {
      auto const key = looked_at.key_of(first);
      CHECK(begin_of(key) - 3 <= first);
      CHECK(first < begin_of(key + 1) - 3);
    }
    if (rows == 0) continue;

    // Offsets that are none, and inverses that name no row.
    auto const good = batch.offsets;
    auto const row = random() % static_cast<std::uint64_t>(rows);
    auto const place = static_cast<std::size_t>(batch.first_row.front()) + row;
    for (auto const wrong : {std::int64_t{-5}, batch.offsets.back() + 100, INT64_MIN, INT64_MAX}) {
      batch.offsets[place] = wrong;
      batch.send(exec);
      auto const e = error_of([&] { count_batch(exec, "test", batch.view(true), bounds); });
      CHECK(e.code() == tessera::errc::invalid_argument);
      batch.offsets = good;
    }
    batch.send(exec);
    auto view = batch.view(says_room);
    view.samples = 50;
    std::vector<std::int64_t> inverse(50, 0), other(50, 0);
    auto const least_rows = view.distinct.rows(0);
    if (least_rows == 0) continue;
    inverse[20] = least_rows;
    inverse[30] = -1;
    auto const good_there = tessera_tests::put(exec, other), wrong_there = tessera_tests::put(exec, inverse);
    std::vector<tessera::row_group> groups{{0, 1, good_there.data()}};
    view.groups = groups;
    CHECK(count_batch(exec, "test", view).starts == counts.starts);
    groups[0].inverse = wrong_there.data();
    auto const e = error_of([&] { count_batch(exec, "test", view); });
    CHECK(e.code() == tessera::errc::out_of_range);
    CHECK(e.value("group") == "0");
    CHECK(e.value("sample") == "20");
    CHECK(e.value("row") == std::to_string(least_rows));
  }
}

}  // namespace shard_tests
