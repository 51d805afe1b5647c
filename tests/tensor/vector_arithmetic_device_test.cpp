// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include "vector_arithmetic_device.hpp"
#include "../support/emulated_verbs.hpp"

using namespace tessera_tests;

TEST_CASE("vector_arithmetic on an emulated device") {
  emulated_device device;
  vector_arithmetic_on_device(device.exec());
}

TEST_CASE("vector_arithmetic on an emulated device: the host never waits") {
  emulated_device device;
  auto const exec = device.exec();
  vectors_device<emulated_exec> harness(exec);
  auto rows = harness.place(nested_of({3, 0, 2}, 8), 8), to = harness.place(nested_of({3, 0, 2}, 8), 8);
  auto dense = harness.place(nested_of(3, 2, 8), 8), to_dense = harness.place(nested_of(3, 2, 8), 8);
  tessera::add_vectors(exec, rows.jagged(), dense.matrix(), to.jagged());
  tessera::multiply_vectors(exec, rows.jagged(), to.jagged(), to.jagged());
  tessera::multiply_vectors_backward(exec, rows.jagged(), dense.matrix(), rows.jagged(), to.jagged(), to_dense.matrix());
  CHECK(device.waits == 0);
}
