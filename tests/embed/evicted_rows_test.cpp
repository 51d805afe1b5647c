// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <cstdint>
#include <new>
#include <vector>

#include <tessera/core/optimizers.hpp>
#include <tessera/embed/dense_table.hpp>
#include <tessera/embed/evicted_rows.hpp>

#include "../support/type_lists.hpp"
#include "embed_support.hpp"
#include "hosts.hpp"

using namespace embed_tests;

TEST_CASE_TEMPLATE("evicted_rows are the values of rows as they were, oldest first", Element, TESSERA_TEST_SOME_ELEMENTS) {
  tessera_tests::serial_host host;
  auto const exec = host.exec();
  tessera::dense_table<Element> table(exec, {.dim = 7, .rows = 40, .init_bound = 0.5F}, tessera::rowwise_adagrad{.initial_state = 0.25F});
  tessera::evicted_rows kept;
  CHECK(kept.view().ids.size() == 0);
  auto const leave = [&](std::int64_t id) {
    kept.push_back(exec, id, tessera::vector_view<Element const>(table.row(id), 7), tessera::vector_view<float const>(table.state(id), 1));
  };
  std::vector<std::vector<float>> rows;
  std::vector<std::int64_t> const ids{3, 39, 0, 3};
  for (auto const id : ids) {
    set_row(table, id, std::vector<float>{1.0F, -2.0F, static_cast<float>(rows.size()), 0.0F, 0.5F, -0.25F, 3.0F});
    *table.state(id) = static_cast<float>(rows.size()) + 0.5F;
    rows.push_back(values_of_row(table, id));
    leave(id);
    set_row(table, id, std::vector<float>(7, 64.0F));  // what becomes of the row does not matter
  }
  auto const check = [&] {
    auto const view = kept.view();
    REQUIRE(view.ids.size() == 4);
    CHECK(view.weights.rows() == 4);
    CHECK(view.weights.columns() == 7);
    CHECK(view.states.columns() == 1);
    for (std::int64_t i = 0; i < 4; ++i) {
      CHECK(view.ids[i] == ids[static_cast<std::size_t>(i)]);
      CHECK(same_bits(view.weights.row(i), rows[static_cast<std::size_t>(i)].data(), 7));
      CHECK(view.states(i, 0) == static_cast<float>(i) + 0.5F);
    }
  };
  check();

  // Without memory for one more, it stays as it is, wherever the memory ends.
  for (int allocations = 0; allocations < 3; ++allocations) {
    host.memory().fail_after(allocations);
    CHECK_THROWS_AS(([&] {
                      for (std::int64_t id = 0; id < 40; ++id) leave(id);
                    }()),
                    std::bad_alloc);
    host.memory().never_fail();
    auto const count = kept.view().ids.size();
    CHECK(count >= 4);
    CHECK(kept.view().weights.rows() == count);
    CHECK(same_bits(kept.view().weights.row(0), rows[0].data(), 7));
    CHECK(kept.view().ids[count - 1] == (count == 4 ? 3 : count - 5));
    kept = {};
    for (std::size_t i = 0; i < ids.size(); ++i) {
      set_row(table, ids[i], rows[i]);
      *table.state(ids[i]) = static_cast<float>(i) + 0.5F;
      leave(ids[i]);
    }
    check();
  }
  auto const bytes = kept.bytes();
  kept.clear();
  CHECK(kept.view().ids.size() == 0);
  CHECK(kept.bytes() == bytes);
}
