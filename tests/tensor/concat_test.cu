// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <tessera/tensor/concat.cuh>
#include <tessera/tensor/slice_rows.cuh>

#include "../support/cuda_device.cuh"
#include "concat_suite.hpp"

TEST_CASE("concat on a GPU") {
  tessera_tests::on_cuda([](tessera::cuda_exec const& exec) { concat_suite(tensor_tests::rows_on_device(exec)); });
}
