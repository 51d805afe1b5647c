// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-optimize: -O2, sanitizers -O0
#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <tessera/embed/dense_table.hpp>
#include <tessera/embed/hash_table.hpp>
#include <tessera/embed/pooled_lookup.hpp>
#include <tessera/embed/pooled_lookup_backward.hpp>
#include <tessera/embed/prepare_backward.hpp>
#include <tessera/embed/update_rows.hpp>

#include "../support/type_lists.hpp"
#include "hosts.hpp"
#include "pooled_lookup_backward_suite.hpp"
#include "pooled_problem.hpp"
#include "sanitizers.hpp"
#include "temporary_folder.hpp"

using namespace embed_tests;

namespace {

// Tables of several dims, each read by a maximum, the first and third by a sum or mean too.
std::vector<tessera::pooled_feature> const maxima_beside_sums{
    {0, tessera::pooling::max}, {1, tessera::pooling::max},  {2, tessera::pooling::max}, {0, tessera::pooling::sum},
    {2, tessera::pooling::max}, {2, tessera::pooling::mean}, {3, tessera::pooling::max}};
std::vector<std::int64_t> const dims_of_maxima{64, 5, 16, 1027};

// The largest element of each column of a bag, and which of its rows is the first that has it.
struct naive_maximum {
  std::vector<float> value;
  std::vector<std::int64_t> winner;

  template <class RowOf>
  naive_maximum(tessera::vector_view<std::int64_t const> bag, std::int64_t dim, RowOf const& row_of)
      : value(static_cast<std::size_t>(dim)), winner(value.size(), -1) {
    for (std::int64_t j = 0; j < bag.size(); ++j)
      for (std::size_t c = 0; c < value.size(); ++c)
        if (float const x = row_of(bag[j])[c]; j == 0 || x > value[c]) {
          value[c] = x;
          winner[c] = j;
        }
  }
};

}  // namespace

TEST_CASE_TEMPLATE("maxima and the rows that their gradients change are those of a naive loop", Store, TESSERA_TEST_STORES) {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::vector<float> first;
  tessera_tests::for_each_host([&](tessera::host_exec const& exec, tessera_tests::counting_memory&) {
    std::mt19937_64 random(seed);
    auto const options = tables_of_dims(dims_of_maxima, 50);
    auto const& features = maxima_beside_sums;
    tessera::sgd const optimizer{.learning_rate = 0.5F};
    auto tables = make_tables<Store>(exec, options, optimizer);
    auto const batch = random_batch(exec, random, features.size(),
                                    {.id_range = 50, .most_rows = tessera_tests::fewer(40), .mean_length = 5, .weighted = false});
    auto const view = std::as_const(batch).view();
    pooled_matrices const out(options, features, view), evaluated(options, features, view);
    tessera::pooled_lookup(exec, std::as_const(tables), features, view, evaluated.out());
    tessera::lookup_saved saved;
    tessera::pooled_lookup(exec, tables, features, view, out.out(), saved);
    CHECK(out.values() == evaluated.values());
    CHECK(out.gaps_untouched());

    auto const before = [&](std::int64_t table, std::int64_t id) { return initial_row(options[static_cast<std::size_t>(table)], id); };
    auto const gradients = random_gradients(random, options, features, view);
    std::map<std::pair<std::int64_t, std::int64_t>, std::vector<double>> sums;
    for (std::int64_t key = 0; key < view.keys; ++key) {
      auto const& feature = features[static_cast<std::size_t>(key)];
      auto const dim = options[static_cast<std::size_t>(feature.table)].dim;
      for (std::int64_t bag = 0; bag < view.rows(key); ++bag) {
        auto const ids = view.key(key).row(bag);
        naive_maximum const expected(ids, dim, [&](std::int64_t id) { return before(feature.table, id); });
        auto const* const gradient = gradients.in()[static_cast<std::size_t>(key)].row(bag);
        bool same = true;
        for (std::int64_t c = 0; c < dim; ++c) {
          auto const at = static_cast<std::size_t>(c);
          if (feature.is_largest()) same = same && out.out()[static_cast<std::size_t>(key)](bag, c) == expected.value[at];
          for (std::int64_t j = 0; j < ids.size(); ++j) {
            auto& sum = sums[{feature.table, ids[j]}];
            sum.resize(static_cast<std::size_t>(dim));
            double const share = feature.is_largest()                        ? expected.winner[at] == j
                                 : feature.pooling == tessera::pooling::mean ? 1.0 / static_cast<double>(ids.size())
                                                                             : 1.0;
            sum[at] += share * static_cast<double>(gradient[c]);
          }
        }
        CHECK(same);
      }
    }
    tessera::row_gradients handed_out;
    tessera::pooled_lookup_gradients(exec, tables, features, saved, gradients.in(), handed_out);
    tessera::prepare_backward(exec, tables, features, saved);
    tessera::pooled_lookup_backward(exec, tables, features, saved, gradients.in(), optimizer);
    std::vector<float> all;
    for (auto const& [key, sum] : sums) {
      auto const& table = tables[static_cast<std::size_t>(key.first)];
      auto const slot = find(exec, table, {key.second})[0];
      REQUIRE(slot >= 0);
      auto const initial = before(key.first, key.second);
      bool close = true;
      for (std::size_t c = 0; c < sum.size(); ++c) {
        all.push_back(table.row(slot)[c]);
        close = close && std::abs(static_cast<double>(table.row(slot)[c]) - (static_cast<double>(initial[c]) - 0.5 * sum[c])) < 1e-4;
      }
      CHECK(close);
    }
    if (first.empty()) first = all;
    CHECK(all == first);

    auto others = make_tables<Store>(exec, options, optimizer);
    tessera::pooled_lookup(exec, others, features, view, out.out(), saved);
    tessera::pooled_lookup_gradients(exec, others, features, saved, gradients.in(), handed_out);
    tessera::update_rows(exec, others, handed_out, optimizer);
    std::vector<float> updated;
    for (auto const& [key, sum] : sums) {
      auto const& table = others[static_cast<std::size_t>(key.first)];
      auto const slot = find(exec, table, {key.second})[0];
      updated.insert(updated.end(), table.row(slot), table.row(slot) + sum.size());
    }
    CHECK(updated == first);
  });
}

