// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-labels: threads
#include <tessera/data/session_statistics.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include <tessera/synth/session_clicks.hpp>
#include <tessera/synth/session_sets.hpp>

#include "hosts.hpp"
#include "random.hpp"
#include "temporary_folder.hpp"

namespace session_statistics_test {

namespace {

using namespace tessera;
using tessera_tests::error_of;
using tessera_tests::pool_host;
using tessera_tests::serial_host;
using list = std::vector<std::int64_t>;

/// Lists of features, and sessions, as plain data.
struct plain_log {
  std::vector<std::vector<list>> features;
  std::vector<std::int64_t> sessions;

  void add_to(session_statistics& statistics, host_exec const& exec, std::size_t first, std::size_t last) const {
    std::vector<jagged<std::int64_t>> rows;
    std::vector<jagged_view<std::int64_t const>> views;
    for (auto const& f : features)
      rows.push_back(jagged<std::int64_t>::from_rows(
          exec, {f.begin() + static_cast<std::ptrdiff_t>(first), f.begin() + static_cast<std::ptrdiff_t>(last)}));
    for (auto const& r : rows) views.push_back(r.view());
    statistics.add(
        exec, views,
        vector_view<std::int64_t const>(sessions).slice(static_cast<std::int64_t>(first), static_cast<std::int64_t>(last - first)));
  }
};

/// Few ids and short lists, so that everything comes again somehow.
plain_log random_log(std::mt19937_64& random, std::size_t features, std::size_t samples) {
  plain_log log;
  log.features.resize(features);
  for (std::size_t i = 0; i < samples; ++i) {
    log.sessions.push_back(static_cast<std::int64_t>(random() % 17) * -1'000'003);
    for (auto& f : log.features) {
      list ids(random() % 4);
      for (auto& id : ids) id = static_cast<std::int64_t>(random() % 5);
      f.push_back(ids);
    }
  }
  return log;
}

feature_repeats naive(plain_log const& log, std::size_t f, session_statistics_options options) {
  feature_repeats r;
  auto const& lists = log.features[f];
  for (std::size_t i = 0; i < lists.size(); ++i) {
    std::vector<std::size_t> before, elsewhere;
    for (std::size_t j = 0; j < i; ++j) (log.sessions[j] == log.sessions[i] ? before : elsewhere).push_back(j);
    auto const length = static_cast<std::int64_t>(lists[i].size());
    auto const is_same = [&](std::size_t j) { return lists[j] == lists[i]; };
    ++r.samples;
    r.ids += length;
    bool const repeats = std::any_of(before.begin(), before.end(), is_same);
    r.repeated_samples += repeats;
    r.repeated_samples_ids += repeats ? length : 0;
    for (auto const id : lists[i])
      r.repeated_ids += options.partial && std::any_of(before.begin(), before.end(),
                                                       [&](std::size_t j) { return std::count(lists[j].begin(), lists[j].end(), id) > 0; });
    r.pairs += !before.empty();
    r.same_pairs += !before.empty() && is_same(before.back());
    if (options.across && !repeats && std::any_of(elsewhere.begin(), elsewhere.end(), is_same)) {
      ++r.elsewhere_samples;
      r.elsewhere_ids += length;
    }
  }
  return r;
}

}  // namespace

TEST_CASE("session_statistics: as a naive count over all pairs of samples, in blocks of any sizes, on any number of threads") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  for (int round = 0; round < 6; ++round) {
    session_statistics_options options;
    options.batch_size = 1 + static_cast<std::int64_t>(random() % 50);
    options.partial = round != 1;
    options.across = round != 2;
    auto const log = random_log(random, 3, 200);
    tessera_tests::host<thread_pool> h(1 + round % 3);
    session_statistics statistics(3, options);
    for (std::size_t first = 0; first < 200;) {
      auto const last = std::min<std::size_t>(200, first + random() % 70);
      log.add_to(statistics, h.exec(), first, last);
      first = last;
    }
    for (std::size_t f = 0; f < 3; ++f) {
      auto const expected = naive(log, f, options);
      auto const& found = statistics.feature(static_cast<std::int64_t>(f));
      CHECK(found == expected);
      CHECK(expected.repeated_samples > 0);
      CHECK(found.kept_ids() == found.ids - expected.repeated_samples_ids);
    }
    CHECK(statistics.samples() == 200);
    std::map<std::int64_t, std::int64_t> samples, sizes, in_batches;
    for (auto const s : log.sessions) ++samples[s];
    for (auto const& [s, n] : samples) ++sizes[n];
    CHECK(statistics.histogram() == sizes);
    CHECK(statistics.sessions() == static_cast<std::int64_t>(samples.size()));
    CHECK(statistics.samples_per_session() == doctest::Approx(200.0 / static_cast<double>(samples.size())));
    CHECK(statistics.most_exact() == doctest::Approx(1 - static_cast<double>(samples.size()) / 200));
    auto const batch = static_cast<std::size_t>(options.batch_size);
    double in_batch = 0, of_batch = 0;
    for (std::size_t first = 0; first + batch <= 200; first += batch) {
      std::map<std::int64_t, std::int64_t> of;
      for (auto i = first; i < first + batch; ++i) ++of[log.sessions[i]];
      for (auto const& [s, n] : of) ++in_batches[n];
      in_batch += static_cast<double>(batch);
      of_batch += static_cast<double>(of.size());
    }
    CHECK(statistics.batch_histogram() == in_batches);
    CHECK(statistics.samples_per_session_in_batch() == doctest::Approx(in_batch / of_batch));
    CHECK(statistics.bytes() > 0);
  }
}

