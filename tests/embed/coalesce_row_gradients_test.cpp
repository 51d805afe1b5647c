// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-labels: threads
// ctest-weight: 2
#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <map>
#include <new>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <tessera/embed/coalesce_row_gradients.hpp>
#include <tessera/embed/dense_table.hpp>
#include <tessera/embed/hash_table.hpp>
#include <tessera/embed/sequence_lookup_backward.hpp>
#include <tessera/embed/update_rows.hpp>

#include "../support/type_lists.hpp"
#include "hosts.hpp"
#include "pooled_problem.hpp"

using namespace embed_tests;
using tessera::errc;
using tessera::matrix_view;
using tessera::row_gradient_list;

namespace {

constexpr std::int64_t arrival_rows = 50;
std::vector<tessera::table_options> const arrival_tables = tables_of_dims({1, 16, 17, 130, 1030}, arrival_rows);

/// Lists with memory of their own, in which rows lie apart.
class arrived_lists {
 public:
  void add(std::mt19937_64& random, std::int64_t table, std::vector<std::int64_t> ids, std::int64_t dim) {
    auto const count = ids.size();
    ids_.push_back(std::move(ids));
    values_.push_back(tessera_tests::random_floats(random, count * static_cast<std::size_t>(dim + gap)));
    lists_.push_back({table, ids_.back(), {values_.back().data(), static_cast<std::int64_t>(count), dim, dim + gap}});
  }
  std::vector<row_gradient_list> const& lists() const { return lists_; }

 private:
  static constexpr std::int64_t gap = 2;
  std::vector<std::vector<std::int64_t>> ids_;
  std::vector<std::vector<float>> values_;
  std::vector<row_gradient_list> lists_;
};

/// Tables in any order, some in many lists, the third in none; some lists empty, one with an id that comes more often than a chunk sums.
arrived_lists random_lists(std::mt19937_64& random, std::int64_t most_ids) {
  arrived_lists arrived;
  for (std::int64_t const table : {4, 0, 1, 0, 3, 1, 1}) {
    auto const count = tessera_tests::random_integers<std::int64_t>(random, 1, 0, most_ids)[0];
    arrived.add(random, table, tessera_tests::random_integers<std::int64_t>(random, static_cast<std::size_t>(count), 0, arrival_rows - 1),
                arrival_tables[static_cast<std::size_t>(table)].dim);
  }
  arrived.add(random, 0, {}, 1);
  auto often = tessera_tests::random_integers<std::int64_t>(random, 6000, 0, 4);
  arrived.add(random, 1, often, 16);
  arrived.add(random, 0, often, 1);
  return arrived;
}

/// So that every id of [0, arrival_rows) has a row.
template <class Store>
std::vector<Store> full_tables(tessera::host_exec const& exec, tessera::adagrad const& optimizer) {
  auto tables = make_tables<Store>(exec, arrival_tables, optimizer);
  std::vector<std::int64_t> ids;
  for (std::int64_t id = arrival_rows - 1; id >= 0; --id) ids.push_back(id);
  for (auto& table : tables) locate(exec, table, ids);
  return tables;
}

tessera::error refused(tessera::host_exec const& exec, std::vector<tessera::dense_table<>> const& tables, row_gradient_list const& list) {
  std::vector<std::int64_t> const good{3};
  std::vector<float> const gradient(16, 1.0F);
  std::vector<row_gradient_list> const first{{1, good, {gradient.data(), 1, 16}}};
  tessera::row_gradients out;
  tessera::coalesce_row_gradients(exec, tables, first, out);
  try {
    tessera::coalesce_row_gradients(exec, tables, std::vector<row_gradient_list>{first[0], list}, out);
    FAIL_CHECK("accepted");
  } catch (tessera::error const& e) {
    CHECK(out.rows(1) == 1);  // as before
    CHECK(out.ids(1)[0] == 3);
    CHECK(out.values(1)(0, 15) == 1.0F);
    CHECK(e.value("list") == "1");
    return e;
  }
  return {errc::io_error, "accepted", {}};
}

}  // namespace