TEST_CASE("of equal elements the first wins, a NaN stays, and an empty bag is zeros") {
  tessera_tests::serial_host host;
  auto const exec = host.exec();
  auto tables = make_tables<tessera::dense_table<>>(exec, tables_of_dims({2}, 4), tessera::sgd{.learning_rate = 1});
  float const nan = std::numeric_limits<float>::quiet_NaN();
  float const rows[4][2] = {{-1, 3}, {-1, 4}, {nan, 3}, {-2, -2}};
  for (int r = 0; r < 4; ++r) std::copy_n(rows[r], 2, tables[0].row(r));
  auto const batch = tessera::keyed_jagged<>::from_rows(exec, {{"a", {{0, 1}, {1, 2, 0}, {}, {3}}}});
  std::vector<float> out(8), gradient{1, 1, 1, 1, 1, 1, 1, 1};
  std::vector<tessera::matrix_view<float>> const to{{out.data(), 4, 2}};
  std::vector<tessera::matrix_view<float const>> const from{{gradient.data(), 4, 2}};
  std::vector<tessera::pooled_feature> const largest{{0, tessera::pooling::max}};
  tessera::lookup_saved saved;
  tessera::pooled_lookup(exec, tables, largest, batch.view(), to, saved);
  CHECK(std::vector<float>(out.begin(), out.begin() + 2) == std::vector<float>{-1, 4});
  CHECK(std::isnan(out[2]));
  CHECK(std::vector<float>(out.begin() + 3, out.end()) == std::vector<float>{4, 0, 0, -2, -2});
  tessera::pooled_lookup_backward(exec, tables, largest, saved, from, tessera::sgd{.learning_rate = 1});
  CHECK(tables[0].row(0)[0] == -2);  // won the first bag's first column
  CHECK(tables[0].row(0)[1] == 3);
  CHECK(tables[0].row(1)[0] == -1);
  CHECK(tables[0].row(1)[1] == 2);  // won the second column twice
  CHECK(tables[0].row(3)[0] == -3);
}

TEST_CASE("ids that a dense table does not hold are refused, or read as zeros that may win") {
  tessera_tests::serial_host host;
  auto const exec = host.exec();
  auto tables = make_tables<tessera::dense_table<>>(exec, tables_of_dims({1}, 2), tessera::sgd{.learning_rate = 1});
  tables[0].row(0)[0] = -1;
  tables[0].row(1)[0] = -2;
  auto const batch = tessera::keyed_jagged<>::from_rows(exec, {{"a", {{0}, {1, 7}}}});
  std::vector<float> out(2), gradient{1, 1};
  std::vector<tessera::matrix_view<float>> const to{{out.data(), 2, 1}};
  std::vector<tessera::matrix_view<float const>> const from{{gradient.data(), 2, 1}};
  std::vector<tessera::pooled_feature> const largest{{0, tessera::pooling::max}};
  tessera::lookup_saved saved;
  auto const e = tessera_tests::error_of([&] { tessera::pooled_lookup(exec, tables, largest, batch.view(), to, saved); });
  CHECK(std::string(e.what()) == "pooled_lookup: id out of range (feature 0, table 100, row 1, position 1, id 7, rows 2)");
  std::int64_t count = 0;
  tessera::pooled_lookup(exec, tables, largest, batch.view(), to, saved,
                         {.out_of_range = tessera::out_of_range_ids::zero, .out_of_range_count = &count});
  CHECK(out == std::vector<float>{-1, 0});
  CHECK(count == 1);
  tessera::pooled_lookup_backward(exec, tables, largest, saved, from, tessera::sgd{.learning_rate = 1});
  CHECK(tables[0].row(0)[0] == -2);
  CHECK(tables[0].row(1)[0] == -2);
}

