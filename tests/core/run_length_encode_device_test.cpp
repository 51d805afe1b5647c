// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include "run_length_encode_device.hpp"

#include "../support/emulated_verbs.hpp"
#include "run_length_encode_suite.hpp"

using tessera_tests::emulated_exec;

TEST_CASE("run_length_encode on an emulated device") {
  tessera_tests::emulated_device device;
  device.seed(tessera_tests::draw_seed());
  run_length_encode_suite(device_run_length_encode<emulated_exec>{device.exec(), false});
}
TEST_CASE("run_length_encode on an emulated device, waiting for the count") {
  tessera_tests::emulated_device device;
  run_length_encode_suite(device_run_length_encode<emulated_exec>{device.exec(), true});
}

TEST_CASE("run_length_encode on a device waits only when it returns the count") {
  tessera_tests::emulated_device device;
  auto const exec = device.exec();
  auto const values = tessera_tests::put(exec, std::vector<std::int64_t>{3, 3, 2});
  tessera::buffer<std::int64_t, emulated_exec> runs(exec, 3), offsets(exec, 4), count(exec, 1);
  auto const waits = device.waits;
  tessera::run_length_encode(exec, values.view(), runs.view(), offsets.view(), count.view());
  CHECK(device.waits == waits);
  CHECK(tessera::run_length_encode(exec, values.view(), runs.view(), offsets.view()) == 2);
  CHECK(device.waits == waits + 1);
}
