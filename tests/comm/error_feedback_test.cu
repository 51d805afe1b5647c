// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include "../support/cuda_device.cuh"
#include "error_feedback_device.hpp"

TEST_CASE("error_feedback on a GPU") {
  tessera_tests::on_cuda([](tessera::cuda_exec const& exec) { tessera_tests::error_feedback_on_device(exec); });
}