TEST_CASE("what a maximum cannot do is refused by name") {
  tessera_tests::serial_host host;
  auto const exec = host.exec();
  auto tables = make_tables<tessera::dense_table<>>(exec, tables_of_dims({1}, 2), tessera::sgd{});
  auto const weighted = tessera::keyed_jagged<>::from_rows(exec, {{"a", {{0}}, {{1.0F}}}});
  auto const plain = tessera::keyed_jagged<>::from_rows(exec, {{"a", {{0}}}});
  std::vector<float> out(1);
  std::vector<tessera::matrix_view<float>> const to{{out.data(), 1, 1}};
  std::vector<tessera::matrix_view<float const>> const from{to[0]};
  std::vector<tessera::pooled_feature> const largest{{0, tessera::pooling::max}}, sum{{0, tessera::pooling::sum}};
  tessera::lookup_saved saved;
  auto const refusal = [](auto const& call) { return std::string(tessera_tests::error_of(call).what()); };
  CHECK(refusal([&] { tessera::pooled_lookup(exec, tables, largest, weighted.view(), to, saved); }) ==
        "pooled_lookup: a maximum is of an unweighted batch, on the host (feature 0, weighted 1)");
  tessera::pooled_lookup(exec, tables, largest, plain.view(), to, saved);
  CHECK(refusal([&] { tessera::pooled_lookup_backward(exec, tables, sum, saved, from, tessera::sgd{}); }) ==
        "pooled_lookup_backward: the feature pooled otherwise when this was saved (feature 0, maxima 0, maxima saved 1)");
  CHECK(refusal([&] { tessera::pooled_lookup_weight_gradient(exec, tables, largest, saved, from, out); }) ==
        "pooled_lookup_weight_gradient: a maximum has no weights (maxima 1)");
}

TEST_CASE("maxima of one row each train as sums do, however often a row comes") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  tessera_tests::for_each_host([&](tessera::host_exec const& exec, tessera_tests::counting_memory&) {
    std::mt19937_64 random(seed);
    auto const options = tables_of_dims({4, 64, 100, 128}, 40);
    std::vector<std::vector<std::int64_t>> rows;  // one id comes 6,000 times, which many threads sum
    for (int i = 0; i < 12000; ++i) rows.push_back({i % 2 == 0 ? 7 : tessera_tests::random_integers<std::int64_t>(random, 1, 0, 39)[0]});
    auto const batch = tessera::keyed_jagged<>::from_rows(exec, {{"a", rows}, {"b", rows}, {"c", rows}, {"d", rows}});
    std::vector<float> of_sums;
    for (auto const mode : {tessera::pooling::sum, tessera::pooling::max}) {
      std::vector<tessera::pooled_feature> const read{{0, mode}, {1, mode}, {2, mode}, {3, mode}};
      auto tables = make_tables<tessera::dense_table<>>(exec, options, tessera::sgd{});
      pooled_matrices const out(options, read, batch.view());
      tessera::lookup_saved saved;
      tessera::pooled_lookup(exec, tables, read, batch.view(), out.out(), saved);
      tessera::pooled_lookup_backward(exec, tables, read, saved, out.in(), tessera::sgd{.learning_rate = 0.01F});
      auto const trained = contents(exec, tables, 40);
      if (of_sums.empty()) of_sums = trained;
      CHECK(trained == of_sums);
    }
  });
}

TEST_CASE("features that trade places, with as many maxima in all, are refused") {
  tessera_tests::serial_host host;
  auto const exec = host.exec();
  auto tables = make_tables<tessera::dense_table<>>(exec, tables_of_dims({1}, 2), tessera::sgd{});
  auto const batch = tessera::keyed_jagged<>::from_rows(exec, {{"a", {{0}}}, {"b", {{1}}}});
  std::vector<tessera::pooled_feature> const read{{0, tessera::pooling::max}, {0, tessera::pooling::sum}};
  pooled_matrices const out(tables_of_dims({1}, 2), read, batch.view());
  tessera::lookup_saved saved;
  tessera::pooled_lookup(exec, tables, read, batch.view(), out.out(), saved);
  auto const e = tessera_tests::error_of([&] {
    tessera::pooled_lookup_backward(exec, tables, std::vector<tessera::pooled_feature>{read[1], read[0]}, saved, out.in(), tessera::sgd{});
  });
  CHECK(std::string(e.what()) ==
        "pooled_lookup_backward: the feature pooled otherwise when this was saved (feature 0, maxima 0, maxima saved 1)");
}
