// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-labels: threads values
#include <tessera/synth/session_clicks.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include <tessera/synth/expected_auc.hpp>

#include "click_laws.hpp"
#include "hosts.hpp"
#include "random.hpp"
#include "sanitizers.hpp"
#include "temporary_folder.hpp"

namespace {

using namespace tessera;
using click_tests::deviation;
using tessera_tests::error_of;
using tessera_tests::pool_host;
using tessera_tests::serial_host;
using list = std::vector<std::int64_t>;

/// A sample as plain data.
struct session_row {
  std::vector<float> dense;
  std::vector<list> lists;
  float label = 0, logit = 0;
  std::int64_t session = 0, time = 0, number = 0;

  bool operator==(session_row const&) const = default;
};

void append(std::vector<session_row>& all, session_clicks const& log, sample_columns const& from) {
  auto const columns = from.view();
  for (std::int64_t i = 0; i < columns.size(); ++i) {
    auto& s = all.emplace_back();
    for (std::int64_t k = 0; k < columns.dense.rows(); ++k) s.dense.push_back(columns.dense(k, i));
    for (auto const& column : columns.sparse) {
      auto const row = column.row(i);
      s.lists.emplace_back(row.begin(), row.end());
    }
    s.label = columns.labels[i];
    s.logit = log.logits()[i];
    s.session = columns.sessions[i];
    s.time = columns.times[i];
    s.number = log.session_numbers()[i];
  }
}

std::vector<session_row> samples_of(host_exec const& exec, session_clicks& log, std::int64_t rows) {
  std::vector<session_row> all;
  sample_columns out(log.schema());
  log.next(exec, rows, out);
  append(all, log, out);
  return all;
}

/// By session, in the order of the log.
std::map<std::int64_t, std::vector<session_row>> by_session(std::vector<session_row> const& all) {
  std::map<std::int64_t, std::vector<session_row>> result;
  for (auto const& s : all) result[s.number].push_back(s);
  return result;
}

session_clicks_options mixed_sessions(std::uint64_t seed) {
  constexpr auto sequence = session_feature_kind::sequence, user = session_feature_kind::user, item = session_feature_kind::item;
  session_clicks_options options{
      {{.name = "viewed",
        .kind = sequence,
        .group = 7,
        .stays = 0.7,
        .most_new = 3,
        .mean_length = 12,
        .most_length = 40,
        .linear = 1,
        .interest = 1},
       {.name = "sellers", .kind = sequence, .group = 7, .stays = 0.7, .most_new = 3, .mean_length = 12, .most_length = 40, .ids = 5000},
       {.name = "country",
        .kind = user,
        .stays = 1,
        .lengths = list_lengths::uniform,
        .most_length = 1,
        .ids = 40,
        .exponent = 0.8,
        .linear = 1},
       {.name = "liked", .kind = user, .stays = 0.8, .mean_length = 4, .least_length = 0, .most_length = 9, .ids = 3000, .exponent = 0},
       {.name = "item",
        .kind = item,
        .stays = 0.05,
        .lengths = list_lengths::uniform,
        .most_length = 3,
        .ids = 300,
        .exponent = 0.5,
        .linear = 2},
       {.name = "shown",
        .kind = sequence,
        .stays = 0.5,
        .lengths = list_lengths::uniform,
        .least_length = 0,
        .most_length = 5,
        .ids = 900}}};
  options.dense_features = 3;
  options.window_sessions = 100;
  options.spread = 1;
  options.most_samples = 300;
  options.windows = 3;
  options.seed = random_seed{seed};
  return options;
}

}  // namespace

