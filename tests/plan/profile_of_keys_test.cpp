// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <tessera/plan/profile_of_keys.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <tessera/tensor/deduplicate.hpp>
#include <tessera/tensor/keyed_jagged.hpp>

#include "hosts.hpp"
#include "random.hpp"
#include "temporary_folder.hpp"

namespace profile_of_keys_test {

using tessera::errc;
using tessera::table_profile;

namespace {

using rows = std::vector<std::vector<std::int64_t>>;

// Bags that often repeat.
rows random_rows(std::mt19937_64& random, std::int64_t samples, std::int64_t ids) {
  rows result;
  std::uniform_int_distribution<std::int64_t> length(0, 3), id(0, ids - 1);
  for (std::int64_t s = 0; s < samples; ++s) {
    if (!result.empty() && random() % 2 == 0) {
      result.push_back(result[random() % result.size()]);
      continue;
    }
    auto& row = result.emplace_back();
    for (auto n = length(random); n > 0; --n) row.push_back(id(random));
  }
  return result;
}

// From each sample's own bags.
table_profile expected(table_profile table, std::vector<rows> const& keys) {
  std::map<std::int64_t, std::int64_t> reads;
  table.bags = 0;
  double ids = 0;
  for (auto const& key : keys)
    for (auto const& row : key) {
      table.bags += 1;
      for (auto const id : row) ++reads[id], ids += 1;
    }
  table.pooling_factor = table.bags > 0 ? ids / table.bags : 0;
  for (auto const& [id, count] : reads)
    table.access[count == 1 ? 0 : static_cast<std::size_t>(std::ceil(std::log2(static_cast<double>(count))))] +=
        1 / static_cast<double>(reads.size());
  return table;
}

void check_near(table_profile const& found, table_profile const& wanted) {
  CHECK(found.bags == wanted.bags);
  CHECK(found.pooling_factor == doctest::Approx(wanted.pooling_factor));
  for (std::size_t bin = 0; bin < found.access.size(); ++bin) CHECK(found.access[bin] == doctest::Approx(wanted.access[bin]));
}

}  // namespace

TEST_CASE("profile_of_keys: what each sample reads, from distinct rows and from all") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  tessera_tests::serial_host host;
  for (std::int64_t const samples : {0, 1, 2, 70}) {
    CAPTURE(samples);
    std::vector<rows> keys;
    for (int k = 0; k < 4; ++k) keys.push_back(random_rows(random, samples, 9));
    auto const batch = tessera::keyed_jagged<>::from_rows(host.exec(), {{"a", keys[0]}, {"b", keys[1]}, {"c", keys[2]}, {"d", keys[3]}});
    table_profile const table{.name = "t", .rows = 9, .dim = 4};
    // Keys a and b together, c alone; d has a row a sample.
    auto const kept = tessera::deduplicate(host.exec(), batch, std::vector<std::int64_t>{2, 1});
    auto const all = kept.view();
    tessera::inverse_keyed_jagged_view<std::int64_t const> const flat{batch.view(), {}, samples};
    for (std::vector<std::int64_t> const& of : {std::vector<std::int64_t>{0}, {1}, {2}, {3}, {0, 1}, {1, 2}, {3, 0}}) {
      std::vector<rows> own;
      double distinct = 0;
      for (auto const k : of) {
        own.push_back(keys[static_cast<std::size_t>(k)]);
        distinct += static_cast<double>(all.distinct.rows(k));
      }
      auto const wanted = expected(table, own);
      auto const found = tessera::profile_of_keys(table, all, of), plain = tessera::profile_of_keys(table, flat, of);
      check_near(found, wanted);
      check_near(plain, wanted);
      CHECK(found.distinct_bags == distinct);
      CHECK(plain.distinct_bags == plain.bags);
      tessera::check_table_profile(found);
      CHECK(plain.group == -1);
      CHECK(found.group == (of == std::vector<std::int64_t>{2} ? 1 : of[0] < 2 && of.back() < 2 ? 0 : -1));
    }
  }
}

TEST_CASE("profile_of_keys: what is not there is named") {
  tessera_tests::serial_host host;
  auto const batch = tessera::keyed_jagged<>::from_rows(host.exec(), {{"a", rows{{1, 4}}}});
  tessera::inverse_keyed_jagged_view<std::int64_t const> const view{batch.view(), {}, 1};
  table_profile const table{.name = "t", .rows = 4, .dim = 4};
  auto const error_of = [&](std::vector<std::int64_t> const& keys) {
    return tessera_tests::error_of([&] { tessera::profile_of_keys(table, view, keys); });
  };
  CHECK(std::string(error_of({}).what()) == "profile_of_keys: no keys (table t)");
  CHECK(std::string(error_of({1}).what()) == "profile_of_keys: no such key (table t, key 1, keys 1)");
  CHECK(std::string(error_of({-1}).what()) == "profile_of_keys: no such key (table t, key -1, keys 1)");
  CHECK(std::string(error_of({0}).what()) == "profile_of_keys: an id that the table lacks (table t, key 0, id 4, rows 4)");
  CHECK(error_of({0}).code() == errc::out_of_range);
}

}  // namespace profile_of_keys_test
