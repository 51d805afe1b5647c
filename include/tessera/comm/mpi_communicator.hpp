// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <tessera/comm/collectives.hpp>
#include <tessera/comm/communicator.hpp>
#include <tessera/comm/mpi_pending.hpp>
#include <tessera/comm/mpi_session.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// Processes that MPI joins: a model of `communicator`, on the host. MPI's errors are thrown as errc::io_error.
///
///     mpi_session mpi(argc, argv);
///     mpi_communicator comm(mpi.world(), {{.timeout_ms = 60'000}});
///
/// A message travels in pieces (`mpi_options::piece_bytes`). Receives are posted before sends, and the first piece says how large the message
/// is. MPI moves most bytes only inside its calls: what `begin` starts goes on in any `finish`, or on an `mpi_progress_thread` all the time.
/// `comm_mpi_exchange_bench` measures it.
///
/// A copy of a communicator is the same rank. The time limit is that of `finish`. The constructor and `split` also call MPI itself, which
/// waits for the other ranks without a limit.
class mpi_communicator {
 public:
  using execution_type = host_exec;
  using pending_type = mpi_pending;

  /// Joins the ranks of `of`, all of which call it. The communicator has messages of its own: those of `of` never meet them. `progress`,
  /// unless nullptr, moves this communicator's messages between calls.
  /// @pre MPI is initialised with at least MPI_THREAD_SERIALIZED, and finalised after the communicator's end.
  /// @throws tessera::error invalid_argument for options out of their range.
  explicit mpi_communicator(MPI_Comm of, mpi_options const& options = {}, mpi_progress_thread* progress = nullptr) {
    detail::check_timeout(options.timeout_ms);
    if (options.piece_bytes < 1024 || options.piece_bytes > (1 << 30))
      throw error(errc::invalid_argument, "mpi_communicator: piece_bytes", {{"piece_bytes", options.piece_bytes}});
    state_ = std::make_shared<detail::mpi_state>(of, options, progress == nullptr ? nullptr : progress->turns_, nullptr);
  }

  /// Which of the ranks this is, from 0.
  int rank() const noexcept { return state_->rank; }
  /// How many ranks there are.
  int size() const noexcept { return state_->size; }

  /// Posts receives, then starts to send. It does not wait.
  /// @throws tessera::error as `communicator` says. invalid_argument for a `pending` that is under way.
  void begin(host_exec const& exec, exchange_messages const& messages, mpi_pending& pending, std::exception_ptr failure = nullptr);

  /// Waits for what `begin` has sent and awaits. @throws tessera::error as `communicator` says; invalid_argument where nothing is under way.
  received_messages finish(host_exec const& exec, mpi_pending& pending);

  /// Tells all ranks that this one has left: what they await, of any rank, throws.
  void fail(std::string_view reason) { state_->leave(rank(), reason); }

  /// Makes a communicator of the ranks with the same color. All ranks call it. @throws tessera::error as `finish`.
  mpi_communicator split(host_exec const& exec, std::int64_t color, std::int64_t key);

  /// Replaces values by their sums over all ranks, as MPI_Allreduce orders them: see `sums_natively`. It waits within the time limit.
  /// A rank that fails before its call says so by `fail`. Others then throw rank_failed; no rank is left behind.
  /// @pre all ranks call it in the same order, with as many values: MPI finds out nothing else. They may go on with exchanges in between.
  /// @throws tessera::error timed_out where ranks do not come, of which MPI names none; rank_failed where one has left; io_error where MPI
  /// refuses. The values are then as they were, and the rank has left. MPI may still use memory of the communicator, which is never freed.
  void sum_native(host_exec const& exec, vector_view<float> values);

 private:
  friend class mpi_pending;

  explicit mpi_communicator(std::shared_ptr<detail::mpi_state> state) : state_(std::move(state)) {}

  mpi_communicator(std::shared_ptr<detail::mpi_state> const& parent, MPI_Comm of)
      : state_(std::make_shared<detail::mpi_state>(of, parent->options, parent->turns, parent)) {}

  std::int64_t pieces_of(std::int64_t bytes) const noexcept { return divide_up(bytes, state_->options.piece_bytes); }
  void check_here(char const* operation) const {
    for (auto const* state = state_.get(); state != nullptr; state = state->parent.get())
      if (!state->left.empty()) throw detail::rank_failed(operation, state->left_rank, state->left);
  }
  template <class Advance, class Absent>
  void wait_until(char const* operation, Advance const& advance, Absent const& absent);
  void look_for_left(char const* operation);
  std::byte* room(host_exec const& exec, mpi_pending& pending, std::size_t i, std::int64_t bytes) const;
  void receive_rest(mpi_pending& pending, std::size_t i, std::byte* to, std::int64_t bytes, std::vector<MPI_Request>& requests) const;
  void take_header(host_exec const& exec, mpi_pending& pending, std::size_t i);
  bool advance(host_exec const& exec, mpi_pending& pending);
  static std::vector<int> absent(mpi_pending& pending);