TEST_CASE("session_statistics: the paper's examples") {
  serial_host h;
  // 100 ids, then the same but for one new id behind: 99 of 200.
  plain_log shifted{{{list(), list()}}, {5, 5}};
  for (std::int64_t k = 0; k < 100; ++k) {
    shifted.features[0][0].push_back(k);
    shifted.features[0][1].push_back(k + 1);
  }
  session_statistics one(1);
  shifted.add_to(one, h.exec(), 0, 2);
  CHECK(one.feature(0).partial() == doctest::Approx(0.495));
  CHECK(one.feature(0).exact() == 0);
  CHECK(one.feature(0).stays() == 0);
  // A list that never changes: of 33 samples of two sessions 31 repeat, 15.5 of 16.5; across sessions one more.
  plain_log constant{{std::vector<list>(33, list{1, 2, 3})}, std::vector<std::int64_t>(33, 1)};
  for (std::size_t i = 0; i < 16; ++i) constant.sessions[2 * i] = 2;
  session_statistics two(1);
  constant.add_to(two, h.exec(), 0, 33);
  CHECK(two.feature(0).exact() == doctest::Approx(15.5 / 16.5));
  CHECK(two.feature(0).partial() == doctest::Approx(15.5 / 16.5));
  CHECK(two.most_exact() == doctest::Approx(15.5 / 16.5));
  CHECK(two.feature(0).stays() == 1);
  CHECK(two.feature(0).elsewhere_samples == 1);
  CHECK(two.feature(0).elsewhere_ids == 3);
  CHECK(two.feature(0).kept_ids() == 6);
}

TEST_CASE("session_statistics: means over features, and weighted by their lengths") {
  serial_host h;
  // A feature of one id that stays, one of 4 ids that changes in full.
  plain_log const log{{{{1}, {1}}, {{1, 2, 3, 4}, {5, 6, 7, 8}}}, {9, 9}};
  session_statistics statistics(2);
  log.add_to(statistics, h.exec(), 0, 2);
  auto const means = statistics.means();
  CHECK(means.exact == doctest::Approx(0.25));
  CHECK(means.partial == doctest::Approx(0.25));
  CHECK(means.exact_by_bytes == doctest::Approx(0.1));
  CHECK(means.partial_by_bytes == doctest::Approx(0.1));
}

TEST_CASE("session_statistics: a part of the sessions gives the counts of those sessions") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  serial_host h;
  auto log = random_log(random, 1, 2000);
  for (auto& s : log.sessions) s = static_cast<std::int64_t>(random() % 400);
  session_statistics_options options;
  options.one_session_in = 4;
  session_statistics part(1, options);
  log.add_to(part, h.exec(), 0, 2000);
  // Which sessions those are shows one by one.
  plain_log chosen;
  chosen.features.resize(1);
  std::set<std::int64_t> sessions;
  for (std::int64_t s = 0; s < 400; ++s) {
    session_statistics alone(1, options);
    plain_log({{{{1}}}, {s}}).add_to(alone, h.exec(), 0, 1);
    if (alone.feature(0).samples == 1) sessions.insert(s);
  }
  for (std::size_t i = 0; i < 2000; ++i)
    if (sessions.count(log.sessions[i]) == 1) {
      chosen.sessions.push_back(log.sessions[i]);
      chosen.features[0].push_back(log.features[0][i]);
    }
  CHECK(sessions.size() > 60);
  CHECK(sessions.size() < 140);
  CHECK(part.feature(0) == naive(chosen, 0, options));
  CHECK(part.samples() == 2000);
}

