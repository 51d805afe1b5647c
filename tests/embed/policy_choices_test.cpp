// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-weight: 3
#include <tessera/embed/policy_choices.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include <tessera/embed/hash_table.hpp>
#include <tessera/embed/table_files.hpp>

#include "hosts.hpp"
#include "random.hpp"
#include "temporary_folder.hpp"

using namespace tessera;
using namespace tessera_tests;

namespace {

constexpr table_options choice_options{.id = table_id(2), .dim = 3, .init_bound = 0.1F, .seed = random_seed(5), .most_rows = 12};

using chosen_table = hash_table<float, admission_choice, eviction_choice>;

// Batches of repeated ids, with times, erased ids, and rows that change: all that can be seen of them.
template <class Table>
std::vector<std::int64_t> use_table(host_exec const& exec, Table& table, std::mt19937_64 random, int batches) {
  std::vector<std::int64_t> seen;
  for (int batch = 0; batch < batches; ++batch) {
    table.begin_batch();
    auto const ids = random_integers<std::int64_t>(random, 15, -10, 25);
    std::vector<std::int64_t> slots(ids.size());
    std::vector<row_status> statuses(ids.size());
    table.locate(exec, ids, slots, statuses);
    for (std::size_t i = 0; i < ids.size(); ++i) {
      seen.push_back(slots[i]);
      seen.push_back(static_cast<std::int64_t>(statuses[i]));
      if (slots[i] >= 0) seen.push_back(static_cast<std::int64_t>(*table.state(slots[i]) += 1));
    }
    if (batch % 5 == 0) seen.push_back(table.erase(exec, std::vector<std::int64_t>{batch % 7}));
  }
  table.for_each_row([&](std::int64_t slot, std::int64_t id) { seen.insert(seen.end(), {slot, id}); });
  return seen;
}

// A table whose policies were chosen does what the one does that has them by type, and so does each from the checkpoint of the other.
template <class Admission, class Eviction>
void chosen_is_same(Admission const& admission, Eviction const& eviction) {
  CAPTURE(Admission::name);
  CAPTURE(Eviction::name);
  auto const seed = draw_seed();
  CAPTURE(seed);
  serial_host host;
  auto const exec = host.exec();
  std::mt19937_64 random(seed);
  using typed_table = hash_table<float, Admission, Eviction>;
  auto const typed = [&] { return typed_table(exec, choice_options, rowwise_adagrad(), admission, eviction); };
  auto const chosen = [&] { return chosen_table(exec, choice_options, rowwise_adagrad(), {admission}, {eviction}); };

  std::vector<typed_table> typed_tables;
  std::vector<chosen_table> chosen_tables;
  typed_tables.push_back(typed());
  chosen_tables.push_back(chosen());
  CHECK(use_table(exec, chosen_tables[0], random, 60) == use_table(exec, typed_tables[0], random, 60));
  CHECK(chosen_tables[0].bytes() == typed_tables[0].bytes());
  CHECK(chosen_table::bytes_for(choice_options, row_state_layout::of(rowwise_adagrad()), {admission}, {eviction}).total() ==
        typed_table::bytes_for(choice_options, row_state_layout::of(rowwise_adagrad()), admission, eviction).total());

  temporary_folder folder;
  auto const typed_file = folder.file("typed"), chosen_file = folder.file("chosen");
  write_table_file(exec, typed_file, parts_of(typed_tables));
  write_table_file(exec, chosen_file, parts_of(chosen_tables));
  CHECK(contents(typed_file) == contents(chosen_file));
  auto const kind = parts_of(chosen_tables)[0]->kind();
  CHECK(kind.admission == Admission::name);
  CHECK(kind.eviction == Eviction::name);

  auto const go_on = [&](auto table) {
    std::vector<decltype(table)> tables;
    tables.push_back(std::move(table));
    auto parts = parts_of(tables);
    table_file_reader(typed_file, parts, table_content::all).read(exec);
    return use_table(exec, tables[0], random, 40);
  };
  auto const expected = go_on(typed());
  CHECK(go_on(chosen()) == expected);
  random.discard(1);
  CHECK(go_on(chosen()) != expected);  // of other ids
}

}  // namespace

TEST_CASE("policies that are chosen when a table is built are those that its type would name") {
  auto const each = [](auto const& admission) {
    chosen_is_same(admission, evict_lru());
    chosen_is_same(admission, evict_lfu());
    chosen_is_same(admission, evict_ttl{.lifetime = 2});
  };
  each(admit_all());
  each(admit_by_probability{.probability = 0.5});
  each(admit_by_frequency{.sightings = 2, .candidates = 8});
}

TEST_CASE("a choice refuses what the policy refuses, by its name") {
  serial_host host;
  auto const refused = [&](admission_choice const& admission, eviction_choice const& eviction) {
    return [&, admission, eviction] { chosen_table(host.exec(), choice_options, sgd(), admission, eviction); };
  };
  CHECK_THROWS_WITH(refused({admit_by_frequency{.sightings = 0}}, {})(), doctest::Contains("admit_by_frequency"));
  CHECK_THROWS_WITH(refused({admit_by_probability{.probability = 2}}, {})(), doctest::Contains("admit_by_probability"));
  CHECK_THROWS_WITH(refused({}, {evict_ttl{.lifetime = -1}})(), doctest::Contains("evict_ttl"));
}