  std::shared_ptr<detail::mpi_state> state_;
};
static_assert(sums_natively<mpi_communicator>);

inline void mpi_communicator::begin(host_exec const& exec, exchange_messages const& messages, mpi_pending& pending,
                                    std::exception_ptr failure) {
  detail::check_messages(messages, size());
  if (pending.under_way())
    throw error(errc::invalid_argument, "communicator: an exchange is under way", {{"operation", pending.operation_}});
  auto const lock = state_->turn();
  check_here(messages.operation);
  auto const piece_bytes = state_->options.piece_bytes;
  auto const comm = state_->comm;
  constexpr auto header_bytes = static_cast<std::int64_t>(sizeof(detail::mpi_header));
  pending.begin_under(state_);
  pending.operation_ = messages.operation;
  pending.failure_ = failure;
  pending.sends_.clear();
  pending.receives_.clear();
  pending.first_pieces_.clear();
  pending.boxes_.reset(messages.receive.size());
  pending.incoming_.assign(static_cast<std::size_t>(messages.receive.size()), {});
  for (std::size_t i = 0; i < pending.incoming_.size(); ++i) {
    auto const& m = messages.receive[static_cast<std::int64_t>(i)];
    auto& in = pending.incoming_[i];
    in.from = m.from;
    in.awaited = m.bytes;
    in.number = state_->awaited[static_cast<std::size_t>(m.from)]++;
    auto* const to = room(exec, pending, i, std::max<std::int64_t>(m.bytes, 0));
    detail::check_mpi(MPI_Irecv(to - header_bytes, static_cast<int>(header_bytes + piece_bytes), MPI_BYTE, m.from,
                                detail::mpi_state::first_tag, comm, &in.first),
                      "MPI_Irecv");
    if (m.bytes > 0) receive_rest(pending, i, to, m.bytes, in.rest);
  }

  auto const text = failure == nullptr ? std::string() : detail::reason_of(failure).substr(0, static_cast<std::size_t>(piece_bytes));
  auto const count = static_cast<std::size_t>(messages.send.size());
  if (pending.outgoing_.size() < count) pending.outgoing_.resize(count);
  std::int64_t most_pieces = 0;
  std::vector<std::int64_t> numbers(count);
  auto const bytes_of = [&](std::size_t i) {
    return failure != nullptr ? message_bytes(vector_view<char const>(text)) : messages.send[static_cast<std::int64_t>(i)].bytes;
  };
  for (std::size_t i = 0; i < count; ++i) {
    auto const to = messages.send[static_cast<std::int64_t>(i)].to;
    auto const bytes = bytes_of(i);
    numbers[i] = state_->sent[static_cast<std::size_t>(to)]++;
    most_pieces = std::max(most_pieces, pieces_of(bytes.size()));
    auto const first = std::min(bytes.size(), piece_bytes);
    auto& piece = pending.outgoing_[i];
    piece.resize(static_cast<std::size_t>(header_bytes + first));
    detail::mpi_header const header{bytes.size(), failure != nullptr ? 1U : 0U, detail::operation_number(messages.operation)};
    std::memcpy(piece.data(), &header, sizeof header);
    if (first > 0) std::memcpy(piece.data() + header_bytes, bytes.data(), static_cast<std::size_t>(first));
    MPI_Request request = MPI_REQUEST_NULL;
    detail::check_mpi(MPI_Isend(piece.data(), static_cast<int>(piece.size()), MPI_BYTE, to, detail::mpi_state::first_tag, comm, &request),
                      "MPI_Isend");
    pending.sends_.add(request, to);
  }
  for (std::int64_t p = 1; p < most_pieces; ++p)  // piece by piece, so that no rank waits for all of another's
    for (std::size_t i = 0; i < count; ++i) {
      auto const bytes = bytes_of(i);
      auto const first = p * piece_bytes;
      if (first >= bytes.size()) continue;
      auto const to = messages.send[static_cast<std::int64_t>(i)].to;
      MPI_Request request = MPI_REQUEST_NULL;
      detail::check_mpi(MPI_Isend(bytes.data() + first, static_cast<int>(std::min(piece_bytes, bytes.size() - first)), MPI_BYTE, to,
                                  detail::mpi_state::piece_tag(numbers[i]), comm, &request),
                        "MPI_Isend");
      pending.sends_.add(request, to);
    }
}

