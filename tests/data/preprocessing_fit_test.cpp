// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-labels: threads
#include <tessera/data/preprocessing_fit.hpp>

#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "preprocessing_support.hpp"

namespace preprocessing_fit_test {

namespace {

using namespace preprocessing_tests;

std::vector<std::int64_t> values_of(sparse_pipeline const& p, std::string const& name) {
  for (std::int64_t v = 0; v < p.vocabularies(); ++v)
    if (p.vocabulary_name(v) == name) return {p.vocabulary_values(v).begin(), p.vocabulary_values(v).end()};
  FAIL("no vocabulary " << name);
  return {};
}

/// The vocabulary of these columns, by std::map: the values in order of first appearance, column after column.
std::vector<std::int64_t> vocabulary_by_hand(table const& data, std::vector<std::size_t> const& columns, std::int64_t min_count) {
  std::map<std::int64_t, std::int64_t> counts;
  std::vector<std::int64_t> order;
  for (auto const c : columns)
    for (auto const& s : data.samples)
      for (auto const id : s.sparse[c])
        if (!(data.schema.is_single(data.schema.sparse[c]) && id == missing_id) && ++counts[id] == 1) order.push_back(id);
  std::erase_if(order, [&](std::int64_t id) { return counts[id] < min_count; });
  return order;
}

}  // namespace

TEST_CASE("preprocessing_fit: vocabularies as a std::map finds them, of one column and of columns that share") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  table const data(random, {.rows = 900, .dense = 1, .sparse = 4, .single = 2});
  for (std::int64_t const min_count : {1, 3, 100'000}) {
    CAPTURE(min_count);
    tessera_tests::pool h(2);
    auto const p = fitted(h.exec(),
                          preprocessing(data.schema, {},
                                        {{.columns = {"s3", "s1"}, .steps = {vocabulary{.min_count = min_count}}, .share = "both"},
                                         {.steps = {vocabulary{.min_count = min_count}}}}),
                          data, 100);
    CHECK(p.dropped().empty());
    CHECK(values_of(p.sparse(), "s0") == vocabulary_by_hand(data, {0}, min_count));
    CHECK(values_of(p.sparse(), "s2") == vocabulary_by_hand(data, {2}, min_count));
    auto const both = vocabulary_by_hand(data, {1, 3}, min_count);
    CHECK(values_of(p.sparse(), "both") == both);
    for (char const* column : {"s1", "s3"}) CHECK(p.sparse().id_count(column) == 2 + static_cast<std::int64_t>(both.size()));
  }
  // What is cut off, and what a step before makes of ids, is what is counted.
  tessera_tests::serial_host h;
  auto const p =
      fitted(h.exec(), preprocessing(data.schema, {}, {{.steps = {clip_ids{0, 50}, truncate_ids{.most = 1}, vocabulary{}}}}), data);
  auto changed = data;
  for (auto& s : changed.samples)
    for (auto& ids : s.sparse) {
      if (ids.size() > 1) ids.erase(ids.begin(), ids.end() - 1);
      for (auto& id : ids)
        if (id != missing_id) id = std::clamp<std::int64_t>(id, 0, 50);
    }
  for (std::size_t c = 0; c < 4; ++c) CHECK(values_of(p.sparse(), data.schema.sparse[c]) == vocabulary_by_hand(changed, {c}, 1));
}

TEST_CASE("preprocessing_fit: means, deviations and quantiles as a naive pass in long double finds them") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  table data(random, {.rows = 3000, .dense = 3, .sparse = 1});
  for (std::size_t i = 0; i < data.samples.size(); ++i) {
    data.samples[i].dense[1] = std::bit_cast<std::uint32_t>(7.0F);  // a constant column
    if (i % 500 == 3) data.samples[i].dense[0] = std::bit_cast<std::uint32_t>(std::numeric_limits<float>::infinity());
  }
  tessera_tests::serial_host h;
  auto const p = fitted(
      h.exec(), preprocessing(data.schema, {{.columns = {"d2"}, .steps = {bucketise{{}, 10}}}, {.steps = {log_values{}, standardise{}}}}),
      data, 700);
  std::vector<long double> numbers;
  for (auto const& s : data.samples)
    if (auto const x = std::bit_cast<float>(s.dense[0]); std::isfinite(x)) numbers.push_back(std::log1p(std::max<long double>(x, 0)));
  long double mean = 0, variance = 0;
  for (auto const x : numbers) mean += x / static_cast<long double>(numbers.size());
  for (auto const x : numbers) variance += (x - mean) * (x - mean) / static_cast<long double>(numbers.size());
  auto const& found = std::get<standardise>(p.dense().rules()[0].steps[1]);
  CHECK(found.mean == doctest::Approx(static_cast<double>(mean)).epsilon(1e-12));
  CHECK(found.deviation == doctest::Approx(static_cast<double>(std::sqrt(variance))).epsilon(1e-12));
  auto const& constant = std::get<standardise>(p.dense().rules()[1].steps[1]);
  CHECK(constant.deviation == 1);
  CHECK(constant.mean == doctest::Approx(std::log(8.0)));

