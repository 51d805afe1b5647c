// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <exception>
#include <memory>
#include <vector>

#include <tessera/comm/communicator.hpp>
#include <tessera/comm/nccl_protocol.hpp>
#include <tessera/comm/thread_communicator.hpp>

#include "emulated_verbs.hpp"
#include "fake_nccl.hpp"
#include "hosts.hpp"

/// Ranks with emulated devices, for suites of sources on devices.
namespace shard_tests {

using tessera_tests::emulated_device;
using tessera_tests::emulated_exec;

// Calls f(rank's number, its communicator on the host) on a thread for each rank.
template <class F>
void on_threads(int ranks, F const& f) {
  tessera::run_thread_ranks(ranks, [&](tessera::thread_communicator& hosts) { f(static_cast<std::size_t>(hosts.rank()), hosts); });
}

// Threads that share a device, as streams do.
struct thread_ranks {
  using exec_type = emulated_exec;
  using communicator = tessera::basic_thread_communicator<emulated_exec>;

  template <class F>
  static void run(int ranks, F const& f) {
    emulated_device device;
    std::vector<tessera_tests::serial_host> hosts(static_cast<std::size_t>(ranks));
    auto of_device = tessera::make_thread_ranks<emulated_exec>(ranks);
    on_threads(ranks, [&](std::size_t r, tessera::thread_communicator& of_host) {
      try {
        f(hosts[r].exec(), of_host, device.exec(), of_device[r]);
      } catch (std::exception const& e) {
        of_device[r].fail(e.what());
        throw;
      }
    });
  }
};

// Ranks with a device each, over the stand-in for NCCL.
struct nccl_ranks {
  using exec_type = emulated_exec;
  using communicator = tessera::basic_nccl_communicator<emulated_exec, tessera_tests::fake_nccl>;

  template <class F>
  static void run(int ranks, F const& f, tessera::communicator_options const& options = {}) {
    std::vector<tessera_tests::serial_host> hosts(static_cast<std::size_t>(ranks));
    std::vector<std::unique_ptr<emulated_device>> devices;
    for (int r = 0; r < ranks; ++r) devices.push_back(std::make_unique<emulated_device>());
    on_threads(ranks, [&](std::size_t r, tessera::thread_communicator& of_host) {
      auto const exec = devices[r]->exec();
      communicator comm(hosts[r].exec(), of_host, exec, options);
      f(hosts[r].exec(), of_host, exec, comm);
    });
  }
};

}  // namespace shard_tests
