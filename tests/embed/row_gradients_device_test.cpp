// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include "row_gradients_device.hpp"

#include "emulated_verbs.hpp"

TEST_CASE_TEMPLATE("row_gradients on an emulated device", Element, float, tessera::float16, tessera::scaled_int8) {
  tessera_tests::emulated_device device;
  embed_tests::row_gradients_device_suite<Element>(device.exec());
}
