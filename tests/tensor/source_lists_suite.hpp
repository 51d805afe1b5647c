// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include <tessera/tensor/source_lists.hpp>

#include "rows_harness.hpp"

namespace tensor_tests {

template <class Harness>
ids fetched(Harness const& harness, tessera::vector_view<std::int64_t const> numbers) {
  if constexpr (tessera::device_execution<decltype(harness.exec)>)
    return tessera_tests::get(harness.exec, numbers);
  else
    return {numbers.begin(), numbers.end()};
}

template <class Harness>
auto numbers_taken_over(Harness const& harness, ids const& numbers) {
  if constexpr (tessera::device_execution<decltype(harness.exec)>) {
    return tessera_tests::put(harness.exec, numbers);
  } else {
    tessera::buffer<std::int64_t> result(harness.exec, static_cast<std::int64_t>(numbers.size()));
    std::copy(numbers.begin(), numbers.end(), result.begin());
    return result;
  }
}

/// Lists made one source after the other, and then those without a target.
struct listed {
  ids starts, sources, targets;  // targets: of each of the sources

  listed(ids const& target_of, ids const& source_of, std::int64_t count) {
    std::vector<ids> lists(static_cast<std::size_t>(count) + 1);
    for (std::size_t i = 0; i < target_of.size(); ++i)
      lists[static_cast<std::size_t>(target_of[i] < 0 || target_of[i] >= count ? count : target_of[i])].push_back(source_of[i]);
    for (auto const& list : lists) {
      starts.push_back(static_cast<std::int64_t>(sources.size()));
      sources.insert(sources.end(), list.begin(), list.end());
      targets.insert(targets.end(), list.size(), static_cast<std::int64_t>(starts.size()) - 1);
    }
  }
};

template <class Harness>
void lists_like_naive(Harness const& harness, ids const& target_of, std::int64_t count) {
  ids numbers, others;
  for (std::size_t i = 0; i < target_of.size(); ++i) {
    numbers.push_back(static_cast<std::int64_t>(i));
    others.push_back(static_cast<std::int64_t>(i / 3));
  }
  auto const given = harness.numbers(target_of);
  listed const expected(target_of, numbers, count), expected_of_others(target_of, others, count);
  auto const same = [&](auto const& lists, auto const& pairs, listed const& is) {
    CHECK(fetched(harness, lists.starts()) == is.starts);
    CHECK(fetched(harness, lists.sources()) == is.sources);
    CHECK(fetched(harness, pairs.targets()) == is.targets);
    CHECK(fetched(harness, pairs.sources()) == is.sources);
  };
  same(tessera::source_lists(harness.exec, given, count), tessera::source_pairs(harness.exec, given, count), expected);
  same(tessera::source_lists(harness.exec, numbers_taken_over(harness, target_of), numbers_taken_over(harness, others), count),
       tessera::source_pairs(harness.exec, numbers_taken_over(harness, target_of), numbers_taken_over(harness, others), count),
       expected_of_others);
}

}  // namespace tensor_tests

/// What every execution must show.
template <class Harness>
void source_lists_suite(Harness const& harness) {
  using namespace tensor_tests;
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  SUBCASE("by hand") {
    auto const target_of = harness.numbers(ids{2, 0, 2});
    tessera::source_lists const lists(harness.exec, target_of, 3);
    CHECK(fetched(harness, lists.starts()) == ids{0, 1, 1, 3});
    CHECK(fetched(harness, lists.sources()) == ids{1, 0, 2});
    tessera::source_pairs const pairs(harness.exec, target_of, 3);
    CHECK(fetched(harness, pairs.targets()) == ids{0, 2, 2});
    CHECK(fetched(harness, pairs.sources()) == ids{1, 0, 2});
    CHECK(lists.view().targets() == 3);
  }
  SUBCASE("nothing, and sources of which none has a target") {
    lists_like_naive(harness, {}, 0);
    lists_like_naive(harness, {}, 5);
    lists_like_naive(harness, {0, -1, 7}, 0);
    lists_like_naive(harness, {4, INT64_MIN, INT64_MAX, -1, 5, 3, 8}, 4);
  }
  SUBCASE("any targets, far apart and often the same; few are counted, many sorted") {
    for (std::size_t const n : {1U, 300U, 70'000U})
      for (std::int64_t const targets : {1, 7, 3000, 65'537, 200'000}) {
        CAPTURE(n);
        CAPTURE(targets);
        auto target_of = tessera_tests::random_integers<std::int64_t>(random, n, 0, targets - 1);
        lists_like_naive(harness, target_of, targets);
        for (std::size_t i = 0; i < n; i += 2) target_of[i] = targets / 2;
        for (std::size_t i = 1; i < n; i += 8)
          target_of[i] = i % 3 == 0 ? -1 : i % 3 == 1 ? targets : INT64_MIN + static_cast<std::int64_t>(i);
        lists_like_naive(harness, target_of, targets);
      }
  }
  SUBCASE("wrong numbers are refused") {
    auto const given = harness.numbers(ids{0});
    CHECK(refusal_of([&] { tessera::source_lists(harness.exec, given, -1); }) == "source_lists: negative number of targets (targets -1)");
    CHECK(refusal_of([&] {
            tessera::source_pairs(harness.exec, numbers_taken_over(harness, {0, 1}), numbers_taken_over(harness, {0}), 2);
          }) == "source_lists: one target a source (targets given 2, sources 1)");
    CHECK(waits_of(harness, 0, [&] { tessera::source_lists(harness.exec, given, 3); }) == 0);
  }
}
