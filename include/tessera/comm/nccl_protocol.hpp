// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/comm/collectives.hpp>
#include <tessera/comm/communicator.hpp>
#include <tessera/comm/nccl_pending.hpp>
#include <tessera/core/device.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// What an exchange needs of NCCL: calls with NCCL's meaning, none of which waits for another rank. `success`, `in_progress` and
/// `remote_error` are values of `status_type`; `async_error(comm, &status)` says whether the last call is complete, or what went wrong.
/// `event_type` is made of an execution, and has `record(exec)`, `wait(exec)` and `is_done()`.
template <class Api, class Exec>
concept nccl_api = device_execution<Exec> && std::is_trivially_copyable_v<typename Api::id_type> &&
    requires(typename Api::comm_type comm, typename Api::status_type status, typename Api::id_type id, typename Api::event_type& event,
             Exec const& exec, void* to, void const* from, float const* summands, float* sums, std::size_t count, int number) {
  { Api::success } -> std::convertible_to<typename Api::status_type>;
  { Api::in_progress } -> std::convertible_to<typename Api::status_type>;
  { Api::remote_error } -> std::convertible_to<typename Api::status_type>;
  { Api::error_text(status) } -> std::convertible_to<char const*>;
  { Api::unique_id(&id) } -> std::same_as<typename Api::status_type>;
  { Api::init_rank(&comm, number, id, number, exec) } -> std::same_as<typename Api::status_type>;  // ranks, id, rank
  { Api::split(comm, number, number, &comm) } -> std::same_as<typename Api::status_type>;          // color, key
  { Api::finalize(comm) } -> std::same_as<typename Api::status_type>;
  { Api::destroy(comm) } -> std::same_as<typename Api::status_type>;
  { Api::abort(comm) } -> std::same_as<typename Api::status_type>;
  { Api::async_error(comm, &status) } -> std::same_as<typename Api::status_type>;
  { Api::group_start() } -> std::same_as<typename Api::status_type>;
  { Api::group_end() } -> std::same_as<typename Api::status_type>;
  { Api::send(from, count, number, comm, exec) } -> std::same_as<typename Api::status_type>;  // bytes
  { Api::receive(to, count, number, comm, exec) } -> std::same_as<typename Api::status_type>;
  { Api::sum(summands, sums, count, comm, exec) } -> std::same_as<typename Api::status_type>;
  event.record(exec);
  event.wait(exec);
  { event.is_done() } -> std::same_as<bool>;
};

/// Ranks with a device each, over NCCL: a model of `communicator`. Messages lie in devices' memory.
///
/// - Messages travel on a stream of the communicator's own, which the caller gives it. They are sent when the stream of `begin` has come to
///   that point, and have come in the order of the stream of `finish`. These two are one stream, or the caller puts them in order.
/// - `finish` waits, on the host, until all ranks that it awaits have called `begin`: NCCL needs sizes on the host. It does not wait for the
///   messages themselves. The word of sizes travels behind messages of exchanges that are finished already: who begins the next exchange
///   before that waits least.
/// - Calls wait where NCCL connects: when two ranks first exchange messages. The end of the last copy waits for NCCL, too. Any wait ends at
///   the time limit.
/// - A reason of a failure travels with its first 492 bytes.
/// - NCCL carries no word of a rank that has left. Others that await it throw errc::rank_failed when NCCL finds out, which then names no
///   rank, else errc::timed_out.
/// - Where a rank leaves between `begin` and `finish`, work of the others' streams may be stuck. Their next call ends at the time limit, and
///   so does `synchronize`, which a host that waits for results calls in place of the execution's.
///
/// A copy is the same rank. One thread at a time uses a communicator and those that are split from it.
/// @pre the device, the stream and the memory outlive it
template <device_execution Exec, class Api>
class basic_nccl_communicator {
  static_assert(nccl_api<Api, Exec>);
  using state = detail::nccl_state<Exec, Api>;
  using header = detail::nccl_header;

 public:
  using execution_type = Exec;
  using pending_type = basic_nccl_pending<Exec, Api>;
  using id_type = typename Api::id_type;

  /// Names new ranks. One rank makes it, and all take it to the constructor. @throws tessera::error device_error.
  static id_type make_id() {
    id_type id{};
    if (auto const status = Api::unique_id(&id); status != Api::success)
      throw error(errc::device_error, "nccl_communicator: NCCL refused", {{"call", "unique id"}, {"reason", Api::error_text(status)}});
    return id;
  }

