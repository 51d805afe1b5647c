// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include "slice_rows_suite.hpp"

using tensor_tests::rows_on_host;

TEST_CASE("slice_rows on one thread") {
  tessera_tests::serial_host host;
  slice_rows_suite(rows_on_host{host.exec()});
}
TEST_CASE("slice_rows on 2 threads") {
  tessera_tests::pool_host<2> host;
  slice_rows_suite(rows_on_host{host.exec()});
}
TEST_CASE("slice_rows on 4 threads") {
  tessera_tests::pool_host<4> host;
  slice_rows_suite(rows_on_host{host.exec()});
}
