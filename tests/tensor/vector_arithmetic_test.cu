// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include "../support/cuda_device.cuh"
#include "vector_arithmetic_device.hpp"

TEST_CASE("vector_arithmetic on a GPU") {
  tessera_tests::on_cuda([](tessera::cuda_exec const& exec) { tessera_tests::vector_arithmetic_on_device(exec); });
}
