// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <tessera/nn/grouped_auc.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <numeric>
#include <string_view>
#include <vector>

#include <tessera/nn/auc.hpp>

#include "hosts.hpp"
#include "random.hpp"
#include "temporary_folder.hpp"

namespace {

using tessera::grouped_auc;
using tessera_tests::error_of;
using tessera_tests::serial_host;

using floats = std::vector<float>;
using ids = std::vector<std::int64_t>;

struct grouped_scores {
  ids groups;
  floats scores, labels;
};

/// Groups of uneven sizes under any ids, scores with ties, some groups of one label.
grouped_scores random_grouped_scores(std::mt19937_64& random, std::size_t n, std::size_t groups) {
  std::vector<std::int64_t> names(groups);
  for (auto& name : names) name = static_cast<std::int64_t>(random());
  names[0] = std::numeric_limits<std::int64_t>::min();
  grouped_scores s;
  for (std::size_t i = 0; i < n; ++i) {
    auto const group = std::min(random() % groups, random() % groups);
    s.groups.push_back(names[group]);
    s.scores.push_back(static_cast<float>(random() % 9) - 4);
    s.labels.push_back(group % 5 != 0 && random() % 3 == 0 ? 1.0F : 0.0F);
  }
  return s;
}

tessera::grouped_auc_value value_of(grouped_scores const& s) {
  serial_host host;
  grouped_auc metric;
  metric.add(s.groups, s.scores, s.labels);
  return metric.value(host.exec());
}

bool same(tessera::grouped_auc_value const& a, tessera::grouped_auc_value const& b) {
  return (a.auc == b.auc || (std::isnan(a.auc) && std::isnan(b.auc))) && a.groups == b.groups && a.one_label_groups == b.one_label_groups &&
         a.counted_samples == b.counted_samples;
}

/// The definition: all pairs of each group.
tessera::grouped_auc_value naive(grouped_scores const& s) {
  std::map<std::int64_t, std::vector<std::size_t>> members;
  for (std::size_t i = 0; i < s.groups.size(); ++i) members[s.groups[i]].push_back(i);
  tessera::grouped_auc_value result;
  double sum = 0;
  for (auto const& [group, of] : members) {
    double wins = 0, pairs = 0;
    for (auto const i : of)
      for (auto const j : of)
        if (s.labels[i] == 1 && s.labels[j] == 0) {
          wins += s.scores[i] > s.scores[j] ? 1 : s.scores[i] == s.scores[j] ? 0.5 : 0;
          ++pairs;
        }
    if (pairs == 0) {
      ++result.one_label_groups;
      continue;
    }
    ++result.groups;
    result.counted_samples += static_cast<std::int64_t>(of.size());
    sum += wins / pairs * static_cast<double>(of.size());
  }
  if (result.groups > 0) result.auc = sum / static_cast<double>(result.counted_samples);
  return result;
}

}  // namespace

TEST_CASE("grouped_auc by hand: groups weigh by their samples, those of one label are left out") {
  // Group 7 ranks perfectly (3 samples), -2 the wrong way round (2 samples), 5 and 6 have one label.
  auto const value = value_of({{7, -2, 5, 7, -2, 6, 7, 5}, {1, 5, 9, 2, 6, 9, 3, 8}, {0, 1, 1, 1, 0, 0, 1, 1}});
  CHECK(value.auc == 3.0 / 5);
  CHECK(value.groups == 2);
  CHECK(value.one_label_groups == 2);
  CHECK(value.counted_samples == 5);
}

TEST_CASE("grouped_auc matches its definition") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  for (std::size_t const n : {1U, 2U, 30U, 500U, 3000U})
    for (std::size_t const groups : {1U, 3U, 40U, 700U}) {
      CAPTURE(n);
      CAPTURE(groups);
      auto const s = random_grouped_scores(random, n, groups);
      auto const value = value_of(s), expected = naive(s);
      CHECK(value.groups == expected.groups);
      CHECK(value.one_label_groups == expected.one_label_groups);
      CHECK(value.counted_samples == expected.counted_samples);
      if (expected.groups == 0)
        CHECK(std::isnan(value.auc));
      else
        CHECK(value.auc == doctest::Approx(expected.auc).epsilon(1e-12));
    }
}