  /// Waits until all ranks have called it with the same id. `stream` carries the messages. @throws tessera::error invalid_argument for a
  /// rank that is not there and for options out of their range; timed_out; device_error where NCCL refuses.
  basic_nccl_communicator(Exec const& stream, int rank, int size, id_type const& id, communicator_options const& options = {}) {
    detail::check_timeout(options.timeout_ms);
    if (size < 1 || rank < 0 || rank >= size)
      throw error(errc::invalid_argument, "nccl_communicator: no such rank", {{"rank", rank}, {"ranks", size}});
    state_ = std::make_shared<state>(stream, rank, size, options, nullptr);
    guarded("nccl_communicator", [&] {
      state_->check(Api::init_rank(&state_->comm, size, id, rank, stream), "init rank");
      state_->settle("nccl_communicator", state_->deadline());
    });
  }
  /// The ranks of a communicator of the host, each with its device; all call it. @throws tessera::error as above, and as `communicator`
  /// says: all throw where one cannot begin.
  template <communicator Host>
    requires(std::same_as<typename Host::execution_type, host_exec>)
  basic_nccl_communicator(host_exec const& host, Host& ranks, Exec const& stream, communicator_options const& options = {})
      : basic_nccl_communicator(stream, ranks.rank(), ranks.size(), common_id(host, ranks), options) {}

  /// Which of the ranks this is, from 0.
  int rank() const noexcept { return state_->rank; }
  /// How many ranks there are.
  int size() const noexcept { return state_->size; }

  /// Tells the other ranks what comes, and notes what is sent.
  /// @throws tessera::error as `communicator` says; timed_out; device_error. invalid_argument for a `pending` that is under way.
  void begin(Exec const& exec, exchange_messages const& messages, pending_type& pending, std::exception_ptr const& failure = nullptr);

  /// Waits on the host for the word of what comes, and lets it come. @throws tessera::error as `communicator` says; device_error; what the
  /// memory throws, after which the rank has left; invalid_argument where nothing is under way.
  received_messages finish(Exec const& exec, pending_type& pending);

  /// The rank leaves: what its device has under way for these ranks ends.
  void fail(std::string_view reason) { state_->leave(reason); }

  /// Makes a communicator of the ranks with the same color, on the same stream. All ranks call it; it waits. @pre no exchange is under way
  /// @throws tessera::error as `finish`.
  basic_nccl_communicator split(Exec const& exec, std::int64_t color, std::int64_t key);

  /// Overwrites values with their sums over all ranks, in NCCL's own order: see `sums_natively`. The bits differ from those of `rank_sums`, and
  /// from one number of ranks, machine or release to another. All ranks call it with as many values. It returns once the sum is enqueued.
  /// @throws tessera::error timed_out, rank_failed or device_error, after which the rank has left.
  void sum_native(Exec const& exec, vector_view<float> values) {
    state_->check_here("sum_native");
    guarded("sum_native", [&] {
      typename Api::event_type event(exec);
      event.record(exec);
      event.wait(state_->stream);
      if (!values.empty())
        state_->check(Api::sum(values.data(), values.data(), static_cast<std::size_t>(values.size()), state_->comm, state_->stream), "sum");
      state_->settle("sum_native", state_->deadline());
      event.record(state_->stream);
      event.wait(exec);
    });
  }

  /// Waits on the host until the work of `exec` is done, with all that it waits for of other ranks. @throws tessera::error timed_out,
  /// rank_failed or device_error, after which the rank has left; faults of kernels.
  void synchronize(Exec const& exec, char const* operation = "synchronize") {
    wait(exec, operation);
    exec.synchronize();
  }
  /// As above, but faults of kernels stay for the execution's `synchronize`.
  void wait(Exec const& exec, char const* operation = "wait") {
    state_->check_here(operation);
    guarded(operation, [&] {
      typename Api::event_type event(exec);
      event.record(exec);
      state_->wait(event, operation);
    });
  }

 private:
  explicit basic_nccl_communicator(std::shared_ptr<state> made) : state_(std::move(made)) {}

  template <class Host>
  static id_type common_id(host_exec const& host, Host& ranks) {
    id_type own{};
    std::exception_ptr failure;
    if (ranks.rank() == 0) try {
        own = make_id();
      } catch (...) {
        failure = std::current_exception();
      }
    typename Host::pending_type pending;
    return all_gather<id_type>(host, ranks, {&own, ranks.rank() == 0 ? 1 : 0}, pending, "nccl_communicator", failure)[0][0];
  }

  // What fails within has put the rank out of step: it leaves.
  template <class F>
  void guarded(char const* operation, F const& f) {
    try {
      f();
    } catch (std::exception const& e) {
      state_->leave(e.what());
      throw;
    } catch (...) {
      state_->leave(operation);
      throw;
    }
  }

