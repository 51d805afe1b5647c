// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include <tessera/plan/table_ids.hpp>

#include "random.hpp"

namespace table_ids_test {

using tessera::draw_table_ids;
using tessera::profile_of_ids;
using tessera::random_seed;
using tessera::table_ids;
using tessera::table_profile;

namespace {

/// A profile with a few neighbouring bins, of a batch of 512 bags.
table_profile random_profile(std::mt19937_64& random) {
  std::uniform_real_distribution<double> uniform;
  table_profile table;
  table.name = "t";
  table.rows = 100'000'000;
  table.dim = 8;
  table.pooling_factor = std::pow(10, 1 + uniform(random));
  table.bags = table.distinct_bags = 512;
  auto const first = static_cast<std::size_t>(3 * uniform(random));
  double left = 1;
  for (std::size_t b = 0; b < 3; ++b) {
    table.access[first + b] = b == 2 ? left : left * uniform(random);
    left -= table.access[first + b];
  }
  return table;
}

std::int64_t sum_of(std::vector<std::int64_t> const& values) { return std::accumulate(values.begin(), values.end(), std::int64_t{0}); }

}  // namespace

TEST_CASE("draw_table_ids: bins, pooling factor and rows of a whole batch are the profile's") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  for (int repeat = 0; repeat < 20; ++repeat) {
    CAPTURE(repeat);
    auto const profile = random_profile(random);
    auto const drawn = draw_table_ids(profile, 512, random_seed(seed), static_cast<std::uint64_t>(repeat));
    CHECK(drawn.lengths.size() == 512);
    CHECK(sum_of(drawn.lengths) == static_cast<std::int64_t>(drawn.ids.size()));
    CHECK(static_cast<std::int64_t>(drawn.ids.size()) == std::llround(profile.pooling_factor * 512));
    CHECK(*std::min_element(drawn.ids.begin(), drawn.ids.end()) >= 0);
    CHECK(*std::max_element(drawn.ids.begin(), drawn.ids.end()) == profile.rows - 1);
    auto const found = profile_of_ids(profile, drawn);
    CHECK(found.pooling_factor == doctest::Approx(profile.pooling_factor).epsilon(1e-3));
    std::map<std::int64_t, std::int64_t> reads;
    for (auto const id : drawn.ids) ++reads[id];
    // What is left over of whole numbers is at most some dozens of rows.
    auto const tolerance = 0.01 + 40 / static_cast<double>(reads.size());
    for (std::size_t b = 0; b < 17; ++b) {
      CAPTURE(b);
      CHECK(std::fabs(found.access[b] - profile.access[b]) < tolerance);
    }
    CHECK(static_cast<double>(reads.size()) == doctest::Approx(tessera::distinct_rows_of_batch(profile)).epsilon(0.2));
    auto const again = draw_table_ids(profile, 512, random_seed(seed), static_cast<std::uint64_t>(repeat));
    CHECK(again.ids == drawn.ids);
    CHECK(again.lengths == drawn.lengths);
    CHECK(draw_table_ids(profile, 512, random_seed(seed + 1), static_cast<std::uint64_t>(repeat)).ids != drawn.ids);
  }
}

TEST_CASE("draw_table_ids: a part of a batch has its share of ids, which repeat less") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  table_profile table;
  table.name = "t";
  table.rows = 1'000'000, table.dim = 8, table.pooling_factor = 20;
  table.bags = table.distinct_bags = 1024;
  table.access[4] = 1;  // 9 to 16 reads a row, some 1,700 rows
  auto const part = draw_table_ids(table, 64, random_seed(seed));
  CHECK(part.ids.size() == 1280);
  CHECK(*std::max_element(part.ids.begin(), part.ids.end()) == 999'999);
  auto const found = profile_of_ids(table, part);
  // Of twelve reads of a row less than one is left: most rows that are left are read once.
  CHECK(found.access[0] > 0.5);
  CHECK(found.access[4] < 0.01);
}

TEST_CASE("draw_table_ids: few rows, one id a bag, no ids") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  table_profile table;
  table.rows = 3, table.dim = 8, table.pooling_factor = 1;
  table.bags = table.distinct_bags = 100;
  table.access[0] = 1;  // which three rows cannot have
  auto const drawn = draw_table_ids(table, 100, random_seed(seed));
  CHECK(drawn.lengths == std::vector<std::int64_t>(100, 1));
  CHECK(profile_of_ids(table, drawn).access[0] < 1);
  table.pooling_factor = 0;
  CHECK(draw_table_ids(table, 100, random_seed(seed)).ids.empty());
  CHECK(draw_table_ids(table, 100, random_seed(seed)).lengths == std::vector<std::int64_t>(100));
  CHECK(draw_table_ids(table, 0, random_seed(seed)).lengths.empty());
  table.pooling_factor = 0.01;
  CHECK(draw_table_ids(table, 100, random_seed(seed)).ids == std::vector<std::int64_t>{2});
}

TEST_CASE("profile_of_ids: a known batch") {
  table_profile table;
  table.rows = 10, table.dim = 4;
  auto const found = profile_of_ids(table, {{1, 2, 2, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 5}, {10, 0, 5, 0}});
  CHECK(found.bags == 4);
  CHECK(found.distinct_bags == 4);
  CHECK(found.pooling_factor == 3.75);
  CHECK(found.access[0] == doctest::Approx(0.2));
  CHECK(found.access[1] == doctest::Approx(0.2));
  CHECK(found.access[2] == doctest::Approx(0.4));
  CHECK(found.access[3] == doctest::Approx(0.2));
  CHECK(found.rows == 10);
  tessera::check_table_profile(profile_of_ids(found, {}));
}

TEST_CASE("draw_table_ids: a small part of a batch does not keep the memory of all of it") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  table_profile table;
  table.rows = 100'000, table.dim = 4, table.pooling_factor = 10, table.bags = table.distinct_bags = 4096, table.access[0] = 1;
  auto const few = draw_table_ids(table, 16, random_seed(seed));
  CHECK(few.ids.size() == 160);
  CHECK(few.ids.capacity() < 1000);
}

TEST_CASE("draw_table_ids: bad input is named") {
  auto const refused = [](table_profile const& table, std::int64_t bags, char const* field, std::string const& value) {
    try {
      draw_table_ids(table, bags, random_seed(1));
      FAIL_CHECK("accepted");
    } catch (tessera::error const& e) {
      CHECK(e.code() == tessera::errc::invalid_argument);
      CHECK(e.value(field) == value);
    }
  };
  table_profile table;
  table.rows = 10, table.dim = 4, table.pooling_factor = 2, table.bags = table.distinct_bags = 100;
  refused(table, 101, "bags", "101");
  refused(table, -1, "bags", "-1");
  table.pooling_factor = -1;
  refused(table, 1, "value", "-1");
  table.pooling_factor = 1e9;
  refused(table, 1, "ids", "1e+11");
}

}  // namespace table_ids_test
