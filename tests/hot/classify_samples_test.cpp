// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-labels: threads
#include <tessera/hot/classify_samples.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include <tessera/data/picked_samples.hpp>
#include <tessera/data/sample_classes_file.hpp>
#include <tessera/hot/choose_hot_rows.hpp>
#include <tessera/hot/hot_inputs.hpp>

#include "hot_support.hpp"
#include "temporary_folder.hpp"

using namespace hot_tests;
using tessera_tests::error_of;

namespace classify_samples_test {

namespace {

tessera::hot_rows chosen(tessera::host_exec const& exec, hot_problem const& problem) {
  tessera::sample_reader reader(exec, problem.log, {.batch_size = 37});
  auto const profile = tessera::profile_accesses(exec, reader, problem.features, problem.specs);
  return tessera::choose_hot_rows(exec, profile, problem.specs, {.percent = 0.4, .small_table_bytes = 1000});
}

std::vector<bool> naive(hot_problem const& problem, tessera::hot_rows const& hot) {
  std::vector<bool> all(problem.ids[0].size(), true);
  for (std::size_t key = 0; key < problem.ids.size(); ++key)
    for (std::size_t i = 0; i < all.size(); ++i)
      for (auto const id : problem.ids[key][i])
        if (hot.tables[static_cast<std::size_t>(problem.features[key].table)].number(id) < 0) all[i] = false;
  return all;
}

// What is appended, whatever wrote it.
struct written {
  std::vector<std::vector<std::int64_t>> first_column;
  void append(tessera::host_exec const&, tessera::sample_columns_view samples) {
    for (std::int64_t i = 0; i < samples.size(); ++i) {
      auto const row = samples.sparse[0].row(i);
      first_column.emplace_back(row.begin(), row.end());
    }
  }
};

}  // namespace

TEST_CASE("classify_samples: hot where all ids are, of batches with groups and without, in any order, on any threads") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  tessera_tests::for_each_team([&](int threads) {
    tessera_tests::pool host(threads);
    auto const exec = host.exec();
    std::mt19937_64 random(seed);
    hot_problem const problem(exec, random);
    auto const hot = chosen(exec, problem);
    auto const expected = naive(problem, hot);
    CHECK(std::count(expected.begin(), expected.end(), true) > 0);
    CHECK(std::count(expected.begin(), expected.end(), false) > 0);
    auto grouped = problem.in_groups(64);
    tessera::sample_reader_options const plain{.batch_size = 41}, shuffled{.batch_size = 41, .order = tessera::sample_order::samples};
    for (auto const& options : {plain, shuffled, grouped}) {
      tessera::sample_reader reader(exec, problem.log, options);
      auto const classes = tessera::classify_samples(exec, reader, problem.features, hot);
      CHECK(classes.size() == 300);
      CHECK(classes.rows() == hot.digest());
      std::int64_t differ = 0;
      for (std::int64_t i = 0; i < 300; ++i) differ += classes.is_hot(i) != expected[static_cast<std::size_t>(i)];
      CHECK(differ == 0);
    }
  });
}

TEST_CASE("classify_samples: its bits split a data set, and go through a file") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  tessera_tests::serial_host host;
  auto const exec = host.exec();
  hot_problem const problem(exec, random);
  auto const hot = chosen(exec, problem);
  auto const expected = naive(problem, hot);
  tessera::sample_reader reader(exec, problem.log, {.batch_size = 41});
  auto const classes = tessera::classify_samples(exec, reader, problem.features, hot);
  tessera_tests::temporary_folder const folder;
  tessera::save_sample_classes(folder.file("classes"), classes);
  CHECK(tessera::load_sample_classes(folder.file("classes")) == classes);

  written hots, colds;
  tessera::split_by_class(exec, problem.log, classes, hots, colds);
  std::vector<std::vector<std::int64_t>> of_hot, of_cold;
  for (std::size_t i = 0; i < expected.size(); ++i) (expected[i] ? of_hot : of_cold).push_back(problem.ids[0][i]);
  CHECK(hots.first_column == of_hot);
  CHECK(colds.first_column == of_cold);

  // What is picked is of its class again.
  for (auto const kind : {tessera::batch_class::hot, tessera::batch_class::cold}) {
    tessera::picked_samples const picked(problem.log, classes, kind);
    tessera::sample_reader again(exec, picked, {.batch_size = 30});
    auto const of_picked = tessera::classify_samples(exec, again, problem.features, hot);
    CHECK(of_picked.size() == picked.rows());
    CHECK(of_picked.hot() == (kind == tessera::batch_class::hot ? picked.rows() : 0));
  }
}