TEST_CASE_TEMPLATE("coalesce_row_gradients: each row once, its sum as in double, on any team", Store, TESSERA_TEST_STORES) {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::vector<float> first;
  tessera_tests::for_each_host([&](tessera::host_exec const& exec, auto&) {
    std::mt19937_64 random(seed);
    auto const tables = full_tables<Store>(exec, {});
    auto const arrived = random_lists(random, 300);
    struct term_sum {
      double value = 0, magnitude = 0;
    };
    std::map<std::pair<std::int64_t, std::int64_t>, std::vector<term_sum>> expected;
    for (auto const& list : arrived.lists())
      for (std::int64_t i = 0; i < list.ids.size(); ++i) {
        auto& sum = expected[{list.table, list.ids[i]}];
        sum.resize(static_cast<std::size_t>(list.values.columns()));
        for (std::int64_t c = 0; c < list.values.columns(); ++c) {
          auto const x = static_cast<double>(list.values(i, c));
          sum[static_cast<std::size_t>(c)].value += x;
          sum[static_cast<std::size_t>(c)].magnitude += std::abs(x);
        }
      }
    tessera::row_gradients rows;
    tessera::coalesce_row_gradients(exec, tables, arrived.lists(), rows);
    REQUIRE(rows.tables() == 5);
    CHECK(rows.rows(2) == 0);
    std::size_t seen = 0, wrong = 0;
    for (std::int64_t t = 0; t < rows.tables(); ++t)
      for (std::int64_t r = 0; r < rows.rows(t); ++r, ++seen) {
        CHECK((r == 0 || rows.slots(t)[r] > rows.slots(t)[r - 1]));
        CHECK(find(exec, tables[static_cast<std::size_t>(t)], {rows.ids(t)[r]})[0] == rows.slots(t)[r]);
        auto const& sum = expected.at({t, rows.ids(t)[r]});
        for (std::size_t c = 0; c < sum.size(); ++c)
          wrong +=
              !(std::abs(static_cast<double>(rows.values(t)(r, static_cast<std::int64_t>(c))) - sum[c].value) <= 2e-5 * sum[c].magnitude);
      }
    CHECK(wrong == 0);
    CHECK(seen == expected.size());
    std::vector<float> const values(rows.values().begin(), rows.values().end());
    if (first.empty()) first = values;
    CHECK(same_bits(first, values));
  });
}

TEST_CASE_TEMPLATE("coalesce_row_gradients: one list a table has the bits of sequence_lookup_gradients, and so has the step", Store,
                   TESSERA_TEST_STORES) {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  tessera_tests::pool_host<2> host;
  auto const exec = host.exec();
  tessera::adagrad const optimizer{.learning_rate = 0.1F};
  auto looked_up = full_tables<Store>(exec, optimizer), arriving = full_tables<Store>(exec, optimizer);
  for (int step = 0; step < 3; ++step) {
    arrived_lists arrived;
    std::vector<std::int64_t> features;
    std::vector<tessera::feature_rows<>> keys;
    std::vector<matrix_view<float const>> gradients;
    for (std::int64_t table = 4; table >= 0; --table) {
      auto const ids = tessera_tests::random_integers<std::int64_t>(random, table == 1 ? 5000 : 200, 0, table == 1 ? 2 : arrival_rows - 1);
      arrived.add(random, table, ids, arrival_tables[static_cast<std::size_t>(table)].dim);
      features.push_back(table);
      std::vector<std::vector<std::int64_t>> rows{{}, {ids.begin(), ids.begin() + 7}, {ids.begin() + 7, ids.end()}};
      keys.emplace_back("key" + std::to_string(table), rows);
      gradients.push_back(arrived.lists().back().values);
    }
    auto const batch = tessera::keyed_jagged<>::from_rows(exec, keys);
    tessera::lookup_saved saved;
    std::vector<std::vector<float>> vectors;
    std::vector<matrix_view<float>> out;
    for (auto const& g : gradients) {
      vectors.emplace_back(static_cast<std::size_t>(g.rows() * g.columns()));
      out.push_back({vectors.back().data(), g.rows(), g.columns()});
    }
    tessera::sequence_lookup(exec, looked_up, features, batch.view(), out, saved);
    tessera::row_gradients expected, rows;
    tessera::sequence_lookup_gradients(exec, looked_up, features, saved, gradients, expected);
    tessera::coalesce_row_gradients(exec, arriving, arrived.lists(), rows);
    for (std::int64_t t = 0; t < 5; ++t) {
      REQUIRE(rows.rows(t) == expected.rows(t));
      CHECK(same_bits(rows.slots(t).data(), expected.slots(t).data(), rows.rows(t)));
      CHECK(same_bits(rows.ids(t).data(), expected.ids(t).data(), rows.rows(t)));
    }
    CHECK(same_bits(rows.values().data(), expected.values().data(), expected.values().size()));
    tessera::sequence_lookup_backward(exec, looked_up, features, saved, gradients, optimizer);
    tessera::update_rows(exec, arriving, rows, optimizer);
  }
  std::int64_t differ = 0;
  for (std::size_t t = 0; t < looked_up.size(); ++t)
    for (std::int64_t slot = 0; slot < arrival_rows; ++slot)
      differ += !same_bits(looked_up[t].row(slot), arriving[t].row(slot), looked_up[t].dim());
  CHECK(differ == 0);
}

