// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include "permute_keys_suite.hpp"

TEST_CASE_TEMPLATE("permute_keys", Host, TESSERA_TEST_HOSTS) {
  Host host;
  permute_keys_suite(tensor_tests::rows_on_host{host.exec()});
}
