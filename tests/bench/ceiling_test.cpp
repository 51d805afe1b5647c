// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0

#include <doctest/doctest.h>

#include <vector>

#include "../../bench/ceiling.hpp"

namespace {

using tessera_bench::ceiling;

TEST_CASE("a ceiling is the rate of the fastest loop, on all threads or on one") {
  auto const slow = [](int) { return 10.0; };
  auto const parallel = [](int threads) { return 15.0 * threads; };
  auto const crowded = [](int threads) { return threads == 1 ? 40.0 : 20.0; };
  CHECK(ceiling({slow, parallel}, 2).rate() == 30);
  CHECK(ceiling({slow, crowded}, 2).rate() == 40);
  CHECK(ceiling({slow, parallel, crowded}, 4).rate() == 60);
}

TEST_CASE("a ceiling measured before and after the work is the better of both, and says by how much it moved") {
  double rate = 100;
  std::vector<int> asked;
  ceiling machine({[&](int threads) {
                    asked.push_back(threads);
                    return rate;
                  }},
                  2);
  CHECK(machine.rate() == 100);
  CHECK(machine.moved() == 0);
  rate = 80;
  machine.measure_again();
  CHECK(machine.rate() == 100);
  CHECK(machine.moved() == doctest::Approx(0.2));
  rate = 125;
  machine.measure_again();
  CHECK(machine.rate() == 125);
  CHECK(machine.moved() == doctest::Approx(0.2));
  CHECK(asked.back() == 2);
}

TEST_CASE("a lucky trial in the choice of the loop raises the ceiling, but is no move") {
  int calls = 0;
  ceiling machine({[&](int) { return ++calls == 1 ? 150.0 : 100.0; }}, 2);
  machine.measure_again();
  CHECK(machine.rate() == 150);
  CHECK(machine.moved() == 0);
}

TEST_CASE("a ceiling that was never measured has no rate and has not moved") {
  ceiling none;
  none.measure_again();
  CHECK(none.rate() == 0);
  CHECK(none.moved() == 0);
}

}  // namespace