TEST_CASE("session_statistics: nothing, no features, one session, empty lists") {
  serial_host h;
  session_statistics nothing(2);
  CHECK(nothing.samples_per_session() == 0);
  CHECK(nothing.most_exact() == 0);
  CHECK(nothing.means().exact_by_bytes == 0);
  CHECK(nothing.feature(1).exact() == 0);
  CHECK(nothing.feature(1).stays() == 0);
  CHECK(nothing.histogram().empty());
  CHECK(nothing.samples_per_session_in_batch() == 0);
  plain_log({{{}, {}}, {}}).add_to(nothing, h.exec(), 0, 0);
  CHECK(nothing.samples() == 0);

  session_statistics none(0);
  plain_log({{}, {1, 1, 2}}).add_to(none, h.exec(), 0, 3);
  CHECK(none.samples_per_session() == doctest::Approx(1.5));
  CHECK(none.means().exact == 0);

  session_statistics one(1);
  plain_log({{{{}, {}, {}}}, {4, 4, 4}}).add_to(one, h.exec(), 0, 3);
  CHECK(one.feature(0).repeated_samples == 2);
  CHECK(one.feature(0).ids == 0);
  CHECK(one.feature(0).partial() == 0);
  CHECK(one.feature(0).stays() == 1);
}

TEST_CASE("session_statistics: what it refuses, by name") {
  serial_host h;
  CHECK(error_of([] { session_statistics const s(-1); }).value("features") == "-1");
  session_statistics_options options;
  options.batch_size = 0;
  CHECK(error_of([&] { session_statistics const s(1, options); }).value("batch_size") == "0");
  options = {};
  options.one_session_in = 0;
  CHECK(error_of([&] { session_statistics const s(1, options); }).value("one_session_in") == "0");
  session_statistics statistics(2);
  auto const features = error_of([&] { plain_log({{{{1}}}, {1}}).add_to(statistics, h.exec(), 0, 1); });
  CHECK(features.code() == errc::shape_mismatch);
  CHECK(features.value("expected") == "2");
  std::vector<jagged_view<std::int64_t const>> const rows(2);
  std::vector<std::int64_t> const sessions{1, 2};
  auto const shape = error_of([&] { statistics.add(h.exec(), rows, sessions); });
  CHECK(shape.value("feature") == "0");
  CHECK(shape.value("sessions") == "2");
  CHECK(statistics.samples() == 0);
}

