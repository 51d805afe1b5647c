// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-labels: threads
#include <tessera/data/source_profile.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <tessera/synth/zipf.hpp>

#include "hosts.hpp"
#include "random.hpp"
#include "sample_support.hpp"
#include "temporary_folder.hpp"

namespace source_profile_tests {

using namespace tessera;
using sample_tests::sample;

constexpr auto nan = std::numeric_limits<float>::quiet_NaN();

std::vector<std::int64_t> present(std::vector<std::int64_t> ids) {
  std::erase(ids, missing_id);
  return ids;
}

void check_numbers(number_profile const& found, std::vector<float> const& column) {
  CAPTURE(found.name);
  std::vector<float> numbers;
  double sum = 0, squares = 0;
  std::int64_t finite = 0;
  for (auto const x : column)
    if (!std::isnan(x)) numbers.push_back(x);
  for (auto const x : numbers)
    if (std::isfinite(x)) ++finite, sum += x;
  for (auto const x : numbers)
    if (std::isfinite(x)) squares += std::pow(x - sum / static_cast<double>(finite), 2);
  auto const count = static_cast<std::int64_t>(numbers.size());
  CHECK(found.rows == static_cast<std::int64_t>(column.size()));
  CHECK(found.missing == found.rows - count);
  CHECK(found.infinite == count - finite);
  CHECK(found.zeros == std::count(numbers.begin(), numbers.end(), 0.0F));
  CHECK(found.ones == std::count(numbers.begin(), numbers.end(), 1.0F));
  if (finite > 0) {
    CHECK(found.mean == doctest::Approx(sum / static_cast<double>(finite)));
    CHECK(found.deviation == doctest::Approx(std::sqrt(squares / static_cast<double>(finite))));
  }
  if (numbers.empty()) return;
  std::sort(numbers.begin(), numbers.end());
  CHECK(found.least == numbers.front());
  CHECK(found.largest == numbers.back());
  CHECK(found.quantiles.size() == 7);
  for (auto const& q : found.quantiles) {
    auto const exact = numbers[static_cast<std::size_t>(std::ceil(q.share * static_cast<double>(count))) - 1];
    CHECK(std::abs(exact - q.value) <= std::abs(exact) / 128);
  }
}

void check_ids(id_profile const& found, std::vector<sample> const& samples, std::size_t column) {
  CAPTURE(found.name);
  std::map<std::int64_t, std::int64_t> counts;
  std::vector<std::int64_t> lengths;
  std::set<std::pair<std::int64_t, std::vector<std::int64_t>>> lists;
  std::int64_t kept_ids = 0;
  for (auto const& s : samples) {
    auto const ids = present(s.sparse[column]);
    for (auto const id : ids) ++counts[id];
    lengths.push_back(static_cast<std::int64_t>(ids.size()));
    if (lists.emplace(s.session, s.sparse[column]).second) kept_ids += lengths.back();
  }
  std::int64_t lookups = 0;
  for (auto const length : lengths) lookups += length;
  CHECK(found.rows == static_cast<std::int64_t>(samples.size()));
  CHECK(found.missing == std::count(lengths.begin(), lengths.end(), 0));
  CHECK(found.lookups == lookups);
  CHECK(found.distinct == estimated_count{static_cast<std::int64_t>(counts.size()), true, 0});

  std::sort(lengths.begin(), lengths.end());
  CHECK(found.lengths.least == lengths.front());
  CHECK(found.lengths.largest == lengths.back());
  CHECK(found.lengths.mean == doctest::Approx(static_cast<double>(lookups) / static_cast<double>(samples.size())));
  for (auto const& q : found.lengths.quantiles)
    CHECK(q.value == lengths[static_cast<std::size_t>(std::ceil(q.share * static_cast<double>(lengths.size()))) - 1]);

  std::vector<std::int64_t> descending;
  for (auto const& [id, count] : counts) descending.push_back(count);
  std::sort(descending.begin(), descending.end(), std::greater<>());
  REQUIRE(found.top.size() == 3);
  for (auto const& top : found.top) {
    auto const n = static_cast<std::size_t>(std::max(1.0, std::ceil(top.ids * static_cast<double>(descending.size()))));
    std::int64_t sum = 0;
    for (std::size_t i = 0; i < std::min(n, descending.size()); ++i) sum += descending[i];
    CHECK(top.lookups == doctest::Approx(static_cast<double>(sum) / static_cast<double>(lookups)));
    CHECK(top.standard_error == 0);
  }

  REQUIRE(found.repeats.has_value());
  CHECK(*found.repeats == session_repeats{1, found.rows, static_cast<std::int64_t>(lists.size()), lookups, kept_ids});
  CHECK(found.repeats->is_exact());
}

// The profile of samples in blocks.
source_profile profile_of(host_exec const& exec, sample_schema const& schema, std::vector<sample> const& samples, std::size_t block,
                          profile_options const& options = {}) {
  source_profile profile(schema, options);
  for (std::size_t first = 0; first < samples.size(); first += block) {
    auto const begin = samples.begin() + static_cast<std::ptrdiff_t>(first);
    sample_columns columns;
    sample_tests::fill(exec, schema, {begin, begin + static_cast<std::ptrdiff_t>(std::min(block, samples.size() - first))}, columns);
    profile.add(exec, columns.view());
  }
  return profile;
}

sample_schema const one_column{.label = "click", .sparse = {"item"}, .single = {"item"}};

sample with_ids(std::vector<std::int64_t> ids, std::int64_t session = 0) {
  sample result;
  result.sparse = {std::move(ids)};
  result.session = session;
  return result;
}

sample with_number(float number) {
  sample result;
  result.dense = {std::bit_cast<std::uint32_t>(number)};
  return result;
}

TEST_CASE("source_profile: what all columns hold, exactly, on any number of threads") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  sample_tests::table_shape const shape{.rows = 1500, .sessions = 40, .single = 2, .other_labels = 2, .weights = true};
  auto const schema = sample_tests::schema_of(shape);
  auto samples = sample_tests::random_samples(random, shape);
  for (std::size_t i = 0; i < samples.size(); i += 2) samples[i].sparse = samples[i / 4].sparse;  // some repeat
  samples[3].sparse[0] = {5, missing_id, 7};
  samples[4].dense[0] = std::bit_cast<std::uint32_t>(std::numeric_limits<float>::infinity());
  samples[5].label = std::bit_cast<std::uint32_t>(nan);
  samples[6].label = std::bit_cast<std::uint32_t>(0.5F);

