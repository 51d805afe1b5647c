// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-labels: threads
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include <tessera/core/piece_list.hpp>

#include "hosts.hpp"

TEST_CASE("for_each_piece_of: each index of each range once, in pieces of the range's own size") {
  std::vector<std::int64_t> const sizes{0, 5, 1, 0, 0, 64, 1000, 0}, grains{1, 2, 7, 1, 3, 64, 9, 1};
  auto const ranges = static_cast<std::int64_t>(sizes.size());
  auto const at = [](std::vector<std::int64_t> const& values, std::int64_t i) { return values[static_cast<std::size_t>(i)]; };
  tessera_tests::for_each_host([&](tessera::host_exec const& exec, auto&) {
    std::vector<std::vector<int>> calls;
    for (auto const size : sizes) calls.emplace_back(static_cast<std::size_t>(size));
    tessera::for_each_piece_of(
        exec, ranges, [&](std::int64_t range) { return at(sizes, range); }, [&](std::int64_t range) { return at(grains, range); },
        [&](std::int64_t range, std::int64_t first, std::int64_t last) {
          for (auto i = first; i < last; ++i) ++calls[static_cast<std::size_t>(range)][static_cast<std::size_t>(i)];
          // A piece begins where a grain does and is one long, but for the last.
          if (first % at(grains, range) != 0 || (last - first != at(grains, range) && last != at(sizes, range)))
            calls[static_cast<std::size_t>(range)][static_cast<std::size_t>(first)] = -1;
        });
    for (std::size_t range = 0; range < sizes.size(); ++range)
      CHECK(calls[range] == std::vector<int>(static_cast<std::size_t>(sizes[range]), 1));
  });
}

TEST_CASE("piece_list: no range has no piece, and a piece finds its range past empty ones") {
  tessera_tests::serial_host host;
  CHECK(tessera::piece_list(host.exec(), 0, [](std::int64_t) { return 1; }).count() == 0);
  tessera::piece_list const pieces(host.exec(), 4, [](std::int64_t range) { return range % 2 == 0 ? 0 : 2; });
  CHECK(pieces.count() == 4);
  CHECK(pieces.range_of(0) == 1);
  CHECK(pieces.range_of(1) == 1);
  CHECK(pieces.range_of(2) == 3);
  CHECK(pieces.first_of(3) == 2);
  CHECK(pieces.first_of(4) == 4);
}

TEST_CASE("sum_by_pieces: the sums of pieces in order, to the same bits on any number of threads") {
  auto const term = [](std::int64_t i) { return 1.0 / static_cast<double>(3 * i + 1) - 0.1; };
  for (std::int64_t const n : {0, 1, 7, 8, 1000})
    tessera_tests::for_each_host([&](tessera::host_exec const& exec, auto&) {
      double expected = 0;
      for (std::int64_t first = 0; first < n; first += 7) {
        double piece = 0;
        for (auto i = first; i < std::min<std::int64_t>(first + 7, n); ++i) piece += term(i);
        expected += piece;
      }
      CHECK(tessera::sum_by_pieces(exec, n, 7, term) == expected);
    });
}
