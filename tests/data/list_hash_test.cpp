// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <tessera/data/list_hash.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include <tessera/core/thread_team.hpp>

#include "counting_memory.hpp"
#include "random.hpp"

namespace list_hash_test {

namespace {

using namespace tessera;
using words = std::pair<std::uint64_t, std::uint64_t>;

words of(std::vector<std::int64_t> const& ids) {
  list_hash const hash(ids);
  return {hash.low, hash.high};
}

}  // namespace

TEST_CASE("list_hash: small lists, their orders, prefixes and repeats are all told apart, by either half") {
  // All lists of up to 6 ids of { -1, 0, 1, 2^62 }.
  std::int64_t const alphabet[] = {-1, 0, 1, std::int64_t{1} << 62};
  std::vector<std::vector<std::int64_t>> lists{{}};
  for (std::size_t first = 0, length = 0; length < 6; ++length) {
    auto const last = lists.size();
    for (auto i = first; i < last; ++i)
      for (auto const id : alphabet) {
        lists.push_back(lists[i]);
        lists.back().push_back(id);
      }
    first = last;
  }
  std::set<std::uint64_t> low, high;
  for (auto const& l : lists) {
    low.insert(of(l).first);
    high.insert(of(l).second);
    CHECK(of(l) == of(l));
    CHECK(of(l).first != of(l).second);
  }
  CHECK(low.size() == lists.size());
  CHECK(high.size() == lists.size());
  // Ids that a sum of ids and places would confuse.
  constexpr auto step = static_cast<std::int64_t>(0x9E3779B97F4A7C15);
  CHECK(of({step, 0}) != of({0, step}));
  CHECK(of({std::numeric_limits<std::int64_t>::min()}) != of({std::numeric_limits<std::int64_t>::max()}));
}

TEST_CASE("list_hash: in another context another hash, the same in the same") {
  std::set<std::uint64_t> low, high;
  for (std::int64_t id = 0; id < 100; ++id)
    for (std::uint64_t context = 0; context < 100; ++context) {
      auto const h = list_hash(std::vector<std::int64_t>{id}).within(context);
      CHECK(h == list_hash(std::vector<std::int64_t>{id}).within(context));
      low.insert(h.low);
      high.insert(h.high);
    }
  CHECK(low.size() == 10'000);
  CHECK(high.size() == 10'000);
}

TEST_CASE("hash_set: as std::set, zero and all") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  tessera_tests::counting_memory memory;
  serial_team team;
  host_exec const exec(team, memory);
  detail::hash_set set;
  std::set<words> naive;
  CHECK_FALSE(set.contains({1, 2}));
  for (int i = 0; i < 20'000; ++i) {
    words const key(random() % 100 * (random() % 2), random() % 100);
    list_hash const hash(key.first, key.second);
    if (key == words(1, 0)) continue;  // which zero stands for
    CHECK(set.contains(hash) == (naive.count(key) == 1));
    CHECK(set.insert(exec, hash) == naive.insert(key).second);
    CHECK(set.contains(hash));
  }
  CHECK(set.size() == static_cast<std::int64_t>(naive.size()));
  CHECK(set.bytes() >= 16 * naive.size());
}

}  // namespace list_hash_test
