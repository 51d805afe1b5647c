// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <tessera/core/error.hpp>
#include <tessera/tensor/jagged.hpp>
#include <tessera/tensor/keyed_jagged.hpp>
#include <tessera/tensor/select_rows.hpp>

#include "rows_harness.hpp"

namespace select_rows_tests {

using namespace tensor_tests;

template <class Row>
std::vector<Row> naive(std::vector<Row> const& rows, ids const& indices) {
  std::vector<Row> result;
  for (auto const i : indices) result.push_back(rows[static_cast<std::size_t>(i)]);
  return result;
}

template <class Harness>
rows_of_ids select(Harness const& harness, rows_of_ids const& rows, ids const& indices) {
  auto const in = rows_in(harness, rows);
  auto const numbers = harness.numbers(indices);
  auto const out = harness.get(tessera::select_rows(harness.exec, in.view(), numbers));
  tessera::validate(out.view(), out.size());
  rows_of_ids result;
  for (auto const& row : model_of(out.view())) result.push_back(row.values);
  return result;
}

template <class Harness>
void any_indices(Harness const& harness) {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  auto const rows = random_rows(random, 300);
  for (std::size_t const count : {1U, 511U, 513U, 4000U}) {
    auto const indices = tessera_tests::random_integers<std::int64_t>(random, count, 0, 299);
    CHECK(select(harness, rows, indices) == naive(rows, indices));
  }
  for (std::size_t const count : {1U, 511U, 512U, 513U, 5000U}) {
    auto const all = random_rows(random, count);
    ids order(count);
    std::iota(order.begin(), order.end(), 0);
    CHECK(select(harness, all, order) == all);
  }
}

template <class Harness>
void permutations(Harness const& harness) {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  auto const rows = random_rows(random, 1500);
  ids p(rows.size());
  std::iota(p.begin(), p.end(), 0);
  auto q = p, inverse = p;
  std::shuffle(p.begin(), p.end(), random);
  std::shuffle(q.begin(), q.end(), random);
  for (std::size_t i = 0; i < p.size(); ++i) inverse[static_cast<std::size_t>(p[i])] = static_cast<std::int64_t>(i);
  CHECK(select(harness, select(harness, rows, p), inverse) == rows);
  CHECK(select(harness, select(harness, rows, p), q) == select(harness, rows, naive(p, q)));
}

template <class Harness>
void refusals(Harness const& harness) {
  for (std::int64_t const wrong : {std::int64_t{-1}, std::int64_t{3}, INT64_MIN, INT64_MAX}) {
    ids indices(2000, 1);
    indices[700] = wrong;
    indices[1800] = 5;
    auto const e = error_of([&] { select(harness, rows_of_ids{{1}, {2}, {3}}, indices); });
    CHECK(e.code() == tessera::errc::out_of_range);
    CHECK(e.value("position") == "700");
    CHECK(e.value("index") == std::to_string(wrong));
    CHECK(e.value("rows") == "3");
  }
  auto const indices = harness.numbers(ids{0, 0});
  for (auto const room : {tessera::result_room{}, tessera::result_room{.most_values = 0}})
    check_outgrown(harness, [&](auto rows) { return tessera::select_rows(harness.exec, rows, indices, room); });
}

template <class Harness>
void batches(Harness const& harness) {
  auto const& exec = harness.exec;
  for_each_batch_of(harness, [&](auto view, auto host_view, model const& keys, std::mt19937_64& random) {
    std::size_t least = keys.empty() ? 4 : keys[0].size();
    for (auto const& rows : keys) least = std::min(least, rows.size());
    auto const indices =
        tessera_tests::random_integers<std::int64_t>(random, least == 0 ? 0 : 50, 0, static_cast<std::int64_t>(least) - (least > 0));
    auto const placed = harness.numbers(indices);
    model expected;
    for (auto const& rows : keys) expected.push_back(naive(rows, indices));
    auto const result = harness.get(tessera::select_rows(exec, view, placed));
    check_batch(result, expected);
    check_batch(harness.get(tessera::select_rows(exec, view, placed, {.most_values = result.view().size()})), expected);
    check_bytes(harness, view, host_view, [&](auto in) { return tessera::select_rows(exec, in, placed); });
    ids every(static_cast<std::size_t>(view.rows()));
    std::iota(every.begin(), every.end(), 0);
    auto const all = harness.numbers(every);
    CHECK(equal(harness.get(tessera::select_rows(exec, view.flat(), all)).view(), host_view.flat()));
  });
}

template <class Harness>
void named_batches(Harness const& harness) {
  auto const& exec = harness.exec;
  auto const batch =
      batch_in(harness, {{"user", {{1, 2}, {}, {3}}, {{0.5F, 1}, {}, {2}}}, {"item", {{4}, {5, 6}, {7}, {8}}, {{4}, {5, 6}, {7}, {8}}}});
  auto const select = [&](auto const& in, ids const& indices, tessera::result_room room = {}) {
    auto const placed = harness.numbers(indices);
    return harness.get(tessera::select_rows(exec, in, placed, room));
  };
  CHECK(text(select(batch, ids{2, 0, 2})) ==
        "{user: [[3], [1, 2], [3]] weights [[2], [0.5, 1], [2]], item: [[7], [4], [7]] weights [[7], [4], [7]]}");
  CHECK(text(select(batch, ids{})) == "{user: [], item: []}");
  CHECK(text(select(harness.put(tessera::keyed_jagged<>()), ids{})) == "{}");
  CHECK(refusal_of([&] { select(batch.view(), ids{0, 3}); }) == "select_rows: no such row (key 0, position 1, index 3, rows 3)");
  CHECK(refusal_of([&] {
          select(batch.view().slice_keys(1, 1), ids{0, -4});
        }) == "select_rows: no such row (key 0, position 1, index -4, rows 4)");
  auto const repeated = harness.numbers(ids{0, 0, 1, 1});
  check_room(harness, "select_rows", 10, [&](auto room) { return tessera::select_rows(exec, batch.view(), repeated, room); });
  auto const twice = harness.numbers(ids{1, 1});
  CHECK(waits_of(harness, 1, [&] { tessera::select_rows(exec, batch, twice); }) == 1);
  CHECK(waits_of(harness, 0, [&] { tessera::select_rows(exec, batch, twice, {.most_values = 4}); }) == 0);
  CHECK(waits_of(harness, 1, [&] { tessera::select_rows(exec, batch.view().flat(), twice); }) == 1);
  CHECK(waits_of(harness, 0, [&] { tessera::select_rows(exec, batch.view().flat(), twice, {.most_values = 0}); }) == 0);
}

}  // namespace select_rows_tests

/// What every execution must show.
template <class Harness>
void select_rows_suite(Harness const& harness) {
  using namespace select_rows_tests;
  SUBCASE("nothing of nothing, and nothing of something") {
    CHECK(select(harness, rows_of_ids{}, ids{}) == rows_of_ids{});
    CHECK(select(harness, rows_of_ids{{1}, {}}, ids{}) == rows_of_ids{});
    CHECK(select(harness, rows_of_ids{{}, {}}, ids{1, 1, 0}) == rows_of_ids{{}, {}, {}});
  }
  SUBCASE("repeats, by hand") {
    CHECK(select(harness, rows_of_ids{{1, 2}, {}, {3}}, ids{2, 0, 0, 1}) == rows_of_ids{{3}, {1, 2}, {1, 2}, {}});
  }
  SUBCASE("any indices, and all rows in order are the same rows") { any_indices(harness); }
  SUBCASE("a permutation and its inverse cancel; two compose") { permutations(harness); }
  SUBCASE("the first index out of range is named, and a selection too large for its offsets") { refusals(harness); }
  SUBCASE("the same rows of every key of a view") { batches(harness); }
  SUBCASE("the same rows of every key of a batch with names") { named_batches(harness); }
}
