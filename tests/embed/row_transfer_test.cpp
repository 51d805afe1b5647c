// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-weight: 3
#include <tessera/embed/row_transfer.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include <tessera/core/error.hpp>
#include <tessera/embed/dense_table.hpp>
#include <tessera/embed/hash_table.hpp>

#include "../support/type_lists.hpp"
#include "embed_support.hpp"
#include "hosts.hpp"
#include "random.hpp"

using namespace embed_tests;
using tessera::bfloat16;
using tessera::dense_table;
using tessera::float16;
using tessera::float8_e4m3;
using tessera::float8_e5m2;
using tessera::hash_table;
using tessera::row_status;
using tessera::scaled_int8;
using tessera_tests::serial_host;
using id_list = std::vector<std::int64_t>;
using cached = hash_table<float, tessera::admit_by_frequency, tessera::evict_lru>;

namespace {

constexpr std::int64_t moved_dim = 7;
constexpr tessera::table_options moved_table{
    .id = tessera::table_id(9), .dim = moved_dim, .rows = 400, .init_bound = 0.3F, .seed = tessera::random_seed(8)};

/// Rows and states in memory of their own, the rows further apart than they are wide.
struct row_block {
  std::int64_t count, width;
  std::vector<float> weights, states;

  row_block(std::int64_t count, std::int64_t width)
      : count(count),
        width(width),
        weights(static_cast<std::size_t>(count * (moved_dim + 2)), -99.0F),
        states(static_cast<std::size_t>(count * (width + 1)), -99.0F) {}
  tessera::matrix_view<float> weight_view() { return {weights.data(), count, moved_dim, moved_dim + 2}; }
  tessera::matrix_view<float> state_view() { return {states.data(), count, width, width + 1}; }

  void draw(std::mt19937_64& random) {
    for (std::int64_t i = 0; i < count; ++i) {
      auto const values = tessera_tests::random_floats(random, static_cast<std::size_t>(moved_dim + width));
      std::copy_n(values.begin(), moved_dim, weight_view().row(i));
      std::copy_n(values.begin() + moved_dim, width, state_view().row(i));
    }
  }
};

template <class Store>
row_block read(tessera::host_exec const& exec, Store const& store, id_list const& ids) {
  row_block block(static_cast<std::int64_t>(ids.size()), store.state_layout().width(moved_dim));
  tessera::read_rows(exec, store, ids, block.weight_view(), block.state_view());
  return block;
}

/// The block's weights once a store of such elements has held them.
template <class Element>
std::vector<float> through(row_block block) {
  for (std::int64_t i = 0; i < block.count; ++i) {
    auto* const row = block.weight_view().row(i);
    auto const values = stored<Element>({row, row + moved_dim});
    std::copy(values.begin(), values.end(), row);
  }
  return block.weights;
}

}  // namespace

TEST_CASE_TEMPLATE("what is written reads back the same", Store, TESSERA_TEST_STORES, TESSERA_TEST_SMALL_STORES, cached) {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  tessera_tests::for_each_host([&](tessera::host_exec const& exec, tessera_tests::counting_memory&) {
    std::mt19937_64 random(seed);
    Store store(exec, moved_table, tessera::adagrad{.initial_state = 0.5F});
    id_list ids(400);
    std::iota(ids.begin(), ids.end(), 0);
    std::shuffle(ids.begin(), ids.end(), random);
    ids.resize(300);
    row_block block(300, moved_dim);
    block.draw(random);
    std::vector<row_status> statuses(300, row_status::moved);
    tessera::write_rows(exec, store, ids, block.weight_view(), block.state_view(), statuses);
    CHECK(std::all_of(statuses.begin(), statuses.end(),
                      [](auto s) { return s == (Store::slots_are_ids ? row_status::found : row_status::inserted); }));
    auto const back = read(exec, store, ids);
    CHECK(same_bits(back.weights, through<typename Store::element>(block)));
    CHECK(same_bits(back.states, block.states));
    // Ids without a row, and those that nobody wrote, are initial.
    id_list others(400);
    std::iota(others.begin(), others.end(), 0);
    std::erase_if(others, [&](auto id) { return std::find(ids.begin(), ids.end(), id) != ids.end(); });
    others.push_back(-5);
    others.push_back(400);
    auto const rows = store.rows();
    auto const initial = read(exec, store, others);
    for (std::size_t i = 0; i < others.size(); ++i) {
      auto const expected = stored_initial_row<typename Store::element>(moved_table, others[i]);
      CHECK(same_bits(initial.weights.data() + i * (moved_dim + 2), expected.data(), moved_dim));
      for (std::size_t c = 0; c < moved_dim; ++c) CHECK(initial.states[i * (moved_dim + 1) + c] == 0.5F);
    }
    CHECK(store.rows() == rows);
  });
}

