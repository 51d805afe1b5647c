// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <tessera/comm/thread_communicator.hpp>

#include <doctest/doctest.h>

#include <tessera/core/cuda_execution.cuh>

#include "../support/cuda_device.cuh"
#include "communicator_suite.hpp"
#include "device_place.hpp"

TEST_CASE("thread_communicator on a GPU: ranks that are streams") {
  auto const seed = tessera_tests::draw_seed();
  tessera_tests::on_cuda([&](tessera::cuda_exec const& exec) {
    using communicator = tessera::basic_thread_communicator<tessera::cuda_exec>;
    for (int const ranks : {1, 2, 3, 4})
      tessera::run_thread_ranks<tessera::cuda_exec>(ranks, [&](communicator& comm) {
        cudaStream_t stream = nullptr;
        tessera::check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
        {
          tessera_tests::device_place<tessera::cuda_exec> place{exec.device().on(stream)};
          tessera_tests::check_exchanges(comm, place, seed);
        }
        tessera::check_cuda(cudaStreamDestroy(stream), "cudaStreamDestroy");
      });
  });
}
