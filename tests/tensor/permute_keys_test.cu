// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <tessera/tensor/permute_keys.cuh>

#include "../support/cuda_device.cuh"
#include "permute_keys_suite.hpp"

TEST_CASE("permute_keys on a GPU") {
  tessera_tests::on_cuda([](tessera::cuda_exec const& exec) { permute_keys_suite(tensor_tests::rows_on_device(exec)); });
}
