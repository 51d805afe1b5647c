// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// bench-target: tessera::mpi

// An exchange of one message from each rank to each other one, beside MPI_Alltoallv, in alternated rounds; and a sum over ranks, hosts
// first, beside MPI_Allreduce.
//
//   mpirun -n 8 build/release/bench/comm_mpi_exchange_bench [ROUNDS]
//   sudo bench/testbed/hosts.sh up 4 400mbit; sudo bench/testbed/hosts.sh run 4 2 build/release/bench/comm_mpi_exchange_bench; sudo bench/testbed/hosts.sh down 4
//
// Without a launcher there is one rank, which exchanges nothing: the table is then empty.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include <tessera/comm/collectives.hpp>
#include <tessera/comm/mpi_communicator.hpp>
#include <tessera/comm/rank_levels.hpp>
#include <tessera/comm/rank_sums.hpp>
#include <tessera/core/execution.hpp>

#include "rank_timing.hpp"

namespace {

using tessera_bench::median, tessera_bench::slowest_seconds;

void print(bool shows, char const* what, std::int64_t bytes, std::vector<double> const& ours, std::vector<double> const& theirs) {
  if (shows)
    std::printf("%-10s %9lld bytes: %9.3f ms, MPI's %9.3f ms, %5.2f times as fast\n", what, static_cast<long long>(bytes),
                1e3 * median(ours), 1e3 * median(theirs), median(theirs) / median(ours));
}

}  // namespace

int main(int argc, char** argv) {
  tessera::mpi_session mpi(argc, argv);
  tessera::mpi_communicator comm(mpi.world());
  tessera::serial_team team;
  tessera::system_memory memory;
  tessera::host_exec const exec(team, memory);
  auto const ranks = static_cast<std::size_t>(comm.size());
  auto const own = static_cast<std::size_t>(comm.rank());
  int const rounds = argc > 1 ? std::max(std::atoi(argv[1]), 1) : 9;
  bool const shows = own == 0 && ranks > 1;
  if (shows) std::printf("%zu ranks, medians of %d rounds\n", ranks, rounds);

  for (std::int64_t const bytes : {4 << 10, 64 << 10, 256 << 10, 1 << 20}) {
    std::vector<std::byte> from(static_cast<std::size_t>(bytes) * ranks), to(from.size());
    std::vector<tessera::sent_message> send;
    std::vector<tessera::awaited_message> receive;
    std::vector<int> counts(ranks, static_cast<int>(bytes)), places(ranks);
    counts[own] = 0;
    for (std::size_t r = 0; r < ranks; ++r) {
      places[r] = static_cast<int>(r) * static_cast<int>(bytes);
      if (r == own) continue;
      send.push_back({static_cast<int>(r), {from.data() + places[r], bytes}});
      receive.push_back({static_cast<int>(r), bytes});
    }
    tessera::mpi_pending pending;
    std::vector<double> ours, theirs;
    for (int round = 0; round <= rounds; ++round) {
      auto const mine = slowest_seconds(mpi.world(), [&] {
        comm.begin(exec, {send, receive}, pending);
        comm.finish(exec, pending);
      });
      auto const other = slowest_seconds(mpi.world(), [&] {
        MPI_Alltoallv(from.data(), counts.data(), places.data(), MPI_BYTE, to.data(), counts.data(), places.data(), MPI_BYTE, mpi.world());
      });
      if (round == 0) continue;  // of which memory is new
      ours.push_back(mine);
      theirs.push_back(other);
    }
    print(shows, "exchange", bytes, ours, theirs);
  }

  auto levels = tessera::split_by_levels(exec, comm, tessera::detect_topology(exec, comm));
  for (std::int64_t const count : {std::int64_t{1} << 12, std::int64_t{1} << 19}) {
    std::vector<float> values(static_cast<std::size_t>(count), 1.0F), sums(values.size());
    tessera::pending_sum<tessera::mpi_communicator> pending;
    tessera::rank_sums<tessera::mpi_communicator> over(levels);
    std::vector<double> ours, theirs;
    for (int round = 0; round <= rounds; ++round) {
      auto const mine = slowest_seconds(mpi.world(), [&] { over.all(exec, values, pending); });
      auto const other = slowest_seconds(
          mpi.world(), [&] { MPI_Allreduce(values.data(), sums.data(), static_cast<int>(count), MPI_FLOAT, MPI_SUM, mpi.world()); });
      if (round == 0) continue;
      ours.push_back(mine);
      theirs.push_back(other);
    }
    print(shows, "sum", 4 * count, ours, theirs);
  }
}
