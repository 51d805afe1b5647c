// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <tessera/tensor/source_lists.cuh>

#include "../support/cuda_device.cuh"
#include "source_lists_suite.hpp"

TEST_CASE("source_lists on a GPU") {
  tessera_tests::on_cuda([](tessera::cuda_exec const& exec) { source_lists_suite(tensor_tests::rows_on_device(exec)); });
}
