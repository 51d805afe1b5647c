// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include "memory_adaptors_suite.hpp"

#include <cstdint>
#include <vector>

#include <tessera/core/unique.cuh>

#include "../support/device_arrays.hpp"
#include "../support/emulated_verbs.hpp"

TEST_CASE("memory adaptors on an emulated device") {
  tessera_tests::emulated_device device;
  memory_adaptors_suite(device.exec(), device);
}

TEST_CASE("a device's step with an arena's memory stops asking the device for any") {
  tessera_tests::emulated_device device;
  tessera::tracked_memory tracked(device);
  tessera::arena arena(tracked, 4096);
  auto const exec = device.exec().with_memory(arena);
  for (int step = 0; step < 4; ++step) {
    auto const keys = tessera_tests::put(exec, std::vector<std::int64_t>{5, 1, 5, 3});
    tessera::buffer<std::int64_t, tessera_tests::emulated_exec> distinct(exec, 4), inverse(exec, 4), count(exec, 1);
    tessera::unique(exec, keys.view(), distinct.view(), inverse.view(), count.view());
    CHECK(tessera::read_one(exec, count.data()) == 3);
    CHECK(tessera_tests::get(exec, inverse) == std::vector<std::int64_t>{2, 0, 2, 1});
  }
  CHECK(tracked.allocations() == 1);
}
