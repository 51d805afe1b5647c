// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <tessera/data/dense_pipeline.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "hosts.hpp"
#include "random.hpp"
#include "temporary_folder.hpp"

namespace dense_pipeline_test {

namespace {

using namespace tessera;
using tessera_tests::error_of;

constexpr float nothing = std::numeric_limits<float>::quiet_NaN(), infinite = std::numeric_limits<float>::infinity();

/// One column's feature, or features, of these numbers: (n, features) row by row.
std::vector<float> features_of(dense_pipeline const& pipeline, std::vector<float> const& column) {
  tessera_tests::serial_host h;
  auto const n = static_cast<std::int64_t>(column.size());
  std::vector<float> out(column.size() * static_cast<std::size_t>(pipeline.features()), -77);
  pipeline(h.exec(), {column.data(), 1, n}, 0, n, {out.data(), n, pipeline.features()});
  CHECK(h.memory().allocations() == 0);
  return out;
}
std::vector<float> features_of(std::vector<dense_step> steps, std::vector<float> const& column) {
  return features_of(dense_pipeline({"x"}, {{.columns = {"x"}, .steps = std::move(steps)}}), column);
}

}  // namespace

TEST_CASE("dense_pipeline: each step is what it says, in double, and what is missing at the end is 0") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  auto numbers = tessera_tests::random_floats(random, 700);
  for (auto& x : numbers) x *= 5;
  numbers[3] = numbers[400] = nothing;
  numbers[5] = 0;
  std::vector<float> const bounds{-4, -0.5F, 0, 3};
  auto const count = [&](long double x) {
    long double below = 0;
    for (auto const b : bounds) below += b <= x;
    return below;
  };
  struct law {
    std::vector<dense_step> steps;
    std::function<long double(long double)> f;
  };
  for (auto const& [steps, f] :
       std::vector<law>{{{}, [](auto x) { return x; }},
                        {{log_values{}}, [](auto x) { return std::log(std::max(x, 0.0L) + 1); }},
                        {{standardise{1.5, 0.7}}, [](auto x) { return (x - 1.5L) / static_cast<long double>(0.7); }},
                        {{clip_numbers{-1, 2}}, [](auto x) { return std::min(std::max(x, -1.0L), 2.0L); }},
                        {{clip_numbers{.most = 2}}, [](auto x) { return std::min(x, 2.0L); }},
                        {{bucketise{bounds, 0}}, count},
                        {{fill_missing{9}}, [](auto x) { return x; }},
                        {{log_values{}, standardise{0.5, 3}, clip_numbers{-0.1F, 0.1F}}, [](auto x) {
                           return std::clamp((std::log(std::max(x, 0.0L) + 1) - 0.5L) / 3, static_cast<long double>(-0.1F),
                                             static_cast<long double>(0.1F));
                         }}}) {
    auto const out = features_of(steps, numbers);
    bool const fills = !steps.empty() && std::holds_alternative<fill_missing>(steps[0]);
    double worst = 0;
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      if (std::isnan(numbers[i])) {
        CHECK(out[i] == (fills ? 9 : 0));
        continue;
      }
      auto const expected = f(numbers[i]);
      worst = std::max(worst, static_cast<double>(std::abs(out[i] - expected) / std::max(1.0L, std::abs(expected))));
    }
    CHECK(worst < 1e-7);
  }
}

TEST_CASE("dense_pipeline: features in order, indicators behind their columns, dropped columns left out") {
  dense_pipeline const p({"a", "b", "c"},
                         {{.columns = {"c", "a"}, .steps = {fill_missing{2}, indicate_missing{}}}, {.steps = {standardise{1, 2}}}}, {"a"});
  CHECK(p.names() == std::vector<std::string>{"b", "c", "c missing"});
  CHECK(p.features() == 3);
  CHECK(p.dropped() == std::vector<std::string>{"a"});
  CHECK(p.rules()[1].columns == std::vector<std::string>{"b"});
  std::vector<float> const columns{1, 2, 3, nothing, 7, 5};  // (3, 2)
  std::vector<float> out(10, -1);                            // (2, 3) in rows of 5
  tessera_tests::serial_host h;
  p(h.exec(), {columns.data(), 3, 2}, 0, 2, {out.data(), 2, 3, 5});
  CHECK(out == std::vector<float>{1, 7, 0, -1, -1, 0, 5, 0, -1, -1});
  CHECK(features_of({indicate_missing{}, fill_missing{3}}, {nothing, 4}) == std::vector<float>{3, 1, 4, 0});
  dense_pipeline const none;
  none(h.exec(), {nullptr, 0, 4}, 0, 4, {nullptr, 4, 0});
  CHECK(dense_pipeline({"a", "b"}, {{.columns = {"b"}, .steps = {log_values{}}}}) ==
        dense_pipeline({"a", "b"}, {{.columns = {"b"}, .steps = {log_values{}}}}));
  CHECK_FALSE(dense_pipeline({"a"}, {{.steps = {clip_numbers{0, 1}}}}) == dense_pipeline({"a"}, {{.steps = {clip_numbers{0, 2}}}}));
}

