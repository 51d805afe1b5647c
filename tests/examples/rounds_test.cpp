// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <vector>

#include "../../examples/plan_tables/rounds.hpp"

namespace rounds_test {

using plan_tables::per_device;

TEST_CASE("plan_tables rounds: medians and least values of each device, and the round whose slowest device is fastest") {
  using values = std::vector<double>;
  per_device const backward{{3, 1, 2}, {10, 30, 4}}, forward{{1, 1, 9}, {1, 1, 5}};
  CHECK(plan_tables::medians(backward) == values{2, 10});
  CHECK(plan_tables::least(backward) == values{1, 4});
  CHECK(plan_tables::of_round(backward, 2) == values{2, 4});
  // Without steps rounds take 11, 31 and 11; the first of equal ones counts. Steps change which device is the slowest.
  CHECK(plan_tables::fastest_round({{0, 0, 0}, {0, 0, 0}}, backward, forward) == 0);
  CHECK(plan_tables::fastest_round({{0, 0, 0}, {1, 1, 1}}, backward, forward) == 2);     // 12, 32, 11
  CHECK(plan_tables::fastest_round({{40, 40, 40}, {0, 0, 0}}, backward, forward) == 1);  // 44, 42, 51
  per_device const steps{{0, 90, 0}, {80, 0, 90}};                                       // 91, 92, 99
  auto const fastest = plan_tables::costs_of_rounds(steps, backward, forward, true);
  CHECK(fastest.compute == values{0, 80});
  CHECK(fastest.backward == values{3, 10});
  CHECK(fastest.forward == values{1, 1});
  auto const of_each = plan_tables::costs_of_rounds(steps, backward, forward, false);
  CHECK(of_each.compute == values{0, 80});
  CHECK(of_each.backward == values{2, 10});
  CHECK(of_each.forward == values{1, 1});
}

}  // namespace rounds_test
