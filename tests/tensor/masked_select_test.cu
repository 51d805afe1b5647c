// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <tessera/tensor/masked_select.cuh>

#include "../support/cuda_device.cuh"
#include "masked_select_suite.hpp"

TEST_CASE("masked_select on a GPU") {
  tessera_tests::on_cuda([](tessera::cuda_exec const& exec) { masked_select_suite(tensor_tests::rows_on_device(exec)); });
}
