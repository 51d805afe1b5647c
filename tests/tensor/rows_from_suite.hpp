// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include <tessera/tensor/rows_from.hpp>

#include "rows_harness.hpp"

namespace rows_from_tests {

using namespace tensor_tests;
using range = tessera::value_range<>;

/// Ranges that lie in memory: those of key k begin at ranges[first[k]].
struct listed_ranges {
  range const* ranges;
  std::int64_t const* first;

  TESSERA_HOST_DEVICE range operator()(std::int64_t i) const { return ranges[i]; }
  TESSERA_HOST_DEVICE range operator()(std::int64_t key, std::int64_t i) const { return ranges[first[key] + i]; }
};

/// Each row without its first value.
template <class Offset>
struct tail_of_row {
  Offset const* offsets;

  TESSERA_HOST_DEVICE range operator()(std::int64_t i) const {
    auto const begin = offsets[i], end = offsets[i + 1];
    return begin == end ? range{} : range{begin + 1, end - begin - 1};
  }
};

/// What rows of a batch become that are these ranges of its values, weights and all.
template <class HostView>
model naive(HostView view, std::vector<range> const& ranges, ids const& rows_per_key) {
  model result;
  std::size_t at = 0;
  for (auto const rows : rows_per_key) {
    auto& of_key = result.emplace_back();
    for (std::int64_t i = 0; i < rows; ++i, ++at) {
      auto& row = of_key.emplace_back();
      for (auto v = ranges[at].begin; v < ranges[at].begin + ranges[at].length; ++v) {
        row.values.push_back(view.values[v]);
        if (view.weighted()) row.weights.push_back(view.weights[v]);
      }
    }
  }
  return result;
}

inline std::vector<range> random_ranges(std::mt19937_64& random, std::int64_t count, std::int64_t first, std::int64_t size) {
  std::vector<range> result;
  for (std::int64_t i = 0; i < count; ++i) {
    auto const length =
        size == 0 ? 0 : static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(std::min<std::int64_t>(size, 30) + 1));
    auto const begin = first + static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(size - length + 1));
    result.push_back(length == 0 ? range{-7, 0} : range{begin, length});
  }
  return result;
}

template <class Harness>
void batches(Harness const& harness) {
  for_each_batch_of(harness, [&](auto view, auto host_view, model const& keys, std::mt19937_64& random) {
    ids rows_per_key, first{0};
    for (std::size_t key = 0; key < keys.size(); ++key) {
      rows_per_key.push_back(key % 3 == 1 ? 0 : static_cast<std::int64_t>(random() % 60));
      first.push_back(first.back() + rows_per_key.back());
    }
    auto const ranges = random_ranges(random, first.back(), host_view.first_value(), host_view.size());
    auto const expected = naive(host_view, ranges, rows_per_key);
    auto const placed_ranges = harness.numbers(ranges);
    auto const placed_first = harness.numbers(first);
    listed_ranges const source{placed_ranges.data(), placed_first.data()};
    auto const result = harness.get(tessera::rows_from(harness.exec, view, rows_per_key, source));
    check_batch(result, expected);
    check_batch(harness.get(tessera::rows_from(harness.exec, view, rows_per_key, source, {{result.view().size()}})), expected);
    auto const flat = harness.get(tessera::rows_from(harness.exec, view.flat(), first.back(), source));
    CHECK(equal(flat.view(), result.view().flat()));
    check_bytes(harness, view, host_view, [&](auto in) { return tessera::rows_from(harness.exec, in, rows_per_key, source); });
  });
}

template <class Harness>
void tails(Harness const& harness) {
  auto const in = rows_in<std::int64_t, std::int32_t>(harness, {{1, 2, 3}, {}, {4}, {5, 6}});
  tail_of_row<std::int32_t> const source{in.view().offsets};
  CHECK(text(harness.get(tessera::rows_from(harness.exec, in.view(), 4, source)).view()) == "[[2, 3], [], [], [6]]");
  CHECK(text(harness.get(tessera::rows_from(harness.exec, in.view(), 0, source)).view()) == "[]");
  CHECK(waits_of(harness, 1, [&] { tessera::rows_from(harness.exec, in.view(), 4, source); }) == 1);
  CHECK(waits_of(harness, 0, [&] { tessera::rows_from(harness.exec, in.view(), 4, source, {{3}}); }) == 0);
}

