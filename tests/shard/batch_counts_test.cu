// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include "../support/cuda_device.cuh"
#include "batch_counts_device.hpp"

TEST_CASE("count_batch on a GPU: the host's counts, and what is wrong with a batch") {
  tessera_tests::on_cuda([](tessera::cuda_exec const& exec) { shard_tests::batch_counts_suite(exec); });
}
