// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include "radix_sort_device.hpp"

#include "../support/emulated_verbs.hpp"
#include "radix_sort_suite.hpp"

TEST_CASE("radix_sort on an emulated device") {
  tessera_tests::emulated_device device;
  device.seed(tessera_tests::draw_seed());
  radix_sort_suite(device_radix_sort<tessera_tests::emulated_exec>{device.exec()});
}

TEST_CASE("radix_sort on a device waits for nothing, and its workspace, as large as the pairs, comes back") {
  tessera_tests::emulated_device device;
  auto const exec = device.exec();
  auto keys = tessera_tests::put(exec, std::vector<std::int64_t>{3, 1, 2});
  auto values = tessera_tests::put(exec, std::vector<float>{30, 10, 20});
  auto const waits = device.waits;
  auto const before = device.live_bytes();
  tessera::radix_sort_pairs(exec, keys.view(), values.view());
  CHECK(device.waits == waits);
  CHECK(device.live_bytes() == before);
  CHECK(device.peak_bytes() == before + 3 * 12);
}