  std::vector<float> sorted;
  for (auto const& s : data.samples)
    if (auto const x = std::bit_cast<float>(s.dense[2]); !std::isnan(x)) sorted.push_back(x);
  std::sort(sorted.begin(), sorted.end());
  auto const& buckets = std::get<bucketise>(p.dense().rules()[2].steps[0]);
  REQUIRE(buckets.boundaries.size() == 9);
  for (std::size_t i = 1; i < 10; ++i) CHECK(buckets.boundaries[i - 1] == sorted[i * sorted.size() / 10]);
}

TEST_CASE("preprocessing_fit: a number that is a boundary is in the bucket above it, behind steps that round, too; no bucket is empty") {
  tessera_tests::serial_host h;
  auto const fitted_to = [&](std::vector<float> const& numbers, std::int64_t buckets) {
    std::vector<sample_tests::sample> samples;
    for (auto const x : numbers) samples.emplace_back().dense = {std::bit_cast<std::uint32_t>(x)};
    table const data({.label = "y", .dense = {"x"}}, std::move(samples));
    auto const p = fitted(h.exec(), preprocessing(data.schema, {{.steps = {log_values{}, bucketise{{}, buckets}}}}), data);
    return numbers_of(h.exec(), p.dense(), data.all(h.exec()).view());
  };
  for (int k = 1; k <= 2000; ++k)
    CHECK(fitted_to({0, 0, static_cast<float>(k), static_cast<float>(k)}, 2) == std::vector<float>{0, 0, 1, 1});
  CHECK(fitted_to({0, 0, 0, 0, 0, 0, 0, 0, 5, 9}, 4) == std::vector<float>{0, 0, 0, 0, 0, 0, 0, 0, 1, 1});
  CHECK(fitted_to({3, 3}, 4) == fitted_to({5, 5}, 4));
}

