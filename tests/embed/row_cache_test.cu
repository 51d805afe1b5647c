// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include "row_cache_device.hpp"

#include <tessera/core/cuda_memory.cuh>

#include "cuda_device.cuh"

TEST_CASE_TEMPLATE("row_cache on a GPU, over tables in pinned memory of the host", Eviction, tessera::evict_lru, tessera::evict_lfu) {
  tessera_tests::on_cuda([](tessera::cuda_exec const& exec) {
    tessera::pinned_memory pinned(exec.device().ordinal());
    embed_tests::row_cache_device_suite<float, Eviction>(exec, exec.with_memory(pinned));
    embed_tests::row_cache_device_suite<tessera::scaled_int8, Eviction>(exec, exec.with_memory(pinned));
  });
}
