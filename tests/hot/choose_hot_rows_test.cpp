// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <tessera/hot/choose_hot_rows.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include <tessera/hot/hot_rows_file.hpp>

#include "hot_support.hpp"
#include "temporary_folder.hpp"

using namespace hot_tests;
using tessera_tests::error_of;

namespace choose_hot_rows_test {

namespace {

constexpr tessera::hot_row_options of_these_tables{.small_table_bytes = 1000};  // table 0 is small

tessera::access_profile profile_of(tessera::host_exec const& exec, hot_problem const& problem) {
  tessera::sample_reader reader(exec, problem.log, {.batch_size = 37});
  return tessera::profile_accesses(exec, reader, problem.features, problem.specs);
}

// Rows of a table that reach a threshold.
std::vector<std::int64_t> naive_rows(tessera::table_accesses const& table, double percent) {
  std::set<std::int64_t> ids;
  for (std::int64_t i = 0; i < table.size(); ++i)
    if (table.count(i) > 0 && 100 * static_cast<double>(table.count(i)) / static_cast<double>(table.accesses()) >= percent)
      ids.insert(table.id(i));
  return {ids.begin(), ids.end()};
}
std::vector<std::int64_t> ids_of(tessera::table_hot_rows const& table) {
  std::vector<std::int64_t> ids;
  for (std::int64_t number = 0; number < table.size(); ++number) ids.push_back(table.id(number));
  return ids;
}

// Bytes of the rows that reach a threshold, with the small table.
std::int64_t naive_bytes(hot_problem const& problem, tessera::access_profile const& profile, double percent) {
  auto sum = 50 * problem.specs[0].row_bytes(4);
  for (std::size_t t = 1; t < problem.specs.size(); ++t)
    sum +=
        static_cast<std::int64_t>(naive_rows(profile.tables[t], percent).size()) * problem.specs[t].row_bytes(problem.specs[t].table.dim);
  return sum;
}
// All thresholds at which something changes.
std::set<double> thresholds_of(hot_problem const& problem, tessera::access_profile const& profile) {
  std::set<double> all;
  for (std::size_t t = 1; t < problem.specs.size(); ++t)
    for (std::int64_t i = 0; i < profile.tables[t].size(); ++i)
      if (auto const count = profile.tables[t].count(i); count > 0)
        all.insert(100 * static_cast<double>(count) / static_cast<double>(profile.tables[t].accesses()));
  return all;
}

}  // namespace

TEST_CASE("choose_hot_rows: all rows of the lowest threshold that fits, whatever the budget; files give them back") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  tessera_tests::serial_host host;
  auto const exec = host.exec();
  hot_problem const problem(exec, random);
  auto const profile = profile_of(exec, problem);
  auto const small = 50 * problem.specs[0].row_bytes(4);
  auto const thresholds = thresholds_of(problem, profile);
  tessera_tests::temporary_folder const folder;
  for (int round = 0; round < 20; ++round) {
    auto options = of_these_tables;
    options.budget_bytes = round == 0 ? small : round == 1 ? 1 << 20 : small + static_cast<std::int64_t>(random() % 6000);
    CAPTURE(options.budget_bytes);
    auto const hot = tessera::choose_hot_rows(exec, profile, problem.specs, options);
    auto lowest = std::numeric_limits<double>::infinity();
    for (auto const percent : thresholds)
      if (naive_bytes(problem, profile, percent) <= options.budget_bytes) lowest = std::min(lowest, percent);
    CHECK(hot.percent == lowest);
    CHECK(hot.row_bytes(problem.specs) == naive_bytes(problem, profile, lowest));
    CHECK(hot.tables[0].is_whole());
    CHECK(hot.tables[0].size() == 50);
    for (std::size_t t = 1; t < 4; ++t) CHECK(ids_of(hot.tables[t]) == naive_rows(profile.tables[t], lowest));
    if (round == 1) CHECK(lowest == *thresholds.begin());

    tessera::save_hot_rows(folder.file("hot"), hot);
    auto const again = tessera::load_hot_rows(exec, folder.file("hot"), problem.specs);
    CHECK(again.digest() == hot.digest());
    CHECK(again.percent == hot.percent);
    for (std::size_t t = 0; t < 4; ++t) CHECK(ids_of(again.tables[t]) == ids_of(hot.tables[t]));
  }
  auto others = problem.specs;
  others[2].table.rows = 2999;
  CHECK(error_of([&] { tessera::load_hot_rows(exec, folder.file("hot"), others); }).code() == tessera::errc::incompatible);
}

