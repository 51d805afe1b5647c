// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <tessera/synth/table_pool.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include <tessera/synth/sharding_tasks.hpp>

#include "random.hpp"
#include "temporary_folder.hpp"

namespace table_pool_test {

using tessera::errc;
using tessera::pool_table;
using tessera::pool_totals;
using tessera::random_seed;
using tessera_tests::error_of;

TEST_CASE("table_pool: totals to 0.1 %, and both histograms to 0.003, are those published") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  auto const pool = tessera::make_table_pool({.seed = random_seed{seed}});
  REQUIRE(pool.size() == 856);
  double rows = 0, ids = 0, distinct = 0, pooling = 0, by_bins = 0;
  std::vector<double> read_rows(17), reads(17);
  for (auto const& table : pool) {
    CHECK(table.rows >= 100);
    CHECK(table.rows <= 15'000'000);
    CHECK(table.distinct_rows() <= static_cast<double>(table.rows) * (1 + 1e-6));
    rows += static_cast<double>(table.rows);
    pooling += table.pooling_factor;
    distinct += table.distinct_rows();
    double own = 0;
    for (std::size_t bin = 0; bin < 17; ++bin) {
      CHECK(table.read_rows[bin] >= 0);
      read_rows[bin] += table.read_rows[bin];
      reads[bin] += table.read_rows[bin] * pool_totals::reads[bin];
      own += table.read_rows[bin] * pool_totals::reads[bin];
    }
    by_bins += own;
    CHECK(own == doctest::Approx(table.pooling_factor * 65536).epsilon(1e-6));
  }
  ids = pooling * 65536;
  // What is published, as the papers and the statistics of locality have it.
  CHECK(rows / 856 == doctest::Approx(4'107'458).epsilon(0.001));
  CHECK(ids == doctest::Approx(887'017'990).epsilon(0.001));
  CHECK(by_bins == doctest::Approx(887'017'990).epsilon(0.001));
  CHECK(distinct == doctest::Approx(128'435'723).epsilon(0.001));
  CHECK(ids / distinct == doctest::Approx(6.906).epsilon(0.001));
  CHECK(pooling / 856 == doctest::Approx(15.81).epsilon(0.001));
  CHECK(distinct / 856 == doctest::Approx(150'042).epsilon(0.001));
  double published_rows = 0, published_reads = 0;
  for (std::size_t bin = 0; bin < 17; ++bin) {
    published_rows += pool_totals::read_rows[bin];
    published_reads += pool_totals::read_rows[bin] * pool_totals::reads[bin];
  }
  for (std::size_t bin = 0; bin < 17; ++bin) {
    CAPTURE(bin);
    CHECK(std::abs(read_rows[bin] / distinct - pool_totals::read_rows[bin] / published_rows) < 0.003);
    CHECK(std::abs(reads[bin] / by_bins - pool_totals::read_rows[bin] * pool_totals::reads[bin] / published_reads) < 0.003);
  }
}

TEST_CASE("table_pool: one seed makes one pool; empty tables are read by nobody") {
  tessera::table_pool_options options{.seed = random_seed{5}, .tables = 100, .empty_tables = 2};
  auto const pool = tessera::make_table_pool(options);
  CHECK(pool == tessera::make_table_pool(options));
  options.seed = random_seed{6};
  CHECK(pool != tessera::make_table_pool(options));
  CHECK(std::count_if(pool.begin(), pool.end(), [](auto const& t) { return t.pooling_factor == 0; }) == 2);
  CHECK(pool.back().distinct_rows() == 0);
  CHECK(pool.back().shares() == std::array<double, 17>{});
  double shares = 0;
  for (double const share : pool[0].shares()) shares += share;
  CHECK(shares == doctest::Approx(1));
}

TEST_CASE("table_pool: options that no pool has are refused by name") {
  auto const refused = [](tessera::table_pool_options const& options, char const* name, std::string const& value) {
    auto const e = error_of([&] { tessera::make_table_pool(options); });
    CHECK(e.code() == errc::invalid_argument);
    CHECK(e.value(name) == value);
  };
  refused({.tables = 0}, "tables", "0");
  refused({.empty_tables = 856}, "empty_tables", "856");
  refused({.empty_tables = -1}, "empty_tables", "-1");
  refused({.rows_spread = std::nan("")}, "rows_spread", "nan");
  refused({.most_rows = 4'000'000}, "most_rows", "4000000");
  refused({.correlation = 1.5}, "correlation", "1.5");
}

TEST_CASE("sharding_tasks: tables and dims are drawn by the published rules") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  auto const pool = tessera::make_table_pool({.seed = random_seed{seed}});
  tessera::sharding_task_options const options{.seed = random_seed{seed}};
  std::vector<std::int64_t> of_dims(256), of_counts(60);
  for (std::int64_t number = 0; number < 50; ++number) {
    auto const task = tessera::make_sharding_task(pool, options, number);
    REQUIRE(task.tables.size() == task.dims.size());
    ++of_counts.at(task.tables.size());
    double bytes = 0;
    for (std::size_t i = 0; i < task.tables.size(); ++i) {
      ++of_dims.at(static_cast<std::size_t>(task.dims[i]));
      bytes += static_cast<double>(pool.at(static_cast<std::size_t>(task.tables[i])).rows) * static_cast<double>(task.dims[i]) * 4;
    }
    CHECK(bytes <= 15 * 0x1p30);
    CHECK(task == tessera::make_sharding_task(pool, options, number));
  }
  for (std::size_t count = 0; count < 10; ++count) CHECK(of_counts[count] == 0);
  CHECK(std::count(of_counts.begin(), of_counts.end(), 0) < 50);
  for (std::size_t dim = 0; dim < of_dims.size(); ++dim) {
    bool const is_drawn = dim == 4 || dim == 8 || dim == 16 || dim == 32 || dim == 64 || dim == 128;
    CHECK((of_dims[dim] > 0) == is_drawn);
  }
}

TEST_CASE("sharding_tasks: small draws are kept as often as draws that are drawn again until they are small enough") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  std::vector<pool_table> pool(4);
  for (std::size_t t = 0; t < pool.size(); ++t) pool[t].rows = std::int64_t{1000} << (2 * t);
  // Of all 8^3 draws of three tables with two dims each, some are small enough.
  tessera::sharding_task_options const options{.seed = random_seed{seed},
                                               .devices = 1,
                                               .most_dim = 8,
                                               .least_tables = 3,
                                               .below_tables = 4,
                                               .device_bytes = std::uniform_int_distribution<std::int64_t>(400'000, 900'000)(random),
                                               .slack_bytes = 0};
  CAPTURE(options.device_bytes);
  std::vector<double> expected(512), counts(512);
  auto const bytes = [&](std::size_t choice) { return pool[choice % 4].rows * (choice < 4 ? 16 : 32); };
  double small = 0;
  for (std::size_t draw = 0; draw < expected.size(); ++draw)
    small += expected[draw] = bytes(draw / 64) + bytes(draw / 8 % 8) + bytes(draw % 8) <= options.device_bytes ? 1 : 0;
  REQUIRE(small > 50);
  constexpr std::int64_t tasks = 20'000;
  for (std::int64_t number = 0; number < tasks; ++number) {
    auto const task = tessera::make_sharding_task(pool, options, number);
    std::size_t draw = 0;
    for (std::size_t i = 0; i < 3; ++i) draw = 8 * draw + static_cast<std::size_t>(task.tables[i]) + (task.dims[i] == 8 ? 4 : 0);
    ++counts.at(draw);
  }
  double squares = 0;
  for (std::size_t draw = 0; draw < expected.size(); ++draw) {
    auto const mean = expected[draw] * static_cast<double>(tasks) / small;
    if (mean == 0) CHECK(counts[draw] == 0);
    if (mean > 0) squares += (counts[draw] - mean) * (counts[draw] - mean) / mean;
  }
  // Chi squared of small - 1 degrees, six standard deviations up.
  CHECK(squares < small - 1 + 6 * std::sqrt(2 * small) + 20);
}