TEST_CASE("session_clicks: the same log in blocks of any sizes, on any number of threads, from the start of any window") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  serial_host one;
  pool_host<2> two;
  pool_host<4> four;
  session_clicks log(one.exec(), mixed_sessions(seed)), by_two(two.exec(), mixed_sessions(seed)),
      by_four(four.exec(), mixed_sessions(seed));
  auto const all = samples_of(one.exec(), log, 1 << 20);
  std::int64_t expected = 0;
  for (std::int64_t s = 0; s < 300; ++s) expected += log.samples_of(s);
  REQUIRE(static_cast<std::int64_t>(all.size()) == expected);
  CHECK(log.window() == 3);
  CHECK(samples_of(one.exec(), log, 10).empty());  // the end

  CHECK(samples_of(two.exec(), by_two, 1 << 20) == all);
  std::vector<session_row> again;
  sample_columns out(by_four.schema());
  std::int64_t count = 1;
  while (count > 0) {
    count = by_four.next(four.exec(), 1 + static_cast<std::int64_t>(random() % 400), out);
    CHECK(count == out.size());
    append(again, by_four, out);
  }
  CHECK(again == all);

  for (std::int64_t window = 3; window >= 0; --window) {
    log.seek(window);
    CHECK(log.window() == window);
    CHECK(log.left_in_window() == 0);
    auto const rest = samples_of(one.exec(), log, 1 << 20);
    REQUIRE(rest.size() <= all.size());
    CHECK(std::equal(rest.begin(), rest.end(), all.end() - static_cast<std::ptrdiff_t>(rest.size())));
    for (auto const& s : rest) CHECK(s.number >= window * 100);
  }
  log.seek(1);
  CHECK(samples_of(one.exec(), log, 1).front().number / 100 == 1);
  auto const left = log.left_in_window();
  CHECK(samples_of(one.exec(), log, left).back().number / 100 == 1);
  CHECK(log.left_in_window() == 0);
  CHECK(samples_of(one.exec(), log, 1).front().number / 100 == 2);
  session_clicks other(one.exec(), mixed_sessions(seed + 1));
  CHECK(samples_of(one.exec(), other, 100) != std::vector<session_row>(all.begin(), all.begin() + 100));
}

TEST_CASE("session_clicks: a window at once, or what is left of it") {
  serial_host h;
  session_clicks log(h.exec(), mixed_sessions(3));
  auto const all = samples_of(h.exec(), log, 1 << 20);
  sample_columns out(log.schema());
  CHECK(log.next_window(h.exec(), out) == 0);
  CHECK(out.size() == 0);
  for (std::int64_t const drawn_before : {0, 1, 70}) {
    log.seek(0);
    auto again = samples_of(h.exec(), log, drawn_before);
    for (std::int64_t window = 0; window < 3; ++window) {
      auto const count = log.next_window(h.exec(), out);
      CHECK(count == out.size());
      CHECK(log.left_in_window() == 0);
      CHECK(log.session_numbers()[0] / 100 == window);
      append(again, log, out);
      CHECK(again.back().number / 100 == window);
    }
    CHECK(again == all);
    CHECK(log.next_window(h.exec(), out) == 0);
  }
}

TEST_CASE("session_clicks: sessions begin and end in their window, interleaved; times grow, ids are unique and without order") {
  pool_host<2> h;
  auto options = mixed_sessions(99);
  options.window_us = 1'000'000;
  session_clicks log(h.exec(), options);
  auto const all = samples_of(h.exec(), log, 1 << 20);
  std::map<std::int64_t, std::int64_t> id_of;
  std::map<std::int64_t, std::int64_t> samples;
  std::int64_t switches = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    auto const& s = all[i];
    CHECK(s.number / 100 == s.time / 1'000'000);
    CHECK(id_of.emplace(s.number, s.session).first->second == s.session);
    ++samples[s.number];
    if (i == 0) continue;
    CHECK(s.time > all[i - 1].time);
    switches += s.number != all[i - 1].number;
  }
  std::set<std::int64_t> ids;
  std::vector<std::int64_t> in_order;
  for (auto const& [number, id] : id_of) {
    ids.insert(id);
    in_order.push_back(id);
    CHECK(samples[number] == log.samples_of(number));
  }
  CHECK(ids.size() == 300);
  CHECK_FALSE(std::is_sorted(in_order.begin(), in_order.end()));
  CHECK(*ids.begin() < 0);
  CHECK(*ids.rbegin() > 0);
  CHECK(switches > static_cast<std::int64_t>(all.size()) * 9 / 10);
  // Positions of a session's samples are those of any others: in the mean, in the middle of the window.
  double mean = 0;
  for (auto const& s : all) mean += static_cast<double>(s.time % 1'000'000) / 1e6 / static_cast<double>(all.size());
  CHECK(std::abs(mean - 0.5) < 0.01);
  auto const sessions = by_session(all);
  double first = 0, long_sessions = 0;
  for (auto const& [number, of] : sessions)
    if (of.size() >= 20) {
      first += static_cast<double>(of.front().time % 1'000'000) / 1e6 * static_cast<double>(of.size() + 1);
      ++long_sessions;
    }
  CHECK(first / long_sessions == doctest::Approx(1).epsilon(0.4));  // the least of n uniform ones is 1 / (n + 1)
}