TEST_CASE("paper_sessions: repeats within a point of the paper's Figure 4") {
  pool_host<2> h;
  // A tenth of the features, which are as those of the whole; fewer samples where every access is checked.
  auto options = scaled_down(paper_sessions(), 10);
  options.windows = 1;
  options.window_sessions = checks_indices ? 1000 : 14'000;
  options.seed = random_seed{1};
  session_statistics_options measured;
  measured.across = false;
  measured.one_session_in = checks_indices ? 1 : 5;
  session_clicks log(h.exec(), options);
  session_statistics statistics(static_cast<std::int64_t>(options.features.size()), measured);
  sample_columns out(log.schema());
  while (log.next(h.exec(), 4096, out) > 0) statistics.add(h.exec(), out.view());
  auto const means = statistics.means();
  MESSAGE(statistics.samples(), " samples, ", statistics.samples_per_session(), " a session: exact ", means.exact, ", partial ",
          means.partial, ", by bytes ", means.exact_by_bytes, " and ", means.partial_by_bytes);
  if (!checks_indices) CHECK(statistics.samples() >= 230'000);
  auto const bound = checks_indices ? 0.03 : 0.01;
  CHECK(std::abs(means.exact - 0.800) < bound);
  CHECK(std::abs(means.partial - 0.839) < bound);
  CHECK(std::abs(means.exact_by_bytes - 0.816) < bound);
  CHECK(std::abs(means.partial_by_bytes - 0.894) < bound);
}

TEST_CASE("no_repeats: nothing comes again, in a session or in another") {
  pool_host<2> h;
  auto options = no_repeats();
  options.window_sessions = 3000;
  options.windows = 1;
  session_clicks log(h.exec(), options);
  session_statistics statistics(static_cast<std::int64_t>(options.features.size()));
  sample_columns out(log.schema());
  while (log.next(h.exec(), 1000, out) > 0) statistics.add(h.exec(), out.view());
  CHECK(statistics.samples() == 3000);
  CHECK(statistics.sessions() == 3000);
  for (std::int64_t f = 0; f < statistics.feature_count(); ++f) {
    CHECK(statistics.feature(f).repeated_ids == 0);
    CHECK(statistics.feature(f).repeated_samples == 0);
    CHECK(statistics.feature(f).elsewhere_samples == 0);
    CHECK(statistics.feature(f).ids >= 3000 * 8);
  }
}

TEST_CASE("session_groups: by number of group, in the order of the first features, without items") {
  using enum session_feature_kind;
  session_clicks_options const options{{{.name = "a", .kind = user, .group = 4},
                                        {.name = "b", .kind = sequence},
                                        {.name = "c", .kind = sequence, .group = 0},
                                        {.name = "d", .kind = item, .group = 4},
                                        {.name = "e", .kind = sequence, .group = 4},
                                        {.name = "f", .kind = item},
                                        {.name = "g", .kind = user},
                                        {.name = "h", .kind = user},
                                        {.name = "i", .kind = sequence, .group = 0}}};
  CHECK(session_groups(options) == std::vector<std::vector<std::string>>{{"a", "e"}, {"b"}, {"c", "i"}, {"g"}, {"h"}});
  CHECK(session_groups({}).empty());
}

TEST_CASE("rm1_sessions and its like: the features that they say, of which scaled_down keeps every so many") {
  auto const count = [](session_clicks_options const& options, session_feature_kind kind) {
    return std::count_if(options.features.begin(), options.features.end(), [&](auto const& f) { return f.kind == kind; });
  };
  auto const groups = [](session_clicks_options const& options) {
    std::map<std::int64_t, std::int64_t> sizes;
    for (auto const& f : options.features)
      if (f.group >= 0) ++sizes[f.group];
    std::vector<std::int64_t> result;
    for (auto const& [g, n] : sizes) result.push_back(n);
    return result;
  };
  using enum session_feature_kind;
  auto const one = rm1_sessions(), two = rm2_sessions(), three = rm3_sessions();
  CHECK(groups(one) == std::vector<std::int64_t>{4, 4, 3, 3, 2});
  CHECK(groups(two) == std::vector<std::int64_t>{6});
  CHECK(groups(three) == std::vector<std::int64_t>{11});
  for (auto const* set : {&one, &two, &three}) {
    CHECK(count(*set, user) == 100);
    CHECK(count(*set, item) == 30);
    CHECK(set->dense_features == 13);
    std::set<std::string> names;
    for (auto const& f : set->features) names.insert(f.name);
    CHECK(names.size() == set->features.size());
  }
  CHECK(paper_sessions().features.size() == 733);

  auto const names = session_groups(three);
  REQUIRE(names.size() == 101);
  CHECK(names[0].size() == 11);
  CHECK(names[0][10] == "sequence_0_10");
  CHECK(names[100] == std::vector<std::string>{"user_99"});

  auto const half = scaled_down(one, 2);
  CHECK(groups(half) == std::vector<std::int64_t>{4, 3, 2});
  CHECK(count(half, user) == 50);
  CHECK(count(half, item) == 15);
  CHECK(half.window_sessions == 29'500);
  CHECK(scaled_down(one, 1000).features.size() == 4 + 1 + 1);
  CHECK(scaled_down(one, 1).features.size() == one.features.size());
  auto with_target = one;
  with_target.target = 118;
  CHECK(scaled_down(with_target, 2).features[static_cast<std::size_t>(scaled_down(with_target, 2).target)].name == one.features[118].name);
  CHECK(error_of([&] { scaled_down(one, 0); }).value("by") == "0");
  with_target.target = 117;
  CHECK(error_of([&] { scaled_down(with_target, 2); }).value("target") == "117");
}

}  // namespace session_statistics_test
