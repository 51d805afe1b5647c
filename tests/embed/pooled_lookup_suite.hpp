// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <doctest/doctest.h>

#include <cstdint>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <tessera/core/error.hpp>
#include <tessera/embed/pooled_lookup.hpp>

#include "hosts.hpp"
#include "pooled_problem.hpp"

namespace embed_tests {

/// Initial rows, kept: to compute them again for every position takes long.
class initial_rows {
 public:
  explicit initial_rows(std::vector<tessera::table_options> const& tables) : tables_(tables) {}
  std::vector<float> const& operator()(std::int64_t table, std::int64_t id) const {
    auto& row = rows_[{table, id}];
    if (row.empty()) row = initial_row(tables_[static_cast<std::size_t>(table)], id);
    return row;
  }

 private:
  std::vector<tessera::table_options> tables_;
  mutable std::map<std::pair<std::int64_t, std::int64_t>, std::vector<float>> rows_;
};

/// What the pooled lookup must show over every row store on every team.
template <class Store>
void pooled_lookup_suite(int threads) {
  tessera_tests::pool host(threads);
  auto const exec = host.exec();
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  auto const options = tables_of_dims(all_dims, 60);
  auto const features = features_over(static_cast<std::int64_t>(options.size()));
  initial_rows const rows_of(options);
  auto tables = make_tables<Store>(exec, options, tessera::sgd{});
  tessera::lookup_saved saved;

  SUBCASE("sums and means of every dim match a double reference") {
    for (bool const weighted : {false, true}) {
      CAPTURE(weighted);
      auto const batch =
          random_batch(exec, random, features.size(), {.id_range = 60, .most_rows = 40, .mean_length = 4, .weighted = weighted});
      auto const view = std::as_const(batch).view();
      auto const expected = reference_pool(options, features, view, rows_of);
      pooled_matrices evaluated(options, features, view), trained(options, features, view, 0);
      tessera::pooled_lookup(exec, std::as_const(tables), features, view, evaluated.out());
      CHECK(close_to(evaluated.values(), expected));
      CHECK(evaluated.gaps_untouched());
      tessera::pooled_lookup(exec, tables, features, view, trained.out(), saved);
      CHECK(same_bits(evaluated.values(), trained.values()));
    }
  }

  SUBCASE("rows that changed are read as they are now") {
    auto const batch = random_batch(exec, random, features.size(), {.id_range = 60, .most_rows = 40, .mean_length = 4, .weighted = true});
    auto const view = std::as_const(batch).view();
    pooled_matrices out(options, features, view);
    tessera::pooled_lookup(exec, tables, features, view, out.out(), saved);
    std::map<std::pair<std::int64_t, std::int64_t>, std::vector<float>> rows;
    for (std::size_t t = 0; t < tables.size(); ++t)
      for (std::int64_t id = 0; id < 60; ++id) {
        auto const slot = locate(exec, tables[t], {id})[0];
        auto& row = rows[{static_cast<std::int64_t>(t), id}];
        row = tessera_tests::random_floats(random, static_cast<std::size_t>(options[t].dim));
        std::copy(row.begin(), row.end(), tables[t].row(slot));
      }
    tessera::pooled_lookup(exec, tables, features, view, out.out(), saved);
    CHECK(close_to(out.values(), reference_pool(options, features, view, [&](std::int64_t t, std::int64_t id) { return rows[{t, id}]; })));
  }

  SUBCASE("vectors land side by side in one matrix") {
    std::int64_t const bags = 25;
    std::vector<tessera::feature_rows<>> rows;
    std::int64_t width = 0;
    for (auto const& f : features) {
      rows.emplace_back("key" + std::to_string(rows.size()), std::vector<std::vector<std::int64_t>>());
      for (std::int64_t b = 0; b < bags; ++b)
        rows.back().rows.push_back(tessera_tests::random_integers<std::int64_t>(random, static_cast<std::size_t>(b % 4), 0, 59));
      width += options[static_cast<std::size_t>(f.table)].dim;
    }
    auto const batch = tessera::keyed_jagged<>::from_rows(exec, rows);
    auto const view = std::as_const(batch).view();
    std::vector<float> storage(static_cast<std::size_t>(bags * (width + 5)), pooled_matrices::canary);
    tessera::matrix_view<float> const whole(storage.data(), bags, width, width + 5);
    std::vector<tessera::matrix_view<float>> parts;
    std::int64_t column = 0;
    for (auto const& f : features) {
      auto const dim = options[static_cast<std::size_t>(f.table)].dim;
      parts.push_back(whole.columns_from(column, dim));
      column += dim;
    }
    pooled_matrices apart(options, features, view);
    tessera::pooled_lookup(exec, tables, features, view, parts, saved);
    tessera::pooled_lookup(exec, tables, features, view, apart.out(), saved);
    bool same = true;
    for (std::size_t k = 0; k < parts.size(); ++k)
      for (std::int64_t b = 0; b < bags; ++b) same = same && same_bits(parts[k].row(b), apart.out()[k].row(b), parts[k].columns());
    CHECK(same);
    for (std::int64_t b = 0; b < bags; ++b)
      for (std::int64_t c = 0; c < 5; ++c) CHECK(storage[static_cast<std::size_t>(b * (width + 5) + width + c)] == pooled_matrices::canary);
  }

  SUBCASE("bags of no ids are zeros") {
    auto const batch = tessera::keyed_jagged<>::from_rows(exec, {{"a", {{}, {7}, {}}}, {"b", {{}, {}}}});
    auto const view = std::as_const(batch).view();
    std::vector<tessera::pooled_feature> const two{{4, tessera::pooling::mean}, {6, tessera::pooling::sum}};
    pooled_matrices out(options, two, view);
    tessera::pooled_lookup(exec, tables, two, view, out.out(), saved);
    for (std::int64_t c = 0; c < 16; ++c) {
      CHECK(out.out()[0](0, c) == 0.0F);
      CHECK(out.out()[0](1, c) == initial_row(options[4], 7)[static_cast<std::size_t>(c)]);
      CHECK(out.out()[0](2, c) == 0.0F);
    }
    for (std::int64_t c = 0; c < 32; ++c) CHECK(out.out()[1](1, c) == 0.0F);
    CHECK(out.gaps_untouched());
  }

  SUBCASE("no rows, no values, no keys") {
    std::vector<tessera::pooled_feature> const two{{0}, {1}};
    for (auto const& rows : {std::vector<std::vector<std::int64_t>>{}, std::vector<std::vector<std::int64_t>>{{}, {}}}) {
      auto const batch = tessera::keyed_jagged<>::from_rows(exec, {{"a", rows}, {"b", rows}});
      auto const view = std::as_const(batch).view();
      pooled_matrices out(options, two, view);
      tessera::pooled_lookup(exec, tables, two, view, out.out(), saved);
      tessera::pooled_lookup(exec, std::as_const(tables), two, view, out.out());
      CHECK(out.gaps_untouched());
      for (auto const x : out.values()) CHECK(x == 0.0F);
    }
    std::vector<tessera::pooled_feature> const none;
    std::vector<tessera::matrix_view<float>> const nowhere;
    tessera::pooled_lookup(exec, tables, none, sparse_view{}, nowhere, saved);
    tessera::pooled_lookup(exec, std::as_const(tables), none, sparse_view{}, nowhere);
    std::vector<Store> no_tables;
    tessera::pooled_lookup(exec, no_tables, none, sparse_view{}, nowhere, saved);
  }

  SUBCASE("a part of a larger batch gives the part of the vectors") {
    for (bool const weighted : {false, true}) {
      auto const batch =
          random_batch(exec, random, features.size(), {.id_range = 60, .most_rows = 30, .mean_length = 3, .weighted = weighted});
      auto const whole = std::as_const(batch).view();
      pooled_matrices all(options, features, whole);
      tessera::pooled_lookup(exec, std::as_const(tables), features, whole, all.out());
      for (std::int64_t first = 0; first < whole.keys; first += 3) {
        auto const count = std::min<std::int64_t>(4, whole.keys - first);
        std::vector<std::int64_t> first_row;
        for (std::int64_t k = 0; k <= count; ++k) first_row.push_back(whole.first_row[first + k] - whole.first_row[first]);
        sparse_view const part{whole.values, whole.weights, whole.offsets + whole.first_row[first], first_row.data(), count};
        std::vector<tessera::pooled_feature> const some(features.begin() + first, features.begin() + first + count);
        pooled_matrices evaluated(options, some, part), trained(options, some, part);
        auto fresh = make_tables<Store>(exec, options, tessera::sgd{});
        tessera::pooled_lookup(exec, std::as_const(fresh), some, part, evaluated.out());
        tessera::pooled_lookup(exec, fresh, some, part, trained.out(), saved);
        bool same = true;
        for (std::int64_t k = 0; k < count; ++k)
          for (std::int64_t r = 0; r < part.rows(k); ++r) {
            auto const* const expected = all.out()[static_cast<std::size_t>(first + k)].row(r);
            auto const columns = all.out()[static_cast<std::size_t>(first + k)].columns();
            same = same && same_bits(evaluated.out()[static_cast<std::size_t>(k)].row(r), expected, columns) &&
                   same_bits(trained.out()[static_cast<std::size_t>(k)].row(r), expected, columns);
          }
        CHECK(same);
      }
    }
    // A part with bags and no values, far from the beginning.
    std::vector<std::int64_t> const values{1, 2, 3}, offsets{3, 3, 3}, first_row{0, 2};
    sparse_view const part{values.data(), nullptr, offsets.data(), first_row.data(), 1};
    std::vector<tessera::pooled_feature> const one{{2}};
    pooled_matrices out(options, one, part);
    tessera::pooled_lookup(exec, tables, one, part, out.out(), saved);
    for (auto const x : out.values()) CHECK(x == 0.0F);
  }

  SUBCASE("evaluation changes no table") {
    auto const batch = random_batch(exec, random, features.size(), {.id_range = 60, .most_rows = 20, .mean_length = 2, .weighted = false});
    auto const half = random_batch(exec, random, features.size(), {.id_range = 30, .most_rows = 20, .mean_length = 2, .weighted = false});
    pooled_matrices first(options, features, std::as_const(half).view());
    tessera::pooled_lookup(exec, tables, features, std::as_const(half).view(), first.out(), saved);
    std::vector<std::int64_t> rows;
    std::vector<std::size_t> bytes;
    for (auto const& t : tables) rows.push_back(t.rows()), bytes.push_back(t.bytes());
    pooled_matrices out(options, features, std::as_const(batch).view());
    tessera::pooled_lookup(exec, std::as_const(tables), features, std::as_const(batch).view(), out.out());
    CHECK(close_to(out.values(), reference_pool(options, features, std::as_const(batch).view(), rows_of)));
    for (std::size_t t = 0; t < tables.size(); ++t) {
      CHECK(tables[t].rows() == rows[t]);
      CHECK(tables[t].bytes() == bytes[t]);
      CHECK(tables[t].steps() == tessera::step_count(0));
    }
  }

  SUBCASE("workspace goes back") {
    auto const batch = random_batch(exec, random, features.size(), {.id_range = 60, .most_rows = 20, .mean_length = 2, .weighted = false});
    pooled_matrices out(options, features, std::as_const(batch).view());
    tessera_tests::pool step(threads);
    tessera::pooled_lookup(step.exec(), std::as_const(tables), features, std::as_const(batch).view(), out.out());
    CHECK(step.memory().live_pieces() == 0);
    {
      tessera::lookup_saved kept;
      tessera::pooled_lookup(step.exec(), tables, features, std::as_const(batch).view(), out.out(), kept);
      CHECK(step.memory().live_bytes() == kept.slots.capacity_bytes());
      auto const pieces = step.memory().live_pieces();
      tessera::pooled_lookup(step.exec(), tables, features, std::as_const(batch).view(), out.out(), kept);
      CHECK(step.memory().live_pieces() == pieces);
    }
    CHECK(step.memory().live_pieces() == 0);
  }

  SUBCASE("shapes that do not fit are named") {
    auto const batch = tessera::keyed_jagged<>::from_rows(exec, {{"a", {{1}, {2, 3}}}, {"b", {{4}}}});
    auto const view = std::as_const(batch).view();
    std::vector<tessera::pooled_feature> const two{{4}, {6}};
    pooled_matrices good(options, two, view);
    auto const refused = [&](std::vector<tessera::pooled_feature> const& some, std::vector<tessera::matrix_view<float>> const& out,
                             tessera::errc code, std::vector<std::pair<char const*, char const*>> const& values) {
      for (bool const train : {false, true}) {
        CAPTURE(train);
        try {
          if (train)
            tessera::pooled_lookup(exec, tables, some, view, out, saved);
          else
            tessera::pooled_lookup(exec, std::as_const(tables), some, view, out);
          FAIL_CHECK("accepted");
        } catch (tessera::error const& e) {
          CHECK(e.code() == code);
          for (auto const& [name, value] : values) CHECK(e.value(name) == value);
        }
      }
    };
    using tessera::errc;
    refused({{4}}, good.out(), errc::shape_mismatch, {{"keys", "2"}, {"features", "1"}});
    refused(two, {good.out()[0]}, errc::shape_mismatch, {{"keys", "2"}, {"matrices", "1"}});
    refused({{4}, {13}}, good.out(), errc::out_of_range, {{"feature", "1"}, {"table", "13"}, {"tables", "13"}});
    refused({{-1}, {6}}, good.out(), errc::out_of_range, {{"feature", "0"}, {"table", "-1"}});
    auto wrong = good.out();
    wrong[1].row_count = 2;
    refused(two, wrong, errc::shape_mismatch, {{"feature", "1"}, {"rows", "2"}, {"rows expected", "1"}});
    wrong = good.out();
    wrong[0].column_count = 15;
    refused(two, wrong, errc::shape_mismatch, {{"feature", "0"}, {"columns", "15"}, {"dim", "16"}});
    wrong = good.out();
    wrong[0].row_stride = 15;
    refused(two, wrong, errc::shape_mismatch, {{"feature", "0"}});
    for (auto const x : good.values()) CHECK(x == pooled_matrices::canary);
    for (auto const& t : tables) CHECK(t.rows() == (Store::slots_are_ids ? 60 : 0));
  }
}

/// Every team gives the same bits: of training and of evaluation, of many pieces a feature.
template <class Store>
void pooled_lookup_of_every_team() {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  auto const options = tables_of_dims({4, 16, 20, 128, 200}, 500);
  auto const features = features_over(5);
  std::vector<float> first;
  tessera_tests::for_each_host([&](tessera::host_exec const& exec, tessera_tests::counting_memory&) {
    std::mt19937_64 random(seed);
    auto const batch = random_batch(exec, random, features.size(), {.id_range = 500, .most_rows = 700, .mean_length = 5, .weighted = true});
    auto const view = std::as_const(batch).view();
    auto tables = make_tables<Store>(exec, options, tessera::sgd{});
    pooled_matrices evaluated(options, features, view), trained(options, features, view);
    tessera::lookup_saved saved;
    tessera::pooled_lookup(exec, std::as_const(tables), features, view, evaluated.out());
    tessera::pooled_lookup(exec, tables, features, view, trained.out(), saved);
    if (first.empty()) first = trained.values();
    CHECK(same_bits(trained.values(), first));
    CHECK(same_bits(evaluated.values(), first));
  });
}

}  // namespace embed_tests
