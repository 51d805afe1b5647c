// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-labels: threads
#include "sum_by_target_suite.hpp"

TEST_CASE_TEMPLATE("sum_by_target", Host, tessera_tests::serial_host, tessera_tests::pool_host<2>, tessera_tests::pool_host<4>) {
  Host host;
  sum_by_target_suite(tensor_tests::rows_on_host{host.exec()});
}
