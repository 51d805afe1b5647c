// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <random.hpp>

#include <tessera/comm/mpi_session.hpp>

namespace tessera_tests {

/// All processes of the test: one session for all its cases.
inline MPI_Comm world() {
  static int argc = 0;
  static char** argv = nullptr;
  static tessera::mpi_session session(argc, argv);
  return session.world();
}

/// A seed that is the same on all ranks.
inline std::uint64_t common_seed() {
  auto seed = draw_seed();
  MPI_Bcast(&seed, 1, MPI_UINT64_T, 0, world());
  return seed;
}

}  // namespace tessera_tests
