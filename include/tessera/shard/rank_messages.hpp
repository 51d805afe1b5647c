// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <exception>
#include <utility>
#include <vector>

#include <tessera/comm/communicator.hpp>
#include <tessera/core/view.hpp>

/// A message from each rank to each other rank.
namespace tessera {
inline namespace TESSERA_ABI {

namespace detail {

/// Begins with `to(r)`, the bytes for rank r, and `from(r)`, how many it sends. With a `failure`, nothing is sent, and `finish_messages`
/// throws on all ranks. @throws tessera::error as `communicator` says, here and below.
template <communicator C, class BytesTo, class BytesFrom>
void begin_messages(typename C::execution_type const& exec, C comm, typename C::pending_type& pending, char const* operation,
                    BytesTo const& to, BytesFrom const& from, std::exception_ptr failure) {
  std::vector<sent_message> send;
  std::vector<awaited_message> receive;
  for (int rank = 0; rank < comm.size(); ++rank) {
    if (rank == comm.rank()) continue;
    auto const r = static_cast<std::size_t>(rank);
    send.push_back({rank, failure == nullptr ? to(r) : vector_view<std::byte const>()});
    receive.push_back({rank, from(r)});
  }
  comm.begin(exec, {send, receive, operation}, pending, std::move(failure));
}

/// What came from each rank; `own` for this one.
template <communicator C>
std::vector<vector_view<std::byte const>> finish_messages(typename C::execution_type const& exec, C comm, typename C::pending_type& pending,
                                                          vector_view<std::byte const> own) {
  auto const received = comm.finish(exec, pending);
  std::vector<vector_view<std::byte const>> all(received.begin(), received.end());
  all.insert(all.begin() + comm.rank(), own);
  return all;
}

}  // namespace detail

}  // namespace TESSERA_ABI
}  // namespace tessera