template <class Harness>
void refusals(Harness const& harness) {
  auto const& exec = harness.exec;
  auto const batch = batch_in(harness, {{"a", {{1, 2}}}, {"b", {{3}, {4, 5}}}, {"c", {{6}}}});
  auto const part = batch.view().slice_keys(1, 2);  // values 2 … 5
  constexpr auto least = std::numeric_limits<std::int64_t>::min(), most = std::numeric_limits<std::int64_t>::max();
  auto const first = harness.numbers(ids{0, 1, 3});
  for (auto const wrong : {range{1, 1}, range{2, 5}, range{6, 1}, range{least, 1}, range{most, 1}, range{3, most}, range{0, 2}}) {
    auto const ranges = harness.numbers(std::vector<range>{{2, 4}, {most, 0}, wrong, {1, 1}});
    auto const named = "begin " + std::to_string(wrong.begin) + ", length " + std::to_string(wrong.length) + ", first value 2, values 4)";
    CHECK(refusal_of(harness, [&] {
            return tessera::rows_from(exec, part, ids{1, 3}, listed_ranges{ranges.data(), first.data()});
          }) == "rows_from: a range past the values (key 1, row 1, " + named);
    CHECK(refusal_of(harness, [&] {
            return tessera::rows_from(exec, part.flat(), 4, listed_ranges{ranges.data(), first.data()}, {{}, "some_call"});
          }) == "some_call: a range past the values (row 2, " + named);
  }
  auto const negative = harness.numbers(std::vector<range>{{2, 1}, {3, -1}});
  auto const e = refusal(harness, [&] { return tessera::rows_from(exec, part.flat(), 2, listed_ranges{negative.data(), nullptr}); });
  CHECK(e.value("row") == "1");
  CHECK(e.value("length") == "-1");
  auto const fitting = harness.numbers(std::vector<range>{{2, 4}, {3, 1}, {4, 2}, {5, 1}});
  listed_ranges const source{fitting.data(), first.data()}, none{nullptr, nullptr};
  check_room(harness, "some_call", 8, [&](auto room) { return tessera::rows_from(exec, part, ids{1, 3}, source, {room, "some_call"}); });
  check_room(harness, "rows_from", 8, [&](auto room) { return tessera::rows_from(exec, part.flat(), 4, source, {room}); });
  CHECK(refusal_of(harness, [&] { return tessera::rows_from(exec, part.flat(), -1, none); }) ==
        "rows_from: negative number of rows (rows -1)");
  CHECK(refusal_of(harness, [&] {
          return tessera::rows_from(exec, part, ids{2, -3}, none);
        }) == "rows_from: negative number of rows (key 1, rows -3)");
  CHECK(refusal_of(harness, [&] {
          return tessera::rows_from(exec, part, ids{most, 1}, none);
        }) == "rows_from: more rows than can be counted (key 1, rows 1)");
  CHECK(refusal_of(harness, [&] { return tessera::rows_from(exec, part, ids{1}, none); }) ==
        "rows_from: one number of rows a key (keys 2, numbers of rows 1)");
}

// Ranges whose lengths are more than narrow offsets count together.
template <class Harness>
void outgrown(Harness const& harness) {
  auto const ranges = harness.numbers(std::vector<range>{{0, 1 << 30}, {0, 1 << 30}});
  check_outgrown(harness, [&](auto in) { return tessera::rows_from(harness.exec, in, 2, listed_ranges{ranges.data(), nullptr}); });
}

}  // namespace rows_from_tests

/// What every execution must show.
template <class Harness>
void rows_from_suite(Harness const& harness) {
  using namespace rows_from_tests;
  SUBCASE("any ranges of a batch's values, with their weights") { batches(harness); }
  SUBCASE("rows without their first value") { tails(harness); }
  SUBCASE("ranges past the values and numbers of rows that are none are refused by name") { refusals(harness); }
  SUBCASE("more values than offsets count") { outgrown(harness); }
}
