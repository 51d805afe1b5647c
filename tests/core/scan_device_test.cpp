// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include "scan_device.hpp"

#include "../support/emulated_verbs.hpp"
#include "scan_suite.hpp"

TEST_CASE("scan on an emulated device") {
  tessera_tests::emulated_device device;
  scan_suite(device_scan<tessera_tests::emulated_exec>{device.exec()});
}
