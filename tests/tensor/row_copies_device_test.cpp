// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <tessera/tensor/permute_keys.cuh>
#include <tessera/tensor/range_tiles.cuh>
#include <tessera/tensor/row_copies.cuh>
#include <tessera/tensor/select_rows.cuh>
#include <tessera/tensor/truncate_rows.cuh>

#include <algorithm>
#include <array>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "../support/emulated_verbs.hpp"
#include "rows_harness.hpp"

using namespace tensor_tests;
using tessera::detail::for_each_part;
using tessera::detail::packet_width;
using tessera::detail::tile_numbers;

namespace {

struct part {
  std::int64_t range, within, at, count;
  friend bool operator==(part const&, part const&) = default;
};

std::vector<part> parts_of(ids const& starts, std::int64_t low, std::int64_t high, std::int64_t first, std::int64_t last) {
  std::vector<part> parts;
  for_each_part(starts.data(), low, high, first, last, [&](std::int64_t range, std::int64_t within, std::int64_t at, std::int64_t count) {
    parts.push_back({range, within, at, count});
  });
  return parts;
}

}  // namespace

TEST_CASE("packets are 16 bytes, or one value; a tile is some packets a thread") {
  static_assert(packet_width<std::int64_t> == 2 && packet_width<float> == 4 && packet_width<unsigned char> == 16);
  static_assert(packet_width<three_bytes> == 1 && packet_width<std::array<double, 2>> == 1 && packet_width<std::array<double, 3>> == 1);
  CHECK(tile_numbers(1) == 2048);
  CHECK(tile_numbers(2) == 2048);
  CHECK(tile_numbers(16) == 16384);
}

TEST_CASE("parts of ranges: empty ones are passed over, none is longer than its range, past 2^31 too") {
  CHECK(parts_of({0, 3, 3, 3, 5, 9}, 0, 5, 0, 9) == std::vector<part>{{0, 0, 0, 3}, {3, 0, 3, 2}, {4, 0, 5, 4}});
  CHECK(parts_of({0, 3, 3, 3, 5, 9}, 0, 5, 2, 4) == std::vector<part>{{0, 2, 2, 1}, {3, 0, 3, 1}});
  CHECK(parts_of({0, 3, 3, 3, 5, 9}, 3, 4, 4, 5) == std::vector<part>{{3, 1, 4, 1}});
  CHECK(parts_of({0, 3, 3, 3, 5, 9}, 0, 5, 4, 4).empty());
  constexpr auto far = std::int64_t{1} << 33;
  CHECK(parts_of({0, far, far, far + 7}, 0, 3, far - 1, far + 2) == std::vector<part>{{0, far - 1, far - 1, 1}, {2, 0, far, 2}});
}

TEST_CASE("sums that came round lead to no part outside of its range") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  for (int round = 0; round < 2000; ++round) {
    auto starts = tessera_tests::random_integers<std::int64_t>(random, 1 + random() % 20, -50, 50);
    starts.insert(starts.begin(), 0);
    auto const ranges = static_cast<std::int64_t>(starts.size()) - 1;
    if (starts.back() <= 0) continue;
    auto const first = static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(starts.back()));
    bool within = true;
    for (auto const& p : parts_of(starts, 0, ranges, first, starts.back())) {
      auto const begin = starts[static_cast<std::size_t>(p.range)], end = starts[static_cast<std::size_t>(p.range) + 1];
      within = within && p.range >= 0 && p.range < ranges && p.within == p.at - begin && p.within >= 0 && p.at + p.count <= end;
      within = within && p.count > 0;
    }
    CHECK(within);
  }
}

TEST_CASE("an offset never leads past the room") {
  using tessera::detail::offset_within;
  CHECK(offset_within<std::int32_t>(7, 10) == 7);
  CHECK(offset_within<std::int32_t>(11, 10) == 10);
  CHECK(offset_within<std::int32_t>(std::int64_t{1} << 40, 10) == 10);
  CHECK(offset_within<std::int64_t>(-1, 10) == 10);
}

TEST_CASE("what comes of a fault can be worked on until somebody asks") {
  tessera_tests::emulated_device device;
  auto const exec = device.exec();
  rows_on_device const harness(exec);
  tessera_tests::serial_host host;
  auto const given = named_batch(host.exec());
  auto const batch = harness.put(given);
  for (std::int64_t const told : {0, 1, 3, 6}) {
    auto const cut = tessera::permute_keys(exec, batch.view(), ids{1, 0}, {.most_values = told});
    auto const indices = harness.numbers(ids{1, 0, 1, 7});
    auto const selected = tessera::select_rows(exec, cut.view(), indices);
    auto const shorter = tessera::truncate_rows(exec, selected.view(), 2, tessera::kept_values::last);
    CHECK(refusal_of(harness, [&] {
            return tessera::permute_keys(exec, shorter.view(), ids{0, 0, 1});
          }) == "permute_keys: more values than the result was given room for (values 7, room " + std::to_string(told) + ")");
  }
}
