// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>

#include <tessera/core/cuda_execution.cuh>

#include "skip.hpp"

namespace tessera_tests {

/// The first GPU and a stream of it. Where there is none, the running test case is skipped and nothing is called.
template <class F>
void on_cuda(F const& f) {
  int devices = 0;
  if (auto const status = cudaGetDeviceCount(&devices); status != cudaSuccess || devices == 0)
    return skip(std::string("there is no GPU: ") + cudaGetErrorString(status));
  tessera::cuda_device device(0);
  cudaStream_t stream = nullptr;
  tessera::check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  try {
    f(device.on(stream));
  } catch (...) {
    (void)cudaStreamDestroy(stream);
    throw;
  }
  tessera::check_cuda(cudaStreamDestroy(stream), "cudaStreamDestroy");
}

}  // namespace tessera_tests
