// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <tessera/nn/windowed.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <deque>
#include <numeric>
#include <type_traits>
#include <vector>

#include <tessera/nn/auc.hpp>
#include <tessera/nn/binned_auc.hpp>
#include <tessera/nn/grouped_auc.hpp>
#include <tessera/nn/metrics.hpp>

#include "hosts.hpp"
#include "random.hpp"
#include "temporary_folder.hpp"

namespace {

using namespace tessera;
using tessera_tests::error_of;
using tessera_tests::serial_host;

using floats = std::vector<float>;

struct grouped_samples {
  std::vector<std::int64_t> groups;
  floats logits, labels;
};

grouped_samples random_grouped_samples(std::mt19937_64& random, std::size_t n) {
  grouped_samples s{tessera_tests::random_integers<std::int64_t>(random, n, 0, 2), tessera_tests::random_floats(random, n), floats(n)};
  for (auto& label : s.labels) label = random() % 2 == 0 ? 1.0F : 0.0F;
  // A figure of one label alone is none.
  s.labels[0] = 1, s.labels[1] = 0;
  s.groups[0] = s.groups[1] = 0;
  return s;
}

/// How each metric takes samples, and one number of it.
template <class M>
void add(M& to, host_exec const& exec, grouped_samples const& s) {
  to.add(exec, s.logits, s.labels);
}
void add(exact_auc& to, host_exec const&, grouped_samples const& s) { to.add(s.logits, s.labels); }
void add(windowed<exact_auc>& to, host_exec const&, grouped_samples const& s) { to.add(s.logits, s.labels); }
void add(grouped_auc& to, host_exec const&, grouped_samples const& s) { to.add(s.groups, s.logits, s.labels); }
void add(windowed<grouped_auc>& to, host_exec const&, grouped_samples const& s) { to.add(s.groups, s.logits, s.labels); }

double figure(click_metrics const& m, host_exec const&) { return m.log_loss(); }
double figure(threshold_metrics const& m, host_exec const&) { return m.accuracy(); }
double figure(regression_metrics const& m, host_exec const&) { return m.mean_squared_error(); }
double figure(binned_auc const& m, host_exec const&) { return m.value(); }
double figure(exact_auc const& m, host_exec const& exec) { return m.value(exec); }
double figure(grouped_auc const& m, host_exec const& exec) { return m.value(exec).auc; }

/// Adds the samples of a bucket, or throws.
struct tally {
  std::vector<int> seen;
  void add(std::vector<int> const& values, bool fail = false) {
    if (fail) throw std::runtime_error("refused");
    seen.insert(seen.end(), values.begin(), values.end());
  }
  void merge(tally const& other) { seen.insert(seen.end(), other.seen.begin(), other.seen.end()); }
  void clear() { seen.clear(); }
  std::int64_t samples() const { return static_cast<std::int64_t>(seen.size()); }
};
static_assert(metric<tally>);
struct no_clear {
  void merge(no_clear const&);
  std::int64_t samples() const;
};
static_assert(!metric<no_clear> && !metric<int>);

using ints = std::vector<int>;

}  // namespace

TEST_CASE_TEMPLATE("a window of batches is the metric of the last batches", M, click_metrics, threshold_metrics, regression_metrics,
                   exact_auc, binned_auc, grouped_auc) {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  serial_host host;
  for (std::int64_t const buckets : {1, 2, 5}) {
    CAPTURE(buckets);
    windowed<M> window({.buckets = buckets});
    M lifetime;
    CHECK(window.samples() == 0);
    CHECK(std::isnan(figure(window.merged(), host.exec())));
    std::deque<grouped_samples> last;
    for (int batch = 0; batch < 12; ++batch) {
      last.push_back(random_grouped_samples(random, 20 + random() % 30));
      if (static_cast<std::int64_t>(last.size()) > buckets) last.pop_front();
      add(window, host.exec(), last.back());
      add(lifetime, host.exec(), last.back());
      M expected;
      for (auto const& s : last) add(expected, host.exec(), s);
      CHECK(window.samples() == expected.samples());
      CHECK(window.merged().samples() == expected.samples());
      CHECK(figure(window.merged(), host.exec()) == doctest::Approx(figure(expected, host.exec())).epsilon(1e-12));
      if (batch < buckets) CHECK(window.samples() == lifetime.samples());
    }
    CHECK(lifetime.samples() > window.samples());
    window.clear();
    CHECK(window.samples() == 0);
    CHECK(std::isnan(figure(window.merged(), host.exec())));
    add(window, host.exec(), last.back());
    CHECK(window.samples() == static_cast<std::int64_t>(last.back().labels.size()));
  }
}

