// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include "expand_rows_suite.hpp"

#include <string>

TEST_CASE_TEMPLATE("expand_rows", Host, TESSERA_TEST_HOSTS) {
  Host host;
  expand_rows_suite(tensor_tests::rows_on_host{host.exec()});
}

TEST_CASE("a negative repeat is named by its key's name") {
  tessera_tests::serial_host host;
  auto const batch = tensor_tests::named_batch(host.exec());
  CHECK(tensor_tests::refusal_of([&] {
          tessera::expand_rows(host.exec(), batch, tensor_tests::ids{1, 1, 1, 1, -1});
        }) == "expand_rows: negative repeat (key item, row 1, repeat -1)");
}
