// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include "pool_segments_device.hpp"
#include "../support/emulated_verbs.hpp"

using namespace tessera_tests;

TEST_CASE("pool_segments on an emulated device") {
  emulated_device device;
  pool_segments_on_device(device.exec());
}

TEST_CASE("pool_segments on an emulated device: the host never waits") {
  emulated_device device;
  vectors_device<emulated_exec> harness(device.exec());
  auto in = harness.place(harness.random({3, 0, 2}, 8), 8), to = harness.place(nested_of({3, 0, 2}, 8), 8),
       gradient = harness.place(harness.random(3, 1, 8), 8);
  for (auto const mode : all_modes) {
    tessera::pool_segments(device.exec(), in.jagged(), mode, gradient.matrix());
    tessera::pool_segments_backward(device.exec(), in.jagged(), mode, gradient.matrix(), to.jagged());
  }
  CHECK(device.waits == 0);
}
