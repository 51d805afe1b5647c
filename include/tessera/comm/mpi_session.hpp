// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mpi.h>

#include <chrono>
#include <exception>
#include <thread>

#include <tessera/comm/mpi_pending.hpp>
#include <tessera/core/error.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// MPI from its start to its end, for a program that uses it through Tessera alone.
class mpi_session {
 public:
  /// Initialises MPI. @throws tessera::error incompatible, naming both levels, where threads cannot call MPI in turn; io_error where MPI
  /// refuses a call.
  mpi_session(int& argc, char**& argv) {
    int provided = MPI_THREAD_SINGLE;
    detail::check_mpi(MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &provided), "MPI_Init_thread");
    if (provided < MPI_THREAD_SERIALIZED) {
      MPI_Finalize();
      throw error(errc::incompatible, "mpi_session: MPI lacks the thread level it needs",
                  {{"needed", "MPI_THREAD_SERIALIZED"}, {"provided", provided}});
    }
    detail::check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &end_), "MPI_Comm_dup");
  }
  mpi_session(mpi_session const&) = delete;
  mpi_session& operator=(mpi_session const&) = delete;
  /// Waits for all ranks, and finalises MPI. While an exception leaves the session, it waits five seconds at most; where ranks do not come,
  /// it leaves MPI as it is, so that the launcher ends them.
  ~mpi_session() {
    bool all_came = true;
    if (std::uncaught_exceptions() > 0) {
      MPI_Request request = MPI_REQUEST_NULL;
      int done = 0;
      auto const deadline = std::chrono::steady_clock::now() + std::chrono::seconds(5);
      if (MPI_Ibarrier(end_, &request) == MPI_SUCCESS)
        while (done == 0 && std::chrono::steady_clock::now() < deadline) {
          if (MPI_Test(&request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS) break;
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
      all_came = done != 0;
    }
    if (all_came) MPI_Finalize();
  }

  /// All ranks of the program.
  MPI_Comm world() const noexcept { return MPI_COMM_WORLD; }

 private:
  MPI_Comm end_ = MPI_COMM_NULL;  // where ranks meet that leave by an exception
};

}  // namespace TESSERA_ABI
}  // namespace tessera
