// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include "jagged_softmax_device.hpp"
#include "../support/emulated_verbs.hpp"

using namespace tessera_tests;

TEST_CASE("jagged_softmax on an emulated device") {
  emulated_device device;
  jagged_softmax_on_device(device.exec());
}

TEST_CASE("jagged_softmax on an emulated device: the host never waits") {
  emulated_device device;
  vectors_device<emulated_exec> harness(device.exec());
  auto rows = harness.place(nested_of({3, 0, 2}, 8), 8), gradient = harness.place(nested_of({3, 0, 2}, 8), 8);
  tessera::jagged_softmax(device.exec(), rows.jagged(), rows.jagged());
  tessera::jagged_softmax_backward(device.exec(), rows.jagged(), gradient.jagged(), gradient.jagged());
  CHECK(device.waits == 0);
}
