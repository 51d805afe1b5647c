// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-optimize: -O2
#include "jagged_softmax_suite.hpp"

using namespace tessera_tests;

TEST_CASE_TEMPLATE("jagged_softmax", Host, TESSERA_TEST_HOSTS) { jagged_softmax_suite<vectors_host<Host>>(); }

TEST_CASE("jagged_softmax: every team gives the same bits") {
  same_on_every_team([](auto& harness) {
    auto const lengths = harness.lengths(1000, 10);
    auto const y = softmax(harness, harness.random(lengths, 17), 17);
    return std::vector{y, softmax_backward(harness, y, harness.random(lengths, 17), 17)};
  });
}