TEST_CASE("rows go from store to store and keep their bits") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  serial_host host;
  auto const exec = host.exec();
  tessera::rowwise_adagrad const optimizer;
  dense_table<> dense(exec, moved_table, optimizer);
  id_list const ids{7, 0, 399, 12};
  row_block block(4, 1);
  block.draw(random);
  tessera::write_rows(exec, dense, ids, block.weight_view(), block.state_view());
  auto const copy = [&](auto const& from, auto& to) {
    auto rows = read(exec, from, ids);
    tessera::write_rows(exec, to, ids, rows.weight_view(), rows.state_view());
  };
  auto empty = moved_table;
  empty.rows = 0;
  SUBCASE("dense, hashed, dense") {
    hash_table<> hashed(exec, empty, optimizer);
    copy(dense, hashed);
    CHECK(hashed.rows() == 4);
    dense_table<> again(exec, moved_table, optimizer);
    copy(hashed, again);
    CHECK(same_bits(again.weights().data(), dense.weights().data(), 400 * moved_dim));
    CHECK(same_bits(again.states().data(), dense.states().data(), 400));
  }
  auto const rounded_once = [&]<class Element>(Element) {
    dense_table<Element> narrow(exec, moved_table, optimizer);
    copy(dense, narrow);
    hash_table<float> wide(exec, empty, optimizer);
    copy(narrow, wide);
    hash_table<Element> narrow_again(exec, empty, optimizer);
    copy(wide, narrow_again);
    CHECK(same_bits(read(exec, wide, ids).weights, through<Element>(block)));
    CHECK(same_bits(read(exec, narrow_again, ids).weights, through<Element>(block)));
    CHECK(same_bits(read(exec, narrow_again, ids).states, block.states));
  };
  SUBCASE("to narrower elements and back: rounded once") {
    rounded_once(bfloat16{});
    rounded_once(float8_e4m3{});
    rounded_once(scaled_int8{});
  }
}

namespace {

/// Writes rows into a store of such rows and reads them.
template <class Store>
std::vector<std::vector<float>> write_and_read(tessera::host_exec const& exec, std::vector<std::vector<float>> const& rows) {
  auto const count = static_cast<std::int64_t>(rows.size()), width = static_cast<std::int64_t>(rows[0].size());
  Store store(exec, {.id = tessera::table_id(9), .dim = width, .rows = count, .init_bound = 0.3F}, tessera::sgd{});
  std::vector<float> weights;
  for (auto const& row : rows) weights.insert(weights.end(), row.begin(), row.end());
  id_list ids(rows.size());
  std::iota(ids.begin(), ids.end(), 0);
  tessera::write_rows(exec, store, ids, {weights.data(), count, width}, {});
  std::fill(weights.begin(), weights.end(), -99.0F);
  tessera::read_rows(exec, store, ids, {weights.data(), count, width}, {});
  std::vector<std::vector<float>> result;
  for (std::int64_t i = 0; i < count; ++i) result.emplace_back(weights.begin() + i * width, weights.begin() + (i + 1) * width);
  return result;
}

}  // namespace

