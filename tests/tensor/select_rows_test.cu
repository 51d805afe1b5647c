// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <tessera/tensor/expand.cuh>
#include <tessera/tensor/select_rows.cuh>

#include "../support/cuda_device.cuh"
#include "inverse_suite.hpp"
#include "select_rows_suite.hpp"

TEST_CASE("select_rows on a GPU") {
  tessera_tests::on_cuda([](tessera::cuda_exec const& exec) { select_rows_suite(tensor_tests::rows_on_device(exec)); });
}

TEST_CASE("samples of an IKJT on a GPU") {
  tessera_tests::on_cuda([](tessera::cuda_exec const& exec) { select_samples_suite(tensor_tests::rows_on_device(exec), 400); });
}
