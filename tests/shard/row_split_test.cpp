// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <tessera/shard/row_split.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

#include <hosts.hpp>
#include <random.hpp>

namespace row_split_test {

namespace {

using tessera::detail::row_range;
using tessera::detail::row_split;
using tessera::detail::split_options;

}  // namespace

TEST_CASE("row_split: each range gets its own ids in their order, with their rows and scales; ids of no range are listed") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  tessera_tests::pool_host<2> host;
  auto const exec = host.exec();
  std::vector<tessera::detail::split_ids> parts;  // whose memory serves all rounds
  for (int round = 0; round < 200; ++round) {
    // Ranges that overlap, touch, are there twice, or leave gaps.
    std::vector<row_range> ranges(1 + random() % 5);
    std::vector<row_split> splits(3);
    bool const hashed = random() % 2 == 0;
    bool const keeps_ids = hashed || random() % 2 == 0;
    splits[1] = row_split(hashed ? 35 : 0, keeps_ids, hashed ? 0 : 36);
    auto const row_of = [&](std::int64_t id) { return hashed ? tessera::hashed_row(id, 35) : id; };
    std::vector<std::size_t> numbers;
    for (auto& range : ranges) {
      range = {static_cast<std::int64_t>(random() % 20), 1 + static_cast<std::int64_t>(random() % 10)};
      if (random() % 4 == 0) range = ranges[0].count > 0 ? ranges[0] : range;
      numbers.push_back(splits[1].add(range));
      CHECK(splits[1].add(range) == numbers.back());
    }
    CHECK(splits[0].empty());
    CHECK_FALSE(splits[1].empty());
    bool const weighted = random() % 2 == 0;
    split_options const options{random() % 2 == 0, random() % 2 == 0, random() % 2 == 0 ? tessera::pooling::mean : tessera::pooling::sum,
                                random() % 2 == 0};
    std::vector<tessera::feature_rows<>> keys;
    for (int key = 0; key < 3; ++key) {
      std::vector<std::vector<std::int64_t>> rows(random() % 8);
      std::vector<std::vector<float>> weights;
      for (auto& row : rows) {
        row = tessera_tests::random_integers<std::int64_t>(random, random() % 5, -3, 35);
        if (weighted) weights.push_back(tessera_tests::random_floats(random, row.size()));
      }
      keys.emplace_back(std::to_string(key), std::move(rows), std::move(weights));
    }
    auto const owned = tessera::keyed_jagged<>::from_rows(exec, keys);
    auto const batch = owned.view();
    tessera::detail::split_keys(
        exec, batch, splits, [&](std::size_t) { return options; }, parts);

    auto const bags = batch.key(1);
    bool same = true;
    for (std::size_t r = 0; r < ranges.size(); ++r) {
      auto const& part = parts[1].parts[numbers[r]];
      std::int64_t n = 0, rows_there = 0;
      for (std::int64_t row = 0; row < bags.rows; ++row) {
        auto const before = n;
        for (auto p = bags.begin_of(row); p < bags.end_of(row); ++p) {
          auto const id = bags.values[p];
          if (row_of(id) < ranges[r].first || row_of(id) >= ranges[r].first + ranges[r].count) continue;
          REQUIRE(n < part.ids.size());
          same &= part.ids[n] == (keeps_ids ? id : id - ranges[r].first) && (options.partial || part.positions[n] == p - bags.offsets[0]);
          auto const scale = options.partial ? 1.0F : tessera::pooling_scale(options.pooled, bags.length(row));
          if (options.scaled) same &= part.scales[n] == scale * (batch.weighted() ? batch.weights[p] : 1.0F);
          ++n;
        }
        if (!options.keeps_rows && (!options.partial || n == before)) continue;
        if (options.partial) same &= part.positions[rows_there] == row;
        same &= part.offsets[++rows_there] == n;
      }
      bool const has_rows = options.keeps_rows || options.partial;
      same &= part.ids.size() == n && part.scales.size() == (options.scaled ? n : 0);
      same &= part.measured.values == n && part.measured.rows == (has_rows ? rows_there : n) && part.measured.id_bytes == (hashed ? 8 : 4);
      same &= part.rows().rows == part.measured.rows && part.measured.weighted == (options.scaled ? 1 : 0);
    }
    bool const has_means = options.partial && options.pooled == tessera::pooling::mean;
    same &= parts[1].means.size() == (has_means ? bags.rows : 0);
    for (std::int64_t row = 0; has_means && row < bags.rows; ++row)
      same &= parts[1].means[row] == tessera::pooling_scale(options.pooled, bags.length(row));
    std::int64_t absent = 0;
    for (std::int64_t i = 0; i < bags.size(); ++i) {
      bool is_there = false;
      for (auto const& range : ranges) {
        auto const id = bags.all_values()[i];
        is_there |= row_of(id) >= range.first && row_of(id) < range.first + range.count;
      }
      if (!is_there) same &= absent < parts[1].absent.size() && parts[1].absent[absent++] == i;
    }
    same &= absent == parts[1].absent.size();
    CHECK(same);
  }
}

TEST_CASE("row_split: vectors are copied from places and to places, and those of absent ids are zeros") {
  tessera_tests::serial_host host;
  std::vector<float> from{1, 2, 3, 4, 5, 6}, gathered(4), placed(8, 9.0F);
  std::vector<std::int64_t> const places{2, 0};
  tessera::detail::copy_rows(host.exec(), {{{from.data(), 3, 2}, {gathered.data(), 2, 2}, places.data(), nullptr},
                                           {{from.data(), 2, 2}, {placed.data(), 4, 2}, nullptr, places.data()}});
  CHECK(gathered == std::vector<float>{5, 6, 1, 2});
  CHECK(placed == std::vector<float>{3, 4, 9, 9, 1, 2, 9, 9});
  std::vector<float> const scales{0.5F, 7, 2};
  tessera::detail::copy_rows(host.exec(), {{{from.data(), 3, 2}, {gathered.data(), 2, 2}, places.data(), nullptr, scales.data()}});
  CHECK(gathered == std::vector<float>{10, 12, 0.5F, 1});
  tessera::detail::split_ids ids;
  ids.absent.resize(host.exec(), 1);
  ids.absent[0] = 3;
  ids.clear_absent({placed.data(), 4, 2});
  CHECK(placed == std::vector<float>{3, 4, 9, 9, 1, 2, 0, 0});
}

}  // namespace row_split_test
