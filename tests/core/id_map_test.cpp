// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <new>
#include <random>
#include <unordered_map>
#include <utility>
#include <vector>

#include <tessera/core/error.hpp>
#include <tessera/core/id_map.hpp>

#include "../support/hosts.hpp"
#include "../support/random.hpp"

using tessera::id_map;
using tessera_tests::serial_host;

namespace {

/// Inserts the ids into a map and into a model; both must say the same, before and after.
void check_against_model(std::vector<std::int64_t> const& ids, std::vector<std::int64_t> const& strangers) {
  serial_host host;
  id_map map;
  std::unordered_map<std::int64_t, std::int64_t> model;
  std::vector<std::int64_t> order;
  std::size_t wrong = 0;
  for (auto const id : ids) {
    auto const [expected, fresh] = model.try_emplace(id, static_cast<std::int64_t>(model.size()));
    if (fresh) order.push_back(id);
    wrong += map.find(id) != (fresh ? id_map::absent : expected->second);
    wrong += map.insert(host.exec(), id) != std::pair(expected->second, fresh);
    wrong += map.size() != static_cast<std::int64_t>(model.size());
  }
  for (auto const& [id, number] : model) {
    map.prefetch(id);
    wrong += map.find(id) != number;
  }
  for (auto const id : strangers)
    if (!model.contains(id)) wrong += map.find(id) != id_map::absent;
  CHECK(wrong == 0);
  CHECK(std::equal(map.ids().begin(), map.ids().end(), order.begin(), order.end()));
  CHECK(map.bytes() == host.memory().live_bytes());
}

constexpr auto least_id = std::numeric_limits<std::int64_t>::min();
constexpr auto most_id = std::numeric_limits<std::int64_t>::max();

}  // namespace

TEST_CASE("an empty map knows nothing and holds nothing") {
  id_map const map;
  CHECK(map.size() == 0);
  CHECK(map.ids().empty());
  CHECK(map.bytes() == 0);
  map.prefetch(5);
  for (std::int64_t const id : {std::int64_t{0}, std::int64_t{-1}, least_id, most_id}) CHECK(map.find(id) == id_map::absent);
}

