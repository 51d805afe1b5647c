// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-target: tessera::nccl
#include <tessera/comm/nccl_communicator.cuh>

#include <doctest/doctest.h>

#include <cstddef>
#include <vector>

#include <tessera/comm/self_communicator.hpp>

#include "../support/cuda_device.cuh"
#include "../support/device_arrays.hpp"
#include "../support/hosts.hpp"
#include "communicator_suite.hpp"
#include "device_place.hpp"

TEST_CASE("nccl_communicator on a GPU: a model of communicator, of one rank") {
  auto const seed = tessera_tests::draw_seed();
  tessera_tests::on_cuda([&](tessera::cuda_exec const& exec) {
    cudaStream_t messages = nullptr;
    tessera::check_cuda(cudaStreamCreateWithFlags(&messages, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    {
      tessera_tests::serial_host host;
      tessera::self_communicator alone;
      tessera::nccl_communicator comm(host.exec(), alone, exec.device().on(messages), {.timeout_ms = 60'000});
      tessera_tests::device_place<tessera::cuda_exec> place{exec};
      tessera_tests::check_exchanges(comm, place, seed);

      auto values = tessera_tests::put(exec, std::vector<float>(1000, 3.0F));
      comm.sum_native(exec, values.view());
      comm.synchronize(exec);
      CHECK(tessera_tests::get(exec, values) == std::vector<float>(1000, 3.0F));
    }
    tessera::check_cuda(cudaStreamSynchronize(messages), "cudaStreamSynchronize");
    tessera::check_cuda(cudaStreamDestroy(messages), "cudaStreamDestroy");
  });
}
