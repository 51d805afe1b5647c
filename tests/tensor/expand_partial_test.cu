// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include "../support/cuda_device.cuh"
#include "partial_device.hpp"

TEST_CASE("expand_partial on a GPU") {
  tessera_tests::on_cuda(
      [](tessera::cuda_exec const& exec) { tensor_tests::expand_partial_on_device(tensor_tests::rows_on_device(exec)); });
}
