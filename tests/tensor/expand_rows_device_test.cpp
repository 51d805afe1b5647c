// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <tessera/tensor/expand_rows.cuh>

#include "../support/emulated_verbs.hpp"
#include "expand_rows_suite.hpp"

TEST_CASE("expand_rows on an emulated device") {
  tessera_tests::emulated_device device;
  expand_rows_suite(tensor_tests::rows_on_device(device.exec()));
}
