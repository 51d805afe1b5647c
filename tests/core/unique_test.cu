// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include "../support/cuda_device.cuh"
#include "unique_device.hpp"
#include "unique_suite.hpp"

TEST_CASE("unique on a GPU") {
  tessera_tests::on_cuda([](tessera::cuda_exec const& exec) { unique_suite(device_unique<tessera::cuda_exec>{exec, false}); });
}
TEST_CASE("unique on a GPU, waiting for the count") {
  tessera_tests::on_cuda([](tessera::cuda_exec const& exec) { unique_suite(device_unique<tessera::cuda_exec>{exec, true}); });
}
