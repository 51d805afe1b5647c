// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <tessera/data/value_counts.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include <tessera/core/thread_team.hpp>
#include <tessera/synth/zipf.hpp>

#include "hosts.hpp"
#include "random.hpp"
#include "temporary_folder.hpp"

namespace value_counts_test {

namespace {

using namespace tessera;

constexpr std::int64_t nothing = std::numeric_limits<std::int64_t>::min();
constexpr std::int64_t everything = std::numeric_limits<std::int64_t>::max();

std::map<std::int64_t, std::int64_t> true_counts(std::vector<std::int64_t> const& stream) {
  std::map<std::int64_t, std::int64_t> counts;
  for (auto const value : stream) ++counts[value];
  return counts;
}

/// What the contract says of any stream and limit.
void check_bounds(value_counts const& counts, std::vector<std::int64_t> const& stream) {
  auto truth = true_counts(stream);
  auto const n = static_cast<std::int64_t>(stream.size());
  CHECK(counts.size() <= counts.limit());
  CHECK(counts.unheld() * counts.limit() <= 2 * n);
  std::int64_t wrong = 0;
  for (std::int64_t i = 0; i < counts.size(); ++i) {
    auto const found = truth.find(counts.values()[i]);
    REQUIRE(found != truth.end());
    wrong += counts.counts()[i] > found->second || counts.counts()[i] + counts.missed(i) < found->second;
    wrong += counts.missed(i) > counts.unheld() || counts.counts()[i] < 1;
    truth.erase(found);
  }
  for (auto const& [value, count] : truth) wrong += count > counts.unheld();  // not held
  CHECK(wrong == 0);
}

/// Streams that are hard in different ways.
std::vector<std::vector<std::int64_t>> streams(std::mt19937_64& random) {
  std::uniform_real_distribution<double> uniform;
  std::vector<std::vector<std::int64_t>> all(5);
  zipf_distribution const zipf(100'000, 1.05);
  for (int i = 0; i < 30'000; ++i) {
    all[0].push_back(zipf([&] { return uniform(random); }));
    all[1].push_back(i);                                           // all distinct
    all[2].push_back(static_cast<std::int64_t>(random() % 3000));  // all alike
    all[3].push_back(i / 3);                                       // each three times in a row, then never
    all[4].push_back(i < 15'000 ? i : 20'000 + i % 7);             // the frequent ones come late
  }
  std::sort(all[2].begin(), all[2].begin() + 10'000);
  return all;
}

}  // namespace

TEST_CASE("value_counts: of values that came equally often, half stay, and a quarter of those that came once") {
  tessera_tests::serial_host host;
  auto const exec = host.exec();
  for (std::int64_t const limit : {1, 2, 5, 2000}) {
    CAPTURE(limit);
    tessera::value_counts counts(limit);
    std::vector<std::int64_t> values(static_cast<std::size_t>(limit));
    std::iota(values.begin(), values.end(), 0);
    for (int i = 0; i < 20; ++i) counts.add(exec, vector_view<std::int64_t const>(values));
    std::vector<std::int64_t> const newcomer{-1};
    counts.add(exec, vector_view<std::int64_t const>(newcomer));
    CHECK(counts.size() == limit - std::max<std::int64_t>(limit / 2, 1) + 1);
    CHECK(counts.unheld() == 20);
    for (std::int64_t i = 0; i + 1 < counts.size(); ++i) CHECK(counts.values()[i] == i);

    tessera::value_counts once(limit);
    once.add(exec, vector_view<std::int64_t const>(values));
    once.add(exec, vector_view<std::int64_t const>(newcomer));
    CHECK(once.size() == limit / 4 + 1);
    CHECK(once.unheld() == 1);
  }
}

TEST_CASE("value_counts: a limit bounds what is held and what is missed, whatever the stream") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  for (auto const& stream : streams(random))
    for (std::int64_t const limit : {1, 2, 3, 10, 101, 1000, 20'000}) {
      if (tessera_tests::under_sanitizer && (limit == 2 || limit == 3)) continue;
      CAPTURE(limit);
      tessera_tests::serial_host h;
      value_counts counts(limit);
      std::size_t const cut = random() % stream.size();  // parts do not matter
      vector_view<std::int64_t const> const all(stream);
      counts.add(h.exec(), all.slice(0, static_cast<std::int64_t>(cut)), nothing);
      counts.add(h.exec(), all.slice(static_cast<std::int64_t>(cut), all.size() - static_cast<std::int64_t>(cut)), nothing);
      check_bounds(counts, stream);
      value_counts whole(limit);
      whole.add(h.exec(), all, nothing);
      CHECK(whole.most_frequent(1, everything) == counts.most_frequent(1, everything));
      CHECK(whole.unheld() == counts.unheld());
    }
}

TEST_CASE("value_counts: up to the limit every count is exact, as without one") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  auto const stream = tessera_tests::random_integers<std::int64_t>(random, 5000, -150, 149);
  auto truth = true_counts(stream);
  tessera_tests::serial_host h;
  for (auto const limit : {std::int64_t{0}, static_cast<std::int64_t>(truth.size()), std::int64_t{100'000}}) {
    CAPTURE(limit);
    value_counts counts(limit);
    CHECK(counts.add(h.exec(), vector_view<std::int64_t const>(stream), std::int64_t{7}) == truth[7]);
    CHECK(counts.unheld() == 0);
    std::vector<std::pair<std::int64_t, std::int64_t>> order;
    for (std::int64_t i = 0; i < counts.size(); ++i) {
      CHECK(counts.counts()[i] == truth[counts.values()[i]]);
      CHECK(counts.missed(i) == 0);
    }
    for (auto const& [value, count] : truth)
      if (value != 7) order.emplace_back(-count, value);
    CHECK(counts.size() == static_cast<std::int64_t>(order.size()));
    std::sort(order.begin(), order.end());
    for (std::int64_t const least : {0, 1, 17, 1000})
      for (std::int64_t const most : {std::int64_t{0}, std::int64_t{1}, std::int64_t{50}, everything}) {
        std::vector<std::int64_t> expected;
        for (auto const& [count, value] : order)
          if (-count >= least && static_cast<std::int64_t>(expected.size()) < most) expected.push_back(value);
        CHECK(counts.most_frequent(least, most) == expected);
      }
  }
}

TEST_CASE("value_counts: the frequent values of a long tail are found in little memory") {
  std::mt19937_64 random(17);
  std::uniform_real_distribution<double> uniform;
  zipf_distribution const zipf(std::int64_t{1} << 40, 1.05);
  std::vector<std::int64_t> stream;
  for (int i = 0; i < 200'000; ++i) stream.push_back(zipf([&] { return uniform(random); }));
  auto const truth = true_counts(stream);
  REQUIRE(truth.size() > 50'000);
  constexpr std::int64_t limit = 2000;
  tessera_tests::serial_host h;
  value_counts counts(limit);
  counts.add(h.exec(), vector_view<std::int64_t const>(stream), nothing);
  CHECK(h.memory().peak_bytes() < 200 * limit);
  CHECK(counts.bytes() == h.memory().live_bytes());
  std::vector<std::pair<std::int64_t, std::int64_t>> order;
  for (auto const& [value, count] : truth) order.emplace_back(-count, value);
  std::sort(order.begin(), order.end());
  auto const found = counts.most_frequent(1, 200);
  REQUIRE(found.size() == 200);
  int shared = 0;
  for (std::size_t i = 0; i < 200; ++i) shared += std::find(found.begin(), found.end(), order[i].second) != found.end();
  CHECK(shared >= 150);
  for (std::size_t i = 0; i < 20; ++i) CHECK(found[i] == order[i].second);
}

TEST_CASE("value_counts: peak memory stays below its bound at any limit") {
  std::vector<std::int64_t> stream(100'000);
  std::mt19937_64 random(4);
  for (auto& value : stream) value = static_cast<std::int64_t>(random() % 70'000);
  for (std::int64_t const limit : {16, 50, 77, 300, 620, 1000, 1900, 5000, 10'000, 20'000, 39'000}) {
    CAPTURE(limit);
    tessera_tests::serial_host h;
    value_counts counts(limit);
    counts.add(h.exec(), vector_view<std::int64_t const>(stream), nothing);
    CHECK(h.memory().peak_bytes() < static_cast<std::size_t>(200 * limit));
  }
}

TEST_CASE("value_counts: parts of a stream merge to the whole, with a limit within its bounds") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  tessera_tests::serial_host h;
  for (auto const& stream : streams(random))
    for (std::int64_t const limit : {0, 3, 101, 40'000}) {
      CAPTURE(limit);
      vector_view<std::int64_t const> const all(stream);
      value_counts merged(limit), whole(limit);
      whole.add(h.exec(), all);
      for (std::int64_t first = 0, count = 0; first < all.size(); first += count) {
        count = std::min(all.size() - first, 1 + static_cast<std::int64_t>(random() % 12'000));
        value_counts part(limit);
        part.add(h.exec(), all.slice(first, count));
        merged.merge(h.exec(), value_counts::from_parts(h.exec(), limit, part.values(), part.counts(), part.missed(), part.unheld()));
        // What is merged goes on counting.
        if (first == 0 && count < all.size()) {
          merged.add(h.exec(), all.slice(count, 1));
          ++count;
        }
      }
      if (limit > 0) check_bounds(merged, stream);
      if (limit > 0 && limit < 40'000) continue;
      CHECK(std::equal(whole.values().begin(), whole.values().end(), merged.values().begin(), merged.values().end()));
      CHECK(std::equal(whole.counts().begin(), whole.counts().end(), merged.counts().begin(), merged.counts().end()));
      CHECK(merged.unheld() == 0);
    }
}

TEST_CASE("value_counts: what cannot be is named") {
  CHECK(tessera_tests::error_of([] { value_counts(-1); }).value("limit") == "-1");
  tessera_tests::serial_host h;
  value_counts counts(5);
  CHECK(counts.add(h.exec(), vector_view<std::int64_t const>{}, nothing) == 0);
  CHECK(counts.most_frequent(1, 10).empty());
  CHECK(counts.unheld() == 0);
  CHECK(tessera_tests::error_of([&] { counts.merge(h.exec(), value_counts(6)); }).value("limit of the others") == "6");
  auto const restored = [&](std::int64_t limit, std::vector<std::int64_t> const& values, std::vector<std::int64_t> const& of,
                            std::vector<std::int64_t> const& missed, std::int64_t unheld) {
    return tessera_tests::error_of([&] { value_counts::from_parts(h.exec(), limit, values, of, missed, unheld); });
  };
  CHECK(restored(0, {1, 2}, {1}, {}, 0).code() == errc::shape_mismatch);
  CHECK(restored(0, {1}, {1}, {0}, 0).code() == errc::shape_mismatch);
  CHECK(restored(1, {1, 2}, {1, 1}, {0, 0}, 0).value("values") == "2");
  CHECK(restored(0, {1}, {1}, {}, 3).value("unheld") == "3");
  CHECK(restored(4, {1}, {0}, {0}, 0).value("count") == "0");
  CHECK(restored(4, {1}, {1}, {2}, 1).value("missed") == "2");
  CHECK(restored(0, {9, 9}, {1, 1}, {}, 0).value("value") == "9");
}

}  // namespace value_counts_test
