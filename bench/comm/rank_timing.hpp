// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mpi.h>

#include <algorithm>
#include <cstddef>
#include <vector>

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

}  // namespace tessera_bench
