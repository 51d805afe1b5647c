// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#ifdef TESSERA_MPIEXEC

#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "run_program.hpp"

namespace tessera_tests {

/// The command by which MPI's launcher starts so many processes; it may be root, and processes may be more than cores.
inline std::vector<std::string> launch(int ranks, std::vector<std::string> const& command) {
  for (auto const& [name, value] : {std::pair("OMPI_ALLOW_RUN_AS_ROOT", "1"),
                                    {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"},
                                    {"OMPI_MCA_rmaps_base_oversubscribe", "1"},
                                    {"OMPI_MCA_hwloc_base_binding_policy", "none"},
                                    {"OMPI_MCA_btl_vader_single_copy_mechanism", "none"},
                                    {"OMPI_MCA_mpi_yield_when_idle", "1"}})
    ::setenv(name, value, 0);
  std::vector<std::string> all{TESSERA_MPIEXEC, "-n", std::to_string(ranks)};
  all.insert(all.end(), command.begin(), command.end());
  return all;
}

/// What the launcher did with it.
inline program_result launched(int ranks, std::vector<std::string> const& command) { return run_program(launch(ranks, command)); }

}  // namespace tessera_tests

#endif
