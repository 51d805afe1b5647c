// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-labels: threads
#include <tessera/embed/row_transfer.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include <tessera/core/error.hpp>
#include <tessera/embed/dense_table.hpp>
#include <tessera/embed/hash_table.hpp>

#include "embed_support.hpp"
#include "hosts.hpp"
#include "random.hpp"

using namespace embed_tests;
using tessera::bfloat16;
using tessera::dense_table;
using tessera::float16;
using tessera::hash_table;
using tessera::row_status;
using tessera_tests::serial_host;
using id_list = std::vector<std::int64_t>;
using cached = hash_table<float, tessera::admit_by_frequency, tessera::evict_lru>;

namespace {

constexpr std::int64_t dim = 7;
constexpr tessera::table_options options{
    .id = tessera::table_id(9), .dim = dim, .rows = 400, .init_bound = 0.3F, .seed = tessera::random_seed(8)};

/// Rows and states in memory of their own, the rows further apart than they are wide.
struct row_block {
  std::int64_t count, width;
  std::vector<float> weights, states;

  row_block(std::int64_t count, std::int64_t width)
      : count(count),
        width(width),
        weights(static_cast<std::size_t>(count * (dim + 2)), -99.0F),
        states(static_cast<std::size_t>(count * (width + 1)), -99.0F) {}
  tessera::matrix_view<float> weight_view() { return {weights.data(), count, dim, dim + 2}; }
  tessera::matrix_view<float> state_view() { return {states.data(), count, width, width + 1}; }

  void draw(std::mt19937_64& random) {
    for (std::int64_t i = 0; i < count; ++i) {
      auto const values = tessera_tests::random_floats(random, static_cast<std::size_t>(dim + width));
      std::copy_n(values.begin(), dim, weight_view().row(i));
      std::copy_n(values.begin() + dim, width, state_view().row(i));
    }
  }
};

template <class Store>
row_block read(tessera::host_exec const& exec, Store const& store, id_list const& ids) {
  row_block block(static_cast<std::int64_t>(ids.size()), store.state_layout().width(dim));
  tessera::read_rows(exec, store, ids, block.weight_view(), block.state_view());
  return block;
}

template <class Element>
std::vector<float> through(std::vector<float> values) {
  for (auto& v : values) v = tessera::to_float(tessera::round_to<Element>(v));
  return values;
}

}  // namespace

TEST_CASE_TEMPLATE("what is written reads back the same", Store, dense_table<>, dense_table<float16>, dense_table<bfloat16>, hash_table<>,
                   hash_table<float16>, hash_table<bfloat16>, cached) {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  tessera_tests::for_each_host([&](tessera::host_exec const& exec, tessera_tests::counting_memory&) {
    std::mt19937_64 random(seed);
    Store store(exec, options, tessera::adagrad{.initial_state = 0.5F});
    id_list ids(400);
    std::iota(ids.begin(), ids.end(), 0);
    std::shuffle(ids.begin(), ids.end(), random);
    ids.resize(300);
    row_block block(300, dim);
    block.draw(random);
    std::vector<row_status> statuses(300, row_status::moved);
    tessera::write_rows(exec, store, ids, block.weight_view(), block.state_view(), statuses);
    CHECK(std::all_of(statuses.begin(), statuses.end(),
                      [](auto s) { return s == (Store::slots_are_ids ? row_status::found : row_status::inserted); }));
    auto const back = read(exec, store, ids);
    CHECK(same_bits(back.weights, through<typename Store::element>(block.weights)));
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
      auto const expected = through<typename Store::element>(initial_row(options, others[i]));
      CHECK(same_bits(initial.weights.data() + i * (dim + 2), expected.data(), dim));
      for (std::size_t c = 0; c < dim; ++c) CHECK(initial.states[i * (dim + 1) + c] == 0.5F);
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
  dense_table<> dense(exec, options, optimizer);
  id_list const ids{7, 0, 399, 12};
  row_block block(4, 1);
  block.draw(random);
  tessera::write_rows(exec, dense, ids, block.weight_view(), block.state_view());
  auto const copy = [&](auto const& from, auto& to) {
    auto rows = read(exec, from, ids);
    tessera::write_rows(exec, to, ids, rows.weight_view(), rows.state_view());
  };
  auto empty = options;
  empty.rows = 0;
  SUBCASE("dense, hashed, dense") {
    hash_table<> hashed(exec, empty, optimizer);
    copy(dense, hashed);
    CHECK(hashed.rows() == 4);
    dense_table<> again(exec, options, optimizer);
    copy(hashed, again);
    CHECK(same_bits(again.weights().data(), dense.weights().data(), 400 * dim));
    CHECK(same_bits(again.states().data(), dense.states().data(), 400));
  }
  SUBCASE("to narrower elements and back: rounded once") {
    dense_table<bfloat16> narrow(exec, options, optimizer);
    copy(dense, narrow);
    hash_table<float> wide(exec, empty, optimizer);
    copy(narrow, wide);
    hash_table<bfloat16> narrow_again(exec, empty, optimizer);
    copy(wide, narrow_again);
    CHECK(same_bits(read(exec, wide, ids).weights, through<bfloat16>(block.weights)));
    CHECK(same_bits(read(exec, narrow_again, ids).weights, through<bfloat16>(block.weights)));
    CHECK(same_bits(read(exec, narrow_again, ids).states, block.states));
  }
}

TEST_CASE("rows that were evicted enter another store as they were") {
  serial_host host;
  auto const exec = host.exec();
  auto small = options;
  small.rows = 0;
  small.most_rows = 3;
  tessera::adagrad const optimizer{.initial_state = 0.125F};
  hash_table<bfloat16, tessera::admit_all, tessera::evict_lru> cache(exec, small, optimizer);
  auto empty = options;
  empty.rows = 0;
  hash_table<bfloat16> below(exec, empty, optimizer);
  cache.keep_evicted(true);
  auto const visit = [&](std::int64_t id, float mark) {
    cache.begin_batch();
    auto const slot = locate(exec, cache, {id})[0];
    cache.row(slot)[1] = tessera::round_to<bfloat16>(mark);
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
    CHECK(rows.weights[i * (dim + 2) + 1] == marks[i]);
    CHECK(rows.states[i * (dim + 1) + 2] == marks[i]);
    CHECK(rows.states[i * (dim + 1)] == 0.125F);
  }
}

TEST_CASE("weights alone; no ids; statuses of ids that have no row") {
  serial_host host;
  auto const exec = host.exec();
  dense_table<> dense(exec, options, tessera::adagrad{.initial_state = 0.5F});
  row_block block(2, dim);
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
  tessera::read_rows(exec, dense, id_list{}, {nullptr, 0, dim}, {});
  tessera::write_rows(exec, dense, id_list{}, {nullptr, 0, dim}, {});

  auto full = options;
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
  hash_table<> store(exec, options, tessera::rowwise_adagrad{});
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
  refused(matrix(2, dim - 1), matrix(2, 1), none, "6");
  refused(matrix(3, dim), matrix(2, 1), none, "7");
  refused(matrix(2, dim), matrix(2, 2), none, "2");
  refused(matrix(2, dim), matrix(1, 1), none, "1");
  refused({values.data(), 2, dim, dim - 1}, matrix(2, 1), none, "7");
  refused(matrix(2, dim), matrix(2, 1), one, "1");
  CHECK(store.rows() == 0);
}
