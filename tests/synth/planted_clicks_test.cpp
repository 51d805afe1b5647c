// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-labels: values
#include <tessera/synth/planted_clicks.hpp>

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
#include <tessera/synth/planted_sets.hpp>

#include "click_laws.hpp"
#include "hosts.hpp"
#include "random.hpp"
#include "temporary_folder.hpp"

namespace {

using namespace tessera;
using click_tests::deviation;
using tessera_tests::error_of;
using tessera_tests::pool_host;
using tessera_tests::serial_host;

/// Samples as plain data.
struct planted_row {
  std::vector<float> dense;
  std::vector<std::vector<std::int64_t>> bags;
  float label = 0, logit = 0;
  std::int64_t id = 0;

  bool operator==(planted_row const&) const = default;
};

std::vector<planted_row> samples_of(planted_samples const& from) {
  auto const batch = from.view();
  std::vector<planted_row> all;
  for (std::int64_t i = 0; i < from.size(); ++i) {
    auto& s = all.emplace_back();
    s.dense.assign(batch.dense.row(i), batch.dense.row(i) + batch.dense.columns());
    for (std::int64_t f = 0; f < batch.sparse.keys; ++f) {
      auto const bag = batch.sparse.key(f).row(i);
      s.bags.emplace_back(bag.begin(), bag.end());
    }
    s.label = batch.labels[i];
    s.logit = from.logits()[i];
    s.id = batch.sample_ids[i];
  }
  return all;
}

planted_clicks_options mixed(std::uint64_t seed) {
  planted_clicks_options options{{{.ids = 40, .exponent = 0.8, .shortest_bag = 0, .longest_bag = 5, .more = 0.6},
                                  {.ids = 1},
                                  {.ids = 100'000},
                                  {.ids = 9, .exponent = 1, .shortest_bag = 2, .longest_bag = 3}}};
  options.dense_features = 3;
  options.seed = random_seed{seed};
  return options;
}

}  // namespace

TEST_CASE("planted_clicks: a sample is the same in any part, in any order, on any number of threads") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  serial_host one;
  pool_host<2> two;
  pool_host<3> three;
  planted_clicks const clicks(one.exec(), mixed(seed)), by_two(two.exec(), mixed(seed)), by_three(three.exec(), mixed(seed));
  planted_samples out;
  clicks.generate(one.exec(), 1000, 700, out);
  auto const all = samples_of(out);
  for (std::int64_t i = 0; i < 700; ++i) CHECK(all[static_cast<std::size_t>(i)].id == 1000 + i);
  planted_samples other;
  by_two.generate(two.exec(), 1000, 700, other);
  CHECK(samples_of(other) == all);
  by_three.generate(three.exec(), 1000, 700, other);
  CHECK(samples_of(other) == all);
  for (int part = 0; part < 20; ++part) {
    auto const first = static_cast<std::int64_t>(random() % 700);
    auto const count = static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(701 - first));
    by_two.generate(two.exec(), 1000 + first, count, other);
    CHECK(samples_of(other) == std::vector<planted_row>(all.begin() + first, all.begin() + first + count));
    validate(other.view().sparse, other.view().sparse.size());
  }
  CHECK(other.bytes() > 0);
  planted_clicks const another(one.exec(), mixed(seed + 1));
  another.generate(one.exec(), 1000, 700, other);
  CHECK(samples_of(other) != all);
}

