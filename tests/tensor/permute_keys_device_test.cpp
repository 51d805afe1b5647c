// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <tessera/tensor/permute_keys.cuh>

#include "../support/emulated_verbs.hpp"
#include "permute_keys_suite.hpp"

TEST_CASE("permute_keys on an emulated device") {
  tessera_tests::emulated_device device;
  permute_keys_suite(tensor_tests::rows_on_device(device.exec()));
}