TEST_CASE("dense_pipeline: its logarithm is std::log1p but for a few units in the last place of a double") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  double worst = 0;
  auto const compare = [&](double x) {
    auto const expected = std::log1p(x);
    worst = std::max(worst, std::abs(detail::log_plus_one(x) - expected) / expected);
  };
  for (int x = 1; x <= 1 << 16; ++x) compare(x);
  for (int i = 0; i < 200'000; ++i) compare(std::exp2(static_cast<double>(random() >> 11) * 0x1p-53 * 278 - 149));  // all of float
  for (int i = 0; i < 100'000; ++i) compare(static_cast<double>(random() >> 11) * 0x1p-53 * 3);
  CHECK(worst < 1e-15);
  CHECK(detail::log_plus_one(0) == 0);
  CHECK(detail::log_plus_one(-3) == 0);
  CHECK(detail::log_plus_one(std::numeric_limits<float>::denorm_min()) == double{std::numeric_limits<float>::denorm_min()});
  CHECK(detail::log_plus_one(double{infinite}) == double{infinite});
  CHECK(std::isnan(detail::log_plus_one(double{nothing})));
  CHECK(features_of({log_values{}}, {-infinite, infinite, 9, nothing}) == std::vector<float>{0, infinite, std::log(10.0F), 0});
}

TEST_CASE("dense_pipeline: what cannot be is named") {
  auto const refusal = [](std::vector<dense_rule> const& rules, std::vector<std::string> const& dropped = {}) {
    return error_of([&] { dense_pipeline({"a", "b"}, rules, dropped); });
  };
  CHECK(refusal({{.columns = {"z"}}}).value("column") == "z");
  CHECK(refusal({{.columns = {"a"}}, {.columns = {"b", "a"}}}).sentence() == "dense_pipeline: two rules for a column");
  CHECK(refusal({{.columns = {"b", "b"}}}).value("column") == "b");
  CHECK(refusal({{}, {}}).sentence() == "dense_pipeline: two rules for the columns that no rule names");
  CHECK(refusal({}, {"q"}).value("column") == "q");
  auto const of_a = [&](dense_step step) { return refusal({{.columns = {"a"}, .steps = {std::move(step)}}}); };
  CHECK(of_a(standardise{0, -1}).value("deviation") == "-1");
  CHECK(of_a(standardise{double{infinite}, 1}).value("column") == "a");
  CHECK(of_a(clip_numbers{2, 1}).value("most") == "1");
  CHECK(of_a(clip_numbers{nothing, 1}).value("least") == "nan");
  CHECK(of_a(bucketise{{1, 1}, 0}).value("position") == "1");
  CHECK(of_a(bucketise{{infinite}, 0}).value("boundary") == "inf");
  CHECK(of_a(bucketise{{}, 1}).value("buckets") == "1");
  CHECK(of_a(bucketise{{}, -2}).value("buckets") == "-2");
  CHECK(of_a(fill_missing{nothing}).value("value") == "nan");
  CHECK(refusal({{.steps = {indicate_missing{}, indicate_missing{}}}}).value("column") == "a");
  CHECK(refusal({{.steps = {standardise{}, bucketise{{}, 3}}}}).sentence() == "dense_pipeline: two steps of a column that need a fit");
  CHECK(error_of([] {
          dense_pipeline({"a", "a missing"}, {{.columns = {"a"}, .steps = {indicate_missing{}}}});
        }).value("feature") == "a missing");

  dense_pipeline const unfitted({"a"}, {{.steps = {log_values{}, standardise{}}}});
  CHECK(unfitted.needs_fit());
  auto const used = error_of([&] { features_of(unfitted, {1, 2}); });
  CHECK(used.value("column") == "a");
  CHECK(used.value("step") == "standardise");
  CHECK_FALSE(dense_pipeline({"a"}, {{.steps = {standardise{}}}}, {"a"}).needs_fit());

  tessera_tests::serial_host h;
  dense_pipeline const p({"a"}, {});
  std::vector<float> numbers(4), out(4);
  auto const on = [&](std::int64_t columns, std::int64_t first, std::int64_t count, std::int64_t rows_out, std::int64_t features) {
    return error_of([&] { p(h.exec(), {numbers.data(), columns, 2}, first, count, {out.data(), rows_out, features}); }).code();
  };
  CHECK(on(2, 0, 2, 2, 1) == errc::shape_mismatch);
  CHECK(on(1, 0, 2, 1, 1) == errc::shape_mismatch);
  CHECK(on(1, 0, 2, 2, 2) == errc::shape_mismatch);
  CHECK(on(1, 1, 2, 2, 1) == errc::out_of_range);
  CHECK(on(1, -1, 1, 1, 1) == errc::out_of_range);
  for (std::int64_t const row : {-1, 2}) {
    std::vector<std::int64_t> const rows{0, row};
    CHECK(error_of([&] {
            p(h.exec(), {numbers.data(), 1, 2}, vector_view<std::int64_t const>(rows), {out.data(), 2, 1});
          }).value("sample") == std::to_string(row));
  }
}

}  // namespace dense_pipeline_test
