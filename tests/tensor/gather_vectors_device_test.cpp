// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include "gather_vectors_device.hpp"
#include "../support/emulated_verbs.hpp"

using namespace tessera_tests;

TEST_CASE("gather_vectors on an emulated device") {
  emulated_device device;
  tensor_tests::gather_vectors_on_device(device.exec());
}

TEST_CASE("gather_vectors on an emulated device: the host never waits") {
  emulated_device device;
  auto const exec = device.exec();
  auto const in = put(exec, tensor_tests::floats(12, 1.0F));
  tessera::buffer<float, emulated_exec> out(exec, 12);
  auto const indices = put(exec, tensor_tests::ids{2, 0, 2, 9});
  tessera::gather_vectors(exec, tessera::matrix_view<float const>{in.data(), 3, 3}, indices, tessera::matrix_view<float>{out.data(), 4, 3});
  tessera::gather_vectors_backward(exec, tessera::matrix_view<float const>{in.data(), 4, 3}, indices,
                                   tessera::matrix_view<float>{out.data(), 3, 3});
  CHECK(device.waits == 0);
  CHECK_THROWS_AS(exec.synchronize(), tessera::error);
}
