// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <tessera/tensor/jagged_vectors.cuh>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "../support/random.hpp"

using namespace tessera::detail;

TEST_CASE("jagged_vectors on a device: each pack has its vector and row, past 2^31 too") {
  constexpr auto giga = std::int64_t{1} << 30;
  std::vector<std::int64_t> const offsets{5, 5, 5 + 4 * giga, 5 + 4 * giga, 7 + 4 * giga};
  rows_by_offsets<std::int64_t> const rows{offsets.data(), 4};
  auto const at = [&](std::int64_t packs, std::int64_t i, std::int64_t before) {
    auto const place = place_of_pack(rows, packs, i, before);
    return std::vector{place.row, place.in_row, place.vector, place.pack};
  };
  for (std::int64_t const before : {-1, 0, 1}) {
    CHECK(at(3, 0, before) == std::vector<std::int64_t>{1, 0, 5, 0});
    CHECK(at(3, 12 * giga - 1, before) == std::vector<std::int64_t>{1, 4 * giga - 1, 4 * giga + 4, 2});
    CHECK(at(3, 12 * giga + 4, before) == std::vector<std::int64_t>{3, 1, 4 * giga + 6, 1});
  }
  auto const padded = place_of_pack(rows_by_width{3 * giga, 4}, 5, 5 * (10 * giga) + 3, -1);
  CHECK(std::vector{padded.row, padded.in_row, padded.vector, padded.pack} == std::vector<std::int64_t>{3, giga, 10 * giga, 3});
}

TEST_CASE("jagged_vectors on a device: a search from a row before finds what a search of all rows does") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  for (std::size_t const count : {1U, 2U, 7U, 300U}) {
    std::vector<std::int32_t> offsets{3};
    for (auto const length : tessera_tests::random_lengths(random, count, 2))
      offsets.push_back(offsets.back() + static_cast<std::int32_t>(length));
    offsets.back() += 1;
    rows_by_offsets<std::int32_t> const rows{offsets.data(), static_cast<std::int64_t>(count)};
    std::int64_t row = 0;
    for (auto vector = rows.first(); vector < rows.last(); ++vector) {
      while (offsets[static_cast<std::size_t>(row) + 1] <= vector) ++row;
      CHECK(rows.row_of(vector, -1) == row);
      for (std::int64_t before = 0; before <= row; ++before) REQUIRE(rows.row_of(vector, before) == row);
    }
  }
}

TEST_CASE("jagged_vectors on a device: blocks for packs") {
  CHECK(blocks_for_packs(1, 1, 2048) == 1);
  CHECK(blocks_for_packs(2048, 1, 2048) == 1);
  CHECK(blocks_for_packs(2049, 1, 2048) == 2);
  CHECK(blocks_for_packs(3, 2048, 2048) == 3);
  CHECK(blocks_for_packs(0, 0, 2048) == 1);
  constexpr auto most = std::int64_t{1} << 16;
  CHECK(blocks_for_packs(most, 2048, 2048) == most);
  CHECK(blocks_for_packs(most - 1, 2048, 2048) == most - 1);
  CHECK(blocks_for_packs(std::int64_t{1} << 40, 1 << 10, 2048) == most);
  CHECK(blocks_for_packs(INT64_MAX, INT64_MAX, 2048) == most);
}

TEST_CASE("jagged_vectors on a device: what moves four columns at once") {
  alignas(16) float values[64] = {};
  auto const packs = [](auto... vectors) {
    std::string result;
    with_packs([&](auto pack, std::int64_t n) { result = std::to_string(columns_of_pack<decltype(pack)>) + "*" + std::to_string(n); },
               vectors...);
    return result;
  };
  using view = tessera::matrix_view<float>;
  view const even(values, 4, 8), odd(values, 4, 7), apart(values, 4, 8, 9), shifted(values + 1, 4, 8);
  CHECK(packs(even) == "4*2");
  CHECK(packs(even, even) == "4*2");
  CHECK(packs(odd) == "1*7");
  CHECK(packs(apart) == "1*8");
  CHECK(packs(even, shifted) == "1*8");
  CHECK(packs(view(nullptr, 0, 0)) == "4*0");
}
