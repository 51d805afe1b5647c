// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// bench-target: tessera::mpi

// An exchange of one message from each rank to each other one, beside MPI_Alltoallv and plain sockets, in alternated rounds; and a sum over
// ranks, hosts first, beside MPI_Allreduce.
//
//   mpirun -n 8 build/release/bench/comm_mpi_exchange_bench [ROUNDS [RANKS_OF_A_HOST]]
//   sudo bench/testbed/hosts.sh up 4 400mbit; sudo bench/testbed/hosts.sh run 4 2 build/release/bench/comm_mpi_exchange_bench; sudo bench/testbed/hosts.sh down 4
//
// With RANKS_OF_A_HOST, the exchange runs by two hops too, one message from host to host, in the same rounds. Hosts are then ranks that are
// neighbours, as many as that; 0: as they say themselves. Where there is one host, or each rank is one, two hops are one.
//
// MB/s: the bus bandwidth, so many bytes a second that each rank has to send, be it to its own host.
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
#include <tessera/comm/topology.hpp>
#include <tessera/comm/two_hop_communicator.hpp>
#include <tessera/core/execution.hpp>

#include "rank_timing.hpp"
#include "socket_exchange.hpp"

namespace {

using tessera_bench::median, tessera_bench::slowest_seconds, tessera_bench::neighbours;

// `moved`: bytes that each rank sends, of which a second's are the bus bandwidth.
void print(bool shows, char const* what, std::int64_t bytes, double moved, std::vector<double> const& ours,
           std::vector<double> const& theirs, std::vector<double> const& sockets = {}, std::vector<double> const& hops = {}) {
  if (!shows) return;
  std::printf("%-10s %9lld bytes: %9.3f ms, %7.1f MB/s; MPI's %9.3f ms, %5.2f times as fast", what, static_cast<long long>(bytes),
              1e3 * median(ours), 1e-6 * moved / median(ours), 1e3 * median(theirs), median(theirs) / median(ours));
  if (!hops.empty()) std::printf("; two hops %9.3f ms, %5.2f times as fast", 1e3 * median(hops), median(hops) / median(ours));
  if (!sockets.empty()) std::printf("; sockets %9.3f ms, %5.2f times as fast", 1e3 * median(sockets), median(sockets) / median(ours));
  std::printf("\n");
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
  auto const detected = tessera::detect_topology(exec, comm);
  auto const hosts = argc > 2 && std::atoi(argv[2]) > 0 ? neighbours(comm.size(), std::atoi(argv[2])) : detected;
  tessera::two_hop_communicator<tessera::mpi_communicator> two_hops(comm, hosts);
  bool const hops = argc > 2;
  if (shows && hops) std::printf("%d hosts of the two hops\n", two_hops.hosts());
  tessera_bench::socket_exchange sockets(mpi.world());
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
    decltype(two_hops)::pending_type pending_hops;
    std::vector<double> ours, theirs, of_sockets, of_hops;
    for (int round = 0; round <= rounds; ++round) {
      auto const mine = slowest_seconds(mpi.world(), [&] {
        comm.begin(exec, {send, receive}, pending);
        comm.finish(exec, pending);
      });
      auto const other = slowest_seconds(mpi.world(), [&] {
        MPI_Alltoallv(from.data(), counts.data(), places.data(), MPI_BYTE, to.data(), counts.data(), places.data(), MPI_BYTE, mpi.world());
      });
      auto const plain = slowest_seconds(mpi.world(), [&] { sockets.run(from.data(), to.data(), bytes); });
      auto const hopped = hops ? slowest_seconds(mpi.world(),
                                                 [&] {
                                                   two_hops.begin(exec, {send, receive}, pending_hops);
                                                   two_hops.finish(exec, pending_hops);
                                                 })
                               : 0;
      if (round == 0) continue;  // of which memory is new
      if (hops) of_hops.push_back(hopped);
      ours.push_back(mine);
      theirs.push_back(other);
      of_sockets.push_back(plain);
    }
    print(shows, "exchange", bytes, static_cast<double>(bytes) * static_cast<double>(ranks - 1), ours, theirs, of_sockets, of_hops);
  }

  auto levels = tessera::split_by_levels(exec, comm, detected);
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
    print(shows, "sum", 4 * count, static_cast<double>(4 * count) * 2 * static_cast<double>(ranks - 1) / static_cast<double>(ranks), ours,
          theirs);
  }
}
