// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <tessera/tensor/bucketize.cuh>

#include "../support/cuda_device.cuh"
#include "bucketize_suite.hpp"

TEST_CASE("bucketize on a GPU") {
  tessera_tests::on_cuda([](tessera::cuda_exec const& exec) { bucketize_suite(tensor_tests::rows_on_device(exec)); });
}
