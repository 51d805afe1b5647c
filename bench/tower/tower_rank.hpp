// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// What a rank of the benchmarks of towers stands on: where ranks lie, towers, and one plan for all ways to exchange.

#include <mpi.h>

#include <cstdint>
#include <cstdlib>
#include <vector>

#include <tessera/comm/any_communicator.hpp>
#include <tessera/comm/counting_communicator.hpp>
#include <tessera/comm/mpi_communicator.hpp>
#include <tessera/comm/rank_levels.hpp>
#include <tessera/comm/topology.hpp>
#include <tessera/comm/two_hop_communicator.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/shard/sharding_plan.hpp>
#include <tessera/shard/table_spec.hpp>
#include <tessera/tower/plan_towers.hpp>
#include <tessera/tower/tower_baselines.hpp>
#include <tessera/tower/tower_partition.hpp>

#include "../comm/rank_timing.hpp"
#include "../shard/dlrm_step.hpp"

namespace tessera_bench {

/// A tower a host, features dealt out in turn. Its tables lie on its host's ranks, whole, also where exchanges are flat.
struct tower_ranks_of_mpi {
  tessera::mpi_communicator comm;
  tessera::topology where;
  tessera::tower_partition towers;
  std::vector<tessera::table_spec> specs;
  tessera::sharding_plan plan;

  /// `of_host`: so many neighbours are a host; 0: as hosts say themselves.
  tower_ranks_of_mpi(tessera::host_exec const& exec, MPI_Comm world, int of_host, std::int64_t rows)
      : comm(world),
        where(of_host > 0 ? neighbours(comm.size(), of_host) : tessera::detect_topology(exec, comm)),
        towers(tessera::strided_towers(dlrm_tables, where.domains(0))),
        specs(dlrm_specs(rows)),
        plan(tessera::plan_towers(specs, dlrm_features(), where, towers)) {}

  std::int64_t hosts() const { return where.domains(0); }
  std::int64_t host_of(int rank) const { return where.domain_of(0, rank); }
  bool is_elsewhere(int rank) const { return host_of(rank) != host_of(comm.rank()); }

  /// Counts what this rank sends, also inside hosts.
  tessera::counting_communicator<tessera::mpi_communicator> counted(tessera::sent_counts& sent) const { return {comm, sent}; }
  tessera::any_communicator two_hops(tessera::sent_counts& sent) const {
    return tessera::two_hop_communicator<tessera::counting_communicator<tessera::mpi_communicator>>(counted(sent), where);
  }
  /// What all ranks sent to other hosts.
  tessera::message_count sent_between_hosts(MPI_Comm world, tessera::sent_counts const& sent) const {
    auto const own = tessera::sent_to(sent, [&](int to) { return is_elsewhere(to); });
    return {static_cast<std::int64_t>(sum_of_ranks(world, static_cast<double>(own.messages))),
            static_cast<std::int64_t>(sum_of_ranks(world, static_cast<double>(own.bytes)))};
  }
};

}  // namespace tessera_bench
