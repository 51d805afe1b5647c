// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-labels: threads
// ctest-weight: 4
#include <tessera/embed/hash_table.hpp>

#include "../support/type_lists.hpp"
#include "row_store_suite.hpp"

using namespace embed_tests;
using tessera::row_status;
using table_type = tessera::hash_table<>;

namespace {

struct without_find : table_type {
  void find() = delete;
};
static_assert(tessera::row_store<table_type>);
static_assert(!tessera::row_store<without_find>);
static_assert(!table_type::slots_are_ids);
static_assert(!std::is_copy_constructible_v<table_type>);

constexpr tessera::table_options empty_table{
    .id = tessera::table_id(3), .dim = 6, .rows = 0, .init_bound = 0.1F, .seed = tessera::random_seed(77)};

/// Any int64, many of them close together.
std::vector<std::int64_t> wild_ids(std::mt19937_64& random, std::size_t count) {
  auto ids = tessera_tests::random_integers<std::int64_t>(random, count, smallest_id, largest_id);
  for (std::size_t i = 0; i < count; i += 2) ids[i] = static_cast<std::int64_t>(i) - static_cast<std::int64_t>(count / 2);
  ids[1] = smallest_id;
  ids[3] = largest_id;
  ids[5] = -1;
  return ids;
}

}  // namespace

TEST_CASE("hash_table is a row store") { tessera_tests::for_each_team(row_store_suite<table_type>); }

namespace {

// Policies under which every id has a row at once, as the suite has it.
struct at_first_sight : tessera::admit_by_frequency {
  at_first_sight() : admit_by_frequency{.sightings = 1, .candidates = 100} {}
};
struct surely : tessera::admit_by_probability {
  surely() : admit_by_probability{.probability = 1} {}
};

}  // namespace

TEST_CASE_TEMPLATE("hash_table is a row store with every kind of element and policy", Store, tessera::hash_table<tessera::bfloat16>,
                   tessera::hash_table<float, surely>, tessera::hash_table<float, tessera::admit_all, tessera::evict_lru>,
                   tessera::hash_table<tessera::scaled_int8, at_first_sight, tessera::evict_lfu> TESSERA_TEST_MORE_TYPES(
                       , tessera::hash_table<tessera::float16>, tessera::hash_table<float, at_first_sight, tessera::evict_lfu>,
                       tessera::hash_table<tessera::bfloat16, tessera::admit_all, tessera::evict_ttl>,
                       tessera::hash_table<tessera::scaled_int8>,
                       tessera::hash_table<tessera::float8_e4m3, tessera::admit_all, tessera::evict_lru>)) {
  row_store_suite<Store>(3);
}

TEST_CASE("hash_table: any id gets a row, numbered in the order of arrival") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  tessera_tests::for_each_host([&](tessera::host_exec const& exec, tessera_tests::counting_memory&) {
    std::mt19937_64 random(seed);
    auto const ids = wild_ids(random, 9000);
    table_type table(exec, empty_table, tessera::rowwise_adagrad{.initial_state = 0.5F});
    CHECK(table.rows() == 0);
    CHECK(table.bytes() == 0);
    auto const slots = locate(exec, table, ids);
    CHECK(rows_are_initial(table, ids, slots));
    std::vector<std::int64_t> order;
    for (std::size_t i = 0; i < ids.size(); ++i) {
      if (slots[i] == static_cast<std::int64_t>(order.size())) order.push_back(ids[i]);
      REQUIRE(slots[i] < static_cast<std::int64_t>(order.size()));
      REQUIRE(order[static_cast<std::size_t>(slots[i])] == ids[i]);
    }
    CHECK(table.rows() == static_cast<std::int64_t>(order.size()));
    CHECK(std::equal(table.ids().begin(), table.ids().end(), order.begin(), order.end()));
  });
}

TEST_CASE("hash_table: rows do not depend on the order in which ids come") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  tessera_tests::serial_host host;
  auto const exec = host.exec();
  auto ids = wild_ids(random, 3000);
  table_type one(exec, empty_table, tessera::sgd{}), other(exec, empty_table, tessera::sgd{});
  locate(exec, one, ids);
  std::shuffle(ids.begin(), ids.end(), random);
  for (std::size_t first = 0; first < ids.size(); first += 100)
    locate(exec, other, {ids.begin() + static_cast<std::ptrdiff_t>(first), ids.begin() + static_cast<std::ptrdiff_t>(first + 100)});
  CHECK(one.rows() == other.rows());
  auto const in_one = find(exec, one, ids), in_other = find(exec, other, ids);
  bool same = true;
  for (std::size_t i = 0; i < ids.size(); ++i) same = same && same_bits(one.row(in_one[i]), other.row(in_other[i]), one.dim());
  CHECK(same);
}

