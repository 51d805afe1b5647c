// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-optimize: -O2
#include "jagged_products_suite.hpp"

using namespace tessera_tests;

TEST_CASE_TEMPLATE("jagged_products", Host, TESSERA_TEST_HOSTS) { jagged_products_suite<vectors_host<Host>>(); }

TEST_CASE("jagged_products: every team gives the same bits") {
  same_on_every_team([](auto& harness) {
    products<std::remove_reference_t<decltype(harness)>> calls{harness, harness.lengths(200, 20), 37, 45};
    auto const a = calls.of_k(), b = calls.of_n(), dense = calls.dense();
    auto const by_dense = calls.with_dense_backward(a, dense, b);
    return std::vector{calls.with_dense(a, dense), calls.of_rows(a, b), by_dense.first, by_dense.second};
  });
}