TEST_CASE("session_clicks: sizes of sessions follow the law that the options say") {
  serial_host h;
  session_clicks_options options;
  options.seed = random_seed{2023};
  session_clicks const log(h.exec(), options);
  constexpr std::int64_t n = 1'000'000;
  std::vector<std::int64_t> sizes;
  double sum = 0, beyond = 0;
  for (std::int64_t s = 0; s < n; ++s) {
    sizes.push_back(log.samples_of(s));
    sum += static_cast<double>(sizes.back());
    beyond += sizes.back() > 1000;
  }
  std::sort(sizes.begin(), sizes.end());
  MESSAGE("samples of a session: mean ", sum / n, ", median ", sizes[n / 2], ", most ", sizes.back(), ", beyond 1000: ", beyond, " of ", n);
  CHECK(std::abs(sum / n - 16.5) < 0.14);                // 4 standard errors: deviation 34.6
  CHECK(std::abs(beyond - 69.9) < 4 * std::sqrt(69.9));  // of which one session in 14,300
  CHECK(sizes.front() == 1);
  CHECK(sizes[n / 2] == 7);
  CHECK(sizes.back() > 1500);
  CHECK(sizes.back() <= 5000);
  // Each size as the rounded log-normal law says, by its location found here by another way.
  double low = 0, high = 5;
  auto const below = [](double location, double x) { return std::erfc((location - std::log(x)) / 1.3 / std::sqrt(2.0)) / 2; };
  for (int i = 0; i < 50; ++i) {
    auto const location = (low + high) / 2;
    double mean = 0;
    for (int k = 1; k <= 5000; ++k) mean += k * ((k == 5000 ? 1 : below(location, k + 0.5)) - (k == 1 ? 0 : below(location, k - 0.5)));
    (mean < 16.5 ? low : high) = location;
  }
  for (int k = 1; k <= 40; ++k) {
    auto const p = below(low, k + 0.5) - (k == 1 ? 0 : below(low, k - 0.5));
    auto const range = std::equal_range(sizes.begin(), sizes.end(), k);
    CHECK(std::abs(static_cast<double>(range.second - range.first) - n * p) < 4.5 * std::sqrt(n * p));
  }
}

