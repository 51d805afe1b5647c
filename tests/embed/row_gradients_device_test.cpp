// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-weight: 3
#include "row_gradients_device.hpp"

#include "../support/type_lists.hpp"
#include "emulated_verbs.hpp"

TEST_CASE_TEMPLATE("row_gradients on an emulated device", Element, TESSERA_TEST_SOME_ELEMENTS) {
  tessera_tests::emulated_device device;
  embed_tests::row_gradients_device_suite<Element>(device.exec());
}
