// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <tessera/embed/admission.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <tessera/core/error.hpp>
#include <tessera/embed/hash_table.hpp>

#include "embed_support.hpp"
#include "hosts.hpp"
#include "random.hpp"

using namespace embed_tests;
using tessera::admit_all;
using tessera::admit_by_frequency;
using tessera::admit_by_probability;
using tessera::hash_table;
using tessera::row_status;
using tessera_tests::serial_host;
using id_list = std::vector<std::int64_t>;

namespace {

struct without_state : admit_all {
  struct state {};
};
static_assert(tessera::admission<admit_all> && tessera::admission<admit_by_frequency> && tessera::admission<admit_by_probability>);
static_assert(!tessera::admission<without_state> && !tessera::admission<tessera::evict_lru>);

constexpr tessera::table_options policy_table{
    .id = tessera::table_id(2), .dim = 3, .rows = 0, .init_bound = 0.1F, .seed = tessera::random_seed(5)};

template <class Table>
id_list admitted(tessera::host_exec const& exec, Table& table, id_list const& ids) {
  table.begin_batch();
  id_list slots(ids.size());
  std::vector<row_status> statuses(ids.size(), row_status::moved);
  table.locate(exec, ids, slots, statuses);
  id_list result;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    CHECK((slots[i] < 0) == (statuses[i] == row_status::not_admitted));
    if (statuses[i] == row_status::inserted) result.push_back(ids[i]);
  }
  return result;
}

}  // namespace

TEST_CASE("admit_by_frequency: a row at the k-th batch that has the id") {
  serial_host host;
  auto const exec = host.exec();
  hash_table<float, admit_by_frequency> table(exec, policy_table, tessera::sgd{}, {.sightings = 3, .candidates = 100});
  CHECK(admitted(exec, table, {1, 1, 1, 2}).empty());  // once a batch, however often
  CHECK(admitted(exec, table, {1, -3}).empty());
  CHECK(find(exec, table, {1, 2}) == id_list{-1, -1});
  CHECK(admitted(exec, table, {2, 1, 1}) == id_list{1});
  CHECK(admitted(exec, table, {2, 1, -3}) == id_list{2});
  CHECK(admitted(exec, table, {-3, 4}) == id_list{-3});
  // Who left begins again.
  CHECK(table.erase(exec, id_list{1}) == 1);
  CHECK(admitted(exec, table, {1}).empty());
  CHECK(admitted(exec, table, {1}).empty());
  CHECK(admitted(exec, table, {1}) == id_list{1});
}

TEST_CASE("admit_by_frequency: the candidate not seen for longest is forgotten") {
  serial_host host;
  auto const exec = host.exec();
  hash_table<float, admit_by_frequency> table(exec, policy_table, tessera::sgd{}, {.sightings = 2, .candidates = 2});
  CHECK(admitted(exec, table, {1, 2}).empty());
  CHECK(admitted(exec, table, {3}).empty());  // 1 is forgotten
  CHECK(admitted(exec, table, {2}) == id_list{2});
  CHECK(admitted(exec, table, {1}).empty());
  CHECK(admitted(exec, table, {3}) == id_list{3});
  CHECK(admitted(exec, table, {1}) == id_list{1});
}

TEST_CASE("admit_by_frequency: insert asks nobody") {
  serial_host host;
  auto const exec = host.exec();
  hash_table<float, admit_by_frequency> table(exec, policy_table, tessera::sgd{}, {.sightings = 5, .candidates = 10});
  id_list slots(3);
  table.insert(exec, id_list{7, 8, 7}, slots);
  CHECK(slots == id_list{0, 1, 0});
  CHECK(rows_are_initial(table, {7, 8}, {0, 1}));
}

