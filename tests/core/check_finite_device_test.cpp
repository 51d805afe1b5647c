// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include "check_finite_device.hpp"

#include <vector>

#include "../support/emulated_device.hpp"
#include "../support/type_lists.hpp"
#include "check_finite_suite.hpp"

using tessera_tests::emulated_exec;

TEST_CASE_TEMPLATE("check_finite on an emulated device", T, float, tessera::bfloat16 TESSERA_TEST_MORE_TYPES(, double, tessera::float16)) {
  tessera_tests::emulated_device device;
  device.seed(tessera_tests::draw_seed());
  check_finite_suite<T>(device_check_finite<emulated_exec>{device.exec()});
}

TEST_CASE("check_finite on a device waits once where all is well") {
  tessera_tests::emulated_device device;
  auto const exec = device.exec();
  auto const values = tessera_tests::put(exec, std::vector<float>(1000, 1.0F));
  auto const waits = device.waits;
  tessera::check_finite(exec, "rows", values.view());
  CHECK(device.waits == waits + 1);
}
