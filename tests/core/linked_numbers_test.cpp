// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <random>
#include <vector>

#include <tessera/core/linked_numbers.hpp>

#include "../support/hosts.hpp"
#include "../support/random.hpp"

using tessera::linked_numbers;
using tessera::number_list;

namespace {

using numbers = std::vector<std::int64_t>;

// The list from front to back; fails where it does not read the same from back to front.
numbers contents(linked_numbers<int> const& links, number_list list) {
  numbers forwards, backwards;
  for (auto n = list.first; n >= 0; n = links.next(n)) forwards.push_back(n);
  for (auto n = list.last; n >= 0; n = links.previous(n)) backwards.insert(backwards.begin(), n);
  CHECK(forwards == backwards);
  return forwards;
}

}  // namespace

TEST_CASE("linked_numbers: front, middle and back, by hand") {
  tessera_tests::serial_host host;
  linked_numbers<int> links;
  links.reserve(host.exec(), 5);
  number_list list;
  CHECK(list.empty());
  links.push_back(list, 3);
  links.push_back(list, 1);
  links.insert_after(list, links.none, 4);
  links.insert_after(list, 3, 0);
  links.insert_after(list, 1, 2);
  CHECK(contents(links, list) == numbers{4, 3, 0, 1, 2});
  links.remove(list, 4);
  links.remove(list, 2);
  links.remove(list, 0);
  CHECK(contents(links, list) == numbers{3, 1});
  links.remove(list, 1);
  links.remove(list, 3);
  CHECK(list.empty());
  CHECK(contents(links, list).empty());
  CHECK(links.bytes() == linked_numbers<int>::bytes_for(5));
}

TEST_CASE("linked_numbers: a checked build refuses numbers without room, and nothing has changed") {
  if constexpr (!tessera::checked) return;
  tessera_tests::serial_host host;
  linked_numbers<int> links;
  links.reserve(host.exec(), 2);
  number_list list;
  links.push_back(list, 1);
  for (std::int64_t const wrong : {std::int64_t{-2}, std::int64_t{2}, INT64_MAX}) {
    CHECK_THROWS_AS(links.push_back(list, wrong), tessera::error);
    CHECK_THROWS_AS(links.insert_after(list, wrong, 0), tessera::error);
    CHECK_THROWS_AS(links.remove(list, wrong), tessera::error);
    CHECK_THROWS_AS(links.next(wrong), tessera::error);
    CHECK_THROWS_AS(links.previous(wrong), tessera::error);
    CHECK_THROWS_AS(links[wrong], tessera::error);
    CHECK_THROWS_AS(links.prefetch(wrong), tessera::error);
  }
  CHECK(contents(links, list) == numbers{1});
}

TEST_CASE("linked_numbers agree with vectors, also while they grow") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  tessera_tests::serial_host host;
  linked_numbers<int> links;
  std::array<number_list, 3> lists;
  std::array<numbers, 3> models;
  numbers list_of;  // by number
  for (std::size_t step = 0; step < 4000; ++step) {
    auto const draw = [&](std::size_t below) { return static_cast<std::size_t>(random() % below); };
    auto const to = draw(3);
    std::int64_t number = -1;
    if (list_of.empty() || (list_of.size() < 300 && draw(4) == 0)) {
      number = static_cast<std::int64_t>(list_of.size());
      list_of.push_back(0);
      links.reserve(host.exec(), number + 1);
      links[number] = static_cast<int>(7 * number);
    } else {
      number = static_cast<std::int64_t>(draw(list_of.size()));
      auto const from = static_cast<std::size_t>(list_of[static_cast<std::size_t>(number)]);
      links.remove(lists[from], number);
      models[from].erase(std::find(models[from].begin(), models[from].end(), number));
    }
    auto const place = draw(models[to].size() + 1);
    links.insert_after(lists[to], place == 0 ? -1 : models[to][place - 1], number);
    models[to].insert(models[to].begin() + static_cast<std::ptrdiff_t>(place), number);
    list_of[static_cast<std::size_t>(number)] = static_cast<std::int64_t>(to);
    if (step % 50 == 0)
      for (std::size_t l = 0; l < 3; ++l) CHECK(contents(links, lists[l]) == models[l]);
  }
  for (std::size_t n = 0; n < list_of.size(); ++n) CHECK(links[static_cast<std::int64_t>(n)] == static_cast<int>(7 * n));
}