TEST_CASE("admit_by_frequency: the memory for counts is taken when the table is built, and no more") {
  serial_host host;
  auto const exec = host.exec();
  admit_by_frequency const policy{.sightings = 2, .candidates = 1000};
  using table_type = hash_table<float, admit_by_frequency>;
  table_type table(exec, policy_table, tessera::sgd{}, policy);
  CHECK(table.bytes() == table_type::bytes_for(policy_table, table.state_layout(), policy).total());
  CHECK(table.bytes() == host.memory().live_bytes());
  auto const allocations = host.memory().allocations();
  for (std::int64_t first = 0; first < 20'000; first += 500) {
    id_list ids(500);
    std::iota(ids.begin(), ids.end(), first);
    CHECK(admitted(exec, table, ids).empty());
  }
  CHECK(host.memory().allocations() == allocations);
}

TEST_CASE("admit_by_frequency: options that cannot be are named") {
  serial_host host;
  for (auto const& [sightings, candidates] : {std::pair<std::int64_t, std::int64_t>{0, 5}, {2, 0}, {2, std::int64_t{1} << 60}}) {
    try {
      hash_table<float, admit_by_frequency> table(host.exec(), policy_table, tessera::sgd{},
                                                  {.sightings = sightings, .candidates = candidates});
      FAIL("accepted");
    } catch (tessera::error const& e) {
      CHECK(e.code() == tessera::errc::invalid_argument);
      CHECK(e.value("sightings") == std::to_string(sightings));
      CHECK(e.value("candidates") == std::to_string(candidates));
      CHECK(e.value("table") == "2");
    }
  }
}

TEST_CASE("admit_by_probability: none, all, and the share that was asked for") {
  serial_host host;
  auto const exec = host.exec();
  using table_type = hash_table<float, admit_by_probability>;
  id_list ids(20'000);
  std::iota(ids.begin(), ids.end(), -10'000);
  table_type none(exec, policy_table, tessera::sgd{}, {.probability = 0}), all(exec, policy_table, tessera::sgd{}, {.probability = 1});
  CHECK(admitted(exec, none, ids).empty());
  CHECK(admitted(exec, all, ids) == ids);
  for (double const p : {0.01, 0.3, 0.9}) {
    CAPTURE(p);
    table_type table(exec, policy_table, tessera::sgd{}, {.probability = p});
    double left = 20'000;
    for (int batch = 0; batch < 3; ++batch) {  // whoever has a row is asked no more; each batch draws anew
      auto const count = static_cast<double>(admitted(exec, table, ids).size());
      CHECK(std::abs(count - p * left) < 6 * std::sqrt(p * (1 - p) * left) + 1);
      left -= count;
    }
  }
}

TEST_CASE("admit_by_probability: seed, table, id and batch decide, and nothing else") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  auto const ids = tessera_tests::random_integers<std::int64_t>(random, 3000, -1'000'000, 1'000'000);
  using table_type = hash_table<float, admit_by_probability>;
  id_list first, second;
  tessera_tests::for_each_host([&](tessera::host_exec const& exec, tessera_tests::counting_memory&) {
    auto shuffled = ids;
    shuffled.insert(shuffled.end(), ids.begin(), ids.end());
    std::shuffle(shuffled.begin(), shuffled.end(), random);
    table_type table(exec, policy_table, tessera::sgd{}, {.probability = 0.4});
    auto other_options = policy_table;
    other_options.seed = tessera::random_seed(6);
    table_type other(exec, other_options, tessera::sgd{}, {.probability = 0.4});
    other_options = policy_table;
    other_options.id = tessera::table_id(3);
    table_type third(exec, other_options, tessera::sgd{}, {.probability = 0.4});
    auto const sorted = [&](auto& t) {
      auto found = admitted(exec, t, shuffled);
      std::sort(found.begin(), found.end());
      return found;
    };
    auto const now = sorted(table), then = sorted(table);
    if (first.empty()) first = now;
    if (second.empty()) second = then;
    CHECK(now == first);
    CHECK(then == second);
    CHECK(sorted(other) != first);
    CHECK(sorted(third) != first);
  });
}

TEST_CASE("admit_by_probability: what is no probability is refused") {
  serial_host host;
  for (double const p : {-0.1, 1.1, std::nan("")})
    CHECK_THROWS_AS((hash_table<float, admit_by_probability>(host.exec(), policy_table, tessera::sgd{}, {.probability = p})),
                    tessera::error);
}
