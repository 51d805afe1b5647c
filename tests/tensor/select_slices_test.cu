// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include "../support/cuda_device.cuh"
#include "select_slices_device.hpp"

TEST_CASE("select_slices on a GPU") {
  tessera_tests::on_cuda([](tessera::cuda_exec const& exec) { tensor_tests::select_slices_on_device(exec); });
}