TEST_CASE("a window of samples holds the last ones, in order, between the bounds promised") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  for (std::int64_t const buckets : {1, 2, 4})
    for (std::int64_t const per_bucket : {1, 10, 64}) {
      CAPTURE(buckets);
      CAPTURE(per_bucket);
      windowed<tally> window({.buckets = buckets, .samples_per_bucket = per_bucket});
      int next = 0;
      for (int batch = 0; batch < 200; ++batch) {
        ints values(random() % 20);
        for (auto& value : values) value = next++;
        window.add(values);
        auto const seen = window.merged().seen;
        auto const held = static_cast<std::int64_t>(seen.size());
        ints expected(seen.size());
        std::iota(expected.begin(), expected.end(), next - static_cast<int>(held));
        REQUIRE(seen == expected);
        REQUIRE(window.samples() == held);
        REQUIRE(held >= std::min<std::int64_t>(next, (buckets - 1) * per_bucket + 1));
        REQUIRE(held <= buckets * (per_bucket - 1 + 19));
      }
      CHECK(window.samples() < next);
    }
}

TEST_CASE("what a metric refuses leaves the window as it was") {
  windowed<tally> window({.buckets = 2, .samples_per_bucket = 2});
  for (int step = 0; step < 6; ++step) {  // within a bucket and at its end
    window.add(ints{step});
    auto const before = window.merged().seen;
    CHECK_THROWS_AS(window.add(ints{99}, true), std::runtime_error);
    CHECK(window.merged().seen == before);
    window.add(ints{});
    CHECK(window.merged().seen == before);
  }
  CHECK(window.merged().seen == ints{2, 3, 4, 5});
  window.add(ints{6});
  CHECK(window.merged().seen == ints{4, 5, 6});
}

TEST_CASE("a window of refused samples, of a metric that checks") {
  serial_host host;
  windowed<click_metrics> window({.buckets = 2});
  window.add(host.exec(), floats{1}, floats{1});
  window.add(host.exec(), floats{2}, floats{0});
  auto const before = window.merged().log_loss();
  CHECK_THROWS_AS(window.add(host.exec(), floats{2}, floats{7}), tessera::error);
  CHECK(window.merged().log_loss() == before);
  CHECK(window.samples() == 2);
}

TEST_CASE("buckets have the options of the metric to begin with") {
  serial_host host;
  windowed<threshold_metrics> window({.buckets = 2}, threshold_metrics(0.9));
  for (int i = 0; i < 5; ++i) window.add(host.exec(), floats{1}, floats{1});  // a probability of 0.73
  CHECK(window.merged().recall() == 0);
  windowed<binned_auc> bins({.buckets = 2}, binned_auc(32));
  CHECK(bins.merged().bins() == 32);
}

TEST_CASE("a window that cannot be is refused") {
  CHECK(error_of([] { windowed<click_metrics>({.buckets = 0}); }).value("buckets") == "0");
  CHECK(error_of([] { windowed<click_metrics>({.samples_per_bucket = -1}); }).value("samples_per_bucket") == "-1");
  tally full;
  full.add({1, 2});
  auto const e = error_of([&] { windowed<tally>({}, full); });
  CHECK(e.code() == errc::invalid_argument);
  CHECK(e.value("samples") == "2");
}
