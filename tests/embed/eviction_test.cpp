// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-labels: threads
// ctest-weight: 4
#include <tessera/embed/eviction.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <new>
#include <random>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/core/error.hpp>
#include <tessera/embed/hash_table.hpp>

#include "embed_support.hpp"
#include "hosts.hpp"
#include "random.hpp"
#include "sanitizers.hpp"
#include "table_model.hpp"

using namespace embed_tests;
using tessera::admit_all;
using tessera::admit_by_frequency;
using tessera::evict_lfu;
using tessera::evict_lru;
using tessera::evict_ttl;
using tessera::hash_table;
using tessera::keep_all;
using tessera::row_status;
using tessera_tests::serial_host;
using id_list = std::vector<std::int64_t>;

namespace {

struct without_victim : evict_lru {
  struct state : evict_lru::state {
    using evict_lru::state::state;
    void victim() = delete;
  };
};
static_assert(tessera::eviction<keep_all> && tessera::eviction<evict_lru> && tessera::eviction<evict_lfu> && tessera::eviction<evict_ttl>);
static_assert(!tessera::eviction<without_victim> && !tessera::eviction<admit_all>);

// A policy that remembers nothing takes no room in the table.
static_assert(sizeof(hash_table<>) < sizeof(hash_table<float, admit_all, evict_lru>));

tessera::table_options options_of(std::int64_t most_rows, std::int64_t in_flight = 1) {
  return {.id = tessera::table_id(4),
          .dim = 5,
          .rows = 0,
          .init_bound = 0.1F,
          .seed = tessera::random_seed(31),
          .most_rows = most_rows,
          .batches_in_flight = in_flight};
}

template <class Table>
std::vector<row_status> statuses_of(tessera::host_exec const& exec, Table& table, id_list const& ids) {
  id_list slots(ids.size());
  std::vector<row_status> statuses(ids.size(), row_status::moved);
  table.locate(exec, ids, slots, statuses);
  for (std::size_t i = 0; i < ids.size(); ++i) CHECK((slots[i] < 0) == (statuses[i] == row_status::not_admitted));
  return statuses;
}

template <class Table>
void one_batch(tessera::host_exec const& exec, Table& table, id_list const& ids) {
  table.begin_batch();
  locate(exec, table, ids);
}

template <class Table>
id_list order_of(Table const& table) {
  id_list ids;
  table.for_each_row([&](std::int64_t slot, std::int64_t id) {
    CHECK(table.holds_slot(slot));
    CHECK(table.ids()[slot] == id);
    ids.push_back(id);
  });
  return ids;
}

/// Rows are stamped with multiples of `unit`, from 1 to `most`, which such elements hold exactly.
template <class Element>
struct stamps {
  float unit = 1;
  float most = 200;
  explicit stamps(tessera::table_options const& options) {
    if constexpr (std::is_same_v<Element, tessera::scaled_int8>)
      unit = static_cast<float>(step_covering(static_cast<double>(options.init_bound)));
    if constexpr (sizeof(Element) == 1) most = std::is_same_v<Element, tessera::scaled_int8> ? 127 : 8;
  }
};

/// Random calls on a table and on its model, which must agree after each.
template <class Admission, class Eviction, class Element>
void agrees_with_model(tessera::host_exec const& exec, std::uint64_t seed, tessera::table_options const& options,
                       Admission const& admission, Eviction const& eviction, int calls) {
  std::mt19937_64 random(seed);
  auto const draw = [&](std::int64_t below) { return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(below)); };
  hash_table<Element, Admission, Eviction> table(exec, options, tessera::rowwise_adagrad{.initial_state = 0.5F}, admission, eviction);
  table_model model(options, admission, eviction);
  table.keep_evicted(true);
  stamps<Element> const stamp(options);
  float next_stamp = 1;
  bool const times = draw(2) == 0;
  // Few ids come often, many seldom.
  auto const draw_ids = [&](std::int64_t count) {
    id_list ids;
    for (std::int64_t i = 0; i < count; ++i) ids.push_back(draw(2) == 0 ? draw(12) - 6 : draw(draw(2) == 0 ? 100 : 1500) - 50);
    return ids;
  };
  auto const values = [&](auto& t, std::int64_t slot) { return std::pair(values_of_row(t, slot)[4] / stamp.unit, *t.state(slot)); };
  std::size_t wrong = 0;
  for (int call = 0; call < calls; ++call) {
    auto const kind = draw(20);
    if (kind < 5) {
      table.begin_batch();
      ++model.batch;
      if (times) {
        auto const now = std::max(model.batch, model.time.value_or(0)) + draw(4);
        table.set_time(now);
        model.time = now;
      }
    } else if (kind < 17) {
      auto const ids = draw_ids(draw(kind == 5 ? 400 : 40));
      id_list slots(ids.size());
      std::vector<row_status> statuses(ids.size(), row_status::moved);
      if (kind == 16)
        table.insert(exec, ids, slots, statuses);
      else
        table.locate(exec, ids, slots, statuses);
      wrong += statuses != model.locate(ids, kind != 16);
      for (std::size_t i = 0; i < ids.size(); ++i) {
        auto const row = model.rows.find(ids[i]);
        wrong += (slots[i] >= 0) != (row != model.rows.end());
        if (slots[i] < 0 || row == model.rows.end()) continue;
        wrong += slots[i] >= table.slot_bound();
        if (row->second.stamp == 0) {  // new
          wrong += !rows_are_initial(table, {ids[i]}, {slots[i]});
          row->second.stamp = next_stamp;
          auto* const new_row = table.row(slots[i]);
          new_row[4] = tessera::row_scale<Element>::of(new_row).nearest(next_stamp * stamp.unit);
          *table.state(slots[i]) = -next_stamp;
          next_stamp = next_stamp < stamp.most ? next_stamp + 1 : 1;
        }
        wrong += values(table, slots[i]) != std::pair(row->second.stamp, -row->second.stamp);
      }
    } else if (kind == 17) {
      auto const ids = draw_ids(draw(10));
      wrong += table.erase(exec, ids) != model.erase(ids);
    } else if constexpr (Eviction::evicts) {
      auto const most = draw(8);
      if constexpr (std::is_same_v<Eviction, evict_ttl>) {
        if (kind == 18)
          wrong += table.evict_expired(exec) != model.evict(1 << 30);
        else
          wrong += table.evict(exec, most) != model.evict(most);
      } else {
        wrong += table.evict(exec, most) != model.evict(most);
      }
    }
    wrong += table.rows() != static_cast<std::int64_t>(model.rows.size());
    if (call % 8 != 0) continue;
    auto const order = order_of(table);
    if (Eviction::evicts)
      wrong += order != model.order();
    else
      wrong += order.size() != model.rows.size();
    auto const asked = draw_ids(30);
    auto const found = find(exec, table, asked);
    for (std::size_t i = 0; i < asked.size(); ++i) {
      auto const row = model.rows.find(asked[i]);
      wrong += (found[i] >= 0) != (row != model.rows.end());
      if (found[i] >= 0 && row != model.rows.end()) wrong += values(table, found[i]).first != row->second.stamp;
    }
    auto const gone = table.evicted();
    wrong += gone.ids.size() != static_cast<std::int64_t>(model.evicted.size());
    for (std::int64_t i = 0; i < gone.ids.size() && wrong == 0; ++i) {
      auto const& [id, left_with] = model.evicted[static_cast<std::size_t>(i)];
      wrong += gone.ids[i] != id || gone.weights(i, 4) != left_with * stamp.unit || gone.states(i, 0) != -left_with;
      wrong += gone.weights(i, 0) != stored_initial_row<Element>(options, id)[0];
    }
    if (draw(3) == 0) {
      table.clear_evicted();
      model.evicted.clear();
    }
    CHECK(table.evicted().weights.columns() * table.evicted().weights.rows() == 5 * table.evicted().ids.size());
  }
  CHECK(wrong == 0);
}

