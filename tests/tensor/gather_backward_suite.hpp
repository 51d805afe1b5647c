// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include <tessera/tensor/concat.hpp>
#include <tessera/tensor/expand_rows.hpp>
#include <tessera/tensor/gather_backward.hpp>
#include <tessera/tensor/masked_select.hpp>
#include <tessera/tensor/permute_keys.hpp>
#include <tessera/tensor/select_rows.hpp>
#include <tessera/tensor/slice_rows.hpp>
#include <tessera/tensor/truncate_rows.hpp>

#include "rows_harness.hpp"

namespace gather_backward_tests {

using namespace tensor_tests;

/// `out` as it was before, and what became of it.
template <class T, class Harness>
std::vector<T> gathered(Harness const& harness, ids const& sources, std::vector<T> const& gradient, std::size_t values,
                        tessera::gather_backward_options options = {}) {
  auto const placed_sources = harness.numbers(sources);
  auto const placed_gradient = harness.numbers(gradient);
  auto out = harness.numbers(std::vector<T>(values, 9));
  tessera::gather_backward(harness.exec, placed_sources, tessera::vector_view<T const>(placed_gradient), tessera::vector_view<T>(out),
                           options);
  return harness.get(out);
}

template <class Harness>
void sums(Harness const& harness) {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  for (std::size_t const n : {0U, 1U, 1000U, 60000U})
    for (std::int64_t const values : {1, 3, 700, 50000}) {
      auto const sources = tessera_tests::random_integers<std::int64_t>(random, n, 0, values - 1);
      auto const gradient = tessera_tests::random_floats(random, n);
      sums_in_order<float> expected(static_cast<std::size_t>(values));
      for (std::size_t i = 0; i < n; ++i) expected.add(sources[i], gradient[i]);
      CHECK(gathered(harness, sources, gradient, expected.values.size()) ==
            expected.values);  // the same bits: float sums depend on their order
    }
}

template <class Harness>
void distinct(Harness const& harness) {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  ids sources(40000);
  std::iota(sources.begin(), sources.end(), 0);
  std::shuffle(sources.begin(), sources.end(), random);
  sources.resize(30000);
  std::vector<double> gradient(sources.size());
  for (auto& g : gradient) g = static_cast<double>(random() % 1000);
  CHECK(gathered(harness, sources, gradient, 40000, {.distinct_sources = true}) == gathered(harness, sources, gradient, 40000));
  if constexpr (tessera::checked) {
    sources[20000] = sources[7];
    auto const e = error_of([&] { gathered(harness, sources, gradient, 40000, {.distinct_sources = true}); });
    CHECK(e.code() == tessera::errc::invalid_argument);
    CHECK(e.value("source") == std::to_string(sources[7]));
    CHECK(e.value("position") == "20000");
  }
}

// Every operation is linear in the values: the gradient by value p of sum(g * op(values)) is sum(g * op(the unit at p)).
template <class Harness>
void operations(Harness const& harness) {
  auto const& exec = harness.exec;
  for_each_batch_of(harness, [&](auto view, auto host_view, model const& keys, std::mt19937_64& random) {
    if (host_view.size() > 2000) return;
    auto const end = host_view.first_value() + host_view.size();
    ids numbers(static_cast<std::size_t>(end));
    std::iota(numbers.begin(), numbers.end(), 0);
    auto const placed_numbers = harness.numbers(numbers);
    auto const check = [&](char const* operation, bool distinct, auto const& apply) {
      CAPTURE(operation);
      auto const sources = harness.get(apply(view.with_values(placed_numbers.data())));
      auto const all = sources.view().flat().all_values();
      auto const gradient = tessera_tests::random_floats(random, static_cast<std::size_t>(all.size()));
      auto const by_values =
          gathered(harness, ids(all.begin(), all.end()), gradient, static_cast<std::size_t>(end), {.distinct_sources = distinct});
      bool right = true;
      for (int probe = 0; probe < 5 && host_view.size() > 0; ++probe) {
        auto const p = static_cast<std::size_t>(host_view.first_value()) + random() % static_cast<std::size_t>(host_view.size());
        floats unit(static_cast<std::size_t>(end), 0);
        unit[p] = 1;
        auto const placed_unit = harness.numbers(unit);
        auto const moved = harness.get(apply(view.with_values(placed_unit.data())));
        double expected = 0;
        for (std::size_t i = 0; i < gradient.size(); ++i)
          expected += static_cast<double>(gradient[i]) * static_cast<double>(moved.view().values[i]);
        right = right && std::abs(expected - static_cast<double>(by_values[p])) < 1e-4;
      }
      CHECK(right);
    };
    auto const rows = rows_of(keys);
    auto const repeats = tessera_tests::random_integers<std::int64_t>(random, rows, 0, 3);
    std::vector<std::uint8_t> mask(static_cast<std::size_t>(host_view.size()));
    for (auto& keep : mask) keep = random() % 2;
    ids order(keys.size()), half;
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random);
    for (auto const& key : keys) half.push_back(static_cast<std::int64_t>(key.size() / 2));
    std::size_t least = keys.empty() ? 1 : keys[0].size();
    for (auto const& key : keys) least = std::min(least, key.size());
    auto const indices =
        tessera_tests::random_integers<std::int64_t>(random, least == 0 ? 0 : 30, 0, static_cast<std::int64_t>(least) - (least > 0));
    auto const placed_repeats = harness.numbers(repeats), placed_indices = harness.numbers(indices);
    auto const placed_mask = harness.numbers(mask);
    check("expand_rows", false, [&](auto in) { return tessera::expand_rows(exec, in, placed_repeats); });
    check("select_rows", false, [&](auto in) { return tessera::select_rows(exec, in, placed_indices); });
    check("masked_select", true, [&](auto in) { return tessera::masked_select(exec, in, placed_mask); });
    check("permute_keys", true, [&](auto in) { return tessera::permute_keys(exec, in, order); });
    check("slice_rows", true, [&](auto in) { return tessera::slice_rows(exec, in, half, half); });
    check("truncate_rows", true, [&](auto in) { return tessera::truncate_rows(exec, in, 2, tessera::kept_values::last); });
    check("concat_keys", false, [&](auto in) { return tessera::concat_keys(exec, std::vector<decltype(in)>{in, in}); });
  });
}

