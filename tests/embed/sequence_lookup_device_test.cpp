// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include "sequence_lookup_device.hpp"

#include "emulated_verbs.hpp"

TEST_CASE_TEMPLATE("sequence_lookup on an emulated device", Element, float, tessera::float16, tessera::float8_e5m2, tessera::scaled_int8) {
  tessera_tests::emulated_device device;
  embed_tests::sequence_lookup_device_suite<Element>(device.exec());
}