TEST_CASE("hot_thresholds and count_histogram: what each threshold makes hot") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  tessera_tests::serial_host host;
  auto const exec = host.exec();
  hot_problem const problem(exec, random);
  auto const profile = profile_of(exec, problem);
  std::int64_t all_accesses = 0, all_rows = 0;
  for (auto const& table : profile.tables) {
    std::map<std::int64_t, std::int64_t, std::greater<>> expected;
    for (std::int64_t i = 0; i < table.size(); ++i)
      if (table.count(i) > 0) ++expected[table.count(i)];
    std::vector<std::pair<std::int64_t, std::int64_t>> found;
    for (auto const& step : tessera::count_histogram(table)) found.emplace_back(step.count, step.rows);
    CHECK(found == std::vector<std::pair<std::int64_t, std::int64_t>>(expected.begin(), expected.end()));
    all_accesses += table.accesses();
    all_rows += table.size();
  }
  std::vector<double> percents{0, 100, 1e-7, std::numeric_limits<double>::infinity()};
  for (auto const percent : thresholds_of(problem, profile)) percents.push_back(percent);
  auto const found = tessera::hot_thresholds(profile, problem.specs, percents, of_these_tables);
  REQUIRE(found.size() == percents.size());
  for (auto const& one : found) {
    CAPTURE(one.percent);
    std::int64_t rows = 50, accesses = profile.tables[0].accesses();
    for (std::size_t t = 1; t < 4; ++t) {
      auto const ids = naive_rows(profile.tables[t], one.percent);
      rows += static_cast<std::int64_t>(ids.size());
      for (std::int64_t i = 0; i < profile.tables[t].size(); ++i)
        if (std::binary_search(ids.begin(), ids.end(), profile.tables[t].id(i))) accesses += profile.tables[t].count(i);
    }
    CHECK(one.rows == rows);
    CHECK(one.bytes == naive_bytes(problem, profile, one.percent));
    CHECK(one.share_of_rows == doctest::Approx(static_cast<double>(rows) / static_cast<double>(all_rows)));
    CHECK(one.share_of_accesses == doctest::Approx(static_cast<double>(accesses) / static_cast<double>(all_accesses)));
  }
  // Counts past the array of small ones.
  tessera::buffer<std::uint32_t> counts(exec, 4);
  counts[0] = 100'000;
  counts[1] = 65'535;
  counts[2] = 65'536;
  counts[3] = 100'000;
  using steps = std::vector<tessera::rows_of_count>;
  CHECK(tessera::count_histogram({tessera::table_options{.rows = 4}, std::move(counts)}) == steps{{100'000, 2}, {65'536, 1}, {65'535, 1}});
}

TEST_CASE("choose_hot_rows: a threshold that is given, tables that were never read, and what is refused") {
  tessera_tests::serial_host host;
  auto const exec = host.exec();
  std::mt19937_64 random(1);
  hot_problem const problem(exec, random);
  auto const profile = profile_of(exec, problem);
  auto options = of_these_tables;
  options.percent = 0.5;
  auto const hot = tessera::choose_hot_rows(exec, profile, problem.specs, options);
  for (std::size_t t = 1; t < 4; ++t) CHECK(ids_of(hot.tables[t]) == naive_rows(profile.tables[t], 0.5));
  auto const refused = [&](tessera::hot_row_options const& wrong) {
    return error_of([&] { tessera::choose_hot_rows(exec, profile, problem.specs, wrong); });
  };
  options.budget_bytes = hot.row_bytes(problem.specs) - 1;
  CHECK(refused(options).value("bytes") == std::to_string(hot.row_bytes(problem.specs)));
  options.budget_bytes = 50 * problem.specs[0].row_bytes(4) - 1;
  CHECK(refused(options).value("small tables") == std::to_string(50 * problem.specs[0].row_bytes(4)));
  options.percent = 0;
  CHECK(refused(options).code() == tessera::errc::invalid_argument);
  CHECK(refused({.percent = -1}).code() == tessera::errc::invalid_argument);
  CHECK(refused({.percent = std::nan("")}).code() == tessera::errc::invalid_argument);
  CHECK(refused({.budget_bytes = -1}).code() == tessera::errc::invalid_argument);
  auto others = problem.specs;
  std::swap(others[1], others[2]);
  CHECK(error_of([&] { tessera::choose_hot_rows(exec, profile, others); }).code() == tessera::errc::incompatible);

  tessera::sample_reader none(exec, problem.log, {.batch_size = 37, .blocks = {0, 0}});
  auto const unread = tessera::profile_accesses(exec, none, problem.features, problem.specs);
  auto const cold = tessera::choose_hot_rows(exec, unread, problem.specs, of_these_tables);
  CHECK(cold.percent == std::numeric_limits<double>::infinity());
  CHECK(cold.tables[0].size() == 50);
  for (std::size_t t = 1; t < 4; ++t) CHECK(cold.tables[t].size() == 0);
}

TEST_CASE("table_hot_rows: numbers of hot ids, in the order of ids, whatever the size") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  tessera_tests::serial_host host;
  auto const exec = host.exec();
  for (std::int64_t const rows : {0, 1, 63, 64, 511, 512, 513, 3000}) {
    CAPTURE(rows);
    tessera::table_options const table{.id = tessera::table_id{4}, .dim = 3, .rows = rows};
    for (int const one_in : {1, 2, 50}) {
      std::vector<std::int64_t> ids;
      for (std::int64_t id = 0; id < rows; ++id)
        if (random() % static_cast<std::uint64_t>(one_in) == 0) ids.push_back(id);
      auto const dense = tessera::table_hot_rows::some_of(exec, table, true, ids),
                 hashed = tessera::table_hot_rows::some_of(exec, table, false, ids);
      CHECK(!dense.is_whole());
      CHECK(dense.size() == static_cast<std::int64_t>(ids.size()));
      for (std::int64_t id = -2; id < rows + 2; ++id) {
        auto const found = std::lower_bound(ids.begin(), ids.end(), id);
        auto const number = found != ids.end() && *found == id ? found - ids.begin() : -1;
        CHECK(dense.number(id) == number);
        CHECK(hashed.number(id) == number);
        CHECK(dense.is_hot(id) == (number >= 0));
        CHECK(hashed.is_hot(id) == (number >= 0));
      }
    }
    auto const all = tessera::table_hot_rows::all_of(table);
    CHECK(all.size() == rows);
    for (std::int64_t id = -1; id <= rows; ++id) CHECK(all.number(id) == (id >= 0 && id < rows ? id : -1));
  }
  tessera::table_options const table{.rows = 10};
  auto const refused = [&](std::vector<std::int64_t> ids) {
    return error_of([&] { tessera::table_hot_rows::some_of(exec, table, true, std::move(ids)); }).code();
  };
  CHECK(refused({3, 3}) == tessera::errc::invalid_argument);
  CHECK(refused({4, 3}) == tessera::errc::invalid_argument);
  CHECK(refused({-1, 3}) == tessera::errc::out_of_range);
  CHECK(refused({3, 10}) == tessera::errc::out_of_range);
}

}  // namespace choose_hot_rows_test
