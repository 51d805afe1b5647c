// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <tessera/tensor/expand_rows.cuh>

#include "../support/cuda_device.cuh"
#include "expand_rows_suite.hpp"

TEST_CASE("expand_rows on a GPU") {
  tessera_tests::on_cuda([](tessera::cuda_exec const& exec) { expand_rows_suite(tensor_tests::rows_on_device(exec)); });
}
