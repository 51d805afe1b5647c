// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-cost: 20
// ctest-optimize: -O2
// ctest-labels: threads
#include <tessera/data/dedupe_model.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <tessera/core/thread_team.hpp>
#include <tessera/synth/session_clicks.hpp>
#include <tessera/synth/session_sets.hpp>

#include "hosts.hpp"
#include "random.hpp"
#include "sample_support.hpp"
#include "sanitizers.hpp"
#include "temporary_folder.hpp"

namespace dedupe_model_test {

namespace {

using namespace tessera;
using tessera_tests::error_of;
using tessera_tests::pool_host;
using tessera_tests::serial_host;
using list = std::vector<std::int64_t>;

/// The next window of a log, its sessions one behind the other.
sample_columns clustered_window(host_exec const& exec, session_clicks& log) {
  sample_columns rows(log.schema());
  log.next_window(exec, rows);
  return sorted_by(exec, rows, log.session_numbers());
}

/// A part of samples.
struct columns_part {
  std::vector<jagged_view<std::int64_t const>> features;
  vector_view<std::int64_t const> sessions;

  columns_part(sample_columns_view of, std::int64_t first, std::int64_t count) : sessions(of.sessions.slice(first, count)) {
    for (auto const& column : of.sparse) features.push_back(column.slice(first, count));
  }
};

}  // namespace

TEST_CASE("dedupe_length: the paper's formula and its example") {
  CHECK(dedupe_length(3, 3, 3, 0.5) == doctest::Approx(6));
  CHECK(dedupe_factor(3, 0.5) == doctest::Approx(1.5));
  CHECK(dedupe_length(50, 2048, 16.5, 0.95) == doctest::Approx(50 * 2048 * (1 - 15.5 / 16.5 * 0.95)));
  CHECK(dedupe_factor(1, 1) == 1);
  CHECK(dedupe_factor(16.5, 0) == 1);
  CHECK(dedupe_factor(16.5, 1) == doctest::Approx(16.5));
  CHECK(dedupe_length(0, 10, 2, 1) == 0);
  CHECK(error_of([] { dedupe_length(1, 1, 0.5, 0.5); }).value("samples_per_session") == "0.5");
  CHECK(error_of([] { dedupe_factor(2, 1.5); }).value("stays") == "1.5");
  CHECK(error_of([] { dedupe_factor(2, -0.5); }).code() == errc::invalid_argument);
  constexpr auto infinity = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  for (double const wrong : {nan, infinity, -infinity, 0.0, -1.0}) {
    CHECK(error_of([=] { dedupe_factor(wrong, 0.5); }).code() == errc::invalid_argument);
    CHECK(error_of([=] { dedupe_length(1, 1, wrong, 1); }).code() == errc::invalid_argument);
  }
  CHECK(error_of([=] { dedupe_factor(2, nan); }).code() == errc::invalid_argument);
  CHECK(error_of([=] { dedupe_factor(infinity, 1); }).value("samples_per_session") == "inf");
}

TEST_CASE("measure_batch: the batch of the paper's Figure 5, by columns and by keys") {
  serial_host h;
  // Rows 0 and 2 of a and of b are the same; of c and d, rows 0 and 1.
  auto const batch = keyed_jagged<std::int64_t>::from_rows(
      h.exec(), {{"a", {{1, 2}, {3}, {1, 2}}}, {"b", {{3, 4, 5}, {6, 7, 8}, {3, 4, 5}}}, {"c", {{7, 8}, {7, 8}, {10}}}});
  std::vector<std::int64_t> const one{5, 5, 5}, two{5, 6, 5}, apart{5, 6, 7};
  auto const whole = measure_batch(h.exec(), batch.view(), one);
  CHECK(whole.samples == 3);
  CHECK(whole.sessions == 1);
  CHECK(whole.samples_per_session() == 3);
  CHECK(whole.measured_length(0) == 3);
  CHECK(whole.measured_length(1) == 6);
  CHECK(whole.measured_length(2) == 3);
  CHECK(whole.features[1].stays() == 0);  // it comes back, but not just behind
  CHECK(whole.features[2].stays() == doctest::Approx(0.5));
  CHECK(whole.predicted_length(2) == doctest::Approx(5 * (1 - 2.0 / 3 * 0.5)));
  auto const parted = measure_batch(h.exec(), batch.view(), two);
  CHECK(parted.measured_length(0) == 3);
  CHECK(parted.features[1].stays() == 1);
  CHECK(parted.measured_length(2) == 5);
  CHECK(parted.measured_length_across(2) == 3);
  auto const none = measure_batch(h.exec(), batch.view(), apart);
  CHECK(none.samples_per_session() == 1);
  CHECK(none.measured_length(1) == 9);
  CHECK(none.predicted_length(1) == doctest::Approx(9));
  CHECK(none.measured_length_across(1) == 6);

  std::vector<std::int64_t> const few{1};
  CHECK(error_of([&] { measure_batch(h.exec(), batch.view(), few); }).code() == errc::shape_mismatch);
  auto const empty = measure_batch(h.exec(), sample_columns({.dense = 2, .sparse = 3, .sessions = true}).view());
  CHECK(empty.samples_per_session() == 1);
  CHECK(empty.measured_length(2) == 0);
  CHECK(empty.predicted_length(2) == 0);
  CHECK(measure_batch(h.exec(), keyed_jagged_view<std::int64_t const>{}, one).features.empty());
}

TEST_CASE("measure_batch: what it takes of the memory it gives back, and calls on several threads agree") {
  serial_host owner, counted;
  sample_columns samples;
  std::mt19937_64 random(4);
  sample_tests::table_shape const shape{500};
  sample_tests::fill(owner.exec(), sample_tests::schema_of(shape), sample_tests::random_samples(random, shape), samples);
  auto const found = measure_batch(counted.exec(), samples.view());
  CHECK(found.samples == 500);
  CHECK(counted.memory().allocations() > 0);
  CHECK(counted.memory().live_pieces() == 0);

  thread_pool pool(2);
  system_memory memory;
  host_exec const shared(pool, memory);
  std::vector<batch_repeats> others(4);
  std::vector<std::thread> threads;
  for (auto& other : others) threads.emplace_back([&other, &shared, &samples] { other = measure_batch(shared, samples.view()); });
  for (auto& thread : threads) thread.join();
  for (auto const& other : others) CHECK(other.features == found.features);

  sample_tests::fill(owner.exec(), sample_tests::schema_of(shape, false), sample_tests::random_samples(random, shape), samples);
  CHECK(error_of([&] { measure_batch(shared, samples.view()); }).code() == errc::shape_mismatch);
}

TEST_CASE("dedupe_length: within 5 % of what is counted, for every feature of the sets, in clustered batches of 2,048" *
          doctest::skip(tessera_tests::under_sanitizer)) {
  pool_host<2> h;
  auto const check = [&](std::string const& name, session_clicks_options options, double bound) {
    CAPTURE(name);
    options.window_sessions = options.mean_samples > 1 ? 1500 : 2100;
    options.windows = checks_indices ? 2 : 14;
    options.seed = random_seed{42};
    session_clicks log(h.exec(), options);
    std::vector<double> predicted(options.features.size(), 0), measured = predicted;
    double samples = 0, sessions = 0;
    for (std::int64_t window = 0; window < options.windows; ++window) {
      auto const rows = clustered_window(h.exec(), log);
      for (std::int64_t first = 0; first + 2048 <= rows.size(); first += 2048) {
        columns_part const part(rows.view(), first, 2048);
        auto const batch = measure_batch(h.exec(), part.features, part.sessions);
        samples += static_cast<double>(batch.samples);
        sessions += static_cast<double>(batch.sessions);
        for (std::size_t f = 0; f < predicted.size(); ++f) {
          predicted[f] += batch.predicted_length(static_cast<std::int64_t>(f));
          measured[f] += static_cast<double>(batch.measured_length(static_cast<std::int64_t>(f)));
        }
      }
    }
    double worst = 0;
    for (std::size_t f = 0; f < predicted.size(); ++f) {
      CAPTURE(options.features[f].name);
      CHECK(std::abs(predicted[f] / measured[f] - 1) < (checks_indices ? 4 * bound : bound));
      worst = std::max(worst, std::abs(predicted[f] / measured[f] - 1));
    }
    MESSAGE(name, ": ", samples, " samples, ", samples / sessions, " a session in a batch; predicted by measured lengths off by ", worst,
            " at most");
    if (!checks_indices && name != "no_repeats") CHECK(samples > 250'000);
  };
  check("rm1", scaled_down(rm1_sessions(), 10), 0.05);
  check("rm2", scaled_down(rm2_sessions(), 10), 0.05);
  check("rm3", scaled_down(rm3_sessions(), 10), 0.05);
  check("paper", scaled_down(paper_sessions(), 55), 0.05);
  check("no_repeats", no_repeats(), 1e-9);
}

TEST_CASE("recommend_groups: the groups of RM1, users on their own, and no items" * doctest::skip(tessera_tests::under_sanitizer)) {
  pool_host<2> h;
  serial_host one;
  for (std::uint64_t const seed : {1U, 2U, 3U}) {
    CAPTURE(seed);
    auto options = rm1_sessions();
    options.window_sessions = 500;
    options.windows = 1;
    options.seed = random_seed{seed};
    session_clicks log(h.exec(), options);
    auto const sample = clustered_window(h.exec(), log);
    REQUIRE(sample.size() > 4096);
    auto const found = recommend_groups(h.exec(), sample.view());
    std::vector<std::vector<std::int64_t>> expected{{0, 1, 2, 3}, {4, 5, 6, 7}, {8, 9, 10}, {11, 12, 13}, {14, 15}};
    for (std::int64_t f = 16; f < 116; ++f) expected.push_back({f});
    CHECK(found.groups == expected);
    REQUIRE(found.features.size() == 146);
    CHECK(found.samples_per_session == doctest::Approx(static_cast<double>(sample.size()) / 500));
    for (std::size_t f = 0; f < 146; ++f) {
      auto const& reason = found.features[f];
      CHECK((reason.group >= 0) == (f < 116));
      CHECK((reason.factor > 1.5) == (f < 116));
      CHECK((reason.saving > 0) == (f < 116));
      CHECK(std::abs(reason.stays - options.features[f].stays) < 0.02);
      CHECK(reason.factor == doctest::Approx(dedupe_factor(found.samples_per_session, reason.stays)));
      if (reason.group >= 0)
        CHECK(std::count(expected[static_cast<std::size_t>(reason.group)].begin(), expected[static_cast<std::size_t>(reason.group)].end(),
                         static_cast<std::int64_t>(f)) == 1);
      CHECK(reason.disagreement <= 0.05);
    }
    // The same by the log's own order, which keeps each session's, and on one thread.
    log.seek(0);
    sample_columns as_logged(log.schema());
    log.next(one.exec(), 1 << 20, as_logged);
    CHECK(recommend_groups(one.exec(), as_logged.view()).groups == expected);
    // Fewer samples a session are worth less: first it is not worth it for users, with lists of 10, then for sequences, with lists of 50.
    recommend_groups_options short_sessions;
    short_sessions.samples_per_session = 1.5;
    CHECK(recommend_groups(h.exec(), sample.view(), short_sessions).groups == expected);
    short_sessions.samples_per_session = 1.2;
    CHECK(recommend_groups(h.exec(), sample.view(), short_sessions).groups.size() == 5);
    short_sessions.samples_per_session = 1.01;
    CHECK(recommend_groups(h.exec(), sample.view(), short_sessions).groups.empty());
  }
}

namespace {

/// Ten sessions of 16 samples; lists of `length` ids, of which `changes` of the 150 that have one before in their session are new.
std::vector<list> changing_lists(std::int64_t length, std::int64_t changes) {
  std::vector<list> rows;
  std::int64_t id = 0, pair = 0;
  for (std::int64_t i = 0; i < 160; ++i) {
    bool const is_first = i % 16 == 0;
    id += is_first || (pair + 1) * changes / 150 != pair * changes / 150;
    pair += !is_first;
    rows.emplace_back(length, id);
  }
  return rows;
}

dedupe_recommendation recommended(std::vector<std::vector<list>> const& features, recommend_groups_options const& options = {}) {
  serial_host h;
  std::vector<jagged<std::int64_t>> columns;
  std::vector<jagged_view<std::int64_t const>> views;
  for (auto const& rows : features) columns.push_back(jagged<std::int64_t>::from_rows(h.exec(), rows));
  for (auto const& column : columns) views.push_back(column.view());
  std::vector<std::int64_t> sessions;
  for (std::int64_t i = 0; i < 160; ++i) sessions.push_back(i / 16);
  return recommend_groups(h.exec(), views, sessions, options);
}

}  // namespace

TEST_CASE("recommend_groups: short lists cost more than they save, long ones do not") {
  constexpr std::int64_t half = 74, few = 22;  // changes that make factors of 1.9 and 5
  using groups = std::vector<std::vector<std::int64_t>>;
  auto const short_lists = recommended({changing_lists(1, half)});
  CHECK(short_lists.groups.empty());
  CHECK(short_lists.features[0].factor == doctest::Approx(1.9).epsilon(0.01));
  CHECK(short_lists.features[0].saving < -0.5);
  auto const long_lists = recommended({changing_lists(50, few)});
  CHECK(long_lists.groups == groups{{0}});
  CHECK(long_lists.features[0].factor == doctest::Approx(5).epsilon(0.01));
  CHECK(long_lists.features[0].saving > 0.5);
  CHECK(long_lists.features[0].saving < 0.8);
  // Of one group but for their lengths: the short one would cost the group more than it saves.
  auto const both = recommended({changing_lists(1, half), changing_lists(50, half), changing_lists(30, half)});
  CHECK(both.groups == groups{{1, 2}});
  CHECK(both.features[0].saving < 0);
  CHECK(both.features[1].saving == both.features[2].saving);
  CHECK(recommended({changing_lists(0, few), changing_lists(50, 150)}).groups.empty());
  // On a machine whose groups are free, all that repeats is worth it.
  recommend_groups_options free;
  free.costs.dedupe_ns_per_sample = free.costs.dedupe_ns_per_id = free.costs.expand_ns_per_list = free.costs.expand_ns_per_float = 0;
  CHECK(recommended({changing_lists(1, half), changing_lists(1, 150)}, free).groups == groups{{0}});
}

TEST_CASE("recommend_groups: the saving by hand, of a group that bears one inverse for all its features") {
  recommend_groups_options options;
  options.samples_per_session = 2;
  options.dim = 8;
  options.costs = {10, 20, 0.5, 0.25, 30, 1, 4, 2};
  // Every list stays: factor 2. A list of 2 ids: 10 + 2 (20 + 8 · 0.5) = 58 for the lookup, and 2 · 8 · 0.25 / 2 = 2 for rows from memory;
  // saved is half of the lookup, added 4 + 8 · 2 + 2 = 22; the group adds 30.
  auto const features = [](std::size_t count) { return std::vector<std::vector<list>>(count, changing_lists(2, 0)); };
  auto const four = recommended(features(4), options);
  CHECK(four.groups.empty());
  CHECK(four.features[3].factor == doctest::Approx(2));
  CHECK(four.features[3].saving == doctest::Approx((29.0 - 22 - 30) / 60));
  auto const five = recommended(features(5), options);
  CHECK(five.groups == std::vector<std::vector<std::int64_t>>{{0, 1, 2, 3, 4}});
  for (auto const& feature : five.features) CHECK(feature.saving == doctest::Approx((5 * 7.0 - 30) / 300));
  options.least_saving = 0.017;
  CHECK(recommended(features(5), options).groups.empty());
  options.least_saving = 0.016;
  CHECK(recommended(features(5), options).groups.size() == 1);
  // Groups are numbered as they stand, whatever was not worth it before them.
  auto mixed = features(1);
  mixed.push_back(changing_lists(60, 20));
  auto const second = recommended(mixed, options);
  CHECK(second.groups == std::vector<std::vector<std::int64_t>>{{1}});
  CHECK(second.features[0].group == -1);
  CHECK(second.features[1].group == 0);
}

TEST_CASE("recommend_groups: features join by the samples at which they change, within the share allowed") {
  serial_host h;
  // 40 samples of one session; the first changes at 10, 20, 30, as the second but for 30, as the third but later.
  auto const rows_of = [&](std::set<std::int64_t> const& changes) {
    std::vector<list> rows;
    std::int64_t id = 0;
    for (std::int64_t i = 0; i < 40; ++i) rows.emplace_back(20, id += changes.count(i) > 0);
    return rows;
  };
  std::set<std::int64_t> every;
  for (std::int64_t i = 0; i < 40; ++i) every.insert(i);
  auto const batch = keyed_jagged<std::int64_t>::from_rows(h.exec(), {{"a", rows_of({10, 20, 30})},
                                                                      {"b", rows_of({10, 20})},
                                                                      {"c", rows_of({11, 20, 30})},
                                                                      {"never", rows_of({})},
                                                                      {"always", rows_of(every)},
                                                                      {"never too", rows_of({})},
                                                                      {"a too", rows_of({10, 20, 30})}});
  std::vector<jagged_view<std::int64_t const>> features;
  for (std::int64_t k = 0; k < 7; ++k) features.push_back(batch.view().key(k));
  std::vector<std::int64_t> const sessions(40, 8);
  using groups = std::vector<std::vector<std::int64_t>>;
  recommend_groups_options options;
  CHECK(recommend_groups(h.exec(), features, sessions).groups == groups{{0, 6}, {1}, {2}, {3, 5}});
  options.most_disagreement = 0.34;  // b differs at one of three
  auto const wider = recommend_groups(h.exec(), features, sessions, options);
  CHECK(wider.groups == groups{{0, 1, 6}, {2}, {3, 5}});
  CHECK(wider.features[1].disagreement == doctest::Approx(1.0 / 3));
  CHECK(wider.features[4].group == -1);
  CHECK(wider.features[4].stays == 0);
  CHECK(wider.features[0].stays == doctest::Approx(36.0 / 39));
  options.most_disagreement = 0.5;  // c at two of four
  CHECK(recommend_groups(h.exec(), features, sessions, options).groups == groups{{0, 1, 2, 6}, {3, 5}});
  options.most_disagreement = 0;
  CHECK(recommend_groups(h.exec(), features, sessions, options).groups == groups{{0, 6}, {1}, {2}, {3, 5}});
  options.least_saving = 0.84;
  auto const best = recommend_groups(h.exec(), features, sessions, options);
  CHECK(best.groups == groups{{3, 5}});
  CHECK(best.features[6].group == -1);
  CHECK(best.features[6].saving > 0.7);

  // Sessions of one sample: nothing is known to stay.
  std::vector<std::int64_t> apart(40);
  std::iota(apart.begin(), apart.end(), 0);
  auto const none = recommend_groups(h.exec(), features, apart);
  CHECK(none.groups.empty());
  CHECK(none.samples_per_session == 1);
  CHECK(none.features[3].factor == 1);
  auto const nothing = recommend_groups(h.exec(), std::vector<jagged_view<std::int64_t const>>(2), std::vector<std::int64_t>{});
  CHECK(nothing.groups.empty());
  CHECK(nothing.features.size() == 2);
  CHECK(recommend_groups(h.exec(), std::vector<jagged_view<std::int64_t const>>{}, sessions).features.empty());
}

TEST_CASE("recommend_groups: what it refuses, by name") {
  serial_host h;
  std::vector<jagged_view<std::int64_t const>> const rows(1);
  std::vector<std::int64_t> const sessions{1, 2};
  CHECK(error_of([&] { recommend_groups(h.exec(), rows, sessions); }).value("sessions") == "2");
  CHECK(std::string(error_of([&] {
                      recommend_groups(h.exec(), std::vector{jagged_view<std::int64_t const>{nullptr, sessions.data(), 1}}, {});
                    }).what())
            .find("the samples have no sessions") != std::string::npos);
  auto const refused = [&](double recommend_groups_options::*option, double value) {
    recommend_groups_options options;
    options.*option = value;
    return error_of([&] { recommend_groups(h.exec(), {}, {}, options); });
  };
  CHECK(refused(&recommend_groups_options::least_saving, 1).value("least_saving") == "1");
  CHECK(refused(&recommend_groups_options::least_saving, std::numeric_limits<double>::quiet_NaN()).code() == errc::invalid_argument);
  CHECK(refused(&recommend_groups_options::dim, 0).value("dim") == "0");
  CHECK(refused(&recommend_groups_options::samples_per_session, 0.5).value("samples_per_session") == "0.5");
  CHECK(refused(&recommend_groups_options::samples_per_session, std::numeric_limits<double>::infinity()).value("samples_per_session") ==
        "inf");
  CHECK(refused(&recommend_groups_options::samples_per_session, std::numeric_limits<double>::quiet_NaN()).code() == errc::invalid_argument);
  CHECK(refused(&recommend_groups_options::most_disagreement, 1.5).value("most_disagreement") == "1.5");
  recommend_groups_options options;
  options.costs.expand_ns_per_list = -1;
  CHECK(error_of([&] { recommend_groups(h.exec(), {}, {}, options); }).value("expand_ns_per_list") == "-1");
  options.costs = {.lookup_ns_per_id = std::numeric_limits<double>::infinity()};
  CHECK(error_of([&] { recommend_groups(h.exec(), {}, {}, options); }).value("lookup_ns_per_id") == "inf");
}

}  // namespace dedupe_model_test
