// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-labels: threads
#include "padded_vectors_suite.hpp"

using namespace tessera_tests;

TEST_CASE_TEMPLATE("padded_vectors", Host, serial_host, pool_host<2>) { padded_vectors_suite<vectors_host<Host>>(); }

TEST_CASE("padded_vectors: every team gives the same bits") {
  same_on_every_team([](auto& harness) {
    auto const lengths = harness.lengths(2000, 10);
    auto const rows = harness.random(lengths, 17), dense = harness.random(2000, 8, 17);
    return std::vector{padded(harness, rows, 8, 17, {}), unpadded(harness, dense, lengths, 17, {})};
  });
}
