// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include <tessera/comm/any_communicator.hpp>

namespace examples {

/// The ranks that --ranks asks for: processes that MPI's launcher has started, threads of this one, or this process alone. In
/// train_ctr/ranks.cpp, which alone knows MPI.
class rank_group {
 public:
  /// Begins with MPI where it is wanted. @throws tessera::error where this build has no MPI, or MPI has not started the process.
  rank_group(std::string const& ranks, std::int64_t time_limit_seconds);
  rank_group(rank_group const&) = delete;
  ~rank_group();

  /// Ranks that share this machine with this process.
  int here() const noexcept { return here_; }
  /// Whether the first rank is in this process, which speaks and writes for all.
  bool has_first() const noexcept { return has_first_; }

  /// Calls `prepare` once in this process, with the communicator of processes, then `train` on each rank of it, with that of ranks. Where one
  /// throws, all ranks end: the call throws what one of this process threw.
  void run(std::function<void(tessera::any_communicator)> const& prepare, std::function<void(tessera::any_communicator)> const& train);

 private:
  struct mpi_state;

  std::int64_t limit_ms_;
  int threads_ = 0, here_ = 1;
  bool has_first_ = true;
  std::unique_ptr<mpi_state> mpi_;
};

/// Which of the processes that MPI's launcher has started this is; -1: it has started none.
int launched_rank();

}  // namespace examples
