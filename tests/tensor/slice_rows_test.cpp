// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include "slice_rows_suite.hpp"

TEST_CASE_TEMPLATE("slice_rows", Host, TESSERA_TEST_HOSTS) {
  Host host;
  slice_rows_suite(tensor_tests::rows_on_host{host.exec()});
}
