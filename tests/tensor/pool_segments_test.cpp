// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-optimize: -O2
#include "pool_segments_suite.hpp"

using namespace tessera_tests;

TEST_CASE_TEMPLATE("pool_segments", Host, TESSERA_TEST_HOSTS) { pool_segments_suite<vectors_host<Host>>(); }

TEST_CASE("pool_segments: every team gives the same bits") {
  same_on_every_team([](auto& harness) {
    auto const rows = harness.random(harness.lengths(1500, 10), 17), gradient = harness.random(1500, 1, 17);
    std::vector<nested> results;
    for (auto const mode : all_modes) {
      results.push_back(pooled(harness, rows, mode, 17));
      results.push_back(unpooled(harness, rows, mode, gradient, 17));
    }
    return results;
  });
}
