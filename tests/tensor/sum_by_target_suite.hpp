// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include <tessera/tensor/sum_by_target.hpp>

#include "rows_harness.hpp"

namespace sum_by_target_tests {

using namespace tensor_tests;

/// Bits: -0.0 is not 0.0.
template <class T>
bool same_bits(std::vector<T> const& a, std::vector<T> const& b) {
  return a.size() == b.size() &&
         std::equal(a.begin(), a.end(), b.begin(), [](T x, T y) { return x == y && std::signbit(x) == std::signbit(y); });
}

/// Floats whose sums depend on their order, a third of them -0.0.
template <class T>
std::vector<T> order_dependent(std::mt19937_64& random, std::size_t count) {
  std::vector<T> result;
  for (auto const x : tessera_tests::random_floats(random, count)) result.push_back(random() % 3 == 0 ? -T{0} : static_cast<T>(x) * T(1e4));
  return result;
}

/// Targets of so many sources; every other one, and whole stretches, the same.
inline ids targets_of(std::mt19937_64& random, std::size_t sources, std::int64_t targets) {
  auto result = tessera_tests::random_integers<std::int64_t>(random, sources, 0, targets - 1);
  for (std::size_t i = 0; i < sources / 2; ++i) result[i] = targets / 3;
  return result;
}

struct matrix_shape {
  std::size_t sources;
  std::int64_t targets, dim, gap, before;  // floats between rows, and before the first one
};

/// What lies before, between and behind the sums stays as it was.
template <class Harness>
void matrices(Harness const& harness) {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  for (matrix_shape const of : {matrix_shape{0, 3, 4, 0, 0},
                                {1, 1, 1, 0, 0},
                                {40, 7, 5, 3, 2},
                                {300, 90, 64, 4, 8},
                                {900, 20, 1028, 0, 4},
                                {500, 4, 7, 1, 5},
                                {70'000, 300, 2, 0, 0},
                                {5, 0, 3, 0, 0},
                                {20, 3, 0, 2, 1}}) {
    CAPTURE(of.sources);
    CAPTURE(of.dim);
    auto const stride = of.dim + of.gap, n = static_cast<std::int64_t>(of.sources);
    auto const values = order_dependent<float>(random, static_cast<std::size_t>(n * stride + of.before));
    auto const target_of = of.targets == 0 ? ids(of.sources, 0) : targets_of(random, of.sources, of.targets);
    sums_in_order expected(floats(static_cast<std::size_t>(of.targets * stride + of.before), 7.0F));
    for (std::int64_t t = 0; t < of.targets; ++t) std::fill_n(expected.values.begin() + of.before + t * stride, of.dim, 0.0F);
    for (std::size_t i = 0; i < of.sources && of.targets > 0; ++i)
      for (std::int64_t c = 0; c < of.dim; ++c)
        expected.add(of.before + target_of[i] * stride + c,
                     values[static_cast<std::size_t>(of.before + c) + i * static_cast<std::size_t>(stride)]);
    auto const from = harness.numbers(values);
    floats const before(expected.values.size(), 7.0F);
    auto sums = harness.numbers(before), others = harness.numbers(before);
    auto const given = harness.numbers(target_of);
    tessera::source_lists const lists(harness.exec, given, of.targets);
    auto const job = [&](auto& to) {
      return tessera::target_sums{
          lists.view(), {from.data() + of.before, n, of.dim, stride}, {to.data() + of.before, of.targets, of.dim, stride}};
    };
    std::vector const jobs{job(sums), job(others)};
    tessera::sum_by_target(harness.exec, jobs);
    CHECK(same_bits(harness.get(sums), expected.values));
    CHECK(same_bits(harness.get(others), expected.values));
  }
}

struct rows_shape {
  std::size_t rows, sources;
  std::int64_t longest, dim, before;  // vectors before the first row of the sums
};

template <class Harness>
void rows_of_vectors(Harness const& harness) {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  // Of the largest, pieces end within rows, and within what one row sums.
  for (rows_shape const of : {rows_shape{0, 0, 3, 2, 0}, {4, 0, 3, 2, 1}, {5, 30, 4, 3, 2}, {60, 200, 9, 64, 3}, {3, 40, 700, 65, 5}}) {
    CAPTURE(of.rows);
    CAPTURE(of.dim);
    ids offsets{of.before}, from_offsets{0};
    for (std::size_t r = 0; r < of.rows; ++r)
      offsets.push_back(offsets.back() + static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(of.longest + 1)));
    auto const target_of = targets_of(random, of.sources, std::max<std::int64_t>(1, static_cast<std::int64_t>(of.rows)));
    for (auto const t : target_of)
      from_offsets.push_back(from_offsets.back() + offsets[static_cast<std::size_t>(t) + 1] - offsets[static_cast<std::size_t>(t)]);
    auto const values = order_dependent<float>(random, static_cast<std::size_t>(from_offsets.back() * of.dim));
    sums_in_order expected(floats(static_cast<std::size_t>((offsets.back() + 2) * of.dim), 7.0F));
    std::fill(expected.values.begin() + of.before * of.dim, expected.values.begin() + offsets.back() * of.dim, 0.0F);
    for (std::size_t i = 0; i < of.sources; ++i)
      for (std::int64_t k = 0; k < (from_offsets[i + 1] - from_offsets[i]) * of.dim; ++k)
        expected.add(offsets[static_cast<std::size_t>(target_of[i])] * of.dim + k,
                     values[static_cast<std::size_t>(from_offsets[i] * of.dim + k)]);
    auto const from = harness.numbers(values);
    auto const to_offsets = harness.numbers(offsets), given_offsets = harness.numbers(from_offsets), given = harness.numbers(target_of);
    auto sums = harness.numbers(floats(expected.values.size(), 7.0F));
    auto const rows = static_cast<std::int64_t>(of.rows);
    tessera::source_lists const lists(harness.exec, given, rows);
    tessera::sum_by_target(harness.exec, lists.view(),
                           {{from.data(), from_offsets.back(), of.dim}, given_offsets.data(), static_cast<std::int64_t>(of.sources)},
                           tessera::jagged_vectors_view<float>{{sums.data(), offsets.back() + 2, of.dim}, to_offsets.data(), rows});
    CHECK(same_bits(harness.get(sums), expected.values));
  }
}

template <class T, class Harness>
void numbers(Harness const& harness) {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  for (std::size_t const n : {0U, 1U, 500U, 70'000U})
    for (std::int64_t const targets : {1, 30, 100'000}) {
      CAPTURE(n);
      CAPTURE(targets);
      auto target_of = targets_of(random, n, targets);
      for (std::size_t i = 0; i < n; i += 9) target_of[i] = i % 2 == 0 ? -1 : targets;
      auto const values = order_dependent<T>(random, n);
      sums_in_order<T> expected(static_cast<std::size_t>(targets) + 2);
      expected.values.front() = expected.values.back() = 7;
      for (std::size_t i = 0; i < n; ++i)
        if (target_of[i] >= 0 && target_of[i] < targets) expected.add(target_of[i] + 1, values[i]);
      auto const given = harness.numbers(target_of);
      auto const from = harness.numbers(values);
      auto sums = harness.numbers(std::vector<T>(expected.values.size(), 7));
      tessera::source_pairs const pairs(harness.exec, given, targets);
      tessera::sum_by_target(harness.exec, pairs.view(), tessera::vector_view<T const>(from.data(), static_cast<std::int64_t>(n)),
                             tessera::vector_view<T>(sums.data() + 1, targets));
      CHECK(same_bits(harness.get(sums), expected.values));
    }
}

template <class Harness>
void by_hand(Harness const& harness) {
  auto const& exec = harness.exec;
  auto const given = harness.numbers(ids{2, 0, 2});
  auto const from = harness.numbers(floats{1, -0.0F, 2, 20, 3, -0.0F});
  tessera::source_lists const lists(exec, given, 3);
  for (std::uint32_t const skip : {0U, 5U}) {
    auto const verdict = harness.numbers(std::vector<std::uint32_t>{skip});
    auto sums = harness.numbers(floats(6, 7));
    tessera::target_sums const job{lists.view(), {from.data(), 3, 2}, {sums.data(), 3, 2}};
    tessera::sum_by_target(exec, {&job, 1}, {.skip = verdict.data()});
    CHECK(same_bits(harness.get(sums), skip == 0 ? floats{2, 20, 0, 0, 4, -0.0F} : floats(6, 7)));
    auto const offsets = harness.numbers(ids{0, 1, 2, 3});
    tessera::jagged_vectors_view<float> const rows{{sums.data(), 3, 2}, offsets.data(), 3};
    tessera::sum_by_target(exec, lists.view(), {{from.data(), 3, 2}, offsets.data(), 3}, rows, {.skip = verdict.data()});
    CHECK(same_bits(harness.get(sums), skip == 0 ? floats{2, 20, 0, 0, 4, -0.0F} : floats(6, 7)));
  }
}

template <class Harness>
void refusals(Harness const& harness) {
  auto const given = harness.numbers(ids{1, 0});
  auto const values = harness.numbers(floats(8, 1));
  auto sums = harness.numbers(floats(8, 7));
  tessera::source_lists const lists(harness.exec, given, 2);
  auto const refused = [&](tessera::matrix_view<float const> from, tessera::matrix_view<float> to) {
    std::vector<tessera::target_sums> const jobs{{lists.view(), {values.data(), 2, 2}, {sums.data(), 2, 2}}, {lists.view(), from, to}};
    return refusal_of([&] { tessera::sum_by_target(harness.exec, jobs); });
  };
  std::string const start = "sum_by_target: one list a row, and vectors of one dim that do not overlap (job 1, lists 2, ";
  CHECK(refused({values.data(), 2, 3}, {sums.data(), 2, 2}) == start + "rows 2, dim 3, dim of the sums 2, strides 3 and 2)");
  CHECK(refused({values.data(), 2, 2}, {sums.data(), 3, 2}) == start + "rows 3, dim 2, dim of the sums 2, strides 2 and 2)");
  CHECK(refused({values.data(), 2, 2, 1}, {sums.data(), 2, 2}) == start + "rows 2, dim 2, dim of the sums 2, strides 1 and 2)");
  CHECK(refused({values.data(), 2, 2}, {sums.data(), 2, 2, 1}) == start + "rows 2, dim 2, dim of the sums 2, strides 2 and 1)");
  auto const offsets = harness.numbers(ids{0, 1, 2, 3});
  tessera::jagged_vectors_view<float const> const rows{{values.data(), 3, 2}, offsets.data(), 2};
  CHECK(refusal_of([&] {
          tessera::sum_by_target(harness.exec, lists.view(), rows,
                                 tessera::jagged_vectors_view<float>{{sums.data(), 3, 2}, offsets.data(), 3});
        }) == "sum_by_target: lists (lists 2, expected 3)");
  CHECK(refusal_of([&] {
          tessera::sum_by_target(harness.exec, lists.view(), rows,
                                 tessera::jagged_vectors_view<float>{{sums.data(), 3, 1}, offsets.data(), 2});
        }) == "sum_by_target: dim (dim 2, expected 1)");
  CHECK(harness.get(sums) == floats(8, 7));
}

}  // namespace sum_by_target_tests

/// What every execution must show.
template <class Harness>
void sum_by_target_suite(Harness const& harness) {
  using namespace sum_by_target_tests;
  SUBCASE("by hand, done or skipped") { by_hand(harness); }
  SUBCASE("matrices, to the bit, and nothing around them") { matrices(harness); }
  SUBCASE("rows of vectors, to the bit, and nothing around them") { rows_of_vectors(harness); }
  SUBCASE("numbers, to the bit, and nothing around them") {
    numbers<float>(harness);
    numbers<double>(harness);
  }
  SUBCASE("shapes that do not fit are refused, and nothing is written") { refusals(harness); }
}