  tessera_tests::serial_host host;
  auto const profile = profile_of(host.exec(), schema, samples, 400);
  auto const found = profile.result(host.exec());
  CHECK(found.rows == 1500);
  CHECK(profile.rows() == 1500);
  CHECK(profile.bytes() > 1500 * 16);

  auto const column = [&](auto const& number) {
    std::vector<float> numbers;
    for (auto const& s : samples) numbers.push_back(std::bit_cast<float>(number(s)));
    return numbers;
  };
  REQUIRE(found.numbers.size() == 7);
  CHECK(found.numbers[0].name == "label");
  CHECK(found.numbers[0].role == number_role::label);
  CHECK(found.numbers[0].missing == 1);
  check_numbers(found.numbers[0], column([](sample const& s) { return s.label; }));
  CHECK(found.numbers[1].name == "l0");
  CHECK(found.numbers[1].role == number_role::other_label);
  for (std::size_t k = 0; k < 2; ++k) check_numbers(found.numbers[1 + k], column([k](sample const& s) { return s.other_labels[k]; }));
  CHECK(found.numbers[3].role == number_role::weight);
  check_numbers(found.numbers[3], column([](sample const& s) { return s.weight; }));
  CHECK(found.numbers[4].role == number_role::dense);
  CHECK(found.numbers[4].infinite == 1);
  for (std::size_t c = 0; c < 3; ++c) check_numbers(found.numbers[4 + c], column([c](sample const& s) { return s.dense[c]; }));

  REQUIRE(found.ids.size() == 4);
  for (std::size_t c = 0; c < 4; ++c) {
    CHECK(found.ids[c].name == schema.sparse[c]);
    CHECK(found.ids[c].is_single == (c >= 2));
    check_ids(found.ids[c], samples, c);
  }
  CHECK(found.ids[0].repeats->row_factor() > 1.1);

  std::map<std::int64_t, std::int64_t> sessions;
  for (auto const& s : samples) ++sessions[s.session];
  std::vector<std::int64_t> sizes;
  for (auto const& [session, size] : sessions) sizes.push_back(size);
  std::sort(sizes.begin(), sizes.end());
  REQUIRE(found.sessions.has_value());
  CHECK(found.sessions->name == "session");
  CHECK(found.sessions->sessions == estimated_count{static_cast<std::int64_t>(sizes.size()), true, 0});
  CHECK(found.sessions->mean_samples == doctest::Approx(1500.0 / static_cast<double>(sizes.size())));
  for (auto const& q : found.sessions->quantiles)
    CHECK(q.value == static_cast<double>(sizes[static_cast<std::size_t>(std::ceil(q.share * static_cast<double>(sizes.size()))) - 1]));

