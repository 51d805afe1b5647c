// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <tessera/tensor/concat.cuh>
#include <tessera/tensor/transform_ids.cuh>
#include <tessera/tensor/truncate_rows.cuh>

#include "../support/cuda_device.cuh"
#include "id_pipeline_suite.hpp"

TEST_CASE("id_pipeline on a GPU") {
  tessera_tests::on_cuda([](tessera::cuda_exec const& exec) { id_pipeline_suite(tensor_tests::rows_on_device(exec)); });
}
