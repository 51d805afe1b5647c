// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <exception>
#include <vector>

#include <tessera/comm/any_communicator.hpp>
#include <tessera/comm/thread_communicator.hpp>
#include <tessera/core/cuda_execution.cuh>

#include "../support/cuda_device.cuh"
#include "hosts.hpp"

namespace shard_tests {

using tessera::cuda_exec;

// Ranks that are threads, each with a stream of one GPU.
struct stream_ranks {
  using exec_type = cuda_exec;
  using communicator = tessera::basic_thread_communicator<cuda_exec>;

  template <class F>
  static void run(int ranks, F const& f) {
    tessera_tests::on_cuda([&](cuda_exec const& first) {
      std::vector<tessera_tests::serial_host> hosts(static_cast<std::size_t>(ranks));
      auto of_device = tessera::make_thread_ranks<cuda_exec>(ranks);
      tessera::run_thread_ranks(ranks, [&](tessera::thread_communicator& of_host) {
        auto const r = static_cast<std::size_t>(of_host.rank());
        cudaStream_t stream = nullptr;
        tessera::check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
        try {
          f(hosts[r].exec(), tessera::any_communicator(of_host), first.device().on(stream), of_device[r]);
        } catch (std::exception const& e) {
          of_device[r].fail(e.what());
          (void)cudaStreamDestroy(stream);
          throw;
        }
        tessera::check_cuda(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
        tessera::check_cuda(cudaStreamDestroy(stream), "cudaStreamDestroy");
      });
    });
  }
};

}  // namespace shard_tests
