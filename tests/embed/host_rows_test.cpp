// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/core/optimizers.hpp>
#include <tessera/embed/dense_table.hpp>
#include <tessera/embed/hash_table.hpp>
#include <tessera/embed/host_rows.hpp>

#include "../support/type_lists.hpp"
#include "hosts.hpp"

namespace {

// Ids with gaps, of more rows than a slab has.
constexpr std::int64_t id_count = 2500;
constexpr std::int64_t id_number(std::int64_t i) { return 3 * i + 7; }

template <class Store>
Store table_with_rows(tessera::host_exec const& exec) {
  tessera::table_options const options{.dim = 5, .rows = Store::slots_are_ids ? id_number(id_count) : 0, .seed = tessera::random_seed{3}};
  Store table(exec, options, tessera::adam{});
  std::vector<std::int64_t> ids, slots(id_count);
  for (std::int64_t i = 0; i < id_count; ++i) ids.push_back(id_number(i));
  table.locate(exec, ids, slots);
  table.set_steps(tessera::step_count{11});
  return table;
}

}  // namespace

TEST_CASE_TEMPLATE("host_rows: what kernels see of a table is what it says itself", Store, TESSERA_TEST_STORES, TESSERA_TEST_SMALL_STORES) {
  tessera_tests::serial_host host;
  auto const table = table_with_rows<Store>(host.exec());
  auto const rows = table.host_rows();
  static_assert(std::is_trivially_copyable_v<std::remove_const_t<decltype(rows)>>);
  CHECK(rows.dim() == 5);
  CHECK(rows.steps() == tessera::step_count{11});
  CHECK(rows.options().seed == table.options().seed);
  CHECK(rows.slot_bound == table.slot_bound());
  CHECK(rows.slots_are_ids == Store::slots_are_ids);
  std::int64_t seen = 0, wrong = 0;
  table.for_each_row([&](std::int64_t slot, std::int64_t id) {
    ++seen;
    wrong += !rows.holds(slot) || rows.id_of(slot) != id || rows.row(slot) != table.row(slot) || rows.state(slot) != table.state(slot);
  });
  CHECK(seen == table.rows());
  CHECK(wrong == 0);
  for (std::int64_t const slot : {std::int64_t{-1}, table.slot_bound(), INT64_MIN, INT64_MAX}) CHECK_FALSE(rows.holds(slot));
}

TEST_CASE_TEMPLATE("host_rows: of a table without rows", Store, TESSERA_TEST_STORES) {
  tessera_tests::serial_host host;
  Store const table(host.exec(), tessera::table_options{.dim = 3}, tessera::sgd{});
  auto const rows = table.host_rows();
  CHECK(rows.slot_bound == 0);
  CHECK_FALSE(rows.holds(0));
  CHECK(rows.slots_are_ids == Store::slots_are_ids);
}