  void wait_for_headers(pending_type& pending);
  std::vector<int> absent(pending_type& pending);
  void move_messages(Exec const& exec, pending_type& pending);

  std::shared_ptr<state> state_;
};

template <device_execution Exec, class Api>
void basic_nccl_communicator<Exec, Api>::begin(Exec const& exec, exchange_messages const& messages, pending_type& pending,
                                               std::exception_ptr const& failure) {
  detail::check_messages(messages, size());
  if (pending.under_way())
    throw error(errc::invalid_argument, "communicator: an exchange is under way", {{"operation", pending.operation_}});
  state_->check_here(messages.operation);
  pending.failure_ = failure;
  guarded(messages.operation, [&] {
    auto const& stream = state_->stream;
    if (!pending.begun_) pending.begun_.emplace(exec);
    if (!pending.travelled_) pending.travelled_.emplace(stream);
    if (pending.state_ != nullptr && pending.state_ != state_) {  // whose stream used the memory
      pending.travelled_->record(pending.state_->stream);
      pending.travelled_->wait(stream);
    }
    pending.state_ = state_;
    pending.operation_ = messages.operation;
    pending.send_.assign(messages.send.begin(), messages.send.end());
    pending.awaited_.assign(messages.receive.begin(), messages.receive.end());
    pending.user_ = exec;
    pending.begun_->record(exec);

    auto const sent = messages.send.size(), awaited = messages.receive.size();
    std::vector<header> headers(static_cast<std::size_t>(sent));
    auto const reason = pending.failure_ == nullptr ? std::string() : detail::reason_of(pending.failure_);
    for (std::size_t i = 0; i < headers.size(); ++i) {
      auto& h = headers[i];
      h.kind = pending.failure_ == nullptr ? header::message : header::failure;
      h.bytes = pending.failure_ == nullptr ? pending.send_[i].bytes.size() : 0;
      h.operation = detail::operation_number(messages.operation);
      h.write(pending.failure_ == nullptr ? std::string_view(messages.operation) : std::string_view(reason));
    }
    pending.headers_.resize(stream.with_memory(exec.memory()), sent + awaited);
    auto* const out = pending.headers_.data();
    constexpr std::size_t at_once = 64;  // so few bytes that no copy waits for the stream
    for (std::size_t first = 0; first < headers.size(); first += at_once)
      stream.copy_in(out + first, headers.data() + first, std::min(at_once, headers.size() - first) * sizeof(header));
    if (awaited > 0) stream.fill(out + sent, 0, static_cast<std::size_t>(awaited) * sizeof(header));
    if (sent + awaited > 0) {
      auto const until = state_->deadline();
      detail::nccl_group<Api> group;
      for (std::int64_t i = 0; i < sent; ++i)
        group.note(Api::send(out + i, sizeof(header), messages.send[i].to, state_->comm, stream), "send");
      for (std::int64_t i = 0; i < awaited; ++i)
        group.note(Api::receive(out + sent + i, sizeof(header), messages.receive[i].from, state_->comm, stream), "receive");
      group.end(*state_);
      state_->settle(messages.operation, until);
    }
    pending.travelled_->record(stream);
    pending.is_under_way_ = true;
  });
}

template <device_execution Exec, class Api>
received_messages basic_nccl_communicator<Exec, Api>::finish(Exec const& exec, pending_type& pending) {
  if (!pending.under_way()) throw error(errc::invalid_argument, "communicator: no exchange is under way");
  if (pending.state_ != state_)
    throw error(errc::invalid_argument, "communicator: the exchange is of another communicator", {{"operation", pending.operation_}});
  pending.is_under_way_ = false;
  guarded(pending.operation_, [&] {
    state_->check_here(pending.operation_);
    wait_for_headers(pending);
    move_messages(exec, pending);
  });
  if (pending.failure_ != nullptr) std::rethrow_exception(std::exchange(pending.failure_, nullptr));
  if (pending.boxes_.failure != nullptr) std::rethrow_exception(std::exchange(pending.boxes_.failure, nullptr));
  return pending.boxes_.views;
}

template <device_execution Exec, class Api>
void basic_nccl_communicator<Exec, Api>::wait_for_headers(pending_type& pending) {
  auto const awaited = pending.awaited_.size();
  pending.arrived_.resize(awaited);
  try {
    state_->wait(*pending.travelled_, pending.operation_);
  } catch (error const& e) {
    if (e.code() != errc::timed_out) throw;
    state_->leave(e.what());
    auto const ranks = absent(pending);
    throw detail::timed_out(pending.operation_, ranks, state_->options.timeout_ms);
  }
  if (awaited > 0)
    state_->stream.copy_out(pending.arrived_.data(), pending.headers_.data() + pending.send_.size(), awaited * sizeof(header));
}

