// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <tessera/tensor/bucketize.cuh>

#include "../support/emulated_verbs.hpp"
#include "bucketize_suite.hpp"

TEST_CASE("bucketize on an emulated device") {
  tessera_tests::emulated_device device;
  bucketize_suite(tensor_tests::rows_on_device(device.exec()));
}
