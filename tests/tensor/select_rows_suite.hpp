// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include <tessera/core/error.hpp>

#include "../support/random.hpp"

namespace select_rows_tests {

using ids = std::vector<std::int64_t>;
using rows_of_ids = std::vector<ids>;

inline rows_of_ids random_rows(std::mt19937_64& random, std::size_t count) {
  rows_of_ids rows;
  for (auto const length : tessera_tests::random_lengths(random, count, 3))
    rows.push_back(tessera_tests::random_integers<std::int64_t>(random, static_cast<std::size_t>(length), -50, 50));
  return rows;
}

template <class Row>
std::vector<Row> naive(std::vector<Row> const& rows, ids const& indices) {
  std::vector<Row> result;
  for (auto const i : indices) result.push_back(rows[static_cast<std::size_t>(i)]);
  return result;
}

}  // namespace select_rows_tests

/// What every execution must show. `harness.select(rows, indices) -> rows`.
template <class Harness>
void select_rows_suite(Harness const& harness) {
  using namespace select_rows_tests;
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  auto const permutation = [&](std::size_t count) {
    ids order(count);
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random);
    return order;
  };

  SUBCASE("nothing of nothing, and nothing of something") {
    CHECK(harness.select(rows_of_ids{}, ids{}) == rows_of_ids{});
    CHECK(harness.select(rows_of_ids{{1}, {}}, ids{}) == rows_of_ids{});
    CHECK(harness.select(rows_of_ids{{}, {}}, ids{1, 1, 0}) == rows_of_ids{{}, {}, {}});
  }
  SUBCASE("repeats, by hand") {
    CHECK(harness.select(rows_of_ids{{1, 2}, {}, {3}}, ids{2, 0, 0, 1}) == rows_of_ids{{3}, {1, 2}, {1, 2}, {}});
  }
  SUBCASE("all rows in order are the same rows") {
    for (std::size_t const count : {1U, 511U, 512U, 513U, 5000U}) {
      auto const rows = random_rows(random, count);
      ids order(count);
      std::iota(order.begin(), order.end(), 0);
      CHECK(harness.select(rows, order) == rows);
    }
  }
  SUBCASE("a permutation and its inverse cancel; two compose") {
    auto const rows = random_rows(random, 1500);
    auto const p = permutation(rows.size()), q = permutation(rows.size());
    ids inverse(p.size());
    for (std::size_t i = 0; i < p.size(); ++i) inverse[static_cast<std::size_t>(p[i])] = static_cast<std::int64_t>(i);
    CHECK(harness.select(harness.select(rows, p), inverse) == rows);
    CHECK(harness.select(harness.select(rows, p), q) == harness.select(rows, naive(p, q)));
  }
  SUBCASE("any indices") {
    auto const rows = random_rows(random, 300);
    for (std::size_t const count : {1U, 511U, 513U, 4000U}) {
      auto const indices = tessera_tests::random_integers<std::int64_t>(random, count, 0, 299);
      CHECK(harness.select(rows, indices) == naive(rows, indices));
    }
  }
  SUBCASE("the first index out of range is named") {
    for (std::int64_t const wrong : {std::int64_t{-1}, std::int64_t{3}, INT64_MIN, INT64_MAX}) {
      ids indices(2000, 1);
      indices[700] = wrong;
      indices[1800] = 5;
      try {
        harness.select(rows_of_ids{{1}, {2}, {3}}, indices);
        FAIL("accepted ", wrong);
      } catch (tessera::error const& e) {
        CHECK(e.code() == tessera::errc::out_of_range);
        CHECK(e.value("position") == "700");
        CHECK(e.value("index") == std::to_string(wrong));
        CHECK(e.value("rows") == "3");
      }
    }
  }
}
