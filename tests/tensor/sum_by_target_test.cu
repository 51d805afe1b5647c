// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <tessera/tensor/sum_by_target.cuh>

#include "../support/cuda_device.cuh"
#include "sum_by_target_suite.hpp"

TEST_CASE("sum_by_target on a GPU") {
  tessera_tests::on_cuda([](tessera::cuda_exec const& exec) { sum_by_target_suite(tensor_tests::rows_on_device(exec)); });
}
