// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <tessera/tensor/rows_from.cuh>

#include "../support/cuda_device.cuh"
#include "rows_from_suite.hpp"

TEST_CASE("rows_from on a GPU") {
  tessera_tests::on_cuda([](tessera::cuda_exec const& exec) { rows_from_suite(tensor_tests::rows_on_device(exec)); });
}
