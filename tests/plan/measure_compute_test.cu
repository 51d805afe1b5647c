// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include "measure_compute_device.hpp"

#include "cuda_device.cuh"

TEST_CASE("compute_bench on a GPU: steps are timed apart and change no weight") {
  tessera_tests::on_cuda([](tessera::cuda_exec const& exec) { measure_compute_device::measures_steps(exec); });
}
TEST_CASE("compute_bench on a GPU: a flush writes each line") {
  tessera_tests::on_cuda([](tessera::cuda_exec const& exec) { measure_compute_device::touches_each_line(exec); });
}
TEST_CASE("compute_bench on a GPU: bad input is named") {
  tessera_tests::on_cuda([](tessera::cuda_exec const& exec) { measure_compute_device::names_bad_input(exec); });
}