TEST_CASE("coalesce_row_gradients: lists are summed in the order in which they arrived") {
  tessera_tests::serial_host host;
  auto const exec = host.exec();
  auto const tables = make_tables<tessera::dense_table<>>(exec, tables_of_dims({1}, 10), tessera::sgd{});
  std::vector<std::int64_t> const id{7};
  std::vector<float> const large{0x1p24F}, small{1.0F}, back{-0x1p24F};
  auto const sum = [&](std::vector<float> const& a, std::vector<float> const& b, std::vector<float> const& c) {
    std::vector<row_gradient_list> lists;
    for (auto const* const value : {&a, &b, &c}) lists.push_back({0, id, {value->data(), 1, 1}});
    tessera::row_gradients out;
    tessera::coalesce_row_gradients(exec, tables, lists, out);
    return out.values(0)(0, 0);
  };
  CHECK(sum(large, back, small) == 1.0F);
  CHECK(sum(large, small, back) == 0.0F);
}

TEST_CASE("coalesce_row_gradients: ids that a hashed table has no row for get no gradient and no row") {
  tessera_tests::serial_host host;
  auto const exec = host.exec();
  auto tables = make_tables<tessera::hash_table<>>(exec, tables_of_dims({2}, 0), tessera::sgd{});
  locate(exec, tables[0], {smallest_id, -5, largest_id});
  std::vector<std::int64_t> const ids{8, -5, largest_id, 8, -5, -6};
  std::vector<float> const values{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
  std::vector<row_gradient_list> const lists{{0, ids, {values.data(), 6, 2}}};
  tessera::row_gradients out;
  tessera::coalesce_row_gradients(exec, tables, lists, out);
  CHECK(tables[0].rows() == 3);
  REQUIRE(out.rows(0) == 2);
  CHECK(out.ids(0)[0] == -5);
  CHECK(out.ids(0)[1] == largest_id);
  CHECK(std::vector<float>(out.values().begin(), out.values().end()) == std::vector<float>{12, 14, 5, 6});
}

TEST_CASE_TEMPLATE("coalesce_row_gradients: nothing arrived", Store, TESSERA_TEST_STORES) {
  tessera_tests::serial_host host;
  auto const exec = host.exec();
  auto tables = make_tables<Store>(exec, arrival_tables, tessera::sgd{});
  tessera::row_gradients out;
  std::vector<row_gradient_list> lists;
  for (int empty_lists = 0; empty_lists < 2; ++empty_lists) {
    tessera::coalesce_row_gradients(exec, tables, lists, out);
    CHECK(out.tables() == 5);
    CHECK(out.values().empty());
    lists.push_back({3, {}, {nullptr, 0, 130}});
  }
  tessera::update_rows(exec, tables, out, tessera::sgd{});
  CHECK(tables[0].steps().value == 1);
  std::vector<Store> none;
  tessera::coalesce_row_gradients(exec, none, {}, out);
  CHECK(out.tables() == 0);
}

TEST_CASE("coalesce_row_gradients: what does not fit is refused by name, and changes nothing") {
  tessera_tests::serial_host host;
  auto const exec = host.exec();
  auto const tables = make_tables<tessera::dense_table<>>(exec, arrival_tables, tessera::sgd{});
  std::vector<float> const values(64, 2.0F);
  std::vector<std::int64_t> const two{0, arrival_rows - 1};
  for (std::int64_t const table : {-1, 5}) {
    auto const e = refused(exec, tables, {table, two, {values.data(), 2, 16}});
    CHECK(e.code() == errc::out_of_range);
    CHECK(e.value("table") == std::to_string(table));
  }
  for (auto const& matrix : {matrix_view<float const>(values.data(), 1, 16), matrix_view<float const>(values.data(), 3, 16),
                             matrix_view<float const>(values.data(), 2, 17), matrix_view<float const>(values.data(), 2, 16, 15)}) {
    auto const e = refused(exec, tables, {1, two, matrix});
    CHECK(e.code() == errc::shape_mismatch);
    CHECK(e.value("ids") == "2");
    CHECK(e.value("rows") == std::to_string(matrix.rows()));
    CHECK(e.value("columns") == std::to_string(matrix.columns()));
  }
  for (std::int64_t const id : {std::int64_t{-1}, arrival_rows, smallest_id, largest_id}) {
    std::vector<std::int64_t> const ids{0, id};
    auto const e = refused(exec, tables, {1, ids, {values.data(), 2, 16}});
    CHECK(e.code() == errc::out_of_range);
    CHECK(e.value("id") == std::to_string(id));
    CHECK(e.value("position") == "1");
    CHECK(e.value("rows") == std::to_string(arrival_rows));
  }
}
