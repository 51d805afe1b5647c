// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <tessera/tensor/truncate_rows.cuh>

#include "../support/cuda_device.cuh"
#include "truncate_rows_suite.hpp"

TEST_CASE("truncate_rows on a GPU") {
  tessera_tests::on_cuda([](tessera::cuda_exec const& exec) { truncate_rows_suite(tensor_tests::rows_on_device(exec)); });
}
