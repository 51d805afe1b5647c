// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mpi.h>

#include <algorithm>
#include <cstdint>
#include <exception>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tessera/comm/any_communicator.hpp>
#include <tessera/comm/collectives.hpp>
#include <tessera/comm/communicator.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/stopwatch.hpp>

namespace tessera_bench {

/// How exchanges run, and how long they took: seconds by operation, with "inside " before it among ranks of one host. Where they run one by
/// one, these are of the exchange alone on all links; else they are what the rank spent in `begin` and `finish`, which no work of its own hid.
struct exchange_stages {
  bool one_by_one = false;
  std::map<std::string, double, std::less<>> seconds;
  double waiting = 0;  ///< for ranks that were still at work before an exchange
};

/// Another communicator of MPI's ranks, or one whose exchanges are told apart: where `one_by_one`, each begins when all ranks have come, has all
/// links for itself, and ends before `begin` returns, on all ranks. All ranks then make the same calls.
class staged_communicator {
 public:
  using execution_type = tessera::host_exec;
  struct pending_type {
    tessera::any_pending below;
    tessera::received_messages received;
    std::exception_ptr failure;
    bool is_done = false;
    double* seconds = nullptr;  // in the stages, of this operation
  };

  /// `host_of` (ranks,). `stages` outlives this and what it splits off, and its map stays whole while an exchange is pending.
  staged_communicator(tessera::any_communicator below, MPI_Comm world, std::vector<std::int64_t> host_of, exchange_stages& stages)
      : below_(std::move(below)), world_(world), host_of_(std::move(host_of)), stages_(&stages) {}

  int rank() const noexcept { return below_.rank(); }
  int size() const noexcept { return below_.size(); }
  void begin(tessera::host_exec const& exec, tessera::exchange_messages const& messages, pending_type& pending,
             std::exception_ptr failure = nullptr) {
    pending.is_done = stages_->one_by_one;
    bool const inside = std::all_of(host_of_.begin(), host_of_.end(), [&](auto host) { return host == host_of_[0]; });
    pending.seconds = &stages_->seconds[(inside ? "inside " : "") + std::string(messages.operation)];
    tessera::stopwatch watch;
    if (!pending.is_done) {
      below_.begin(exec, messages, pending.below, std::move(failure));
      *pending.seconds += watch.lap();
      return;
    }
    MPI_Barrier(world_);
    stages_->waiting += watch.lap();
    pending.failure = nullptr;
    try {
      below_.begin(exec, messages, pending.below, std::move(failure));
      pending.received = below_.finish(exec, pending.below);
    } catch (...) {
      pending.failure = std::current_exception();
    }
    MPI_Barrier(world_);
    *pending.seconds += watch.lap();
  }
  tessera::received_messages finish(tessera::host_exec const& exec, pending_type& pending) {
    if (!pending.is_done) {
      tessera::stopwatch watch;
      auto const received = below_.finish(exec, pending.below);
      *pending.seconds += watch.lap();
      return received;
    }
    if (pending.failure) std::rethrow_exception(std::exchange(pending.failure, nullptr));
    return pending.received;
  }
  void fail(std::string_view reason) { below_.fail(reason); }
  staged_communicator split(tessera::host_exec const& exec, std::int64_t color, std::int64_t key) {
    auto const members = tessera::detail::split_members::of(exec, below_, color, key);
    std::vector<std::int64_t> hosts;
    for (auto const rank : members.ranks) hosts.push_back(host_of_[static_cast<std::size_t>(rank)]);
    return {below_.split(exec, color, key), world_, std::move(hosts), *stages_};
  }

 private:
  tessera::any_communicator below_;
  MPI_Comm world_;
  std::vector<std::int64_t> host_of_;
  exchange_stages* stages_;
};
static_assert(tessera::communicator<staged_communicator>);

}  // namespace tessera_bench