TEST_CASE("sharding_tasks: tasks of eight devices and the largest dims take few draws") {
  auto const pool = tessera::make_table_pool({.seed = random_seed{tessera_tests::draw_seed()}});
  for (std::int64_t number = 0; number < 10; ++number)
    CHECK_NOTHROW(tessera::make_sharding_task(
        pool, {.devices = 8, .least_tables = 20, .below_tables = 120, .slack_bytes = std::int64_t{1} << 30, .most_draws = 2000}, number));
}

TEST_CASE("sharding_tasks: options out of range, and tasks that are always too large, are refused") {
  std::vector<pool_table> const pool(3, pool_table{.rows = 1 << 20});
  auto const refused = [&](tessera::sharding_task_options const& options, char const* name, std::string const& value) {
    CHECK(error_of([&] { tessera::make_sharding_task(pool, options, 0); }).value(name) == value);
  };
  refused({.devices = 0}, "devices", "0");
  refused({.most_dim = 3}, "most_dim", "3");
  refused({.least_tables = 0}, "least_tables", "0");
  refused({.below_tables = 10}, "below_tables", "10");
  refused({.device_bytes = 0}, "device_bytes", "0");
  refused({.slack_bytes = -1}, "slack_bytes", "-1");
  auto const e = error_of([&] { tessera::make_sharding_task(pool, {.device_bytes = 1 << 20, .slack_bytes = 0, .most_draws = 10}, 0); });
  CHECK(e.code() == errc::out_of_range);
  CHECK(e.value("draws") == "10");
  CHECK(error_of([] { tessera::make_sharding_task(std::vector<pool_table>{}, {}, 0); }).value("tables of the pool") == "0");
}

}  // namespace table_pool_test
