// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <array>
#include <cstdint>
#include <numeric>
#include <vector>

#include <tessera/data/shuffle.hpp>

using tessera::random_seed;

TEST_CASE("shuffle: known orders, so that a saved position means the same in every build") {
  std::vector<std::int64_t> items(10);
  std::iota(items.begin(), items.end(), std::int64_t{0});
  tessera::detail::shuffle(random_seed{1}, 2, tessera::detail::row_order_words, items);
  CHECK(items == std::vector<std::int64_t>{0, 1, 5, 7, 9, 4, 6, 8, 2, 3});
}

TEST_CASE("shuffle: all orders come about equally often") {
  std::array<int, 24> hits{};
  for (std::uint64_t epoch = 0; epoch < 24000; ++epoch) {
    std::vector<std::int64_t> items{0, 1, 2, 3};
    tessera::detail::shuffle(random_seed{42}, epoch, tessera::detail::block_order_words, items);
    std::size_t rank = 0;
    for (std::size_t i = 0; i < 4; ++i) {
      std::size_t smaller = 0;
      for (std::size_t j = i + 1; j < 4; ++j) smaller += items[j] < items[i];
      rank = rank * (4 - i) + smaller;
    }
    ++hits[rank];
  }
  double chi_squared = 0;
  for (auto const n : hits) chi_squared += (n - 1000.0) * (n - 1000.0) / 1000;
  CHECK(chi_squared < 50);  // 23 degrees of freedom: beyond 50 once in a thousand seeds, and this seed is fixed
}