TEST_CASE("hot_input_shares: the samples that each threshold would make hot, whether the profile has seen them or not") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  tessera_tests::serial_host host;
  auto const exec = host.exec();
  hot_problem const problem(exec, random);
  std::vector<double> const percents{0, 0.05, 0.3, 0.7, 2, 100};
  auto const small = [](double percent) { return tessera::hot_row_options{.percent = percent, .small_table_bytes = 1000}; };
  for (auto const& profiled : {tessera::block_range{0, problem.log.block_count()}, tessera::block_range{0, 2}}) {
    tessera::sample_reader reader(exec, problem.log, {.batch_size = 37, .blocks = profiled}),
        grouped(exec, problem.log, problem.in_groups(50));
    auto const profile = tessera::profile_accesses(exec, reader, problem.features, problem.specs);
    auto const shares = tessera::hot_input_shares(exec, grouped, problem.features, profile, problem.specs, percents, small(0));
    for (std::size_t p = 1; p < percents.size(); ++p) {
      CAPTURE(percents[p]);
      auto const expected = naive(problem, tessera::choose_hot_rows(exec, profile, problem.specs, small(percents[p])));
      CHECK(shares[p] == static_cast<double>(std::count(expected.begin(), expected.end(), true)) / 300);
      CHECK(shares[p] <= shares[p - 1]);
    }
    if (profiled.count > 2) CHECK(shares[0] == 1);
  }
  CHECK(error_of([&] {
          tessera::sample_reader reader(exec, problem.log, {.batch_size = 37});
          auto const profile = tessera::profile_accesses(exec, reader, problem.features, problem.specs);
          tessera::hot_input_shares(exec, reader, problem.features, profile, problem.specs, {-1});
        }).code() == tessera::errc::invalid_argument);
}

TEST_CASE("classify_samples: what is refused") {
  tessera_tests::serial_host host;
  auto const exec = host.exec();
  std::mt19937_64 random(1);
  hot_problem const problem(exec, random);
  auto const hot = chosen(exec, problem);
  tessera::sample_reader reader(exec, problem.log, {.batch_size = 41});
  tessera::batch_view batch;
  REQUIRE(reader.next(exec, batch));
  std::vector<std::uint8_t> out(41), fewer(40);
  auto const refused = [&](tessera::batch_view const& wrong, std::vector<tessera::table_feature> const& features,
                           std::vector<std::uint8_t>& to) {
    return error_of([&] { tessera::classify_batch(exec, wrong, features, hot, to); }).code();
  };
  CHECK(refused(batch, problem.features, fewer) == tessera::errc::shape_mismatch);
  auto features = problem.features;
  features[2].table = -1;
  CHECK(refused(batch, features, out) == tessera::errc::out_of_range);
  features.pop_back();
  CHECK(refused(batch, features, out) == tessera::errc::shape_mismatch);

  tessera::detail::collected_classes classes;
  classes.add(exec, batch, problem.features, hot);
  auto const added = [&](tessera::batch_view const& wrong) {
    return std::string(error_of([&] { classes.add(exec, wrong, problem.features, hot); }).what());
  };
  CHECK(added(batch).find("a sample came twice (sample 0)") != std::string::npos);
  auto unnumbered = batch;
  unnumbered.sample_ids = {};
  CHECK(added(unnumbered).find("does not number its samples") != std::string::npos);
  REQUIRE(reader.next(exec, batch));
  REQUIRE(reader.next(exec, batch));
  tessera::detail::collected_classes with_gap;
  with_gap.add(exec, batch, problem.features, hot);
  CHECK(error_of([&] { classes.finish(300, 0, 0); }).value("sample") == "41");
  CHECK(error_of([&] { with_gap.finish(0, 0, 0); }).value("sample") == "0");
}

}  // namespace classify_samples_test
