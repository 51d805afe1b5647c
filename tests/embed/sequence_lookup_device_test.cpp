// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-weight: 4
#include "sequence_lookup_device.hpp"

#include "../support/type_lists.hpp"
#include "emulated_verbs.hpp"

TEST_CASE_TEMPLATE("sequence_lookup on an emulated device", Element, TESSERA_TEST_SOME_ELEMENTS) {
  tessera_tests::emulated_device device;
  embed_tests::sequence_lookup_device_suite<Element>(device.exec());
}
