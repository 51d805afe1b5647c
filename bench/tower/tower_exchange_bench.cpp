// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// bench-target: tessera::mpi

// Lookups by ranks on hosts, without a dense net: ids, vectors and gradients of 26 tables of dim 64 travel flat, by two hops, and by towers
// without modules, in alternated rounds. The same plan serves all three. Rows are few, so that lookups and updates take little.
//
//   sudo bench/testbed/hosts.sh up 4 400mbit
//   sudo bench/testbed/hosts.sh run 4 2 build/release/bench/tower_tower_exchange_bench [ROUNDS [RANKS_OF_A_HOST]]
//   sudo bench/testbed/hosts.sh down 4
//
// With RANKS_OF_A_HOST, hosts are neighbouring ranks, as many as that. Without a launcher there is one rank, which sends nothing.

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include <tessera/comm/mpi_session.hpp>
#include <tessera/tessera.hpp>

#include "tower_rank.hpp"

namespace {

using namespace tessera_bench;

constexpr std::int64_t rows = 10'000;

struct measured {
  std::vector<double> forward, backward;
  tessera::message_count sent;  // of one forward and backward, by all ranks, to other hosts
};

double ms(std::vector<double> const& seconds) { return 1e3 * median(seconds); }

void print(std::int64_t bytes, std::int64_t samples, measured const (&of)[3]) {
  std::printf("| %lld | %lld |", static_cast<long long>(bytes), static_cast<long long>(samples));
  for (auto const way : {&measured::forward, &measured::backward})
    std::printf(" %.2f | %.2f | %.2f | %.2f | %.2f |", ms(of[0].*way), ms(of[1].*way), ms(of[2].*way), ms(of[0].*way) / ms(of[2].*way),
                ms(of[1].*way) / ms(of[2].*way));
  std::printf(" %.2f |", (ms(of[0].forward) + ms(of[0].backward)) / (ms(of[2].forward) + ms(of[2].backward)));
  for (auto const& one : of) std::printf(" %lld%s", static_cast<long long>(one.sent.messages), &one == of + 2 ? " |" : ",");
  for (auto const& one : of) std::printf(" %.2f%s", 1e-6 * static_cast<double>(one.sent.bytes), &one == of + 2 ? " |\n" : ",");
}

}  // namespace

int main(int argc, char** argv) {
  tessera::mpi_session mpi(argc, argv);
  bool const is_smoke = argc > 1 && argv[1][0] == '-';  // Google Benchmark's options
  int const rounds = is_smoke ? 1 : argc > 1 ? std::max(std::atoi(argv[1]), 1) : 15;
  tessera::serial_team team;
  tessera::system_memory memory;
  tessera::host_exec const exec(team, memory);
  tower_ranks_of_mpi const ranks(exec, mpi.world(), argc > 2 ? std::atoi(argv[2]) : 0, rows);
  auto const size = ranks.comm.size();
  bool const shows = ranks.comm.rank() == 0;
  if (shows)
    std::printf(
        "%d ranks on %d hosts, medians of %d rounds; ids and vectors, then gradients: ms flat, by two hops, by towers, and how many times "
        "as "
        "fast as each towers are; both together; messages and MB between hosts\n| bytes a pair | samples | flat | two hops | towers | of "
        "flat | "
        "of two hops | flat | two hops | towers | of flat | of two hops | both | messages | MB |\n|%s\n",
        size, static_cast<int>(ranks.hosts()), rounds, "---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|");

  tessera::sent_counts sent[3];
  auto const sharded = [&](tessera::any_communicator const& comm) {
    return
        [&, comm](tessera::host_exec const& own) { return tessera::sharded_tables(own, comm, ranks.specs, dlrm_features(), ranks.plan); };
  };
  dlrm_lookups<tessera::sharded_tables> flat(1, rows, ranks.comm.rank(), sharded(ranks.counted(sent[0])));
  dlrm_lookups<tessera::sharded_tables> hops(1, rows, ranks.comm.rank(), sharded(ranks.two_hops(sent[1])));
  dlrm_lookups<tessera::sptt_tables<>> towers(1, rows, ranks.comm.rank(), [&](tessera::host_exec const& own) {
    return tessera::sptt_tables<>(own, ranks.counted(sent[2]), ranks.where, ranks.specs, dlrm_features(), ranks.plan, ranks.towers);
  });

  double crossover = 0;  // the largest size at which towers are no slower
  for (std::int64_t const kibibytes : {1, 4, 16, 64, 256}) {
    if (is_smoke && kibibytes > 1) break;
    constexpr auto bytes_of_sample = dlrm_tables * dlrm_dim * std::int64_t{sizeof(float)};
    auto const samples = std::max<std::int64_t>((1024 * kibibytes * size + bytes_of_sample / 2) / bytes_of_sample, 1);
    measured of[3];
    auto const timed = [&](auto& lookups, measured& one, tessera::sent_counts& counts, int round) {
      counts.clear();
      auto const forward = slowest_seconds(mpi.world(), [&] { lookups.forward(); });
      auto const backward = slowest_seconds(mpi.world(), [&] { lookups.backward(); });
      one.sent = ranks.sent_between_hosts(mpi.world(), counts);
      if (round < 0) return;  // of which memory is new
      one.forward.push_back(forward);
      one.backward.push_back(backward);
    };
    flat.set_samples(samples);
    hops.set_samples(samples);
    towers.set_samples(samples);
    for (int round = -2; round < rounds; ++round) {
      timed(flat, of[0], sent[0], round);
      timed(hops, of[1], sent[1], round);
      timed(towers, of[2], sent[2], round);
    }
    if (median(of[2].forward) + median(of[2].backward) <= median(of[0].forward) + median(of[0].backward))
      crossover = static_cast<double>(samples * bytes_of_sample) / size;
    if (shows) print(samples * bytes_of_sample / size, samples, of);
  }
  if (shows) std::printf("towers are no slower than flat up to %.0f bytes a pair\n", crossover);
}
