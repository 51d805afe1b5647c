// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-optimize: -O2
#include "vector_arithmetic_suite.hpp"

using namespace tessera_tests;

TEST_CASE_TEMPLATE("vector_arithmetic", Host, TESSERA_TEST_HOSTS) { vector_arithmetic_suite<vectors_host<Host>>(); }

TEST_CASE("vector_arithmetic: every team gives the same bits") {
  same_on_every_team([](auto& harness) {
    arithmetic<std::remove_reference_t<decltype(harness)>> calls{harness, 17};
    auto const lengths = harness.lengths(1500, 10);
    auto const rows = harness.random(lengths, 17), gradient = harness.random(lengths, 17), dense = harness.random(1500, 8, 17);
    auto const backward = calls.product_backward(rows, dense, gradient, true);
    return std::vector{calls.sum(rows, dense, true), calls.product(rows, gradient, false), backward.first, backward.second};
  });
}
