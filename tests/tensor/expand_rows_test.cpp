// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include "expand_rows_suite.hpp"

#include <string>

using tensor_tests::rows_on_host;

TEST_CASE("expand_rows on one thread") {
  tessera_tests::serial_host host;
  expand_rows_suite(rows_on_host{host.exec()});
}
TEST_CASE("expand_rows on 2 threads") {
  tessera_tests::pool_host<2> host;
  expand_rows_suite(rows_on_host{host.exec()});
}
TEST_CASE("expand_rows on 4 threads") {
  tessera_tests::pool_host<4> host;
  expand_rows_suite(rows_on_host{host.exec()});
}

TEST_CASE("a negative repeat is named by its key's name") {
  tessera_tests::serial_host host;
  auto const batch = tensor_tests::named_batch(host.exec());
  auto const e = tensor_tests::error_of([&] { tessera::expand_rows(host.exec(), batch, tensor_tests::ids{1, 1, 1, 1, -1}); });
  CHECK(std::string(e.what()) == "expand_rows: negative repeat (key item, row 1, repeat -1)");
}
