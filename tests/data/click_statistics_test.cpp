// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-labels: threads
#include <tessera/data/click_statistics.hpp>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include <tessera/data/criteo_tsv.hpp>

#include "click_support.hpp"

using namespace click_tests;

namespace {

// Statistics of parts of a log, added one after the other.
tessera::click_statistics statistics_of(tessera::host_exec const& exec, std::vector<std::string> const& parts,
                                        tessera::click_statistics_options options = {.count_categories = true, .count_integers = true}) {
  tessera::click_statistics result(options);
  tessera::raw_rows rows;
  for (auto const& part : parts) {
    tessera::parse_criteo(exec, part, "log.tsv", rows);
    result.add(exec, rows.view());
  }
  return result;
}

struct naive_counts {
  std::vector<std::int64_t> order;
  std::map<std::int64_t, std::int64_t> count;
  void add(std::int64_t value) {
    if (count[value]++ == 0) order.push_back(value);
  }
};
void check_same(tessera::value_counts const& counts, naive_counts const& expected) {
  REQUIRE(counts.size() == static_cast<std::int64_t>(expected.order.size()));
  bool same = true;
  for (std::int64_t i = 0; i < counts.size(); ++i) {
    auto const value = expected.order[static_cast<std::size_t>(i)];
    same = same && counts.values()[i] == value && counts.counts()[i] == expected.count.at(value);
  }
  CHECK(same);
}

}  // namespace

TEST_CASE("moments: merging in parts gives what one pass gives") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  std::vector<double> numbers;
  tessera::moments merged;
  CHECK(merged.variance() == 0);
  for (int part = 0; part < 20; ++part) {
    tessera::moments one;
    for (auto n = random() % 5; n > 0; --n) {
      numbers.push_back(1e6 + static_cast<double>(random() % 1000));
      one.merge({1, numbers.back(), 0});
    }
    merged.merge(one);
  }
  double mean = 0, variance = 0;
  for (auto const x : numbers) mean += x / static_cast<double>(numbers.size());
  for (auto const x : numbers) variance += (x - mean) * (x - mean) / static_cast<double>(numbers.size());
  CHECK(merged.count == static_cast<std::int64_t>(numbers.size()));
  CHECK(merged.mean == doctest::Approx(mean).epsilon(1e-12));
  CHECK(merged.variance() == doctest::Approx(variance).epsilon(1e-9));
}

TEST_CASE("click_statistics: counts, means and variances as a naive pass finds them") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  std::vector<std::string> parts;
  for (int rows : {500, 1, 37, 2000}) {
    log_shape shape;
    shape.rows = rows;
    shape.odd_spellings = true;
    shape.distinct_values = 300;
    shape.empty_columns = {4, 20};
    parts.push_back(random_log(random, shape));
  }
  std::vector<click> all;
  for (auto const& part : parts) {
    std::int64_t bad_line = 0;
    auto const some = naive_parse(part, bad_line);
    REQUIRE(some.has_value());
    all.insert(all.end(), some->begin(), some->end());
  }
  for (int const threads : {1, 2, 3}) {
    host h(threads);
    auto const statistics = statistics_of(h.exec, parts);
    CHECK(statistics.rows() == static_cast<std::int64_t>(all.size()));
    CHECK(statistics.clicks() == std::count_if(all.begin(), all.end(), [](click const& s) { return s.label > 0; }));
    for (std::size_t column = 0; column < 13; ++column) {
      CAPTURE(column);
      auto const c = static_cast<std::int64_t>(column);
      naive_counts values;
      std::int64_t missing = 0;
      double mean = 0, variance = 0;
      for (auto const& s : all) {
        if (s.integers[column] == tessera::click_layout::missing_integer) {
          ++missing;
        } else {
          values.add(s.integers[column]);
          mean += s.integers[column];
        }
      }
      auto const present = static_cast<double>(all.size()) - static_cast<double>(missing);
      if (present > 0) mean /= present;
      for (auto const& s : all)
        if (s.integers[column] != tessera::click_layout::missing_integer)
          variance += (s.integers[column] - mean) * (s.integers[column] - mean) / present;
      CHECK(statistics.missing_integers(c) == missing);
      CHECK(statistics.integer_moments(c).count == static_cast<std::int64_t>(present));
      CHECK(statistics.integer_moments(c).mean == doctest::Approx(mean).epsilon(1e-10));
      CHECK(statistics.integer_moments(c).variance() == doctest::Approx(variance).epsilon(1e-9));
      check_same(statistics.integer_values(c), values);
    }
    CHECK(statistics.missing_integers(3) == statistics.rows());
    for (std::size_t column = 0; column < 26; ++column) {
      CAPTURE(column);
      auto const c = static_cast<std::int64_t>(column);
      naive_counts values;
      std::int64_t missing = 0;
      for (auto const& s : all) {
        if (s.categories[column] == tessera::click_layout::missing_category)
          ++missing;
        else
          values.add(s.categories[column]);
      }
      CHECK(statistics.missing_categories(c) == missing);
      check_same(statistics.category_values(c), values);
    }
    CHECK(statistics.missing_categories(6) == statistics.rows());

    auto const without = statistics_of(h.exec, parts, {.count_categories = false, .count_integers = false});
    for (std::int64_t c = 0; c < 26; ++c) {
      CHECK(without.missing_categories(c) == statistics.missing_categories(c));
      CHECK(without.category_values(c).size() == 0);
    }
    for (std::int64_t c = 0; c < 13; ++c) {
      CHECK(without.integer_moments(c) == statistics.integer_moments(c));
      CHECK(without.integer_values(c).size() == 0);
    }
    CHECK(without.bytes() < statistics.bytes());
  }
}

TEST_CASE("click_statistics: the number of threads changes no bit") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  log_shape shape;
  shape.rows = 3000;
  shape.odd_spellings = true;
  std::vector<std::string> const parts{random_log(random, shape), random_log(random, shape)};
  host one(1), two(2);
  auto const a = statistics_of(one.exec, parts);
  auto const b = statistics_of(two.exec, parts);
  for (std::int64_t c = 0; c < 13; ++c) CHECK(a.integer_moments(c) == b.integer_moments(c));
}