TEST_CASE("hash_table: statuses say what was found and what is new") {
  tessera_tests::serial_host host;
  auto const exec = host.exec();
  table_type table(exec, empty_table, tessera::sgd{});
  locate(exec, table, {-5, 7});
  std::vector<std::int64_t> const ids{7, 8, 8, -5, smallest_id, smallest_id};
  std::vector<std::int64_t> slots(ids.size());
  std::vector<row_status> statuses(ids.size(), row_status::moved);
  table.locate(exec, ids, slots, statuses);
  CHECK(slots == std::vector<std::int64_t>{1, 2, 2, 0, 3, 3});
  CHECK(statuses == std::vector<row_status>{row_status::found, row_status::inserted, row_status::found, row_status::found,
                                            row_status::inserted, row_status::found});
}

TEST_CASE("hash_table: find changes nothing") {
  tessera_tests::serial_host host;
  auto const exec = host.exec();
  table_type table(exec, empty_table, tessera::sgd{});
  CHECK(find(exec, table, {0, -1, largest_id}) == std::vector<std::int64_t>{-1, -1, -1});
  locate(exec, table, {4});
  auto const bytes = table.bytes();
  auto const allocations = host.memory().allocations();
  CHECK(find(exec, table, {0, 4, smallest_id, 4}) == std::vector<std::int64_t>{-1, 0, -1, 0});
  CHECK(table.rows() == 1);
  CHECK(table.bytes() == bytes);
  CHECK(host.memory().allocations() == allocations);
}

TEST_CASE("hash_table: growth moves no row and no slot") {
  tessera_tests::serial_host host;
  auto const exec = host.exec();
  table_type table(exec, empty_table, tessera::rowwise_adagrad{});
  std::vector<std::int64_t> ids, slots;
  std::vector<float const*> rows;
  for (std::int64_t id = -40; id < 12000; id = id * 2 + 81) {
    std::vector<std::int64_t> block(static_cast<std::size_t>(std::max<std::int64_t>(id / 3, 1)));
    for (std::size_t i = 0; i < block.size(); ++i) block[i] = id * 1000003 + static_cast<std::int64_t>(i);
    for (auto const slot : locate(exec, table, block)) {
      table.row(slot)[0] = static_cast<float>(slot);
      *table.state(slot) = -static_cast<float>(slot);
      slots.push_back(slot);
      rows.push_back(table.row(slot));
    }
    ids.insert(ids.end(), block.begin(), block.end());
  }
  REQUIRE(table.rows() > 5 * 1024);
  CHECK(find(exec, table, ids) == slots);
  bool whole = true;
  for (std::size_t i = 0; i < ids.size(); ++i)
    whole = whole && table.row(slots[i]) == rows[i] && rows[i][0] == static_cast<float>(slots[i]) &&
            *table.state(slots[i]) == -static_cast<float>(slots[i]) &&
            same_bits(rows[i] + 1, initial_row(empty_table, ids[i]).data() + 1, table.dim() - 1);
  CHECK(whole);
}

TEST_CASE("hash_table: a repeated new id asks for no room it does not need") {
  tessera_tests::serial_host host;
  auto const exec = host.exec();
  auto options = empty_table;
  options.rows = 1024;
  table_type table(exec, options, tessera::sgd{});
  auto const bytes = table.bytes();
  std::vector<std::int64_t> ids(1024);
  std::iota(ids.begin(), ids.end(), 0);
  for (int i = 0; i < 10; ++i) ids.push_back(1023);
  locate(exec, table, ids);
  CHECK(table.rows() == 1024);
  CHECK(table.bytes() == bytes);
}

TEST_CASE("hash_table: what grows comes from the memory of the table, and is counted") {
  tessera_tests::serial_host home, step;
  {
    table_type table(home.exec(), empty_table, tessera::rowwise_adagrad{});
    std::vector<std::int64_t> ids(5000);
    std::iota(ids.begin(), ids.end(), -2500);
    for (std::size_t first = 0; first < ids.size(); first += 250) {
      locate(step.exec(), table,
             {ids.begin() + static_cast<std::ptrdiff_t>(first), ids.begin() + static_cast<std::ptrdiff_t>(first + 250)});
      CHECK(table.bytes() == home.memory().live_bytes());
    }
    CHECK(step.memory().allocations() == 0);
    auto grown = empty_table;
    grown.rows = table.rows();
    auto const planned = table_type::bytes_for(grown, table.state_layout()).total();
    CHECK(table.bytes() >= planned);
    // Room for rows and states grows by half, the list of ids doubles.
    auto const rows_planned = planned - tessera::id_map::bytes_for(grown.rows);
    CHECK(table.bytes() <= planned + rows_planned / 2 + 8 * ids.size());
    auto const slots = find(step.exec(), table, ids);
    CHECK(rows_are_initial(table, ids, slots));
  }
  CHECK(home.memory().live_bytes() == 0);
}