TEST_CASE("session_clicks: 4,096 samples in a row are of 4,096 / 1.15 sessions") {
  pool_host<2> h;
  session_clicks_options options;
  options.dense_features = 0;
  options.windows = 1;
  options.seed = random_seed{7};
  session_clicks log(h.exec(), options);
  sample_columns out(log.schema());
  double samples = 0, sessions = 0;
  std::int64_t all = 0;
  while (log.next(h.exec(), 4096, out) > 0) {
    all += out.size();
    if (out.size() < 4096) break;
    std::set<std::int64_t> const of(out.view().sessions.begin(), out.view().sessions.end());
    samples += 4096;
    sessions += static_cast<double>(of.size());
  }
  MESSAGE(all, " samples in the window, ", samples / sessions, " a session in batches of 4,096");
  CHECK(std::abs(samples / sessions - 1.15) < 0.01);
  CHECK(std::abs(static_cast<double>(all) / 59'000 - 16.5) < 0.6);  // 4 standard errors
}

TEST_CASE("session_clicks: lists change as their kinds say, groups at once") {
  pool_host<2> h;
  auto options = mixed_sessions(314);
  options.window_sessions = 1000;
  session_clicks log(h.exec(), options);
  auto const sessions = by_session(samples_of(h.exec(), log, 1 << 20));
  // How many new ids stand behind, if the rest only moved; -1: another list.
  auto const moved = [](list const& before, list const& now, std::int64_t most) {
    if (before.size() != now.size()) return std::int64_t{-1};
    for (std::int64_t k = 0; k <= std::min<std::int64_t>(most, static_cast<std::int64_t>(now.size())); ++k)
      if (std::equal(before.begin() + k, before.end(), now.begin())) return k;
    return static_cast<std::int64_t>(now.size()) <= most ? most : std::int64_t{-1};
  };
  double pairs = 0;
  std::array<double, 6> stayed{};
  double both_stayed = 0, replaced = 0, kept_some = 0;
  std::array<double, 4> steps{};
  bool sequences = true, groups = true, countries = true, same_lengths = true;
  for (auto const& [number, of] : sessions)
    for (std::size_t i = 0; i < of.size(); ++i) {
      same_lengths = same_lengths && of[i].lists[0].size() == of[i].lists[1].size();
      if (i == 0) continue;
      ++pairs;
      for (std::size_t f = 0; f < 6; ++f) stayed[f] += of[i].lists[f] == of[i - 1].lists[f];
      both_stayed += of[i].lists[0] == of[i - 1].lists[0] && of[i].lists[4] == of[i - 1].lists[4];
      auto const &liked = of[i].lists[3], &liked_before = of[i - 1].lists[3];
      if (liked != liked_before && !liked.empty() && !liked_before.empty()) {
        ++replaced;
        kept_some += std::find_first_of(liked.begin(), liked.end(), liked_before.begin(), liked_before.end()) != liked.end();
      }
      auto const viewed = moved(of[i - 1].lists[0], of[i].lists[0], 3), sellers = moved(of[i - 1].lists[1], of[i].lists[1], 3);
      sequences = sequences && viewed >= 0 && sellers >= 0 && moved(of[i - 1].lists[5], of[i].lists[5], 1) >= 0;
      countries = countries && of[i].lists[2] == of[0].lists[2];
      // Long lists of many ids move visibly.
      if (of[i].lists[0].size() < 8) continue;
      groups = groups && (viewed == sellers || std::set(of[i].lists[0].begin(), of[i].lists[0].end()).size() < 8 ||
                          std::set(of[i].lists[1].begin(), of[i].lists[1].end()).size() < 8);
      if (viewed >= 0) ++steps[static_cast<std::size_t>(viewed)];
    }
  CHECK(sequences);
  CHECK(groups);
  CHECK(countries);
  CHECK(same_lengths);
  REQUIRE(pairs > 30'000);
  auto const bound = 4.5 * 0.5 / std::sqrt(pairs);
  CHECK(std::abs(stayed[0] / pairs - 0.7) < bound + 0.005);  // a short list may come back by chance
  CHECK(stayed[2] == pairs);
  // Chains change each by itself, and another list has other ids: some 4 by 4 of 3,000 are the same by chance.
  CHECK(std::abs(both_stayed / pairs - stayed[0] / pairs * stayed[4] / pairs) < bound);
  CHECK(replaced > 3000);
  CHECK(kept_some < 0.03 * replaced);
  CHECK(kept_some > 0);
  // With probability p0 of an empty list, a change from empty to empty shows nothing.
  auto const empty = [&](std::size_t f) {
    double count = 0, all = 0;
    for (auto const& [number, of] : sessions)
      for (auto const& s : of) {
        count += s.lists[f].empty();
        ++all;
      }
    return count / all;
  };
  auto const none = empty(3);
  CHECK(std::abs(stayed[3] / pairs - (0.8 + 0.2 * none * none)) < bound);
  CHECK(std::abs(stayed[4] / pairs - 0.05) < bound + 0.003);
  CHECK(std::abs(stayed[5] / pairs - (0.5 + 0.5 * empty(5))) < bound + 0.02);
  auto const changes = steps[1] + steps[2] + steps[3];
  for (std::size_t k = 1; k <= 3; ++k) CHECK(std::abs(steps[k] / changes - 1.0 / 3) < 4.5 * 0.5 / std::sqrt(changes) + 0.02);
}

TEST_CASE("session_clicks: lengths and ids follow their laws") {
  pool_host<2> h;
  auto options = mixed_sessions(2718);
  options.mean_samples = 1;
  options.spread = 0;
  options.window_sessions = 40'000;
  options.windows = 1;
  session_clicks log(h.exec(), options);
  auto const all = samples_of(h.exec(), log, 1 << 20);
  REQUIRE(all.size() == 40'000);
  constexpr double n = 40'000;
  std::array<std::vector<double>, 6> lengths;
  std::array<std::map<std::int64_t, double>, 6> often;
  for (auto const& s : all)
    for (std::size_t f = 0; f < 6; ++f) {
      lengths[f].push_back(static_cast<double>(s.lists[f].size()));
      for (auto const id : s.lists[f]) ++often[f][id];
    }
  for (std::size_t f = 0; f < 6; ++f) {
    CAPTURE(f);
    auto const& feature = options.features[f];
    double mean = 0;
    auto const spread = deviation(lengths[f], mean);
    CHECK(std::abs(mean - mean_length(feature)) < 4.5 * spread / std::sqrt(n) + 1e-9);
    CHECK(*std::min_element(lengths[f].begin(), lengths[f].end()) == feature.least_length);
    CHECK(*std::max_element(lengths[f].begin(), lengths[f].end()) == feature.most_length);
    CHECK(often[f].begin()->first >= 0);
    CHECK(often[f].rbegin()->first < feature.ids);
  }
  // Geometric: what is left of each length is q times what was left of the one before.
  std::array<double, 10> left{};
  for (auto const length : lengths[3])
    for (std::size_t k = 0; k <= static_cast<std::size_t>(length); ++k) ++left[k];
  auto const q = left[1] / left[0];
  for (std::size_t k = 2; k < 10; ++k) CHECK(left[k] / left[k - 1] == doctest::Approx(q).epsilon(0.03));
  // Zipf, and all alike.
  click_tests::check_zipf(often[2], 0.12);
  REQUIRE(often[3].size() == 3000);
  double total = 0, chi = 0;
  for (auto const& [id, count] : often[3]) total += count;
  for (auto const& [id, count] : often[3]) chi += (count - total / 3000) * (count - total / 3000) / (total / 3000);
  CHECK(std::abs(chi - 2999) < 5 * std::sqrt(2 * 2999));
  for (std::size_t k = 0; k < 3; ++k) {
    std::vector<double> x;
    for (auto const& s : all) x.push_back(static_cast<double>(s.dense[k]));
    click_tests::check_normal(x);
  }
}

TEST_CASE("session_clicks: labels come with the probability that the logit says, at the base rate asked for" *
          doctest::skip(tessera_tests::under_sanitizer)) {
  pool_host<2> h;
  for (double const base_rate : {0.03, 0.25, 0.7}) {
    CAPTURE(base_rate);
    auto options = mixed_sessions(11);
    options.base_rate = base_rate;
    options.mean_samples = 2;
    options.spread = 0.5;
    options.window_sessions = 30'000;
    options.windows = 1;
    session_clicks log(h.exec(), options);
    auto const all = samples_of(h.exec(), log, 50'000);
    REQUIRE(all.size() == 50'000);
    click_tests::check_labels(all, base_rate, 0.06);
  }
}

TEST_CASE("session_clicks: each part of the logit is as strong as asked, and depends on what it says it does" *
          doctest::skip(tessera_tests::under_sanitizer)) {
  pool_host<2> h;
  auto const logits = [&](double dense, double linear, double interest, auto&& of) {
    auto options = mixed_sessions(23);
    options.dense_signal = dense;
    options.linear_signal = linear;
    options.interest_signal = interest;
    // Short lists of few ids, so that pairs of lists come again.
    for (auto& f : options.features)
      f.ids = 12, f.most_length = 2, f.mean_length = 1.5, f.least_length = std::min<std::int64_t>(f.least_length, 1);
    options.mean_samples = 1;
    options.spread = 0;
    options.window_sessions = 30'000;
    session_clicks log(h.exec(), options);
    auto const all = samples_of(h.exec(), log, 30'000);
    std::vector<double> x;
    for (auto const& s : all) x.push_back(static_cast<double>(s.logit));
    of(all, x);
    return expected_auc(h.exec(), log.logits());
  };
  double mean = 0;
  logits(0, 0, 0, [&](auto const&, auto const& x) {
    CHECK(deviation(x, mean) < 1e-6);
    CHECK(mean == doctest::Approx(std::log(0.25 / 0.75)).epsilon(1e-4));
  });
  logits(0.9, 0, 0, [&](auto const& all, auto const& x) {
    CHECK(deviation(x, mean) == doctest::Approx(0.9).epsilon(0.05));
    // The last feature has a slope: its positive half has another mean logit.
    double high = 0, low = 0, highs = 0, lows = 0;
    for (std::size_t i = 0; i < all.size(); ++i) (all[i].dense[2] > 0 ? high : low) += x[i], ++(all[i].dense[2] > 0 ? highs : lows);
    CHECK(std::abs(high / highs - low / lows) > 0.05);
  });
  // Ids alone decide, however often a combination comes.
  auto const decided_by = [](std::vector<session_row> const& all, std::vector<double> const& x, std::vector<std::size_t> const& features) {
    std::map<std::vector<list>, double> value;
    std::size_t seen = 0;
    bool same = true;
    for (std::size_t i = 0; i < all.size(); ++i) {
      std::vector<list> key;
      for (auto const f : features) {
        key.push_back(all[i].lists[f]);
        std::sort(key.back().begin(), key.back().end());
      }
      auto const [at, is_new] = value.emplace(key, x[i]);
      seen += !is_new;
      same = same && std::abs(at->second - x[i]) < 1e-5;
    }
    CHECK(seen > 1000);
    return same;
  };
  logits(0, 1.1, 0, [&](auto const& all, auto const& x) {
    CHECK(deviation(x, mean) == doctest::Approx(1.1).epsilon(0.05));
    CHECK(decided_by(all, x, {0, 2, 4}));
    CHECK_FALSE(decided_by(all, x, {0, 2}));
    CHECK_FALSE(decided_by(all, x, {2, 4}));
  });
  auto const auc = logits(0, 0, 0.6, [&](auto const& all, auto const& x) {
    CHECK(deviation(x, mean) == doctest::Approx(0.6).epsilon(0.05));
    CHECK(decided_by(all, x, {0, 4}));
    CHECK_FALSE(decided_by(all, x, {0}));
    CHECK_FALSE(decided_by(all, x, {4}));
    // Not a sum of a part of the history and a part of the target: f(a, b) + f(c, d) != f(a, d) + f(c, b).
    std::map<std::pair<list, list>, double> value;
    for (std::size_t i = 0; i < all.size(); ++i) value[{all[i].lists[0], all[i].lists[4]}] = x[i];
    double worst = 0;
    for (std::int64_t a = 0; a < 12; ++a)
      for (std::int64_t b = 0; b < 12; ++b)
        for (std::int64_t c = 0; c < a; ++c)
          for (std::int64_t d = 0; d < b; ++d) {
            auto const ab = value.find({{a}, {b}}), cd = value.find({{c}, {d}}), ad = value.find({{a}, {d}}), cb = value.find({{c}, {b}});
            if (ab == value.end() || cd == value.end() || ad == value.end() || cb == value.end()) continue;
            worst = std::max(worst, std::abs(ab->second + cd->second - ad->second - cb->second));
          }
    CHECK(worst > 0.5);
    // An id that is not similar to the target is worth nothing, however little it is: about half of them.
    auto least = std::numeric_limits<double>::max();
    for (auto const& [lists, logit] : value) least = std::min(least, logit);
    double singles = 0, nothing = 0;
    for (auto const& [lists, logit] : value)
      if (lists.first.size() == 1) {
        ++singles;
        nothing += logit - least < 1e-5;
      }
    CHECK(nothing / singles > 0.3);
    CHECK(nothing / singles < 0.7);
    // A list of two ids is worth the mean of both.
    int means = 0;
    double off = 0;
    for (std::int64_t a = 0; a < 12; ++a)
      for (std::int64_t c = 0; c < 12; ++c)
        for (std::int64_t b = 0; b < 12; ++b) {
          auto const ab = value.find({{a}, {b}}), cb = value.find({{c}, {b}}), both = value.find({{a, c}, {b}});
          if (ab == value.end() || cb == value.end() || both == value.end()) continue;
          ++means;
          off = std::max(off, std::abs((ab->second + cb->second) / 2 - both->second));
        }
    CHECK(means > 100);
    CHECK(off < 1e-5);
  });
  CHECK(auc > 0.6);
}

TEST_CASE("session_clicks: no features, one session that is the whole log, empty lists, columns that are missing") {
  pool_host<2> h;
  session_clicks_options options;
  options.dense_features = 0;
  options.windows = 1;
  options.window_sessions = 1;
  options.mean_samples = 500;
  options.spread = 0;
  session_clicks bare(h.exec(), options);
  auto const all = samples_of(h.exec(), bare, 600);
  REQUIRE(all.size() == 500);
  for (auto const& s : all) {
    CHECK(s.session == all[0].session);
    CHECK(s.lists.empty());
    CHECK(static_cast<double>(s.logit) == doctest::Approx(std::log(1.0 / 3)).epsilon(1e-4));
  }

  options.features = {{.name = "empty", .stays = 0.5, .lengths = list_lengths::uniform, .least_length = 0, .most_length = 0, .linear = 1},
                      {.name = "item",
                       .kind = session_feature_kind::item,
                       .stays = 0,
                       .lengths = list_lengths::uniform,
                       .least_length = 0,
                       .most_length = 0}};
  options.features[0].interest = 1;
  session_clicks empties(h.exec(), options);
  for (auto const& s : samples_of(h.exec(), empties, 600)) CHECK((s.lists[0].empty() && s.lists[1].empty() && std::isfinite(s.logit)));

  sample_columns no_session({.sparse = 2});
  empties.seek(0);
  CHECK(empties.next(h.exec(), 0, no_session) == 0);
  CHECK(empties.next(h.exec(), 7, no_session) == 7);
  CHECK(no_session.view().sessions.empty());
  CHECK(no_session.view().times.empty());
}

TEST_CASE("session_clicks: a step allocates only while there is more than before") {
  serial_host h;
  auto options = mixed_sessions(5);
  options.windows = 0;
  session_clicks log(h.exec(), options);
  sample_columns out(log.schema());
  for (int i = 0; i < 60; ++i) log.next(h.exec(), 500, out);
  auto const before = h.memory().allocations();
  log.seek(0);
  for (int i = 0; i < 50; ++i) log.next(h.exec(), 500, out);
  CHECK(h.memory().allocations() == before);
  CHECK(log.bytes() > 0);
}

TEST_CASE("session_clicks: what it refuses, by name") {
  serial_host h;
  auto const refused = [&](auto&& change) {
    auto options = mixed_sessions(1);
    change(options);
    auto const e = error_of([&] { session_clicks const log(h.exec(), options); });
    CHECK(e.code() == errc::invalid_argument);
    return e;
  };
  using o = session_clicks_options&;
  CHECK(refused([](o x) { x.dense_features = -1; }).value("dense_features") == "-1");
  CHECK(refused([](o x) { x.mean_samples = 0.5; }).value("mean_samples") == "0.5");
  CHECK(refused([](o x) { x.mean_samples = 301; }).value("mean_samples") == "301");
  CHECK(refused([](o x) { x.spread = -1; }).value("spread") == "-1");
  CHECK(refused([](o x) { x.most_samples = 0; }).value("most_samples") == "0");
  CHECK(refused([](o x) { x.window_sessions = 0; }).value("window_sessions") == "0");
  CHECK(refused([](o x) { x.windows = -1; }).value("windows") == "-1");
  CHECK(refused([](o x) { x.window_us = 0; }).value("window_us") == "0");
  CHECK(refused([](o x) { x.target = 6; }).value("target") == "6");
  CHECK(refused([](o x) { x.base_rate = 1; }).value("base_rate") == "1");
  CHECK(refused([](o x) { x.linear_signal = -1; }).value("linear_signal") == "-1");
  CHECK(refused([](o x) { x.interest_signal = std::numeric_limits<double>::quiet_NaN(); }).value("interest_signal") == "nan");
  CHECK(refused([](o x) { x.head_ids = 0; }).value("head_ids") == "0");
  CHECK(refused([](o x) { x.features[1].name = ""; }).value("feature") == "1");
  CHECK(refused([](o x) { x.features[3].stays = 1.5; }).value("stays") == "1.5");
  CHECK(refused([](o x) { x.features[3].stays = 1.5; }).value("name") == "liked");
  CHECK(refused([](o x) { x.features[3].group = -2; }).value("group") == "-2");
  CHECK(refused([](o x) { x.features[3].most_new = 256; }).value("most_new") == "256");
  CHECK(refused([](o x) { x.features[3].least_length = 10; }).value("most_length") == "9");
  CHECK(refused([](o x) { x.features[3].mean_length = 10; }).value("mean_length") == "10");
  CHECK(refused([](o x) { x.features[3].ids = 0; }).value("ids") == "0");
  CHECK(refused([](o x) { x.features[3].exponent = -1; }).value("exponent") == "-1");
  CHECK(refused([](o x) { x.features[3].linear = -1; }).value("linear") == "-1");
  CHECK(refused([](o x) { x.features[3].interest = -1; }).value("interest") == "-1");
  auto const split = refused([](o x) { x.features[1].stays = 0.6; });
  CHECK(split.value("group") == "7");
  CHECK(split.value("other feature") == "1");

  session_clicks log(h.exec(), mixed_sessions(1));
  sample_columns out(log.schema()), other({.dense = 3, .sparse = 5, .sessions = true, .times = true});
  CHECK(error_of([&] { log.next(h.exec(), -1, out); }).value("rows") == "-1");
  auto const shape = error_of([&] { log.next(h.exec(), 5, other); });
  CHECK(shape.code() == errc::shape_mismatch);
  CHECK(shape.value("sparse") == "5");
  CHECK(shape.value("sparse expected") == "6");
  CHECK(error_of([&] { log.seek(4); }).value("windows") == "3");
  CHECK(error_of([&] { log.seek(-1); }).code() == errc::out_of_range);
  auto options = mixed_sessions(1);
  options.window_us = 100;
  session_clicks crowded(h.exec(), options);
  CHECK(error_of([&] { crowded.next(h.exec(), 5, out); }).value("window_us") == "100");
}