TEST_CASE("ids of any value and any pattern") {
  std::vector<std::int64_t> const edges{0, -1, 1, least_id, most_id, least_id + 1, most_id - 1, -2, 2, 0, -1, least_id, most_id};
  SUBCASE("the ends") { check_against_model(edges, {3, -3, least_id + 2}); }
  SUBCASE("multiples of large powers of two") {
    for (int const shift : {10, 20, 32, 40, 50, 56}) {
      CAPTURE(shift);
      std::vector<std::int64_t> ids, strangers;
      for (std::uint64_t i = 0; i < 3000; ++i) {
        ids.push_back(static_cast<std::int64_t>(i << shift));
        strangers.push_back(static_cast<std::int64_t>((i << shift) + 1));
      }
      check_against_model(ids, strangers);
    }
  }
  SUBCASE("runs, upwards and downwards") {
    std::vector<std::int64_t> ids;
    for (std::int64_t i = 0; i < 20'000; ++i) {
      ids.push_back(i);
      ids.push_back(-i);
    }
    check_against_model(ids, edges);
  }
  SUBCASE("random, with repeats") {
    auto const seed = tessera_tests::draw_seed();
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    auto ids = tessera_tests::random_integers<std::int64_t>(random, 20'000, least_id, most_id);
    auto const few = tessera_tests::random_integers<std::int64_t>(random, 20'000, -500, 500);
    ids.insert(ids.end(), few.begin(), few.end());
    std::shuffle(ids.begin(), ids.end(), random);
    check_against_model(ids, tessera_tests::random_integers<std::int64_t>(random, 1000, least_id, most_id));
  }
}

TEST_CASE("reserving keeps the numbers, and lets inserts go without allocating") {
  serial_host host;
  id_map map;
  for (std::int64_t id = 0; id < 100; ++id) map.insert(host.exec(), 7 * id);
  map.reserve(host.exec(), 5000);
  auto const allocations = host.memory().allocations();
  for (std::int64_t id = 0; id < 5000; ++id) map.insert(host.exec(), 7 * id);
  CHECK(host.memory().allocations() == allocations);
  CHECK(map.size() == 5000);
  for (std::int64_t id = 0; id < 100; ++id) CHECK(map.find(7 * id) == id);
  map.reserve(host.exec(), 10);
  CHECK(host.memory().allocations() == allocations);
}

TEST_CASE("inserting a known id never allocates") {
  serial_host host;
  id_map map;
  for (std::int64_t id = 0; id < 1000; ++id) {
    map.insert(host.exec(), id);
    auto const allocations = host.memory().allocations();
    map.insert(host.exec(), id / 2);
    if (host.memory().allocations() != allocations) FAIL("at ", id);
  }
}

TEST_CASE("a map whose growth fails is as it was") {
  serial_host host;
  id_map map;
  std::int64_t failures = 0;
  for (std::int64_t id = 0; id < 300; ++id) {
    for (std::int64_t allowed = 0;; ++allowed) {
      host.memory().fail_after(allowed);
      try {
        map.insert(host.exec(), id);
        break;
      } catch (std::bad_alloc const&) {
        ++failures;
        CHECK(map.size() == id);
        CHECK(map.find(id) == id_map::absent);
        if (id > 0) CHECK(map.find(id - 1) == id - 1);
      }
    }
    host.memory().never_fail();
  }
  CHECK(failures > 5);
  for (std::int64_t id = 0; id < 300; ++id) CHECK(map.find(id) == id);
}

TEST_CASE("a count that no memory holds is refused") {
  serial_host host;
  id_map map;
  CHECK_THROWS_AS(map.reserve(host.exec(), most_id), tessera::error);
  CHECK_THROWS_AS(map.reserve(host.exec(), (std::int64_t{1} << 56) + 1), tessera::error);
  CHECK(map.size() == 0);
}

TEST_CASE("mix_bits spreads neighbours and multiples") {
  static_assert(tessera::mix_bits(0) == 0);
  for (int const shift : {0, 16, 32, 48}) {
    std::vector<int> slots(1024, 0);
    for (std::uint64_t i = 0; i < 10'240; ++i) ++slots[tessera::mix_bits(i << shift) % 1024];
    CHECK(*std::max_element(slots.begin(), slots.end()) < 40);  // of 10 on average
  }
}

TEST_CASE("an id that is erased leaves its number to the next new one") {
  serial_host host;
  id_map map;
  for (std::int64_t id = 10; id < 15; ++id) map.insert(host.exec(), id);
  CHECK(map.erase(99) == id_map::absent);
  CHECK(map.erase(11) == 1);
  CHECK(map.erase(11) == id_map::absent);
  CHECK(map.erase(13) == 3);
  CHECK(map.size() == 3);
  CHECK(map.number_bound() == 5);
  for (std::int64_t number = 0; number < 5; ++number) CHECK(map.holds_number(number) == (number != 1 && number != 3));
  auto const allocations = host.memory().allocations();
  CHECK(map.insert(host.exec(), -7) == std::pair(std::int64_t{3}, true));
  CHECK(map.insert(host.exec(), 11) == std::pair(std::int64_t{1}, true));
  CHECK(host.memory().allocations() == allocations);
  CHECK(map.insert(host.exec(), 20) == std::pair(std::int64_t{5}, true));
  CHECK(map.size() == 6);
  CHECK(map.find(13) == id_map::absent);
  CHECK(id_map().erase(0) == id_map::absent);
}

TEST_CASE("a map whose ids come and go agrees with a model") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  // Ids of one first place in small tables stand in each other's way; few of them, so that all come and go often.
  for (int const few : {40, 400, 3000}) {
    CAPTURE(few);
    int const shift = few == 3000 ? 48 : 0;
    serial_host host;
    id_map map;
    std::unordered_map<std::int64_t, std::int64_t> model;
    std::vector<std::int64_t> left;  // numbers, the one left last behind
    std::size_t wrong = 0;
    auto const draws = tessera_tests::random_integers<std::int64_t>(random, 30'000, 0, few - 1);
    for (std::size_t i = 0; i < draws.size(); ++i) {
      auto const id = static_cast<std::int64_t>(static_cast<std::uint64_t>(draws[i]) << shift) - few / 2;
      auto const known = model.find(id);
      wrong += map.find(id) != (known == model.end() ? id_map::absent : known->second);
      bool const fill = i % 4096 < 2048;  // the map fills, then empties
      if (known == model.end() ? fill || i % 3 == 0 : fill && i % 3 != 0) {
        auto expected = static_cast<std::int64_t>(model.size());
        if (known != model.end()) {
          expected = known->second;
        } else if (!left.empty()) {
          expected = left.back();
          left.pop_back();
        }
        wrong += map.insert(host.exec(), id) != std::pair(expected, known == model.end());
        model[id] = expected;
      } else {
        wrong += map.erase(id) != (known == model.end() ? id_map::absent : known->second);
        if (known != model.end()) {
          left.push_back(known->second);
          model.erase(known);
        }
      }
      wrong += map.size() != static_cast<std::int64_t>(model.size());
      wrong += map.number_bound() != static_cast<std::int64_t>(model.size() + left.size());
      if (i % 500 != 0) continue;
      for (auto const& [held, number] : model) wrong += map.find(held) != number || !map.holds_number(number) || map.ids()[number] != held;
      for (auto const number : left) wrong += map.holds_number(number);
    }
    CHECK(wrong == 0);
    CHECK(map.bytes() == host.memory().live_bytes());
  }
}

TEST_CASE("the bytes of a reserved map are known before") {
  for (std::int64_t const count : {0, 1, 9, 10, 1000, 4097}) {
    serial_host host;
    id_map map;
    map.reserve(host.exec(), count);
    CHECK(map.bytes() == id_map::bytes_for(count));
  }
}

TEST_CASE("id_map refuses, in a checked build, a number that it never gave") {
  if constexpr (tessera::checked) {
    tessera_tests::serial_host host;
    tessera::id_map map;
    map.insert(host.exec(), 7);
    CHECK(map.holds_number(0));
    CHECK_THROWS_WITH_AS(map.holds_number(1), "id_map number: no such element (index 1, size 1)", tessera::error);
    CHECK_THROWS_AS(map.holds_number(-1), tessera::error);
  }
}