TEST_CASE("hash_table: room that is made at once is one piece of memory, whatever its size") {
  auto const allocations = [](std::int64_t rows) {
    tessera_tests::serial_host host;
    auto options = empty_table;
    options.rows = rows;
    table_type table(host.exec(), options, tessera::rowwise_adagrad{});
    auto const made = host.memory().allocations();
    std::vector<std::int64_t> ids(static_cast<std::size_t>(rows));
    std::iota(ids.begin(), ids.end(), 5);
    CHECK(rows_are_initial(table, ids, locate(host.exec(), table, ids)));
    CHECK(host.memory().allocations() == made);
    return made;
  };
  CHECK(allocations(20'000) == allocations(10));
}

TEST_CASE("hash_table: what grows by itself makes room for half as many rows again, and for no more than may be") {
  tessera_tests::serial_host host;
  constexpr std::int64_t slab_rows = 1024, count = 100'000;
  auto const row_bytes = static_cast<std::size_t>(empty_table.dim) * sizeof(float);
  std::vector<std::int64_t> ids(static_cast<std::size_t>(count));
  std::iota(ids.begin(), ids.end(), -7);
  auto options = empty_table;
  options.most_rows = count + 5;
  tessera::row_slabs<float> slabs(options.dim, tessera::row_state_layout::of(tessera::sgd{}));
  std::int64_t growths = 0;
  for (std::int64_t rows = 1; rows <= count; ++rows) {
    auto const before = slabs.bytes();
    auto const* const first = rows > 1 ? slabs.row(0) : nullptr;
    slabs.grow(host.exec(), rows, options.most_rows);
    growths += slabs.bytes() != before;
    if (first != nullptr) REQUIRE(slabs.row(0) == first);
    auto const held = static_cast<std::int64_t>(slabs.bytes() / row_bytes);
    REQUIRE(held >= rows);
    REQUIRE(held <= std::min(rows + rows / 2, options.most_rows) + 2 * slab_rows);
    slabs.row(rows - 1)[0] = static_cast<float>(rows);
  }
  CHECK(growths < 20);
  CHECK(slabs.bytes() / row_bytes == static_cast<std::size_t>(tessera::divide_up(options.most_rows, slab_rows) * slab_rows));
  std::int64_t wrong = 0;
  for (std::int64_t rows = 1; rows <= count; ++rows) wrong += slabs.row(rows - 1)[0] != static_cast<float>(rows);
  CHECK(wrong == 0);

  table_type table(host.exec(), options, tessera::sgd{});  // grows in the same way
  auto const slots = locate(host.exec(), table, ids);
  CHECK(rows_are_initial(table, ids, slots));
  CHECK(table.bytes() <=
        table_type::bytes_for({.dim = options.dim, .rows = options.most_rows}, table.state_layout()).total() + 8 * ids.size());
  CHECK(host.memory().live_bytes() == table.bytes() + slabs.bytes());
}

TEST_CASE("hash_table: when memory runs out, rows that appeared stay whole and the table goes on") {
  tessera_tests::for_each_host([&](tessera::host_exec const& exec, tessera_tests::counting_memory& memory) {
    std::vector<std::int64_t> ids(2600);
    for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::int64_t>(i) * 7919 - 1000;
    bool failed = true;
    int failures = 0;
    for (std::int64_t allowed = 0; failed; ++allowed) {
      CAPTURE(allowed);
      table_type table(exec, empty_table, tessera::rowwise_adagrad{.initial_state = 3});
      std::vector<std::int64_t> slots(ids.size());
      memory.fail_after(allowed);
      try {
        table.locate(exec, ids, slots);
        failed = false;
      } catch (std::bad_alloc const&) {
        ++failures;
      }
      memory.never_fail();
      auto const appeared = table.rows();
      CHECK((failed ? appeared < static_cast<std::int64_t>(ids.size()) : appeared == static_cast<std::int64_t>(ids.size())));
      std::vector<std::int64_t> const first(ids.begin(), ids.begin() + appeared);
      auto const found = find(exec, table, first);
      for (std::int64_t slot = 0; slot < appeared; ++slot) REQUIRE(found[static_cast<std::size_t>(slot)] == slot);
      CHECK(rows_are_initial(table, first, found));
      CHECK(table.bytes() == memory.live_bytes());
      if (appeared > 0) table.row(0)[0] = 42;
      CHECK(rows_are_initial(table, {ids.begin() + 1, ids.end()}, [&] {
        auto const all = locate(exec, table, ids);
        return std::vector<std::int64_t>(all.begin() + 1, all.end());
      }()));
      CHECK(table.rows() == static_cast<std::int64_t>(ids.size()));
      if (appeared > 0) CHECK(table.row(0)[0] == 42.0F);
    }
    CHECK(failures > 10);
  });
}
