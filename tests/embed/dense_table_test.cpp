// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-labels: threads
#include <tessera/embed/dense_table.hpp>

#include "../support/type_lists.hpp"
#include "row_store_suite.hpp"

using namespace embed_tests;
using tessera::row_status;

namespace {

struct without_locate : tessera::dense_table<> {
  void locate() = delete;
};
struct without_const_row : tessera::dense_table<> {
  float* row(std::int64_t slot) const;
};
static_assert(tessera::row_store<tessera::dense_table<>>);
static_assert(!tessera::row_store<without_locate>);
static_assert(!tessera::row_store<without_const_row>);
static_assert(!tessera::row_store<int>);
static_assert(tessera::row_store<tessera::dense_table<tessera::float16>> && tessera::row_store<tessera::dense_table<tessera::bfloat16>>);
static_assert(tessera::dense_table<>::slots_are_ids);
static_assert(!std::is_copy_constructible_v<tessera::dense_table<>>);

}  // namespace

TEST_CASE("dense_table is a row store") { tessera_tests::for_each_team(row_store_suite<tessera::dense_table<>>); }
TEST_CASE_TEMPLATE("dense_table of fewer bytes is a row store", Element, TESSERA_TEST_SMALL_ELEMENTS) {
  row_store_suite<tessera::dense_table<Element>>(3);
}

TEST_CASE("dense_table: slots are ids, and ids it cannot hold have none") {
  tessera_tests::serial_host host;
  auto const exec = host.exec();
  tessera::dense_table<> table(exec, {.dim = 3, .rows = 10}, tessera::sgd{});
  std::vector<std::int64_t> const ids{0, 9, 10, -1, 4, smallest_id, largest_id, 4};
  std::vector<std::int64_t> const expected{0, 9, -1, -1, 4, -1, -1, 4};
  std::vector<std::int64_t> slots(ids.size());
  std::vector<row_status> statuses(ids.size(), row_status::moved);
  table.locate(exec, ids, slots, statuses);
  CHECK(slots == expected);
  for (std::size_t i = 0; i < ids.size(); ++i) CHECK(statuses[i] == (expected[i] < 0 ? row_status::out_of_range : row_status::found));
  CHECK(find(exec, table, ids) == expected);
  for (std::size_t i = 0; i < ids.size(); ++i) CHECK(table.holds(ids[i]) == (expected[i] >= 0));
  CHECK(table.rows() == 10);
}

TEST_CASE_TEMPLATE("dense_table: a table without rows holds nothing", Element, float, tessera::scaled_int8) {
  tessera_tests::serial_host host;
  tessera::dense_table<Element> table(host.exec(), {.dim = 3, .rows = 0}, tessera::rowwise_adagrad{});
  CHECK(table.rows() == 0);
  CHECK(table.bytes() == 0);
  CHECK(table.weights().rows() == 0);
  CHECK(std::as_const(table).weights().columns() == 3);
  CHECK(table.states().rows() == 0);
  CHECK(locate(host.exec(), table, {0, -1}) == std::vector<std::int64_t>{-1, -1});
}

TEST_CASE_TEMPLATE("dense_table: matrices show rows and states", Element, float, tessera::float8_e4m3, tessera::scaled_int8) {
  tessera_tests::serial_host host;
  tessera::dense_table<Element> table(host.exec(), {.dim = 3, .rows = 10}, many_states{});
  CHECK(table.weights().rows() == 10);
  CHECK(table.weights().columns() == 3);
  CHECK(table.weights().stride() == (std::is_same_v<Element, tessera::scaled_int8> ? 8 : 3));
  CHECK(table.states().columns() == 2 + 3 * 3);
  for (std::int64_t slot = 0; slot < 10; ++slot) {
    CHECK(table.weights().row(slot) == table.row(slot));
    CHECK(table.states().row(slot) == table.state(slot));
    CHECK(std::as_const(table).weights().row(slot) == std::as_const(table).row(slot));
    CHECK(std::as_const(table).states().row(slot) == std::as_const(table).state(slot));
  }
}

TEST_CASE("dense_table: every team builds the same table") {
  tessera::table_options const options{
      .id = tessera::table_id(1), .dim = 5, .rows = 20000, .init_bound = 1, .seed = tessera::random_seed(9)};
  std::vector<std::int64_t> ids(static_cast<std::size_t>(options.rows));
  std::iota(ids.begin(), ids.end(), 0);
  tessera_tests::for_each_host([&](tessera::host_exec const& exec, tessera_tests::counting_memory&) {
    tessera::dense_table<> const table(exec, options, tessera::rowwise_adagrad{.initial_state = 2});
    CHECK(rows_are_initial(table, ids, ids));
  });
}