// The ranks that have not come within the time limit; all that this one exchanges with, where the device does not tell.
// @pre NCCL's work is aborted
template <device_execution Exec, class Api>
std::vector<int> basic_nccl_communicator<Exec, Api>::absent(pending_type& pending) {
  auto const until = state::clock::now() + std::chrono::seconds(1);
  bool is_free = false;  // whether NCCL has given the stream free
  while (!is_free && state::clock::now() < until) is_free = pending.travelled_->is_done();
  std::vector<int> ranks;
  if (is_free && !pending.awaited_.empty()) {
    state_->stream.copy_out(pending.arrived_.data(), pending.headers_.data() + pending.send_.size(),
                            pending.arrived_.size() * sizeof(header));
    for (std::size_t i = 0; i < pending.arrived_.size(); ++i)
      if (pending.arrived_[i].kind == 0) ranks.push_back(pending.awaited_[i].from);
  }
  if (ranks.empty()) {
    for (auto const& m : pending.awaited_) ranks.push_back(m.from);
    for (auto const& m : pending.send_) ranks.push_back(m.to);
  }
  std::erase(ranks, rank());
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  return ranks;
}

// Enqueues the messages themselves. What a rank sends that fails or is out of step is taken as well, so that later messages meet.
template <device_execution Exec, class Api>
void basic_nccl_communicator<Exec, Api>::move_messages(Exec const& exec, pending_type& pending) {
  auto const& stream = state_->stream;
  auto& boxes = pending.boxes_;
  // Behind the caller's work so far: it made what is sent, and has read what lay in this memory.
  pending.begun_->wait(stream);
  boxes.reset(static_cast<std::int64_t>(pending.awaited_.size()));
  for (std::size_t i = 0; i < pending.awaited_.size(); ++i) {
    auto const& m = pending.awaited_[i];
    auto const& h = pending.arrived_[i];
    if (h.kind == header::failure)
      boxes.note(m.from, detail::rank_failed(pending.operation_, m.from, h.read()));
    else if (h.operation != detail::operation_number(pending.operation_))
      boxes.note(m.from, detail::out_of_step(pending.operation_, m.from, h.read()));
    else if (m.bytes != awaited_message::unknown && m.bytes != h.bytes)
      boxes.note(m.from, detail::wrong_size(pending.operation_, m.from, m.bytes, h.bytes));
    boxes.room(stream.with_memory(exec.memory()), i, h.bytes);
  }
  auto const until = state_->deadline();
  detail::nccl_group<Api> group;
  if (pending.failure_ == nullptr)
    for (auto const& m : pending.send_)
      if (!m.bytes.empty())
        group.note(Api::send(m.bytes.data(), static_cast<std::size_t>(m.bytes.size()), m.to, state_->comm, stream), "send");
  for (std::size_t i = 0; i < pending.awaited_.size(); ++i)
    if (auto& box = boxes.memory[i]; !box.empty())
      group.note(Api::receive(box.data(), static_cast<std::size_t>(box.size()), pending.awaited_[i].from, state_->comm, stream), "receive");
  group.end(*state_);
  state_->settle(pending.operation_, until);
  pending.travelled_->record(stream);
  pending.travelled_->wait(exec);
  pending.user_ = exec;
}

template <device_execution Exec, class Api>
basic_nccl_communicator<Exec, Api> basic_nccl_communicator<Exec, Api>::split(Exec const& exec, std::int64_t color, std::int64_t key) {
  using wish = detail::split_members::wish;
  auto const own = to_device(exec, std::vector<wish>{{color, key}});
  pending_type pending;
  auto const views = all_gather<wish>(exec, *this, own.view(), pending, "split");
  synchronize(exec, "split");
  std::vector<wish> wishes;
  wishes.reserve(views.size());
  for (auto const& view : views) wishes.push_back(read_one(exec, view.data()));
  auto const members = detail::split_members::of(wishes, rank());
  auto part = std::make_shared<state>(state_->stream, members.place, static_cast<int>(members.ranks.size()), state_->options, state_);
  guarded("split", [&] {
    auto const until = state_->deadline();
    state_->check(Api::split(state_->comm, members.colors, members.place, &part->comm), "split");
    state_->settle("split", until);
    part->settle("split", until);
  });
  return basic_nccl_communicator(std::move(part));
}

}  // namespace TESSERA_ABI
}  // namespace tessera