template <class Harness>
void refusals(Harness const& harness) {
  floats const gradient{1, 2};
  for (bool const distinct : {false, true})
    for (std::int64_t const wrong : {std::int64_t{-1}, std::int64_t{3}, INT64_MAX, INT64_MIN})
      CHECK(refusal_of([&] {
              gathered(harness, ids{0, wrong}, gradient, 3, {.distinct_sources = distinct});
            }) == "gather_backward: no such source (position 1, source " + std::to_string(wrong) + ", values 3)");
  CHECK(error_of([&] { gathered(harness, ids{0}, gradient, 3); }).code() == tessera::errc::shape_mismatch);
  auto const sources = harness.numbers(ids{0, 2, 0});
  auto const gradients = harness.numbers(floats{1, 2, 3});
  auto out = harness.numbers(floats(3));
  CHECK(waits_of(harness, 0, [&] {
          tessera::gather_backward(harness.exec, sources, tessera::vector_view<float const>(gradients), tessera::vector_view<float>(out));
        }) == 0);
}

}  // namespace gather_backward_tests

/// What every execution must show.
template <class Harness>
void gather_backward_suite(Harness const& harness) {
  using namespace gather_backward_tests;
  SUBCASE("sums in the order of the result, zero where nothing came from") { sums(harness); }
  SUBCASE("distinct sources") { distinct(harness); }
  SUBCASE("the backward of every operation on rows") { operations(harness); }
  SUBCASE("sources that are none are refused") { refusals(harness); }
}
