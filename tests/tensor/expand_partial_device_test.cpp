// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include "../support/emulated_verbs.hpp"
#include "partial_device.hpp"

TEST_CASE("expand_partial on an emulated device") {
  tessera_tests::emulated_device device;
  tensor_tests::expand_partial_on_device(tensor_tests::rows_on_device(device.exec()));
}
