// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include "jagged_products_device.hpp"
#include "../support/emulated_verbs.hpp"

using namespace tessera_tests;

TEST_CASE("jagged_products on an emulated device") {
  emulated_device device;
  jagged_products_on_device(device.exec());
}

TEST_CASE("jagged_products on an emulated device: the host never waits") {
  emulated_device device;
  auto const exec = device.exec();
  vectors_device<emulated_exec> harness(exec);
  auto rows = harness.place(nested_of({3, 0, 2}, 8), 8), to = harness.place(nested_of({3, 0, 2}, 8), 8);
  auto dense = harness.place(nested_of(3, 8, 8), 8), to_dense = harness.place(nested_of(3, 8, 8), 8);
  tessera::jagged_dense_product(exec, rows.jagged(), dense.matrix(), to.jagged());
  tessera::jagged_dense_product_backward(exec, rows.jagged(), dense.matrix(), rows.jagged(), to.jagged(), to_dense.matrix());
  tessera::jagged_jagged_product(exec, rows.jagged(), rows.jagged(), to_dense.matrix());
  tessera::jagged_jagged_product_backward(exec, rows.jagged(), rows.jagged(), dense.matrix(), to.jagged(), to.jagged());
  CHECK(device.waits == 0);
}

TEST_CASE("jagged_products on an emulated device: tiles hold each vector once, none of two rows, past 2^31 too") {
  using tessera::detail::product_tile_rows;
  using tessera::detail::row_tiles;
  constexpr auto giga = std::int64_t{1} << 30;
  for (auto const& lengths : std::vector<std::vector<std::int64_t>>{{0}, {1}, {32}, {31, 0, 33, 1, 64, 0, 500}, {}}) {
    for (std::int64_t const base : {std::int64_t{0}, std::int64_t{17}, 5 * giga}) {
      std::vector<std::int64_t> offsets{base};
      for (auto const length : lengths) offsets.push_back(offsets.back() + length);
      row_tiles<std::int64_t> const tiles{offsets.data(), static_cast<std::int64_t>(lengths.size())};
      CHECK(tiles.count() <= row_tiles<std::int64_t>::most(tiles.rows, offsets.back() - base));
      auto next = base;
      for (std::int64_t t = 0; t < tiles.count(); ++t) {
        auto const at = tiles.place_of(t);
        auto const row = static_cast<std::size_t>(at.row);
        auto const first = offsets[row] + at.in_row, last = std::min(offsets[row + 1], first + product_tile_rows);
        if (first >= last) continue;
        CHECK(first == next);
        next = last;
      }
      CHECK(next == offsets.back());
    }
  }
  std::vector<std::int64_t> const far{0, 64 * giga, 64 * giga + 1};
  row_tiles<std::int64_t> const tiles{far.data(), 2};
  CHECK(tiles.count() == 2 * giga + 2);
  CHECK(tiles.place_of(2 * giga - 1).in_row == 64 * giga - 32);
  CHECK(tiles.place_of(2 * giga + 1).row == 1);
}
