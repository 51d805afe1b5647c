// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include "inverse_suite.hpp"

TEST_CASE_TEMPLATE("expand", Host, tessera_tests::serial_host, tessera_tests::pool_host<2>, tessera_tests::pool_host<4>) {
  Host host;
  expand_suite(tensor_tests::rows_on_host{host.exec()}, 1000);
}