inline received_messages mpi_communicator::finish(host_exec const& exec, mpi_pending& pending) {
  if (!pending.under_way()) throw error(errc::invalid_argument, "communicator: no exchange is under way");
  if (pending.state_ != state_)
    throw error(errc::invalid_argument, "communicator: the exchange is of another communicator", {{"operation", pending.operation_}});
  try {
    wait_until(
        pending.operation_, [&] { return advance(exec, pending); }, [&] { return absent(pending); });
  } catch (...) {
    pending.abandon();
    throw;
  }
  pending.end();
  if (pending.failure_ != nullptr) std::rethrow_exception(std::exchange(pending.failure_, nullptr));
  if (pending.boxes_.failure != nullptr) std::rethrow_exception(std::exchange(pending.boxes_.failure, nullptr));
  return pending.boxes_.views;
}

// Until `advance()`, which calls MPI, gives true. `absent()` are the ranks that it waits for, where they are known.
template <class Advance, class Absent>
void mpi_communicator::wait_until(char const* operation, Advance const& advance, Absent const& absent) {
  struct waiting_thread {
    detail::mpi_turns* turns;
    explicit waiting_thread(detail::mpi_turns* all) : turns(all) {
      if (turns != nullptr) ++turns->waiting;
    }
    ~waiting_thread() {
      if (turns != nullptr) --turns->waiting;
    }
  } const this_thread(state_->turns.get());
  auto lock = state_->turn();
  check_here(operation);
  auto const deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(state_->options.timeout_ms);
  for (std::int64_t polls = 1; !advance(); ++polls) {
    if (polls % 64 != 0) continue;
    look_for_left(operation);
    if (std::chrono::steady_clock::now() >= deadline) {
      auto const failure = detail::timed_out(operation, absent(), state_->options.timeout_ms);
      fail(failure.what());
      throw failure;
    }
    if (lock) lock.unlock();
    std::this_thread::yield();
    lock = state_->turn();
  }
}

// Where message i goes: a header lies in front, and the last piece may be a whole one.
inline std::byte* mpi_communicator::room(host_exec const& exec, mpi_pending& pending, std::size_t i, std::int64_t bytes) const {
  auto const pieces = std::max<std::int64_t>(pieces_of(bytes), 1);
  auto* const memory = pending.boxes_.room(exec, i, detail::message_alignment + pieces * state_->options.piece_bytes);
  pending.boxes_.views[i] = {memory + detail::message_alignment, bytes};
  return memory + detail::message_alignment;
}

// The pieces of message i behind the first.
inline void mpi_communicator::receive_rest(mpi_pending& pending, std::size_t i, std::byte* to, std::int64_t bytes,
                                           std::vector<MPI_Request>& requests) const {
  auto const piece_bytes = state_->options.piece_bytes;
  auto const& in = pending.incoming_[i];
  for (std::int64_t p = 1; p < pieces_of(bytes); ++p) {
    MPI_Request request = MPI_REQUEST_NULL;
    detail::check_mpi(MPI_Irecv(to + p * piece_bytes, static_cast<int>(piece_bytes), MPI_BYTE, in.from,
                                detail::mpi_state::piece_tag(in.number), state_->comm, &request),
                      "MPI_Irecv");
    requests.push_back(request);
  }
}

inline void mpi_communicator::take_header(host_exec const& exec, mpi_pending& pending, std::size_t i) {
  auto const piece_bytes = state_->options.piece_bytes;
  auto& in = pending.incoming_[i];
  auto& view = pending.boxes_.views[i];
  detail::mpi_header header;
  std::memcpy(&header, view.data() - sizeof header, sizeof header);
  in.has_header = true;
  auto const keep = [&](std::vector<MPI_Request> const& requests) {
    for (auto const request : requests) pending.receives_.add(request, in.from);
  };
  auto const give_up = [&](std::int64_t from_piece) {  // receives that no piece comes for
    for (auto p = static_cast<std::size_t>(from_piece - 1); p < in.rest.size(); ++p) {
      MPI_Cancel(&in.rest[p]);
      MPI_Wait(&in.rest[p], MPI_STATUS_IGNORE);
    }
    in.rest.resize(std::min(in.rest.size(), static_cast<std::size_t>(from_piece - 1)));
  };
  if (header.failed != 0) {
    give_up(1);
    pending.boxes_.note(in.from, detail::rank_failed(pending.operation_, in.from,
                                                     {reinterpret_cast<char const*>(view.data()), static_cast<std::size_t>(header.bytes)}));
    view = {};
    return;
  }
  if (header.operation != detail::operation_number(pending.operation_))
    pending.boxes_.note(in.from, detail::out_of_step(pending.operation_, in.from, "another"));
  if (in.awaited == awaited_message::unknown) {
    view.count = header.bytes;
    if (header.bytes <= piece_bytes) return;
    // The message is larger than what there is room for yet.
    std::vector<std::byte> const first(view.data(), view.data() + piece_bytes);
    auto* const to = room(exec, pending, i, header.bytes);
    std::memcpy(to, first.data(), first.size());
    std::vector<MPI_Request> rest;
    receive_rest(pending, i, to, header.bytes, rest);
    return keep(rest);
  }
  if (header.bytes != in.awaited) {
    pending.boxes_.note(in.from, detail::wrong_size(pending.operation_, in.from, in.awaited, header.bytes));
    auto const pieces = std::max<std::int64_t>(pieces_of(header.bytes), 1);
    give_up(pieces);
    for (auto p = static_cast<std::int64_t>(in.rest.size()) + 1; p < pieces; ++p) {
      auto& scrap = pending.first_pieces_.emplace_back(static_cast<std::size_t>(piece_bytes));
      MPI_Request request = MPI_REQUEST_NULL;
      detail::check_mpi(MPI_Irecv(scrap.data(), static_cast<int>(piece_bytes), MPI_BYTE, in.from, detail::mpi_state::piece_tag(in.number),
                                  state_->comm, &request),
                        "MPI_Irecv");
      in.rest.push_back(request);
    }
  }
  keep(in.rest);
  in.rest.clear();
}