template <class Admission, class Eviction, class Element = float>
void agrees_with_model_everywhere(Admission const& admission, Eviction const& eviction) {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  tessera_tests::for_each_host([&](tessera::host_exec const& exec, tessera_tests::counting_memory&) {
    for (std::int64_t const most_rows : {1, 7, 60, 1 << 20})
      for (std::int64_t const in_flight : {1, 3}) {
        CAPTURE(most_rows);
        CAPTURE(in_flight);
        agrees_with_model<Admission, Eviction, Element>(exec, seed, options_of(most_rows, in_flight), admission, eviction,
                                                        tessera_tests::fewer(most_rows > 1000 ? 80 : 200));
      }
  });
}

}  // namespace

TEST_CASE("tables with policies agree with a model") {
  SUBCASE("keep all") { agrees_with_model_everywhere(admit_all{}, keep_all{}); }
  SUBCASE("lru") { agrees_with_model_everywhere(admit_all{}, evict_lru{}); }
  SUBCASE("lfu") { agrees_with_model_everywhere(admit_all{}, evict_lfu{}); }
  SUBCASE("ttl") { agrees_with_model_everywhere(admit_all{}, evict_ttl{.lifetime = 4}); }
  SUBCASE("frequency") { agrees_with_model_everywhere(admit_by_frequency{.sightings = 3, .candidates = 50}, keep_all{}); }
  SUBCASE("frequency and lru, fp16") {
    agrees_with_model_everywhere<admit_by_frequency, evict_lru, tessera::float16>({.sightings = 2, .candidates = 20}, {});
  }
  SUBCASE("frequency and lfu, bf16") {
    agrees_with_model_everywhere<admit_by_frequency, evict_lfu, tessera::bfloat16>({.sightings = 2, .candidates = 1000}, {});
  }
  SUBCASE("lru, int8") { agrees_with_model_everywhere<admit_all, evict_lru, tessera::scaled_int8>({}, {}); }
  SUBCASE("frequency and lfu, fp8") {
    agrees_with_model_everywhere<admit_by_frequency, evict_lfu, tessera::float8_e4m3>({.sightings = 2, .candidates = 1000}, {});
  }
}

