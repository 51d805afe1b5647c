// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include "select_device.hpp"

#include "../support/emulated_verbs.hpp"
#include "select_suite.hpp"

using tessera_tests::emulated_exec;

TEST_CASE("select on an emulated device") {
  tessera_tests::emulated_device device;
  select_suite(device_select<emulated_exec>{device.exec(), false});
}
TEST_CASE("select on an emulated device, waiting for the count") {
  tessera_tests::emulated_device device;
  select_suite(device_select<emulated_exec>{device.exec(), true});
}
