// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include "../support/emulated_verbs.hpp"
#include "inverse_device.hpp"

TEST_CASE("expand on an emulated device") {
  tessera_tests::emulated_device device;
  tensor_tests::expand_on_device(tensor_tests::rows_on_device(device.exec()));
}