  auto const by_time = [](sample const& a, sample const& b) { return a.time < b.time; };
  auto const [first, last] = std::minmax_element(samples.begin(), samples.end(), by_time);
  CHECK(found.times == time_profile{"time", first->time, last->time});

  tessera_tests::pool four(4);
  CHECK(profile_of(four.exec(), schema, samples, 400).result(four.exec()) == found);

  SUBCASE("merged parts are the whole") {
    std::vector<sample> const front(samples.begin(), samples.begin() + 500), back(samples.begin() + 500, samples.end());
    auto merged = profile_of(four.exec(), schema, back, 300);
    merged.merge(four.exec(), profile_of(four.exec(), schema, front, 500));
    merged.merge(four.exec(), source_profile(schema));
    CHECK(merged.result(four.exec()) == found);
  }
}

TEST_CASE("source_profile: beyond the limits, estimates lie within their standard errors, the same in parts") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> uniform;
  zipf_distribution const zipf(40'000, 1.05);
  sample_schema schema = one_column;
  schema.session = "visit";
  std::vector<sample> samples(60'000);
  std::map<std::int64_t, std::int64_t> counts;
  std::set<std::int64_t> sessions;
  std::set<std::pair<std::int64_t, std::int64_t>> pairs;
  for (auto& s : samples) {
    s.sparse = {{zipf([&] { return uniform(random); })}};
    s.session = static_cast<std::int64_t>(random() % 20'000);
    if (random() % 2 == 0) s.sparse[0][0] = s.session;  // the session's own, which comes again
    ++counts[s.sparse[0][0]];
    sessions.insert(s.session);
    pairs.emplace(s.session, s.sparse[0][0]);
  }
  std::vector<std::int64_t> descending;
  for (auto const& [id, count] : counts) descending.push_back(count);
  std::sort(descending.begin(), descending.end(), std::greater<>());

  tessera_tests::serial_host host;
  profile_options const options{.id_limit = 4096, .list_limit = 4096, .top_shares = {0.01, 0.1, 0.5}};
  auto whole = profile_of(host.exec(), schema, samples, 7000, options);
  auto const found = whole.result(host.exec());
  auto const check_count = [](estimated_count const& estimate, std::size_t truth) {
    CHECK_FALSE(estimate.is_exact);
    CHECK(estimate.standard_error > 0);
    CHECK(estimate.standard_error < 0.03);
    CHECK(std::abs(static_cast<double>(estimate.value) / static_cast<double>(truth) - 1) < 6 * estimate.standard_error);
  };
  auto const& ids = found.ids[0];
  check_count(ids.distinct, counts.size());
  check_count(found.sessions->sessions, sessions.size());
  CHECK(found.sessions->mean_samples == doctest::Approx(60'000.0 / static_cast<double>(found.sessions->sessions.value)).epsilon(1e-3));
  for (auto const& top : ids.top) {
    auto const n = static_cast<std::size_t>(std::ceil(top.ids * static_cast<double>(descending.size())));
    double sum = 0;
    for (std::size_t i = 0; i < n; ++i) sum += static_cast<double>(descending[i]);
    CAPTURE(top.ids);
    CAPTURE(sum / 60'000);
    CAPTURE(top.lookups);
    CHECK(top.standard_error > 0);
    CHECK(top.standard_error < 0.1);
    CHECK(std::abs(top.lookups - sum / 60'000) < 6 * top.standard_error);
  }
  REQUIRE(ids.repeats.has_value());
  CHECK_FALSE(ids.repeats->is_exact());
  CHECK(ids.repeats->row_factor() == doctest::Approx(60'000.0 / static_cast<double>(pairs.size())).epsilon(0.1));
  CHECK(ids.lookups == 60'000);  // exact all the same

  tessera_tests::pool four(4);
  std::vector<sample> const front(samples.begin(), samples.begin() + 9'000), back(samples.begin() + 9'000, samples.end());
  auto merged = profile_of(four.exec(), schema, front, 3000, options);
  merged.merge(four.exec(), profile_of(four.exec(), schema, back, 20'000, options));
  auto const both = merged.result(four.exec());
  CHECK(both.ids[0] == ids);
  CHECK(both.sessions == found.sessions);
}

TEST_CASE("source_profile: no rows") {
  tessera_tests::serial_host host;
  sample_tests::table_shape const shape{.rows = 0};
  auto const schema = sample_tests::schema_of(shape);
  source_profile profile(schema);
  sample_columns columns;
  sample_tests::fill(host.exec(), schema, {}, columns);
  profile.add(host.exec(), columns.view());
  auto const found = profile.result(host.exec());
  CHECK(found.rows == 0);
  REQUIRE(found.numbers.size() == 4);
  for (auto const& column : found.numbers) {
    CHECK(column.rows == 0);
    CHECK(column.missing_share() == 0);
    CHECK(std::isnan(column.mean));
    CHECK(column.quantiles.empty());
  }
  REQUIRE(found.ids.size() == 4);
  for (auto const& column : found.ids) {
    CHECK(column.distinct == estimated_count{});
    CHECK(column.lengths == length_profile{});
    CHECK(column.top[0] == top_ids{0.001, 0, 0});
    CHECK_FALSE(column.repeats.has_value());
  }
  CHECK(found.sessions->sessions.value == 0);
  CHECK(found.sessions->mean_samples == 0);
  CHECK_FALSE(found.times.has_value());
}

TEST_CASE("source_profile: all missing, and one id") {
  tessera_tests::serial_host host;
  auto const none =
      profile_of(host.exec(), one_column, {with_ids({missing_id}), with_ids({missing_id}), with_ids({missing_id})}, 2).result(host.exec());
  CHECK(none.ids[0].missing == 3);
  CHECK(none.ids[0].missing_share() == 1);
  CHECK(none.ids[0].lookups == 0);
  CHECK(none.ids[0].distinct.value == 0);
  CHECK(none.ids[0].lengths.largest == 0);
  CHECK(none.ids[0].top[2].lookups == 0);
  CHECK_FALSE(none.ids[0].repeats.has_value());  // no sessions
  CHECK_FALSE(none.sessions.has_value());

  auto const one = profile_of(host.exec(), one_column, {with_ids({-9}), with_ids({missing_id}), with_ids({-9})}, 3).result(host.exec());
  CHECK(one.ids[0].missing == 1);
  CHECK(one.ids[0].distinct.value == 1);
  CHECK(one.ids[0].top[0] == top_ids{0.001, 1, 0});
  CHECK(one.ids[0].lengths.mean == doctest::Approx(2.0 / 3));

  sample_schema const dense{.label = "click", .dense = {"age"}};
  auto const missing = profile_of(host.exec(), dense, {with_number(nan), with_number(nan)}, 2).result(host.exec());
  CHECK(missing.numbers[1].missing_share() == 1);
  CHECK(missing.numbers[1].zero_share() == 0);
  CHECK(std::isnan(missing.numbers[1].least));
  CHECK(std::isnan(missing.numbers[1].deviation));
  CHECK(missing.numbers[0].zero_share() == 1);
}

TEST_CASE("source_profile: repeats inside sessions are counted by lists, not by ids") {
  tessera_tests::serial_host host;
  sample_schema const schema{.label = "click", .sparse = {"seen"}, .session = "visit"};
  std::vector<sample> const samples{with_ids({1, 2}, 1), with_ids({1, 2}, 2), with_ids({1, 2}, 1),
                                    with_ids({2, 1}, 1), with_ids({}, 2),     with_ids({}, 2)};
  auto const found = profile_of(host.exec(), schema, samples, 4).result(host.exec());
  CHECK(found.ids[0].repeats == session_repeats{1, 6, 4, 8, 6});
  CHECK(found.ids[0].repeats->row_factor() == 1.5);
  CHECK(found.ids[0].repeats->id_factor() == doctest::Approx(8.0 / 6));
}

TEST_CASE("source_profile: refusals change nothing") {
  tessera_tests::serial_host host;
  auto const exec = host.exec();
  source_profile profile(one_column);
  sample_columns columns;
  sample_tests::fill(exec, sample_schema{.label = "click", .dense = {"age"}}, {with_number(0)}, columns);
  auto const shape = tessera_tests::error_of([&] { profile.add(exec, columns.view()); });
  CHECK(shape.code() == errc::shape_mismatch);
  CHECK(shape.value("sparse expected") == "1");
  CHECK(profile.rows() == 0);

  auto const other = tessera_tests::error_of([&] { profile.merge(exec, source_profile({.label = "other"})); });
  CHECK(other.code() == errc::invalid_argument);
  auto const options = tessera_tests::error_of([&] { profile.merge(exec, source_profile(one_column, {.id_limit = 64})); });
  CHECK(options.code() == errc::invalid_argument);

  auto const limit = tessera_tests::error_of([] { source_profile made(one_column, {.list_limit = 63}); });
  CHECK(limit.value("option") == "list_limit");
  CHECK(tessera_tests::error_of([] { source_profile made(one_column, {.id_limit = -1}); }).value("option") == "id_limit");
  CHECK(tessera_tests::error_of([] { source_profile made(one_column, {.top_shares = {1.5}}); }).value("share") == "1.5");
  CHECK(tessera_tests::error_of([] { source_profile made({}); }).code() == errc::invalid_argument);
}

}  // namespace source_profile_tests
