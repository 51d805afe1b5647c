// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include "../support/cuda_device.cuh"
#include "select_vectors_device.hpp"

TEST_CASE("select_vectors on a GPU") {
  tessera_tests::on_cuda([](tessera::cuda_exec const& exec) { tessera_tests::select_vectors_on_device(exec); });
}