TEST_CASE("grouped_auc of one group is exact_auc; a shift of a group's scores changes nothing") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  serial_host host;
  auto s = random_grouped_scores(random, 2000, 30);
  auto const before = value_of(s);
  for (std::size_t i = 0; i < s.groups.size(); ++i) s.scores[i] += static_cast<float>(s.groups[i] % 100);
  CHECK(same(value_of(s), before));
  std::fill(s.groups.begin(), s.groups.end(), -1);
  s.labels[0] = 1;
  tessera::exact_auc exact;
  exact.add(s.scores, s.labels);
  CHECK(value_of(s).auc == doctest::Approx(exact.value(host.exec())).epsilon(1e-14));
  CHECK(value_of(s).counted_samples == 2000);
}

TEST_CASE("grouped_auc: parts merged are the whole, groups cut or not, whatever the order and the threads") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  auto const s = random_grouped_scores(random, 70000, 900);  // more than one piece of the sort
  auto const whole = value_of(s);
  tessera_tests::for_each_host([&](tessera::host_exec const& exec, tessera_tests::counting_memory& memory) {
    grouped_auc merged, second;
    tessera::vector_view<std::int64_t const> const groups(s.groups);
    tessera::vector_view<float const> const scores(s.scores), labels(s.labels);
    for (std::int64_t i = 0; i < 70000; i += 10000)
      (i % 20000 == 0 ? merged : second).add(groups.slice(i, 10000), scores.slice(i, 10000), labels.slice(i, 10000));
    second.merge(merged);
    CHECK(second.samples() == 70000);
    CHECK(same(second.value(exec), whole));
    CHECK(memory.peak_bytes() < 66 * 70000);
    merged.merge(merged);  // every group twice as large
    CHECK(merged.samples() == 80000);
    second.clear();
    CHECK(second.samples() == 0);
    CHECK(second.value(exec).groups == 0);
  });
  std::vector<std::size_t> order(s.groups.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::shuffle(order.begin(), order.end(), random);
  grouped_scores shuffled;
  for (auto const i : order) {
    shuffled.groups.push_back(s.groups[i]);
    shuffled.scores.push_back(s.scores[i]);
    shuffled.labels.push_back(s.labels[i]);
  }
  CHECK(same(value_of(shuffled), whole));
}

TEST_CASE("grouped_auc: merged with itself it is the same AUC of twice the samples") {
  std::mt19937_64 random(3);
  serial_host host;
  auto const s = random_grouped_scores(random, 300, 20);
  grouped_auc metric;
  metric.add(s.groups, s.scores, s.labels);
  auto const before = metric.value(host.exec());
  metric.merge(metric);
  auto const after = metric.value(host.exec());
  CHECK(after.auc == doctest::Approx(before.auc).epsilon(1e-14));
  CHECK(after.groups == before.groups);
  CHECK(after.counted_samples == 2 * before.counted_samples);
}

TEST_CASE("grouped_auc without samples, or with none that count") {
  CHECK(std::isnan(value_of({}).auc));
  CHECK(value_of({}).groups == 0);
  auto const value = value_of({{1, 2, 2}, {1, 2, 3}, {1, 0, 0}});
  CHECK(std::isnan(value.auc));
  CHECK(value.one_label_groups == 2);
  CHECK(value.counted_samples == 0);
}

TEST_CASE("grouped_auc refuses what it cannot rank, and adds nothing of it") {
  serial_host host;
  grouped_auc metric;
  metric.add(ids{1, 1, 2}, floats{1, 2, 0}, floats{0, 1, 1});
  auto const before = metric.value(host.exec());
  auto const refused = [&](ids const& groups, floats const& scores, floats const& labels, tessera::errc code, std::string_view position) {
    auto const e = error_of([&] { metric.add(groups, scores, labels); });
    return e.code() == code && e.value("position") == position && metric.samples() == 3 && same(metric.value(host.exec()), before);
  };
  auto const nan = std::nanf("");
  CHECK(refused({1, 1}, {1, nan}, {0, 1}, tessera::errc::invalid_argument, "1"));
  CHECK(refused({1, 1}, {1, 1}, {0.5F, 1}, tessera::errc::invalid_argument, "0"));
  CHECK(refused({1, 1}, {1, 2}, {0}, tessera::errc::shape_mismatch, ""));
  CHECK(refused({1}, {1, 2}, {0, 1}, tessera::errc::shape_mismatch, ""));
}
