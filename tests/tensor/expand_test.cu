// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <tessera/tensor/expand.cuh>

#include "../support/cuda_device.cuh"
#include "inverse_suite.hpp"

TEST_CASE("expand on a GPU") {
  tessera_tests::on_cuda([](tessera::cuda_exec const& exec) { expand_suite(tensor_tests::rows_on_device(exec), 400); });
}
