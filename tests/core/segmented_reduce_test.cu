// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include "../support/cuda_device.cuh"
#include "segmented_reduce_device.hpp"
#include "segmented_reduce_suite.hpp"

TEST_CASE("segmented_reduce on a GPU") {
  tessera_tests::on_cuda([](tessera::cuda_exec const& exec) { segmented_reduce_suite(device_segmented_reduce<tessera::cuda_exec>{exec}); });
}
