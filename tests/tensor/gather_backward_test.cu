// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <tessera/tensor/concat.cuh>
#include <tessera/tensor/expand_rows.cuh>
#include <tessera/tensor/gather_backward.cuh>
#include <tessera/tensor/masked_select.cuh>
#include <tessera/tensor/permute_keys.cuh>
#include <tessera/tensor/select_rows.cuh>
#include <tessera/tensor/slice_rows.cuh>
#include <tessera/tensor/truncate_rows.cuh>

#include "../support/cuda_device.cuh"
#include "gather_backward_suite.hpp"

TEST_CASE("gather_backward on a GPU") {
  tessera_tests::on_cuda([](tessera::cuda_exec const& exec) { gather_backward_suite(tensor_tests::rows_on_device(exec)); });
}