TEST_CASE("lru: the row not used for longest leaves, of one batch the first") {
  serial_host host;
  auto const exec = host.exec();
  hash_table<float, admit_all, evict_lru> table(exec, options_of(4), tessera::sgd{});
  one_batch(exec, table, {1, 2, 3});
  one_batch(exec, table, {4, 1, 4});
  CHECK(order_of(table) == id_list{2, 3, 1, 4});  // ids with rows are used before others get theirs
  table.begin_batch();
  auto const slots = locate(exec, table, {1, 2, 3, 4});
  table.begin_batch();
  CHECK(statuses_of(exec, table, {3, 7, 8, 7}) ==
        std::vector<row_status>{row_status::found, row_status::evicted, row_status::evicted, row_status::found});
  CHECK(find(exec, table, {1, 2, 3, 4}) == id_list{-1, -1, slots[2], slots[3]});
  CHECK(find(exec, table, {7, 8}) == id_list{slots[0], slots[1]});  // in the rows of those that left
  CHECK(rows_are_initial(table, {7, 8}, {slots[0], slots[1]}));
}

TEST_CASE("lfu: the row used in the fewest batches leaves, of several the one not used for longest") {
  serial_host host;
  auto const exec = host.exec();
  hash_table<float, admit_all, evict_lfu> table(exec, options_of(4), tessera::sgd{});
  one_batch(exec, table, {1, 1, 1, 2, 3});  // repetitions in a batch count once
  one_batch(exec, table, {2, 3});
  one_batch(exec, table, {3, 4});
  one_batch(exec, table, {2});
  CHECK(order_of(table) == id_list{1, 4, 3, 2});
  one_batch(exec, table, {9});
  CHECK(order_of(table) == id_list{4, 9, 3, 2});
  // 4 and 9 have been used least, and are in flight: 3 has to go.
  table.begin_batch();
  CHECK(statuses_of(exec, table, {9, 4, 5}).back() == row_status::evicted);
  CHECK(find(exec, table, {3}) == id_list{-1});
}

