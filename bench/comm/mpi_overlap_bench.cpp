// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// bench-target: tessera::mpi

// An exchange beside other work that takes as long, with and without a progress thread: how long both take together, as a multiple of the longer.
//
//   mpirun -n 8 build/release/bench/comm_mpi_overlap_bench [ROUNDS]
//   sudo bench/testbed/hosts.sh up 4 400mbit; sudo bench/testbed/hosts.sh run 4 2 build/release/bench/comm_mpi_overlap_bench; sudo bench/testbed/hosts.sh down 4
//
// Without a launcher there is one rank, which exchanges nothing: the table is then empty.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include <tessera/comm/mpi_communicator.hpp>
#include <tessera/comm/mpi_progress_thread.hpp>
#include <tessera/core/execution.hpp>

#include "rank_timing.hpp"

namespace {

using tessera_bench::median, tessera_bench::slowest_seconds;

// Work that calls no MPI. Its result is used, so that it is done.
float work(std::int64_t steps) {
  std::uint64_t x = 1;
  for (std::int64_t i = 0; i < steps; ++i) x ^= x << 13, x ^= x >> 7, x ^= x << 17;
  return static_cast<float>(x % 2);
}

}  // namespace

int main(int argc, char** argv) {
  tessera::mpi_session mpi(argc, argv);
  tessera::serial_team team;
  tessera::system_memory memory;
  tessera::host_exec const exec(team, memory);
  int const rounds = argc > 1 ? std::max(std::atoi(argv[1]), 1) : 9;  // 1 for Google Benchmark's options
  int size = 1, rank = 0;
  MPI_Comm_size(mpi.world(), &size);
  MPI_Comm_rank(mpi.world(), &rank);
  auto const ranks = static_cast<std::size_t>(size), own = static_cast<std::size_t>(rank);
  bool const shows = own == 0 && ranks > 1;
  if (shows) std::printf("%zu ranks, medians of %d rounds; both together, as a multiple of the longer\n", ranks, rounds);
  float result = 0;

  for (std::int64_t const bytes : {64 << 10, 256 << 10, 1 << 20}) {
    std::vector<std::byte> from(static_cast<std::size_t>(bytes) * ranks);
    std::vector<tessera::sent_message> send;
    std::vector<tessera::awaited_message> receive;
    for (std::size_t r = 0; r < ranks; ++r) {
      if (r == own) continue;
      send.push_back({static_cast<int>(r), {from.data() + static_cast<std::int64_t>(r) * bytes, bytes}});
      receive.push_back({static_cast<int>(r), bytes});
    }
    // Seconds of the exchange, of work as long, and of both.
    auto const measure = [&](tessera::mpi_progress_thread* progress, char const* name) {
      tessera::mpi_communicator comm(mpi.world(), {}, progress);
      tessera::mpi_pending pending;
      std::vector<double> alone, works, both;
      auto const exchange = [&](std::int64_t steps) {
        comm.begin(exec, {send, receive}, pending);
        result += work(steps);
        comm.finish(exec, pending);
      };
      exchange(0);  // memory is new
      for (int round = 0; round < rounds; ++round) alone.push_back(slowest_seconds(mpi.world(), [&] { exchange(0); }));
      std::int64_t steps = 1 << 16;
      for (int tries = 0; tries < 4; ++tries) {  // ranks may share processors
        auto const seconds = slowest_seconds(mpi.world(), [&] { result += work(steps); });
        steps = std::max<std::int64_t>(1, static_cast<std::int64_t>(static_cast<double>(steps) * median(alone) / seconds));
      }
      MPI_Bcast(&steps, 1, MPI_INT64_T, 0, mpi.world());
      for (int round = 0; round < rounds; ++round) {
        works.push_back(slowest_seconds(mpi.world(), [&] { result += work(steps); }));
        both.push_back(slowest_seconds(mpi.world(), [&] { exchange(steps); }));
      }
      if (shows)
        std::printf("%8lld bytes a pair, %-7s: exchange %8.3f ms, work %8.3f ms, together %8.3f ms: %4.2f\n", static_cast<long long>(bytes),
                    name, 1e3 * median(alone), 1e3 * median(works), 1e3 * median(both),
                    median(both) / std::max(median(alone), median(works)));
    };
    measure(nullptr, "without");
    tessera::mpi_progress_thread progress;
    measure(&progress, "with");
  }
  return result < 0 ? 1 : 0;
}
