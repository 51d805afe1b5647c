// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include "../support/cuda_device.cuh"
#include "run_length_encode_device.hpp"
#include "run_length_encode_suite.hpp"

TEST_CASE("run_length_encode on a GPU") {
  tessera_tests::on_cuda([](tessera::cuda_exec const& exec) {
    run_length_encode_suite(device_run_length_encode<tessera::cuda_exec>{exec, false});
  });
}
TEST_CASE("run_length_encode on a GPU, waiting for the count") {
  tessera_tests::on_cuda([](tessera::cuda_exec const& exec) {
    run_length_encode_suite(device_run_length_encode<tessera::cuda_exec>{exec, true});
  });
}
