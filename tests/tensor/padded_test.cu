// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <tessera/tensor/padded.cuh>

#include "../support/cuda_device.cuh"
#include "padded_suite.hpp"

TEST_CASE("padded on a GPU") {
  tessera_tests::on_cuda([](tessera::cuda_exec const& exec) { padded_suite(tensor_tests::rows_on_device(exec)); });
}
