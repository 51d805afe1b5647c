// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/core/buffer.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// Bytes that go to a rank.
struct sent_message {
  int to = 0;                          ///< rank, which may be the sender's own
  vector_view<std::byte const> bytes;  ///< of any size, 0 too; they stay as they are until `finish` returns
};

/// Bytes that are to come from a rank.
struct awaited_message {
  static constexpr std::int64_t unknown = -1;

  int from = 0;                  ///< rank, which may be the receiver's own
  std::int64_t bytes = unknown;  ///< how many; `unknown`: the message says so. A known number saves a copy, or a wait.
};

/// What a rank sends and awaits at once.
struct exchange_messages {
  vector_view<sent_message const> send;        ///< in any order; several to one rank arrive in this order
  vector_view<awaited_message const> receive;  ///< in any order; several from one rank are those that it sent, in order
  char const* operation = "exchange";          ///< what errors call it; text that outlives the exchange
};

/// What arrived, in the order of `exchange_messages::receive`. Each message begins at a multiple of 64 bytes.
using received_messages = vector_view<vector_view<std::byte const> const>;

/// Options of communicators.
struct communicator_options {
  std::int64_t timeout_ms = 600'000;  ///< how long a `finish` waits for other ranks, 1 to 2^40
};

/// Ranks 0 … size() - 1 that exchange messages. A rank is a thread, a process or a device; each holds a communicator of its own.
///
///     comm.begin(exec, messages, pending);              // returns soon; the messages are on their way
///     auto const received = comm.finish(exec, pending); // waits for all that is sent and awaited
///
/// - A message to a rank meets the next one that this rank awaits from the sender. So ranks that exchange messages make the same calls of
///   `begin` and `finish` in the same order. Any number of exchanges may be under way.
/// - What arrives lies in `pending`, until its next `begin` or its end. The memory is that of `exec` and is kept for later exchanges.
/// - `begin` with a `failure` sends word of it in place of each message. `finish` then throws it here, and errc::rank_failed on every rank
///   that awaits a message, all messages of the exchange having arrived. Communication goes on behind that as before.
/// - `finish` throws errc::timed_out, which names the ranks that did not come, and errc::rank_failed where a rank has left. It throws
///   errc::incompatible for a message of another size than awaited, or of another operation: ranks are then out of step. After the first two
///   the communicator is of no use: every call throws, and nothing that this rank sent is read any more.
/// - `fail(reason)` tells all ranks that this one has left. A rank whose `pending` ends before its `finish` has left, too. A `pending` ends
///   before the memory that it sends.
/// - `split(exec, color, key)` is called by all ranks. It makes a communicator of the ranks with the same color, in the order of (key, rank).
///
/// `begin` throws errc::invalid_argument for a rank that is not there, and for a negative number of bytes.
/// One thread at a time uses a communicator; of those over MPI, one thread at a time uses any.
template <class C>
concept communicator = execution<typename C::execution_type> &&
    requires(C& comm, C const& held, typename C::execution_type const& exec, typename C::pending_type& pending,
             exchange_messages const& messages, std::exception_ptr failure, std::string_view reason, std::int64_t color) {
  { held.rank() } -> std::same_as<int>;
  { held.size() } -> std::same_as<int>;
  comm.begin(exec, messages, pending);
  comm.begin(exec, messages, pending, failure);
  { comm.finish(exec, pending) } -> std::same_as<received_messages>;
  comm.fail(reason);
  { comm.split(exec, color, color) } -> std::same_as<C>;
};

/// A communicator that sums in an order of its own, or of what it stands on: `sum_native(exec, values)` replaces values by their sums over all
/// ranks, which all call it with as many. The bits differ from those of `rank_sums`, and may differ from one number of ranks, machine or
/// release to another. Models say what a rank does that fails meanwhile.
template <class C>
concept sums_natively = communicator<C> && requires(C& comm, typename C::execution_type const& exec, vector_view<float> values) {
  comm.sum_native(exec, values);
};

namespace detail {

inline constexpr std::int64_t message_alignment = 64;

void check_messages(exchange_messages const& messages, int size);

inline void check_timeout(std::int64_t timeout_ms) {
  constexpr std::int64_t most = std::int64_t{1} << 40;  // some decades, which a clock can add
  if (timeout_ms < 1 || timeout_ms > most) throw error(errc::invalid_argument, "communicator: timeout_ms", {{"timeout_ms", timeout_ms}});
}

// A number of an operation's name, by which ranks see that they are out of step. Source: FNV-1a.
constexpr std::uint32_t operation_number(std::string_view operation) noexcept {
  std::uint32_t number = 2166136261U;
  for (char const c : operation) number = (number ^ static_cast<unsigned char>(c)) * 16777619U;
  return number;
}

// What an exception says.
std::string reason_of(std::exception_ptr const& failure);

inline error rank_failed(char const* operation, int rank, std::string_view reason) {
  return {errc::rank_failed, "another rank failed", {{"rank", rank}, {"operation", operation}, {"reason", reason}}};
}

error timed_out(char const* operation, std::vector<int> const& ranks, std::int64_t timeout_ms);

error out_of_step(char const* operation, int rank, std::string_view theirs);

error wrong_size(char const* operation, int rank, std::int64_t awaited, std::int64_t found);

// The memory of messages that arrived, and what went wrong with them.
template <execution Exec>
struct message_boxes {
  std::vector<buffer<std::byte, Exec>> memory;  // of each awaited message; never fewer than before
  std::vector<vector_view<std::byte const>> views;
  std::exception_ptr failure;  // of the lowest rank
  int failed_rank = -1;

  void reset(std::int64_t messages) {
    auto const count = static_cast<std::size_t>(messages);
    if (memory.size() < count) memory.resize(count);
    views.assign(count, {});
    failure = nullptr;
    failed_rank = -1;
  }
  // Room for a message.
  std::byte* room(Exec const& exec, std::size_t i, std::int64_t bytes) {
    memory[i].resize(exec, bytes);
    views[i] = memory[i].view();
    return memory[i].data();
  }
  void note(int rank, error const& e) {
    if (failure != nullptr && failed_rank <= rank) return;
    failure = std::make_exception_ptr(e);
    failed_rank = rank;
  }
};

}  // namespace detail

}  // namespace TESSERA_ABI
}  // namespace tessera

#if !TESSERA_COMPILED
#include <tessera/comm/communicator.ipp>
#endif
