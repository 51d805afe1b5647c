// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include "truncate_rows_suite.hpp"

TEST_CASE_TEMPLATE("truncate_rows", Host, TESSERA_TEST_HOSTS) {
  Host host;
  truncate_rows_suite(tensor_tests::rows_on_host{host.exec()});
}
