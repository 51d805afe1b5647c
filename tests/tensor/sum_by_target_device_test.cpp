// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <tessera/tensor/sum_by_target.cuh>

#include "../support/emulated_verbs.hpp"
#include "sum_by_target_suite.hpp"

TEST_CASE("sum_by_target on an emulated device") {
  tessera_tests::emulated_device device;
  sum_by_target_suite(tensor_tests::rows_on_device(device.exec()));
}