TEST_CASE("ttl: a row leaves when its lifetime is over, in batches or in the caller's time") {
  serial_host host;
  auto const exec = host.exec();
  hash_table<float, admit_all, evict_ttl> table(exec, options_of(3), tessera::sgd{}, {}, {.lifetime = 2});
  SUBCASE("batches") {
    one_batch(exec, table, {1, 2});
    one_batch(exec, table, {3});
    one_batch(exec, table, {2});
    CHECK(table.evict_expired(exec) == 0);
    CHECK(statuses_of(exec, table, {4}) == std::vector<row_status>{row_status::not_admitted});  // full, and nothing has expired
    table.begin_batch();
    CHECK(statuses_of(exec, table, {4}) == std::vector<row_status>{row_status::evicted});
    CHECK(find(exec, table, {1}) == id_list{-1});
    table.begin_batch();
    CHECK(table.evict_expired(exec) == 1);
    CHECK(order_of(table) == id_list{2, 4});
  }
  SUBCASE("seconds") {
    table.set_time(1'700'000'000);
    one_batch(exec, table, {1});
    table.set_time(1'700'000'002);
    for (int batch = 0; batch < 100; ++batch) one_batch(exec, table, {2});
    CHECK(table.evict_expired(exec) == 0);
    table.set_time(1'700'000'003);
    CHECK(table.evict_expired(exec) == 1);
    CHECK(order_of(table) == id_list{2});
    try {
      table.set_time(1'700'000'002);
      FAIL("ran backwards");
    } catch (tessera::error const& e) {
      CHECK(e.code() == tessera::errc::invalid_argument);
      CHECK(e.value("time") == "1700000003");
      CHECK(e.value("new time") == "1700000002");
    }
  }
  SUBCASE("times at the ends of their range") {
    table.set_time(std::numeric_limits<std::int64_t>::max());
    one_batch(exec, table, {1});
    one_batch(exec, table, {2});
    CHECK(table.evict_expired(exec) == 0);
  }
  SUBCASE("a negative lifetime is refused") {
    try {
      hash_table<float, admit_all, evict_ttl> wrong(exec, options_of(3), tessera::sgd{}, {}, {.lifetime = -1});
      FAIL("accepted");
    } catch (tessera::error const& e) {
      CHECK(e.code() == tessera::errc::invalid_argument);
      CHECK(e.value("lifetime") == "-1");
      CHECK(e.value("table") == "4");
    }
  }
}

TEST_CASE("a clock may be set, but not backwards") {
  serial_host host;
  hash_table<float, admit_all, evict_ttl> table(host.exec(), options_of(3), tessera::sgd{});
  table.set_clock({7, 100});
  CHECK(table.clock() == tessera::table_clock{7, 100});
  table.set_clock({7, 100});
  auto const refused = [&](tessera::table_clock clock, char const* value, char const* now, char const* next) {
    try {
      table.set_clock(clock);
      FAIL_CHECK("ran backwards");
    } catch (tessera::error const& e) {
      CHECK(e.code() == tessera::errc::invalid_argument);
      CHECK(e.value("table") == "4");
      CHECK(e.value(value) == now);
      CHECK(e.value(std::string("new ") + value) == next);
    }
    CHECK(table.clock() == tessera::table_clock{7, 100});
  };
  refused({7, 99}, "time", "100", "99");
  refused({6, 100}, "batch", "7", "6");
  refused({8, {}}, "time", "100", "8");  // without a time of its own the batch is the time
  table.set_clock({8, 101});
  CHECK(table.clock().now().time == 101);
}

TEST_CASE("rows in flight stay, and a new id gets none where nothing may leave") {
  serial_host host;
  auto const exec = host.exec();
  hash_table<float, admit_all, evict_lru> table(exec, options_of(2, 2), tessera::sgd{});
  one_batch(exec, table, {1});
  one_batch(exec, table, {2, 3});
  CHECK(find(exec, table, {1, 2, 3}) == id_list{0, 1, -1});
  CHECK(table.evict(exec, 5) == 0);
  table.begin_batch();  // now the batch of 1 is no longer in flight
  CHECK(statuses_of(exec, table, {3, 4}) == std::vector<row_status>{row_status::evicted, row_status::not_admitted});
  CHECK(find(exec, table, {1, 2, 3, 4}) == id_list{-1, 1, 0, -1});
  CHECK(table.erase(exec, id_list{3, 3, 77}) == 1);  // whoever erases knows
  CHECK(statuses_of(exec, table, {4}) == std::vector<row_status>{row_status::inserted});
}

TEST_CASE("without a policy a full table admits nobody until a row is erased") {
  serial_host host;
  auto const exec = host.exec();
  hash_table<> table(exec, options_of(2), tessera::sgd{});
  CHECK(statuses_of(exec, table, {1, 2, 3, 1}) ==
        std::vector<row_status>{row_status::inserted, row_status::inserted, row_status::not_admitted, row_status::found});
  *table.row(0) = 42;
  CHECK(table.erase(exec, id_list{1}) == 1);
  CHECK(table.rows() == 1);
  CHECK(table.slot_bound() == 2);
  CHECK_FALSE(table.holds_slot(0));
  CHECK(order_of(table) == id_list{2});
  CHECK(statuses_of(exec, table, {3}) == std::vector<row_status>{row_status::inserted});
  CHECK(find(exec, table, {3}) == id_list{0});
  CHECK(rows_are_initial(table, {3}, {0}));
}

TEST_CASE("rows that leave are kept only when asked for, in the memory of the table") {
  serial_host home, step;
  hash_table<float, admit_all, evict_lru> table(home.exec(), options_of(3), tessera::adagrad{.initial_state = 0.25F});
  one_batch(step.exec(), table, {1, 2, 3});
  one_batch(step.exec(), table, {4});
  CHECK(table.evicted().ids.empty());
  auto const bytes = table.bytes();
  table.keep_evicted(true);
  table.begin_batch();
  *table.row(find(step.exec(), table, {2})[0]) = 7;
  locate(step.exec(), table, {5, 6});
  auto const gone = table.evicted();
  CHECK(id_list(gone.ids.begin(), gone.ids.end()) == id_list{2, 3});
  CHECK(gone.weights.rows() == 2);
  CHECK(gone.weights.columns() == 5);
  CHECK(gone.weights(0, 0) == 7);
  CHECK(same_bits(gone.weights.row(1), initial_row(table.options(), 3).data(), 5));
  CHECK(gone.states.columns() == 5);
  CHECK(gone.states(1, 4) == 0.25F);
  CHECK(table.bytes() > bytes);
  CHECK(table.bytes() == home.memory().live_bytes());
  CHECK(step.memory().allocations() == 0);
  table.clear_evicted();
  CHECK(table.evicted().ids.empty());
  table.keep_evicted(false);
  table.begin_batch();
  locate(step.exec(), table, {8});
  CHECK(table.evicted().ids.empty());
}

TEST_CASE("a row leaves with the scale that it had, and the next in its place has its own") {
  serial_host host;
  auto const exec = host.exec();
  hash_table<tessera::scaled_int8, admit_all, evict_lru> table(exec, options_of(2), tessera::sgd{});
  one_batch(exec, table, {1, 2});
  table.keep_evicted(true);
  set_row(table, find(exec, table, {1})[0], {1000, -8, 16, 0, 504});
  one_batch(exec, table, {3});
  auto const gone = table.evicted();
  REQUIRE(id_list(gone.ids.begin(), gone.ids.end()) == id_list{1});
  CHECK(std::vector<float>(gone.weights.row(0), gone.weights.row(0) + 5) == std::vector<float>{1000, -8, 16, 0, 504});
  CHECK(rows_are_initial(table, {2, 3}, find(exec, table, {2, 3})));
}

TEST_CASE_TEMPLATE("locate in two halves: what the first names, the second does not push out", Eviction, evict_lru, evict_lfu) {
  serial_host host;
  auto const exec = host.exec();
  hash_table<float, admit_all, Eviction> table(exec, options_of(4), tessera::sgd{});
  one_batch(exec, table, {1, 2, 3, 4});
  table.begin_batch();
  id_list const first{9, 1, 8}, second{2, 9, 7};
  id_list of_first(3), of_second(3);
  std::vector<row_status> statuses(3);
  table.locate_held(exec, first, of_first);
  table.locate_held(exec, second, of_second);
  CHECK(of_first == id_list{-1, 0, -1});
  CHECK(of_second == id_list{1, -1, -1});
  table.locate_new(exec, first, of_first, statuses);
  CHECK(of_first == id_list{2, 0, 3});
  CHECK(statuses == std::vector<row_status>{row_status::evicted, row_status::found, row_status::evicted});
  table.locate_new(exec, second, of_second, statuses);
  CHECK(of_second == id_list{1, 2, -1});
  CHECK(statuses == std::vector<row_status>{row_status::found, row_status::found, row_status::not_admitted});
  CHECK(rows_are_initial(table, {9, 8}, {2, 3}));
  id_list two(2);
  CHECK_THROWS_AS(table.locate_held(exec, first, two), tessera::error);
  CHECK_THROWS_AS(table.locate_new(exec, first, two), tessera::error);
  CHECK_THROWS_AS(table.locate_new(exec, first, of_first, tessera::vector_view<row_status>(statuses).slice(0, 2)), tessera::error);
}

TEST_CASE_TEMPLATE("when memory runs out, a table with policies stays whole and goes on", Eviction, evict_lru, evict_lfu, evict_ttl) {
  serial_host host;
  bool failed = true;
  int failures = 0;
  for (std::int64_t allowed = 0; failed; ++allowed) {
    CAPTURE(allowed);
    hash_table<float, admit_all, Eviction> table(host.exec(), options_of(1500), tessera::rowwise_adagrad{.initial_state = 3});
    table_model<admit_all, Eviction> model(options_of(1500), {}, {});
    table.keep_evicted(true);
    host.memory().fail_after(allowed);
    failed = false;
    std::vector<id_list> const calls{{1, 2, 3}, id_list(1), {2, 3}, {3}, {9, 8, 7, 3, 2}};
    for (auto const& ids : calls) {
      try {
        one_batch(host.exec(), table, ids);
      } catch (std::bad_alloc const&) {
        failed = true;
      }
    }
    host.memory().never_fail();
    failures += failed;
    auto const order = order_of(table);
    CHECK(static_cast<std::int64_t>(order.size()) == table.rows());
    CHECK(rows_are_initial(table, order, find(host.exec(), table, order)));
    CHECK(table.bytes() == host.memory().live_bytes());
    for (int batch = 0; batch < 3; ++batch) one_batch(host.exec(), table, {1, 2, 3, 0, 9, 8, 7});
    CHECK(table.rows() == 7);
    CHECK(order_of(table).size() == 7);
    table.begin_batch();
    if constexpr (!std::is_same_v<Eviction, evict_ttl>) CHECK(table.evict(host.exec(), 7) == 7);
  }
  CHECK(failures > 3);
}
