// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include "../support/cuda_device.cuh"
#include "select_device.hpp"
#include "select_suite.hpp"

TEST_CASE("select on a GPU") {
  tessera_tests::on_cuda([](tessera::cuda_exec const& exec) { select_suite(device_select<tessera::cuda_exec>{exec, false}); });
}
TEST_CASE("select on a GPU, waiting for the count") {
  tessera_tests::on_cuda([](tessera::cuda_exec const& exec) { select_suite(device_select<tessera::cuda_exec>{exec, true}); });
}
