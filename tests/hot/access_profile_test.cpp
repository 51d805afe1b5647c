// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-labels: threads
#include <tessera/hot/access_profile.hpp>

#include <doctest/doctest.h>

#include <map>
#include <utility>
#include <vector>

#include <tessera/hot/access_profile_file.hpp>

#include "hot_support.hpp"
#include "temporary_folder.hpp"

using namespace hot_tests;
using tessera_tests::error_of;

namespace access_profile_test {

namespace {

using counts = std::map<std::int64_t, std::int64_t>;

// What was read of each table, of samples [first, last).
std::vector<counts> naive(hot_problem const& problem, std::size_t first, std::size_t last) {
  std::vector<counts> all(problem.specs.size());
  for (std::size_t key = 0; key < problem.ids.size(); ++key)
    for (auto i = first; i < last; ++i)
      for (auto const id : problem.ids[key][i]) ++all[static_cast<std::size_t>(problem.features[key].table)][id];
  return all;
}

counts of(tessera::table_accesses const& table) {
  counts all;
  for (std::int64_t i = 0; i < table.size(); ++i)
    if (table.count(i) > 0) all[table.id(i)] = table.count(i);
  return all;
}

void check_same(tessera::access_profile const& a, tessera::access_profile const& b) {
  CHECK(a.samples == b.samples);
  REQUIRE(a.tables.size() == b.tables.size());
  for (std::size_t t = 0; t < a.tables.size(); ++t) {
    CHECK(of(a.tables[t]) == of(b.tables[t]));
    CHECK(a.tables[t].accesses() == b.tables[t].accesses());
    CHECK(a.tables[t].is_exact() == b.tables[t].is_exact());
  }
}

}  // namespace

TEST_CASE("profile_accesses: each row's count, of batches with groups and without, on any threads; parts merge; files give it back") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  tessera_tests::for_each_team([&](int threads) {
    tessera_tests::pool host(threads);
    auto const exec = host.exec();
    std::mt19937_64 random(seed);
    hot_problem const problem(exec, random);
    auto const expected = naive(problem, 0, 300);
    tessera::sample_reader plain(exec, problem.log, {.batch_size = 37}), grouped(exec, problem.log, problem.in_groups(50));
    auto const of_plain = tessera::profile_accesses(exec, plain, problem.features, problem.specs);
    auto const of_groups = tessera::profile_accesses(exec, grouped, problem.features, problem.specs);
    CHECK(of_plain.samples == 300);
    check_same(of_plain, of_groups);
    for (std::size_t t = 0; t < expected.size(); ++t) {
      std::int64_t accesses = 0;
      for (auto const& [id, count] : expected[t]) accesses += count;
      CHECK(of(of_plain.tables[t]) == expected[t]);
      CHECK(of_plain.tables[t].accesses() == accesses);
      CHECK(of_plain.tables[t].is_exact());
    }

    auto const of_blocks = [&](std::int64_t first, std::int64_t count) {
      tessera::sample_reader part(exec, problem.log, {.batch_size = 37, .blocks = {first, count}});
      return tessera::profile_accesses(exec, part, problem.features, problem.specs);
    };
    auto sum = of_blocks(0, 2);
    auto const rest = of_blocks(2, problem.log.block_count() - 2);
    CHECK(of(sum.tables[1]) == naive(problem, 0, 128)[1]);
    sum.merge(exec, rest);
    check_same(sum, of_plain);

    tessera_tests::temporary_folder const folder;
    tessera::save_access_profile(folder.file("profile"), of_plain);
    check_same(tessera::load_access_profile(exec, folder.file("profile"), problem.specs), of_plain);
  });
}

TEST_CASE("profile_accesses: hashed ids in bounded memory, and what is refused") {
  tessera_tests::serial_host host;
  auto const exec = host.exec();
  std::mt19937_64 random(1);
  hot_problem const problem(exec, random);
  tessera::sample_reader reader(exec, problem.log, {.batch_size = 37});
  auto const bounded = tessera::profile_accesses(exec, reader, problem.features, problem.specs, {.max_ids = 32});
  auto const expected = naive(problem, 0, 300);
  CHECK(bounded.tables[3].size() <= 32);
  CHECK(!bounded.tables[3].is_exact());
  CHECK(bounded.tables[0].is_exact());
  for (auto const& [id, count] : of(bounded.tables[3])) CHECK(count <= expected[3].at(id));
  std::int64_t accesses = 0;
  for (auto const& [id, count] : expected[3]) accesses += count;
  CHECK(bounded.tables[3].accesses() == accesses);
  tessera_tests::temporary_folder const folder;
  tessera::save_access_profile(folder.file("profile"), bounded);
  check_same(tessera::load_access_profile(exec, folder.file("profile"), problem.specs), bounded);

  auto const refused = [&](auto const& features, auto const& specs, tessera::access_profile_options options = {}) {
    tessera::sample_reader one(exec, problem.log, tessera::sample_reader_options{.batch_size = 37});
    return error_of([&] { tessera::profile_accesses(exec, one, features, specs, options); });
  };
  CHECK(refused(problem.features, problem.specs, {.max_ids = -1}).code() == tessera::errc::invalid_argument);
  auto fewer = problem.features;
  fewer.pop_back();
  CHECK(refused(fewer, problem.specs).code() == tessera::errc::shape_mismatch);
  auto of_none = problem.features;
  of_none[1].table = 4;
  CHECK(refused(of_none, problem.specs).value("feature") == "1");
  auto smaller = problem.specs;
  smaller[1].table.rows = 4;
  auto const e = refused(problem.features, smaller);
  CHECK(e.code() == tessera::errc::out_of_range);
  CHECK(!e.value("id").empty());
  CHECK(e.value("rows of the table") == "4");

  for (int what = 0; what < 3; ++what) {
    auto others = problem.specs;
    if (what == 0) others.pop_back();
    if (what == 1) others[2].table.rows = 2999;
    if (what == 2) std::swap(others[1], others[3]);
    CHECK(error_of([&] { tessera::load_access_profile(exec, folder.file("profile"), others); }).code() == tessera::errc::incompatible);
    tessera::sample_reader none(exec, problem.log, {.batch_size = 37, .blocks = {0, 0}});
    auto other = tessera::profile_accesses(exec, none, {}, others);
    auto sum = tessera::load_access_profile(exec, folder.file("profile"), problem.specs);
    CHECK(error_of([&] { sum.merge(exec, other); }).code() == tessera::errc::incompatible);
    check_same(sum, bounded);
    if (what != 0) CHECK(error_of([&] { other.tables[2].merge(exec, bounded.tables[1]); }).code() == tessera::errc::incompatible);
  }
}

}  // namespace access_profile_test
