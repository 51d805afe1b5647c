// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include "unique_device.hpp"

#include "../support/emulated_verbs.hpp"
#include "unique_suite.hpp"

using tessera_tests::emulated_exec;

TEST_CASE("unique on an emulated device") {
  tessera_tests::emulated_device device;
  device.seed(tessera_tests::draw_seed());
  unique_suite(device_unique<emulated_exec>{device.exec(), false});
}
TEST_CASE("unique on an emulated device, waiting for the count") {
  tessera_tests::emulated_device device;
  unique_suite(device_unique<emulated_exec>{device.exec(), true});
}

TEST_CASE("unique on a device: in place, and only as much written as promised; it waits only when it returns the count") {
  tessera_tests::emulated_device device;
  auto const exec = device.exec();
  auto keys = tessera_tests::put(exec, std::vector<std::int64_t>{4, -4, 4, 2});
  tessera::buffer<std::int64_t, emulated_exec> inverse(exec, 4), count(exec, 1);
  auto const waits = device.waits;
  tessera::unique(exec, keys.view(), keys.view(), inverse.view(), count.view());
  CHECK(device.waits == waits);
  CHECK(tessera::read_one(exec, count.data()) == 3);
  CHECK(tessera_tests::get(exec, keys) == std::vector<std::int64_t>{-4, 2, 4, 2});
  CHECK(tessera_tests::get(exec, inverse) == std::vector<std::int64_t>{2, 0, 2, 1});
}

TEST_CASE("unique on a device refuses, in a checked build, keys that differ in other bits") {
  if constexpr (tessera::checked) {
    tessera_tests::emulated_device device;
    auto const exec = device.exec();
    auto const keys = tessera_tests::put(exec, std::vector<std::int64_t>{259, 3, 2});
    tessera::buffer<std::int64_t, emulated_exec> distinct(exec, 3), inverse(exec, 3);
    tessera::unique(exec, keys.view(), distinct.view(), inverse.view(), {.begin_bit = 0, .end_bit = 1});
    CHECK_THROWS_WITH_AS(exec.synchronize(), "unique: keys differ in bits that are not compared (position 0, begin_bit 0, end_bit 1)",
                         tessera::error);
    CHECK(tessera::unique(exec, keys.view(), distinct.view(), inverse.view(), {.begin_bit = 0, .end_bit = 9}) == 3);
    exec.synchronize();
  }
}
