// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <tessera/tensor/expand.cuh>

#include "../support/emulated_verbs.hpp"
#include "inverse_suite.hpp"

TEST_CASE("expand on an emulated device") {
  tessera_tests::emulated_device device;
  expand_suite(tensor_tests::rows_on_device(device.exec()), 400);
}