TEST_CASE_TEMPLATE("rows that share a scale read back within half a step of their own, whole steps as they were", Store,
                   dense_table<scaled_int8>, hash_table<scaled_int8>) {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  serial_host host;
  for (std::size_t const width : {1U, 3U, 5U, 127U, 1030U}) {
    CAPTURE(width);
    std::vector<std::vector<float>> rows, whole;
    for (int i = 0; i < 40; ++i) {  // magnitudes far apart side by side
      auto row = tessera_tests::random_floats(random, width);
      for (auto& x : row) x = std::ldexp(x, 11 * (i % 20) - 110);
      rows.push_back(row);
      for (auto& x : row) x = std::ldexp(static_cast<float>(static_cast<int>(random() % 255) - 127), 11 * (i % 20) - 110);
      row[random() % width] = std::ldexp(127.0F, 11 * (i % 20) - 110);
      whole.push_back(row);
    }
    rows[5].assign(width, 0.0F);
    rows[6].assign(width, std::numeric_limits<float>::denorm_min());
    rows[7].assign(width, -0x1.FCp+127F);
    whole[5].assign(width, 0.0F);
    auto const back = write_and_read<Store>(host.exec(), rows);
    double worst = 0;  // in half steps
    for (std::size_t i = 0; i < rows.size(); ++i)
      for (std::size_t c = 0; c < width; ++c)
        worst = std::max(
            worst, std::abs(static_cast<double>(back[i][c]) - static_cast<double>(rows[i][c])) * 2 / step_covering(largest_of(rows[i])));
    CHECK(worst <= 1);
    CHECK(write_and_read<Store>(host.exec(), back) == back);
    CHECK(write_and_read<Store>(host.exec(), whole) == whole);
  }
}

TEST_CASE_TEMPLATE("what is no number: of the element, or of all that share its scale", Store, TESSERA_TEST_STORES,
                   TESSERA_TEST_SMALL_STORES) {
  using element = typename Store::element;
  constexpr bool shares = std::is_same_v<element, scaled_int8>;
  serial_host host;
  constexpr auto infinity = std::numeric_limits<float>::infinity();
  for (float const odd : {std::numeric_limits<float>::quiet_NaN(), infinity, -infinity}) {
    auto const back = write_and_read<Store>(host.exec(), {{1, 2, 3, 4, 5}, {1, 2, odd, 4, 5}, {1, 2, 3, 4, 5}, {0, 0, 0, 0, odd}});
    CHECK(back[0] == std::vector<float>{1, 2, 3, 4, 5});
    CHECK(back[2] == back[0]);
    for (std::size_t c = 0; c < 5; ++c) {
      CHECK(std::isnan(back[1][c]) == (c == 2 ? shares || std::isnan(odd) || std::is_same_v<element, float8_e4m3> : shares));
      CHECK(std::isnan(back[3][c]) == (c == 4 ? shares || std::isnan(odd) || std::is_same_v<element, float8_e4m3> : shares));
    }
    if (!shares && std::isinf(odd) && !std::is_same_v<element, float8_e4m3>) CHECK(back[1][2] == odd);
  }
}

TEST_CASE_TEMPLATE("rows that were evicted enter another store as they were", Element, TESSERA_TEST_SMALL_ELEMENTS) {
  serial_host host;
  auto const exec = host.exec();
  auto small = moved_table;
  small.rows = 0;
  small.most_rows = 3;
  tessera::adagrad const optimizer{.initial_state = 0.125F};
  hash_table<Element, tessera::admit_all, tessera::evict_lru> cache(exec, small, optimizer);
  auto empty = moved_table;
  empty.rows = 0;
  hash_table<Element> below(exec, empty, optimizer);
  cache.keep_evicted(true);
  auto const visit = [&](std::int64_t id, float mark) {
    cache.begin_batch();
    auto const slot = locate(exec, cache, {id})[0];
    auto values = values_of_row(cache, slot);
    values[1] = mark;
    set_row(cache, slot, values);
    cache.state(slot)[2] = mark;
  };
  visit(1, 1);
  visit(2, 2);
  visit(3, 3);
  visit(4, 4);  // 1 leaves
  visit(1, 5);  // and comes again
  visit(5, 6);
  visit(6, 7);
  visit(7, 8);  // and leaves again
  auto const gone = cache.evicted();
  REQUIRE(id_list(gone.ids.begin(), gone.ids.end()) == id_list{1, 2, 3, 4, 1});
  tessera::write_rows(exec, below, gone.ids, gone.weights, gone.states);
  cache.clear_evicted();
  CHECK(below.rows() == 4);
  auto const rows = read(exec, below, {1, 2, 3, 4});
  float const marks[]{5, 2, 3, 4};  // of 1, what it left with last
  for (std::size_t i = 0; i < 4; ++i) {
    CHECK(rows.weights[i * (moved_dim + 2) + 1] == marks[i]);
    CHECK(rows.states[i * (moved_dim + 1) + 2] == marks[i]);
    CHECK(rows.states[i * (moved_dim + 1)] == 0.125F);
  }
}