TEST_CASE("planted_clicks: generating allocates only when it needs more room") {
  serial_host h;
  planted_clicks const clicks(h.exec(), mixed(5));
  planted_samples out;
  clicks.generate(h.exec(), 0, 1000, out);
  clicks.generate(h.exec(), 1000, 1000, out);
  auto const before = h.memory().allocations();
  for (std::int64_t first = 0; first < 50'000; first += 900) clicks.generate(h.exec(), first, 900, out);
  CHECK(h.memory().allocations() == before);
}

TEST_CASE("planted_clicks: ids, bags and dense features follow their laws") {
  pool_host<2> h;
  auto options = mixed(77);
  planted_clicks const clicks(h.exec(), options);
  planted_samples out;
  constexpr std::int64_t n = 40'000;
  clicks.generate(h.exec(), 0, n, out);
  auto const all = samples_of(out);
  std::array<int, 6> lengths{};
  std::map<std::int64_t, int> often;
  std::set<std::int64_t> wide;
  bool in_range = true;
  for (auto const& s : all) {
    ++lengths[s.bags[0].size()];
    for (auto const id : s.bags[0]) {
      ++often[id];
      in_range = in_range && id >= 0 && id < 40;
    }
    in_range = in_range && s.bags[1] == std::vector<std::int64_t>{0} && s.bags[2].size() == 1 && s.bags[3].size() == 3;
    in_range = in_range && s.bags[2][0] >= 0 && s.bags[2][0] < 100'000;
    wide.insert(s.bags[2][0]);
  }
  CHECK(in_range);
  for (std::size_t length = 0; length < 5; ++length)
    CHECK(lengths[length] == doctest::Approx(n * 0.4 * std::pow(0.6, static_cast<double>(length))).epsilon(0.06));
  CHECK(lengths[5] == doctest::Approx(n * std::pow(0.6, 5)).epsilon(0.06));

  click_tests::check_zipf(often, 0.1);
  CHECK(*wide.rbegin() > 99'000);  // rare ids lie everywhere
  CHECK(*wide.begin() < 1000);

  for (std::size_t k = 0; k < 3; ++k) {
    std::vector<double> x;
    bool multiples = true;
    for (auto const& s : all) {
      x.push_back(static_cast<double>(s.dense[k]));
      multiples = multiples && std::abs(x.back() * 1000 - std::round(x.back() * 1000)) < 1e-3;
    }
    CHECK(multiples);
    click_tests::check_normal(x);
  }
}

TEST_CASE("planted_clicks: labels come with the probability that the logit says, at the base rate asked for") {
  pool_host<2> h;
  for (double const base_rate : {0.03, 0.25, 0.7}) {
    CAPTURE(base_rate);
    auto options = mixed(11);
    options.base_rate = base_rate;
    planted_clicks const clicks(h.exec(), options);
    planted_samples out;
    clicks.generate(h.exec(), 0, 60'000, out);
    click_tests::check_labels(samples_of(out), base_rate, 0.05);
  }
}

TEST_CASE("planted_clicks: each part of the logit is as strong as asked, and what it says it is") {
  pool_host<2> h;
  auto const logits = [&](double dense, double linear, double interaction, auto&& of) {
    auto options = mixed(23);
    options.features.push_back({.ids = 30});
    options.dense_signal = dense;
    options.linear_signal = linear;
    options.interaction_signal = interaction;
    planted_clicks const clicks(h.exec(), options);
    planted_samples out;
    clicks.generate(h.exec(), 0, 30'000, out);
    auto const all = samples_of(out);
    std::vector<double> x;
    for (auto const& s : all) x.push_back(static_cast<double>(s.logit));
    of(all, x);
    return x;
  };
  double mean = 0;
  auto const nothing = logits(0, 0, 0, [](auto&, auto&) {});
  CHECK(deviation(nothing, mean) < 1e-6);
  CHECK(mean == doctest::Approx(std::log(0.25 / 0.75)).epsilon(1e-4));

  // Linear in all dense features but for the first one's absolute value: least squares on (1, x, |x_0|) leaves nothing.
  logits(0.9, 0, 0, [&](std::vector<planted_row> const& all, std::vector<double> const& x) {
    CHECK(deviation(x, mean) == doctest::Approx(0.9).epsilon(0.03));
    constexpr std::size_t unknowns = 5;
    std::array<std::array<double, unknowns + 1>, unknowns> a{};
    auto const row = [](planted_row const& s) {
      return std::array<double, unknowns>{1, static_cast<double>(s.dense[0]), static_cast<double>(s.dense[1]),
                                          static_cast<double>(s.dense[2]), static_cast<double>(std::abs(s.dense[0]))};
    };
    for (std::size_t i = 0; i < all.size(); ++i) {
      auto const r = row(all[i]);
      for (std::size_t j = 0; j < unknowns; ++j) {
        for (std::size_t k = 0; k < unknowns; ++k) a[j][k] += r[j] * r[k];
        a[j][unknowns] += r[j] * x[i];
      }
    }
    for (std::size_t j = 0; j < unknowns; ++j)
      for (std::size_t i = 0; i < unknowns; ++i)
        if (auto const factor = a[i][j] / a[j][j]; i != j)
          for (std::size_t k = j; k <= unknowns; ++k) a[i][k] -= factor * a[j][k];
    double worst = 0;
    for (std::size_t i = 0; i < all.size(); ++i) {
      auto const r = row(all[i]);
      double fitted = 0;
      for (std::size_t j = 0; j < unknowns; ++j) fitted += r[j] * a[j][unknowns] / a[j][j];
      worst = std::max(worst, std::abs(fitted - x[i]));
    }
    CHECK(worst < 1e-4);
    CHECK(std::abs(a[4][unknowns] / a[4][4]) > 0.1);
  });

  // Ids alone decide, however often a combination comes; and linearly: f(a, b) + f(c, d) = f(a, d) + f(c, b).
  auto const combinations = [](std::vector<planted_row> const& all, std::vector<double> const& x, double& worst_sum) {
    std::map<std::vector<std::vector<std::int64_t>>, double> value;
    bool same = true;
    for (std::size_t i = 0; i < all.size(); ++i) {
      auto const [at, is_new] = value.emplace(all[i].bags, x[i]);
      same = same && (is_new || std::abs(at->second - x[i]) < 1e-5);
    }
    int squares = 0;
    worst_sum = 0;
    for (auto const& [bags, logit] : value)
      for (std::int64_t last = 0; last < 5 && squares < 20'000; ++last) {
        auto b = bags, c = bags, d = bags;
        b[4] = {last};
        c[0] = {};
        d[0] = {};
        d[4] = {last};
        auto const to_b = value.find(b), to_c = value.find(c), to_d = value.find(d);
        if (to_b == value.end() || to_c == value.end() || to_d == value.end()) continue;
        ++squares;
        worst_sum = std::max(worst_sum, std::abs(logit - to_b->second - to_c->second + to_d->second));
      }
    CHECK(same);
    CHECK(squares > 50);
  };
  double worst = 0;
  logits(0, 1.1, 0, [&](auto const& all, auto const& x) {
    CHECK(deviation(x, mean) == doctest::Approx(1.1).epsilon(0.03));
    combinations(all, x, worst);
    CHECK(worst < 1e-5);
  });
  logits(0, 0, 0.6, [&](auto const& all, auto const& x) {
    CHECK(deviation(x, mean) == doctest::Approx(0.6).epsilon(0.03));
    combinations(all, x, worst);
    CHECK(worst > 0.3);  // not linear
    // Hardly any of it is an id's own: the mean logit of a frequent id is that of all.
    std::map<std::int64_t, std::pair<double, int>> by_id;
    for (std::size_t i = 0; i < all.size(); ++i) {
      auto& [sum, count] = by_id[all[i].bags[4][0]];
      sum += x[i] - mean;
      ++count;
    }
    for (auto const& [id, sums] : by_id)
      if (sums.second > 1500) CHECK(std::abs(sums.first / sums.second) < 0.1);
  });
}

namespace {

// Logits of samples with the mean that each value of (bag f, bag g) has, for many samples of few ids: how much of their variance pairs of f
// and g explain beyond f and g alone.
double joint_share(std::vector<planted_row> const& all, std::size_t f, std::size_t g) {
  double total = 0, squares = 0;
  for (auto const& s : all) total += static_cast<double>(s.logit) / static_cast<double>(all.size());
  for (auto const& s : all) squares += std::pow(static_cast<double>(s.logit) - total, 2);
  using key = std::pair<std::int64_t, std::int64_t>;
  auto const explained = [&](auto const& key_of) {
    std::map<key, std::pair<double, double>> sums;
    for (auto const& s : all) {
      auto& [sum, count] = sums[key_of(s)];
      sum += static_cast<double>(s.logit) - total;
      ++count;
    }
    double result = 0;
    for (auto const& [k, v] : sums) result += v.first * v.first / v.second;
    return result / squares;
  };
  return explained([&](planted_row const& s) { return key(s.bags[f][0], s.bags[g][0]); }) -
         explained([&](planted_row const& s) { return key(s.bags[f][0], 0); }) -
         explained([&](planted_row const& s) { return key(0, s.bags[g][0]); });
}

}  // namespace

TEST_CASE("planted_clicks: pairs of one block interact, and no others") {
  pool_host<2> h;
  // Blocks 5, 2, 5, 2 in an order of features in which they mix.
  planted_clicks_options options{{{.ids = 6, .exponent = 0, .block = 5},
                                  {.ids = 6, .exponent = 0, .block = 2},
                                  {.ids = 6, .exponent = 0, .block = 5},
                                  {.ids = 6, .exponent = 0, .block = 2}}};
  options.dense_signal = options.linear_signal = 0;
  options.interaction_signal = 1.5;
  options.seed = random_seed{3};
  planted_clicks const clicks(h.exec(), options);
  planted_samples out;
  clicks.generate(h.exec(), 0, 30'000, out);
  auto const all = samples_of(out);
  double mean = 0;
  std::vector<double> x;
  for (auto const& s : all) x.push_back(static_cast<double>(s.logit));
  CHECK(deviation(x, mean) == doctest::Approx(1.5).epsilon(0.05));
  auto const of_5 = joint_share(all, 0, 2), of_2 = joint_share(all, 1, 3);
  CHECK(of_5 + of_2 == doctest::Approx(1).epsilon(0.05));
  CHECK(of_5 > 0.1);
  CHECK(of_2 > 0.1);
  for (std::size_t const f : {0U, 2U})
    for (std::size_t const g : {1U, 3U}) CHECK(std::abs(joint_share(all, f, g)) < 0.02);
}

TEST_CASE("planted_clicks: bags follow the class of their block") {
  pool_host<2> h;
  constexpr std::int64_t n = 30'000, classes = 4;
  planted_clicks_options options;
  for (std::int64_t f = 0; f < 4; ++f) options.features.push_back({.ids = 10, .exponent = 0.5, .block = f / 2});
  options.latent_dim = classes;
  options.classes = classes;
  options.class_share = 0.8;
  options.seed = random_seed{5};
  planted_clicks const clicks(h.exec(), options);
  planted_samples out;
  clicks.generate(h.exec(), 0, n, out);
  auto const all = samples_of(out);
  // Two ids of a block tell of each other, those of two blocks do not: the squared correlation of a contingency table over its freedom.
  auto const tied = [&](std::size_t f, std::size_t g) {
    double counts[10][10] = {}, of_f[10] = {}, of_g[10] = {}, sum = 0;
    for (auto const& s : all) {
      auto const i = static_cast<std::size_t>(s.bags[f][0]), j = static_cast<std::size_t>(s.bags[g][0]);
      counts[i][j] += 1;
      of_f[i] += 1;
      of_g[j] += 1;
    }
    for (std::size_t i = 0; i < 10; ++i)
      for (std::size_t j = 0; j < 10; ++j)
        if (auto const expected = of_f[i] * of_g[j] / static_cast<double>(n); expected > 0)
          sum += (counts[i][j] - expected) * (counts[i][j] - expected) / expected;
    return sum / static_cast<double>(n);
  };
  // Both follow with probability 0.64, and then ids are of one of 4 classes: the sum is 3 * 0.64², but for bags of frequent classes.
  CHECK(tied(0, 1) == doctest::Approx(3 * 0.64 * 0.64).epsilon(0.1));
  CHECK(tied(2, 3) == doctest::Approx(3 * 0.64 * 0.64).epsilon(0.1));
  CHECK(tied(0, 2) < 0.006);
  CHECK(tied(1, 3) < 0.006);
  // All ids come, and in parts and on other threads the same samples do.
  serial_host one;
  planted_samples part;
  planted_clicks(one.exec(), options).generate(one.exec(), 1000, 50, part);
  CHECK(samples_of(part) == std::vector<planted_row>(all.begin() + 1000, all.begin() + 1050));

  // An id alone says next to nothing of the interactions, and two ids of a block say much.
  options.dense_signal = options.linear_signal = 0;
  planted_clicks(h.exec(), options).generate(h.exec(), 0, n, out);
  auto const pairs = samples_of(out);
  double mean = 0;
  std::vector<double> x;
  for (auto const& s : pairs) x.push_back(static_cast<double>(s.logit));
  auto const spread = deviation(x, mean);
  std::map<std::int64_t, std::pair<double, int>> by_id;
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    by_id[pairs[i].bags[0][0]].first += x[i] - mean;
    ++by_id[pairs[i].bags[0][0]].second;
  }
  for (auto const& [id, sums] : by_id) CHECK(std::abs(sums.first / sums.second) < 0.5 * spread);
  CHECK(joint_share(pairs, 0, 1) > 0.25);
  CHECK(joint_share(pairs, 2, 3) > 0.25);
  CHECK(std::abs(joint_share(pairs, 0, 2)) < 0.05);

  // With a share of 1 both bags of a block always follow its class.
  options.class_share = 1;
  for (auto& feature : options.features) feature.ids = 4;
  planted_clicks const whole(h.exec(), options);
  whole.generate(h.exec(), 0, 2000, out);
  std::map<std::vector<std::vector<std::int64_t>>, float> values;
  std::set<std::pair<std::int64_t, std::int64_t>> of_block;
  for (auto const& s : samples_of(out)) {
    values.emplace(s.bags, s.logit);
    of_block.emplace(s.bags[0][0], s.bags[1][0]);
  }
  CHECK(of_block.size() == classes);
  CHECK(values.size() == classes * classes);
}

TEST_CASE("planted sets: 26 features, 8 blocks in their order") {
  for (auto const& options : {planted_pairs(random_seed{7}), planted_classes(random_seed{7})}) {
    CHECK(options.features.size() == 26);
    std::map<std::int64_t, int> sizes;
    std::int64_t last = 0;
    for (auto const& feature : options.features) {
      CHECK(feature.block >= last);
      last = feature.block;
      ++sizes[feature.block];
    }
    CHECK(sizes.size() == 8);
    for (auto const& [block, size] : sizes) CHECK((size == 3 || size == 4));
    CHECK(options.interaction_signal == 2);
    CHECK(options.linear_signal == 0.3);
    CHECK(options.seed == random_seed{7});
  }
  CHECK(planted_pairs().classes == 0);
  CHECK(planted_classes().classes > 0);
  CHECK(planted_classes().class_share == 0.9);
}

TEST_CASE("expected_auc: the pairs of a naive double loop, and the AUC of labels on average") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  serial_host h;
  for (std::size_t const n : {2U, 3U, 50U, 300U}) {
    CAPTURE(n);
    auto logits = tessera_tests::random_floats(random, n);
    for (std::size_t i = 0; i + 1 < n; i += 3) logits[i + 1] = logits[i];  // ties
    double in_order = 0, pairs = 0;
    for (std::size_t i = 0; i < n; ++i)
      for (std::size_t j = 0; j < n; ++j) {
        if (i == j) continue;
        auto const p = [&](std::size_t k) { return 1 / (1 + std::exp(-static_cast<double>(logits[k]))); };
        auto const pair = p(i) * (1 - p(j));
        pairs += pair;
        in_order += logits[i] > logits[j] ? pair : logits[i] == logits[j] ? pair / 2 : 0;
      }
    CHECK(expected_auc(h.exec(), logits) == doctest::Approx(in_order / pairs).epsilon(1e-12));
  }
  CHECK(std::isnan(expected_auc(h.exec(), std::vector<float>{})));
  CHECK(std::isnan(expected_auc(h.exec(), std::vector<float>{1})));
  auto const one_label = expected_auc(h.exec(), std::vector<float>{500, 600});
  CHECK(std::isnan(one_label));
  CHECK_FALSE(std::signbit(one_label));
  CHECK(expected_auc(h.exec(), std::vector<float>(10, 0.5F)) == doctest::Approx(0.5));
  std::vector<float> const bad{0, std::numeric_limits<float>::quiet_NaN()};
  CHECK(error_of([&] { expected_auc(h.exec(), bad); }).value("position") == "1");

  // Planted labels: the realised AUC lies around it, and another ranking below.
  planted_clicks const clicks(h.exec(), mixed(seed));
  planted_samples out;
  clicks.generate(h.exec(), 0, 20'000, out);
  auto all = samples_of(out);
  auto const auc = [&] {
    double in_order = 0, zeros = 0, ones = 0;
    for (auto const& s : all) {
      if (s.label != 0) {
        in_order += zeros;
        ++ones;
      } else {
        ++zeros;
      }
    }
    return in_order / zeros / ones;
  };
  std::sort(all.begin(), all.end(), [](auto const& a, auto const& b) { return a.logit < b.logit; });
  auto const best = auc(), expected = expected_auc(h.exec(), out.logits());
  CHECK(std::abs(best - expected) < 0.02);
  CHECK(expected > 0.6);
  std::sort(all.begin(), all.end(), [](auto const& a, auto const& b) { return a.logit + a.dense[2] < b.logit + b.dense[2]; });
  CHECK(auc() < best + 0.005);
}

TEST_CASE("planted_clicks: no features, no dense features, no samples") {
  serial_host h;
  planted_clicks_options options;
  options.dense_features = 0;
  planted_clicks const bare(h.exec(), options);
  planted_samples out;
  CHECK(out.view().samples() == 0);
  bare.generate(h.exec(), 0, 3000, out);
  CHECK(out.size() == 3000);
  CHECK(out.view().dense.columns() == 0);
  CHECK(out.view().sparse.rows() == 0);
  CHECK(out.logits()[7] == doctest::Approx(std::log(1.0 / 3)).epsilon(1e-4));
  planted_clicks const clicks(h.exec(), mixed(1));
  clicks.generate(h.exec(), 12, 0, out);
  CHECK(out.size() == 0);
  CHECK(out.view().sparse.keys == 4);
  CHECK(out.view().sparse.rows() == 0);
}

TEST_CASE("planted_clicks: what cannot be is named") {
  serial_host h;
  auto const refused = [&](auto const& change) {
    auto options = mixed(1);
    change(options);
    auto const e = error_of([&] { planted_clicks(h.exec(), options); });
    CHECK(e.code() == errc::invalid_argument);
    return e;
  };
  auto const nan = std::numeric_limits<double>::quiet_NaN();
  for (std::int64_t const ids : {std::int64_t{0}, (std::int64_t{1} << 48) + 1}) {
    auto const e = refused([&](auto& o) { o.features[1].ids = ids; });
    CHECK(e.value("feature") == "1");
    CHECK(e.value("ids") == std::to_string(ids));
  }
  for (double const exponent : {-1.0, 65.0, nan})
    CHECK(refused([&](auto& o) { o.features[2].exponent = exponent; }).value("feature") == "2");
  CHECK(refused([](auto& o) { o.features[0].exponent = -1; }).value("exponent") == "-1");
  CHECK(refused([](auto& o) { o.features[3].shortest_bag = -1; }).value("feature") == "3");
  CHECK(refused([](auto& o) { o.features[2].longest_bag = 0; }).value("longest_bag") == "0");
  CHECK(refused([](auto& o) { o.features[2].more = 1.1; }).value("more") == "1.1");
  CHECK(refused([](auto& o) { o.dense_features = -1; }).value("dense_features") == "-1");
  CHECK(refused([](auto& o) { o.features[2].block = -1; }).value("block") == "-1");
  CHECK(refused([](auto& o) { o.features[2].block = 1 << 20; }).value("feature") == "2");
  CHECK(refused([](auto& o) { o.classes = 10; }).value("classes") == "10");
  CHECK(refused([](auto& o) {
          for (auto& feature : o.features) feature.ids = 9;
          o.classes = 3;
          o.latent_dim = 2;
        }).value("classes") == "3");
  CHECK(refused([](auto& o) { o.classes = -1; }).value("classes") == "-1");
  CHECK(refused([&](auto& o) { o.class_share = nan; }).value("class_share") == "nan");
  CHECK(refused([](auto& o) { o.class_share = 1.01; }).value("class_share") == "1.01");
  CHECK(refused([](auto& o) { o.latent_dim = 17; }).value("latent_dim") == "17");
  CHECK(refused([](auto& o) { o.base_rate = 1; }).value("base_rate") == "1");
  CHECK(refused([&](auto& o) { o.linear_signal = nan; }).value("linear_signal") == "nan");
  CHECK(refused([](auto& o) { o.head_ids = 0; }).value("head_ids") == "0");
  CHECK(refused([](auto& o) { o.tail_decay = -1; }).value("tail_decay") == "-1");
  planted_clicks const clicks(h.exec(), mixed(1));
  planted_samples out;
  CHECK(error_of([&] { clicks.generate(h.exec(), -1, 5, out); }).value("first") == "-1");
  CHECK(error_of([&] { clicks.generate(h.exec(), 1, -5, out); }).value("count") == "-5");
  CHECK(error_of([&] { clicks.generate(h.exec(), 5, std::int64_t{1} << 62, out); }).code() == errc::invalid_argument);
}