// Whether all is done. Calls MPI at least once.
inline bool mpi_communicator::advance(host_exec const& exec, mpi_pending& pending) {
  bool all_headers = true;
  for (std::size_t i = 0; i < pending.incoming_.size(); ++i) {
    auto& in = pending.incoming_[i];
    if (in.has_header) continue;
    int done = 0;
    detail::check_mpi(MPI_Test(&in.first, &done, MPI_STATUS_IGNORE), "MPI_Test");
    if (done != 0)
      take_header(exec, pending, i);
    else
      all_headers = false;
  }
  bool const all_received = pending.receives_.advance();
  return pending.sends_.advance() && all_received && all_headers;
}

inline std::vector<int> mpi_communicator::absent(mpi_pending& pending) {
  std::vector<int> ranks;
  for (auto const& in : pending.incoming_)
    if (!in.has_header) ranks.push_back(in.from);
  pending.receives_.add_absent(ranks);
  pending.sends_.add_absent(ranks);
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  return ranks;
}

// Here, and among the ranks that these were split from.
inline void mpi_communicator::look_for_left(char const* operation) {
  for (auto* state = state_.get(); state != nullptr; state = state->parent.get()) {
    int there = 0;
    MPI_Status status;
    detail::check_mpi(MPI_Iprobe(MPI_ANY_SOURCE, detail::mpi_state::left_tag, state->comm, &there, &status), "MPI_Iprobe");
    if (there == 0) continue;
    int bytes = 0;
    detail::check_mpi(MPI_Get_count(&status, MPI_CHAR, &bytes), "MPI_Get_count");
    std::string reason(static_cast<std::size_t>(bytes), ' ');
    detail::check_mpi(
        MPI_Recv(reason.data(), bytes, MPI_CHAR, status.MPI_SOURCE, detail::mpi_state::left_tag, state->comm, MPI_STATUS_IGNORE),
        "MPI_Recv");
    auto const failure = detail::rank_failed(operation, status.MPI_SOURCE, reason);
    state->leave(status.MPI_SOURCE, failure.what());
    state_->leave(status.MPI_SOURCE, failure.what());
    throw failure;
  }
}

inline void mpi_communicator::sum_native(host_exec const& exec, vector_view<float> values) {
  constexpr char const* operation = "sum_native";
  auto& sum = state_->native;
  auto const copy = [&](float const* from, float* to) {
    for_each_piece(exec, values.size(), std::int64_t{1} << 16,
                   [=](std::int64_t first, std::int64_t last) { std::copy(from + first, from + last, to + first); });
  };
  {
    auto const lock = state_->turn();
    check_here(operation);
    sum.resize(values.size());
    copy(values.data(), sum.values.data());
    if (state_->turns != nullptr) state_->turns->add_exchange();
  }
  try {
    {
      auto const lock = state_->turn();
      sum.begin(state_->comm);
    }
    wait_until(
        operation, [&] { return sum.advance(); }, [] { return std::vector<int>(); });
  } catch (std::exception const& e) {
    auto const lock = state_->turn();
    if (state_->turns != nullptr) --state_->turns->exchanges;
    fail(e.what());
    sum.abandon();
    throw;
  }
  if (state_->turns != nullptr) --state_->turns->exchanges;
  copy(sum.values.data(), values.data());
}

inline mpi_communicator mpi_communicator::split(host_exec const& exec, std::int64_t color, std::int64_t key) {
  auto const members = detail::split_members::of(exec, *this, color, key);
  auto const lock = state_->turn();
  MPI_Comm part = MPI_COMM_NULL;
  detail::check_mpi(MPI_Comm_split(state_->comm, members.colors, members.place, &part), "MPI_Comm_split");
  mpi_communicator made(state_, part);
  MPI_Comm_free(&part);
  return made;
}

}  // namespace TESSERA_ABI
}  // namespace tessera