TEST_CASE("preprocessing_fit: quantiles of a sample, the same whatever the parts") {
  std::mt19937_64 random(11);
  table const data(random, {.rows = 4000, .dense = 1, .sparse = 0});
  tessera_tests::serial_host h;
  preprocessing const unfitted(data.schema, {{.steps = {bucketise{{}, 4}}}});
  preprocessing_fit whole(unfitted, {.quantile_sample_size = 200});
  add(h.exec(), whole, data, 0, 4000, 333);
  CHECK(whole.bytes() < 20'000);
  preprocessing_fit first(unfitted, {.quantile_sample_size = 200}), second(unfitted, {.first_row = 1700, .quantile_sample_size = 200});
  add(h.exec(), first, data, 0, 1700, 4000);
  add(h.exec(), second, data, 1700, 4000, 7);
  first.merge(h.exec(), second);
  CHECK(first.dense()[0].sample[0].entries() == whole.dense()[0].sample[0].entries());
  CHECK(whole.dense()[0].sample[0].entries().size() == 200);
  auto const p = std::move(whole).finish(h.exec());
  CHECK(p == std::move(first).finish(h.exec()));
  auto const& bounds = std::get<bucketise>(p.dense().rules()[0].steps[0]).boundaries;
  REQUIRE(bounds.size() == 3);
  for (std::size_t i = 0; i < 3; ++i) {  // ranks of standard normal numbers; 200 of them are off by 0.035 each
    auto const rank = 0.5 * std::erfc(-static_cast<double>(bounds[i]) / std::sqrt(2.0));
    CHECK(std::abs(rank - 0.25 * static_cast<double>(i + 1)) < 0.2);
  }
}

TEST_CASE("preprocessing_fit: a limited vocabulary has frequent values first, in bounded memory, and its parts keep the bounds") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  sample_schema const schema{.label = "label", .sparse = {"c"}, .single = {"c"}};
  std::vector<sample_tests::sample> samples(6000);
  std::map<std::int64_t, std::int64_t> truth;
  for (auto& s : samples) {
    auto const value = static_cast<std::int64_t>(std::exp(static_cast<double>(random() >> 11) * 0x1p-53 * 11)) - 1;
    s.sparse = {{value}};
    ++truth[value];
  }
  table const data(schema, samples);
  tessera_tests::serial_host h;
  auto const all = vocabulary_by_hand(data, {0}, 1);
  for (std::int64_t const limit : {1, 50, 400, 100'000})
    for (std::int64_t const min_count : {1, 30}) {
      CAPTURE(limit);
      CAPTURE(min_count);
      preprocessing const unfitted(schema, {}, {{.steps = {vocabulary{.min_count = min_count, .limit = limit}}}});
      preprocessing_fit parts(unfitted);
      for (std::size_t part = 0; part < 3; ++part) {
        preprocessing_fit fit(unfitted, {.first_row = static_cast<std::int64_t>(part * 2000)});
        add(h.exec(), fit, data, part * 2000, part * 2000 + 2000, 512);
        CHECK(fit.bytes() < static_cast<std::size_t>(200 * 2 * limit) + 1000);
        parts.merge(h.exec(), fit);
      }
      auto const whole = fitted(h.exec(), unfitted, data), merged = std::move(parts).finish(h.exec());
      for (auto const* p : {&whole, &merged}) {
        auto const values = values_of(p->sparse(), "c");
        CHECK(static_cast<std::int64_t>(values.size()) <= limit);
        for (auto const value : values) CHECK(truth.at(value) >= min_count);
        std::set<std::int64_t> const in(values.begin(), values.end());
        // A count lacks at most 6000 / limit: values that stand out by more are in, unless the vocabulary is full.
        if (static_cast<std::int64_t>(values.size()) < limit)
          for (auto const& [value, count] : truth) CHECK_FALSE((count >= min_count + 6000 / limit && in.count(value) == 0));
      }
      if (limit == 100'000) {
        CHECK(whole == merged);
        auto expected = all;
        std::erase_if(expected, [&](auto v) { return truth.at(v) < min_count; });
        std::sort(expected.begin(), expected.end(),
                  [&](auto a, auto b) { return std::pair(-truth.at(a), a) < std::pair(-truth.at(b), b); });
        CHECK(values_of(whole.sparse(), "c") == expected);
      }
    }
}

TEST_CASE("preprocessing_fit: columns that are empty everywhere are dropped, and nothing else is") {
  sample_schema const schema{.label = "label", .dense = {"a", "b", "x"}, .sparse = {"l", "s", "t", "x"}, .single = {"s", "t", "x"}};
  auto const nan = std::bit_cast<std::uint32_t>(std::numeric_limits<float>::quiet_NaN());
  std::vector<sample_tests::sample> samples(5);
  for (auto& s : samples) {
    s.dense = {nan, nan, nan};
    s.sparse = {{}, {missing_id}, {missing_id}, {missing_id}};
  }
  samples[3].dense[1] = 0;
  samples[4].sparse[2] = {0};
  table const data(schema, samples);
  tessera_tests::serial_host h;
  for (bool const counts : {false, true}) {
    std::vector<dense_rule> dense;
    std::vector<sparse_rule> sparse;
    if (counts) {
      dense = {{.steps = {standardise{}, indicate_missing{}}}};
      sparse = {{.steps = {vocabulary{}}}};
    }
    auto const p = fitted(h.exec(), preprocessing(schema, dense, sparse), data);
    CHECK(p.is_fitted());
    CHECK(p.dense().dropped() == std::vector<std::string>{"a", "x"});
    CHECK(p.sparse().dropped() == std::vector<std::string>{"l", "s", "x"});
    CHECK(p.dropped() == std::vector<std::string>{"a", "x", "l", "s"});
    CHECK(p.dense().names()[0] == "b");
    CHECK(p.sparse().kept() == std::vector<std::string>{"t"});
    CHECK(p.of_keys({"x", "t"}).keys() == std::vector<std::string>{"t"});
    if (counts) CHECK(p.sparse().id_count("t") == 3);
    if (counts) CHECK(numbers_of(h.exec(), p.dense(), data.all(h.exec()).view()) == std::vector<float>{0, 1, 0, 1, 0, 1, 0, 0, 0, 1});
  }
  CHECK(preprocessing(schema).dropped().empty());
  CHECK(preprocessing(schema).is_fitted());
  CHECK_FALSE(preprocessing(schema, {{.steps = {standardise{}}}}).is_fitted());
  CHECK_FALSE(preprocessing(schema, {}, {{.columns = {"t"}, .steps = {vocabulary{}}}}).is_fitted());
}

TEST_CASE("preprocessing_fit: what cannot be is named") {
  std::mt19937_64 random(2);
  table const data(random, {.rows = 20, .dense = 2, .sparse = 2});
  tessera_tests::serial_host h;
  auto const exec = h.exec();
  preprocessing const unfitted(data.schema, {{.steps = {standardise{}}}}, {{.steps = {vocabulary{.limit = 5}}}});
  CHECK(error_of([&] { preprocessing_fit(unfitted, {.first_row = -1}); }).value("first_row") == "-1");
  preprocessing const sampled(data.schema, {{.steps = {bucketise{{}, 3}}}});
  CHECK(error_of([&] { preprocessing_fit(sampled, {.quantile_sample_size = 0}); }).value("size") == "0");
  CHECK(error_of([&] { preprocessing_fit(unfitted).finish(exec); }).sentence() == "preprocessing: no samples to fit to");
  table const other(random, {.rows = 20, .dense = 2, .sparse = 3});
  preprocessing_fit fit(unfitted);
  CHECK(error_of([&] { fit.add(exec, other.all(exec).view()); }).value("expected sparse columns") == "2");
  fit.add(exec, data.all(exec).view());
  CHECK(fit.rows() == 20);
  preprocessing_fit gap(unfitted, {.first_row = 21});
  fit.merge(exec, gap);  // of no samples
  gap.add(exec, data.all(exec).view());
  auto const refused = error_of([&] { fit.merge(exec, gap); });
  CHECK(refused.value("first row") == "21");
  CHECK(refused.value("expected") == "20");
  preprocessing const changed(data.schema, {{.steps = {standardise{}}}}, {{.steps = {vocabulary{.limit = 6}}}});
  preprocessing_fit different(changed, {.first_row = 20});
  CHECK(error_of([&] { fit.merge(exec, different); }).sentence() == "preprocessing_fit: a fit of another preprocessing");
  CHECK(error_of([&] { fit.restore(5, {}, {}); }).value("rows") == "5");
  CHECK(error_of([] { preprocessing(sample_schema{}); }).sentence() == "preprocessing: a schema without a label");
}

}  // namespace preprocessing_fit_test
