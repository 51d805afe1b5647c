// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include "../support/cuda_device.cuh"
#include "jagged_softmax_device.hpp"

TEST_CASE("jagged_softmax on a GPU") {
  tessera_tests::on_cuda([](tessera::cuda_exec const& exec) { tessera_tests::jagged_softmax_on_device(exec); });
}
