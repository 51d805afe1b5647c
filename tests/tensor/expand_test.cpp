// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include "inverse_suite.hpp"

TEST_CASE_TEMPLATE("expand", Host, TESSERA_TEST_HOSTS) {
  Host host;
  expand_suite(tensor_tests::rows_on_host{host.exec()}, 1000);
}