TEST_CASE("weights alone; no ids; statuses of ids that have no row") {
  serial_host host;
  auto const exec = host.exec();
  dense_table<> dense(exec, moved_table, tessera::adagrad{.initial_state = 0.5F});
  row_block block(2, moved_dim);
  std::fill(block.weights.begin(), block.weights.end(), 3.0F);
  std::vector<row_status> statuses(2);
  *dense.state(4) = 9;
  tessera::write_rows(exec, dense, id_list{4, 400}, block.weight_view(), {}, statuses);
  CHECK(statuses == std::vector<row_status>{row_status::found, row_status::out_of_range});
  CHECK(*dense.row(4) == 3);
  CHECK(*dense.state(4) == 9);
  std::fill(block.weights.begin(), block.weights.end(), 0.0F);
  tessera::read_rows(exec, dense, id_list{4, 400}, block.weight_view(), {}, statuses);
  CHECK(statuses == std::vector<row_status>{row_status::found, row_status::out_of_range});
  CHECK(block.weights[0] == 3);
  tessera::read_rows(exec, dense, id_list{}, {nullptr, 0, moved_dim}, {});
  tessera::write_rows(exec, dense, id_list{}, {nullptr, 0, moved_dim}, {});

  auto full = moved_table;
  full.rows = 0;
  full.most_rows = 1;
  hash_table<> hashed(exec, full, tessera::adagrad{});
  tessera::write_rows(exec, hashed, id_list{4, 5}, block.weight_view(), {}, statuses);
  CHECK(statuses == std::vector<row_status>{row_status::inserted, row_status::not_admitted});
  tessera::read_rows(exec, hashed, id_list{4, 5}, block.weight_view(), {}, statuses);
  CHECK(statuses == std::vector<row_status>{row_status::found, row_status::not_admitted});
}

TEST_CASE("matrices of another shape are named") {
  serial_host host;
  auto const exec = host.exec();
  hash_table<> store(exec, moved_table, tessera::rowwise_adagrad{});
  id_list const ids{1, 2};
  std::vector<float> values(100);
  std::vector<row_status> one(1);
  auto const matrix = [&](std::int64_t rows, std::int64_t columns) { return tessera::matrix_view<float>(values.data(), rows, columns); };
  auto const refused = [&](tessera::matrix_view<float> weights, tessera::matrix_view<float> states, std::vector<row_status>& statuses,
                           char const* columns) {
    for (bool const writes : {false, true}) try {
        if (writes)
          tessera::write_rows(exec, store, ids, weights, states, statuses);
        else
          tessera::read_rows(exec, store, ids, weights, states, statuses);
        FAIL_CHECK("accepted");
      } catch (tessera::error const& e) {
        CHECK(e.code() == tessera::errc::shape_mismatch);
        CHECK(e.value("table") == "9");
        CHECK(e.value("columns") == columns);
      }
  };
  std::vector<row_status> none;
  refused(matrix(2, moved_dim - 1), matrix(2, 1), none, "6");
  refused(matrix(3, moved_dim), matrix(2, 1), none, "7");
  refused(matrix(2, moved_dim), matrix(2, 2), none, "2");
  refused(matrix(2, moved_dim), matrix(1, 1), none, "1");
  refused({values.data(), 2, moved_dim, moved_dim - 1}, matrix(2, 1), none, "7");
  refused(matrix(2, moved_dim), matrix(2, 1), one, "1");
  CHECK(store.rows() == 0);
}
