// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include "padded_vectors_device.hpp"
#include "../support/emulated_verbs.hpp"

using namespace tessera_tests;

TEST_CASE("padded_vectors on an emulated device") {
  emulated_device device;
  padded_vectors_on_device(device.exec());
}

TEST_CASE("padded_vectors on an emulated device: the host never waits") {
  emulated_device device;
  vectors_device<emulated_exec> harness(device.exec());
  auto rows = harness.place(nested_of({3, 0, 2}, 8), 8), dense = harness.place(nested_of(3, 2, 8), 8);
  tessera::to_padded_vectors(device.exec(), rows.jagged(), dense.matrix());
  tessera::from_padded_vectors(device.exec(), dense.matrix(), rows.jagged());
  CHECK(device.waits == 0);
}
