// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include "../support/cuda_device.cuh"
#include "padded_vectors_device.hpp"

TEST_CASE("padded_vectors on a GPU") {
  tessera_tests::on_cuda([](tessera::cuda_exec const& exec) { tessera_tests::padded_vectors_on_device(exec); });
}
