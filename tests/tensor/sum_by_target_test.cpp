// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-labels: threads
#include "sum_by_target_suite.hpp"

TEST_CASE_TEMPLATE("sum_by_target", Host, TESSERA_TEST_HOSTS) {
  Host host;
  sum_by_target_suite(tensor_tests::rows_on_host{host.exec()});
}
