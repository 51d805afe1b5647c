// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mpi.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include <tessera/comm/topology.hpp>
#include <tessera/core/stopwatch.hpp>

namespace tessera_bench {

inline double median(std::vector<double> times) {
  std::nth_element(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2), times.end());
  return times[times.size() / 2];
}

/// The slowest rank's seconds for f, which all ranks begin at once.
template <class F>
double slowest_seconds(MPI_Comm world, F const& f) {
  MPI_Barrier(world);
  tessera::stopwatch watch;
  f();
  double own = watch.lap(), slowest = 0;
  MPI_Allreduce(&own, &slowest, 1, MPI_DOUBLE, MPI_MAX, world);
  return slowest;
}

/// The sum, or mean, of what all ranks give, on all of them.
inline double sum_of_ranks(MPI_Comm world, double own) {
  double sum = 0;
  MPI_Allreduce(&own, &sum, 1, MPI_DOUBLE, MPI_SUM, world);
  return sum;
}
inline double mean_of_ranks(MPI_Comm world, double own) {
  int size = 1;
  MPI_Comm_size(world, &size);
  return sum_of_ranks(world, own) / size;
}

/// Hosts of as many ranks each, which are neighbours; the last perhaps of fewer.
inline tessera::topology neighbours(int ranks, int of_host) {
  std::vector<std::string> hosts;
  for (int r = 0; r < ranks; ++r) hosts.push_back(std::to_string(r / of_host));
  return tessera::topology::of_host_names(hosts);
}

}  // namespace tessera_bench
