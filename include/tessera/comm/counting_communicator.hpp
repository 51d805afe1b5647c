// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tessera/comm/collectives.hpp>
#include <tessera/comm/communicator.hpp>
#include <tessera/comm/self_communicator.hpp>
#include <tessera/core/execution.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// So many messages, with so many bytes together.
struct message_count {
  std::int64_t messages = 0;
  std::int64_t bytes = 0;

  message_count& operator+=(message_count const& other) noexcept {
    messages += other.messages;
    bytes += other.bytes;
    return *this;
  }
  friend constexpr bool operator==(message_count const&, message_count const&) = default;
};

/// What a rank sent: of each operation (`exchange_messages::operation`), to each rank that got something, itself perhaps.
using sent_counts = std::map<std::string, std::map<int, message_count>, std::less<>>;

/// Returns what was sent to all ranks together, be it of an operation that never was: then nothing.
inline message_count sent_by(sent_counts const& sent, std::string_view operation) {
  message_count sum;
  if (auto const found = sent.find(operation); found != sent.end())
    for (auto const& to : found->second) sum += to.second;
  return sum;
}

/// Returns what was sent by all operations to those ranks of which `counts(rank)` is true.
///
///     auto const over_wires = sent_to(sent, [&](int to) { return host_of(to) != host_of(comm.rank()); });
template <std::predicate<int> Counts>
message_count sent_to(sent_counts const& sent, Counts const& counts) {
  message_count sum;
  for (auto const& operation : sent)
    for (auto const& to : operation.second)
      if (counts(to.first)) sum += to.second;
  return sum;
}

/// A communicator of the host that counts what this rank sends over another one, and else is that one.
///
///     sent_counts sent;
///     sharded_tables tables(exec, counting_communicator(comm, sent), specs, features, plan);
///     …
///     auto const bytes = sent_by(sent, "vectors to their samples").bytes;
///
/// Bytes are those of the messages, without what the model below adds on the way. Messages of a rank to itself count as others do. An
/// exchange that `begin` throws of, or that has a `failure`, counts nothing. Counts add up in the caller's `sent`, which the caller may clear
/// between two calls. What `split` makes adds to the same counts, and has the ranks there as this one numbers them.
template <communicator C>
  requires std::same_as<typename C::execution_type, host_exec>
class counting_communicator {
 public:
  using execution_type = host_exec;
  using pending_type = typename C::pending_type;

  /// Counts what is sent over `comm`. @pre `sent` outlives this, its copies and what they split off; one thread at a time uses all of them.
  counting_communicator(C comm, sent_counts& sent) : comm_(std::move(comm)), sent_(&sent) {}

  /// Which of the ranks this is, from 0.
  int rank() const noexcept { return comm_.rank(); }
  /// How many ranks there are.
  int size() const noexcept { return comm_.size(); }
  /// Begins an exchange of the communicator below, and counts its messages. @throws what that throws.
  void begin(host_exec const& exec, exchange_messages const& messages, pending_type& pending, std::exception_ptr failure = nullptr) {
    bool const is_sent = failure == nullptr;
    comm_.begin(exec, messages, pending, std::move(failure));
    if (!is_sent || messages.send.empty()) return;
    auto& counts = (*sent_)[messages.operation];
    for (auto const& m : messages.send) counts[numbers_.empty() ? m.to : numbers_[static_cast<std::size_t>(m.to)]] += {1, m.bytes.size()};
  }
  /// Finishes an exchange of the communicator below. @throws what that throws.
  received_messages finish(host_exec const& exec, pending_type& pending) { return comm_.finish(exec, pending); }
  /// Tells all ranks that this one has left.
  void fail(std::string_view reason) { comm_.fail(reason); }
  /// Makes a counting communicator of the ranks with the same color. All ranks call it. What `split` itself sends is not counted.
  /// @throws what the communicator below throws.
  counting_communicator split(host_exec const& exec, std::int64_t color, std::int64_t key) {
    auto const members = detail::split_members::of(exec, comm_, color, key);
    counting_communicator part(comm_.split(exec, color, key), *sent_);
    for (auto const rank : members.ranks) part.numbers_.push_back(numbers_.empty() ? rank : numbers_[static_cast<std::size_t>(rank)]);
    return part;
  }

 private:
  C comm_;
  sent_counts* sent_;
  std::vector<int> numbers_;  // of the ranks, as the communicator has them that was not split off; empty: the same
};
static_assert(communicator<counting_communicator<self_communicator>>);

}  // namespace TESSERA_ABI
}  // namespace tessera
