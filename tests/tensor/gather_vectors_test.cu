// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include "../support/cuda_device.cuh"
#include "gather_vectors_device.hpp"

TEST_CASE("gather_vectors on a GPU") {
  tessera_tests::on_cuda([](tessera::cuda_exec const& exec) { tensor_tests::gather_vectors_on_device(exec); });
}
