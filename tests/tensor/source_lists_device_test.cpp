// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <tessera/tensor/source_lists.cuh>

#include "../support/emulated_verbs.hpp"
#include "source_lists_suite.hpp"

TEST_CASE("source_lists on an emulated device") {
  tessera_tests::emulated_device device;
  source_lists_suite(tensor_tests::rows_on_device(device.exec()));
}
