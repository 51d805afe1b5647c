// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <utility>

#include <tessera/comm/communicator.hpp>
#include <tessera/comm/thread_communicator.hpp>
#include <tessera/core/execution.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// One rank alone: a model of `communicator`, with which a program for many ranks runs as one process. It may send messages to itself.
class self_communicator : public thread_communicator {
 public:
  /// @throws tessera::error invalid_argument for options out of their range.
  explicit self_communicator(communicator_options const& options = {}) : thread_communicator(make_thread_ranks(1, options)[0]) {}

  /// Makes another of itself. @throws tessera::error as `finish`.
  self_communicator split(host_exec const& exec, std::int64_t color, std::int64_t key) {
    return self_communicator(thread_communicator::split(exec, color, key));
  }

 private:
  explicit self_communicator(thread_communicator of_split) : thread_communicator(std::move(of_split)) {}
};
static_assert(communicator<self_communicator>);

}  // namespace TESSERA_ABI
}  // namespace tessera
