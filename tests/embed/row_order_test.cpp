// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-labels: threads
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

#include <tessera/embed/row_order.hpp>

#include "hosts.hpp"
#include "random.hpp"

namespace {

struct named_position {
  std::int64_t slot, position;
  bool operator==(named_position const&) const = default;
};

struct order_batch {
  std::vector<std::int64_t> ids, offsets{0}, first_row{0}, table_of_key;
  tessera::keyed_jagged_view<std::int64_t const> view() const {
    return {ids.data(), nullptr, offsets.data(), first_row.data(), static_cast<std::int64_t>(table_of_key.size())};
  }
  std::int64_t table(std::int64_t key) const { return table_of_key[static_cast<std::size_t>(key)]; }
};

// Ids of which some lie past the table's rows and some are negative; `rows[k]` bags of about `mean_length` ids for key k.
order_batch draw_batch(std::uint64_t seed, std::vector<std::int64_t> const& table_of_key, std::vector<std::int64_t> const& rows,
                       double mean_length, std::int64_t table_rows) {
  std::mt19937_64 random(seed);
  order_batch batch;
  batch.table_of_key = table_of_key;
  for (auto const n : rows) {
    for (auto const length : tessera_tests::random_lengths(random, static_cast<std::size_t>(n), mean_length))
      batch.offsets.push_back(batch.offsets.back() + length);
    batch.first_row.push_back(batch.first_row.back() + n);
  }
  batch.ids = tessera_tests::random_integers<std::int64_t>(random, static_cast<std::size_t>(batch.offsets.back()), -table_rows / 20,
                                                           table_rows + table_rows / 20);
  return batch;
}

// By (source rank, sample, key, position), then stably by slot.
std::vector<named_position> expected_order(order_batch const& batch, std::int64_t table, std::int64_t table_rows, std::int64_t ranks) {
  std::vector<named_position> all;
  auto const view = batch.view();
  std::int64_t samples = 0;
  for (std::int64_t key = 0; key < view.keys; ++key) samples = std::max(samples, view.rows(key));
  auto const each = view.keys / ranks;
  for (std::int64_t rank = 0; rank < ranks; ++rank)
    for (std::int64_t sample = 0; sample < samples; ++sample)
      for (auto key = rank * each; key < (rank + 1) * each; ++key) {
        if (batch.table(key) != table || sample >= view.rows(key)) continue;
        auto const bags = view.key(key);
        for (auto p = bags.begin_of(sample); p < bags.end_of(sample); ++p)
          if (auto const id = batch.ids[static_cast<std::size_t>(p)]; id >= 0 && id < table_rows) all.push_back({id, p});
      }
  std::stable_sort(all.begin(), all.end(), [](auto const& a, auto const& b) { return a.slot < b.slot; });
  return all;
}

void check_order(std::uint64_t seed, std::vector<std::int64_t> const& table_of_key, std::vector<std::int64_t> const& rows,
                 double mean_length, std::int64_t table_rows, std::int64_t ranks = 1) {
  CAPTURE(seed);
  CAPTURE(ranks);
  auto const batch = draw_batch(seed, table_of_key, rows, mean_length, table_rows);
  tessera_tests::for_each_host([&](tessera::host_exec const& exec, auto&) {
    std::vector<std::int64_t> const bounds(3, table_rows);
    std::vector<std::int64_t const*> const slots_of_key(batch.table_of_key.size(), batch.ids.data());
    tessera::row_order order;
    order.sort(exec, {batch.view(), batch.table_of_key, bounds, slots_of_key, ranks});
    CHECK(order.values() == static_cast<std::int64_t>(batch.ids.size()));
    order.visit([&](auto const& sorted) {
      for (std::int64_t t = 0; t < 3; ++t) {
        std::vector<named_position> found;
        for (std::int64_t i = 0; i < sorted.tables[t].count; ++i)
          found.push_back({static_cast<std::int64_t>(sorted.tables[t].slots[i]), static_cast<std::int64_t>(sorted.tables[t].positions[i])});
        CHECK((found == expected_order(batch, t, table_rows, ranks)));
      }
    });
  });
}

}  // namespace

TEST_CASE("row_order: sorted by row, those of a row by (sample, key, position), ids without a row left out") {
  auto const seed = tessera_tests::draw_seed();
  check_order(seed, {0, 1, 0, 2, 0}, {50, 0, 70, 31, 1}, 3, 40);         // keys that share a table, each of its own number of rows
  check_order(seed + 1, {2, 0, 2, 2}, {4000, 900, 2500, 5000}, 4, 900);  // a table's keys collected in several pieces
  check_order(seed + 2, {1}, {0}, 1, 5);                                 // an empty batch
  check_order(seed + 3, {0, 1}, {300, 10}, 600, 70'000);                 // a table that is cut over the threads
}

TEST_CASE("row_order: the positions of a source rank come before those of the next") {
  auto const seed = tessera_tests::draw_seed();
  check_order(seed, {0, 0, 1, 0, 0, 1}, {50, 70, 31, 20, 0, 90}, 3, 40, 2);  // of each rank two keys of a table, and one
  check_order(seed + 1, {0, 1, 0, 1, 0, 1, 0, 1}, {3000, 10, 0, 0, 5000, 1, 4000, 0}, 4, 900, 4);  // one; a rank without samples
  check_order(seed + 2, {2, 0, 2, 2, 0, 2}, {4000, 900, 2500, 5000, 800, 3000}, 4, 900, 2);        // in several pieces
  check_order(seed + 3, {1, 1, 1}, {300, 200, 100}, 600, 70'000, 3);                               // a table that is cut over the threads
  check_order(seed + 4, {0, 0}, {0, 0}, 1, 5, 2);                                                  // an empty batch
  check_order(seed + 5, {}, {}, 1, 5, 7);                                                          // without a key
}
