// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <tessera/comm/communicator.hpp>
#include <tessera/core/buffer.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

namespace detail {

// What travels ahead of each message.
struct nccl_header {
  static constexpr std::uint32_t message = 1, failure = 2;

  std::int64_t bytes = 0;
  std::uint32_t kind = 0;  // 0: it has not come
  std::uint32_t operation = 0;
  std::uint32_t text_bytes = 0;
  char text[492] = {};  // why the rank fails, else the operation's name; as much of it as there is room for

  void write(std::string_view from) noexcept {
    text_bytes = static_cast<std::uint32_t>(std::min(from.size(), sizeof text));
    std::memcpy(text, from.data(), text_bytes);
  }
  std::string_view read() const noexcept { return {text, std::min<std::size_t>(text_bytes, sizeof text)}; }
};
static_assert(sizeof(nccl_header) == 512);

// What all copies of a rank's communicator share.
template <device_execution Exec, class Api>
struct nccl_state {
  using comm_type = typename Api::comm_type;
  using status_type = typename Api::status_type;
  using clock = std::chrono::steady_clock;

  nccl_state(Exec const& stream, int rank, int size, communicator_options const& options, std::shared_ptr<nccl_state> parent)
      : stream(stream), rank(rank), size(size), options(options), parent(std::move(parent)) {}
  nccl_state(nccl_state const&) = delete;
  nccl_state& operator=(nccl_state const&) = delete;
  ~nccl_state() {
    if (comm == comm_type{}) return;
    try {
      check_here("the end");
      if (std::uncaught_exceptions() > 0) throw rank_failed("the end", rank, "an exception ended the rank's communicator");
      check(Api::finalize(comm), "finalize");
      settle("the end", deadline());
      (void)Api::destroy(std::exchange(comm, {}));
    } catch (std::exception const& e) {
      leave(e.what());
    }
  }

  // Notes why this rank has left. Its work on the device ends.
  void leave(std::string_view reason) noexcept {
    if (!left.empty()) return;
    try {
      left = reason.empty() ? "no reason given" : reason;
    } catch (...) {  // no memory for a reason
      left = "left";
    }
    if (comm != comm_type{}) (void)Api::abort(std::exchange(comm, {}));
  }
  void check_here(char const* operation) const {
    for (auto* state = this; state != nullptr; state = state->parent.get())
      if (!state->left.empty()) throw rank_failed(operation, state->rank, state->left);
  }

  clock::time_point deadline() const { return clock::now() + std::chrono::milliseconds(options.timeout_ms); }
  void check(status_type status, char const* call) const {
    if (status != Api::success && status != Api::in_progress)
      throw error(errc::device_error, "nccl_communicator: NCCL refused", {{"call", call}, {"reason", Api::error_text(status)}});
  }

  // Whether the last call of NCCL is complete. @throws what NCCL has found
  bool is_settled(comm_type of, char const* operation) const {
    auto status = Api::success;
    check(Api::async_error(of, &status), "async error");
    if (status == Api::remote_error)
      throw error(errc::rank_failed, "another rank failed", {{"operation", operation}, {"reason", Api::error_text(status)}});
    check(status, operation);
    return status != Api::in_progress;
  }
  // Waits until NCCL has done what a call began, such as to connect with ranks.
  void settle(char const* operation, clock::time_point until) const { settle(comm, operation, until); }
  void settle(comm_type of, char const* operation, clock::time_point until) const {
    poll([&] { return is_settled(of, operation); }, operation, until);
  }
  // Waits on the host until an event of the device has come.
  template <class Event>
  void wait(Event const& event, char const* operation) const {
    std::int64_t polls = 0;
    poll(
        [&] {
          if (event.is_done()) return true;
          if (++polls % 64 == 0) (void)is_settled(comm, operation);
          return false;
        },
        operation, deadline());
  }

  Exec stream;  // on which messages travel
  int rank, size;
  communicator_options options;
  std::shared_ptr<nccl_state> parent;  // none: these ranks are not split from others
  comm_type comm{};                    // none: not yet, or the rank has left
  std::string left;                    // why; empty: it is there

 private:
  template <class IsDone>
  void poll(IsDone const& is_done, char const* operation, clock::time_point until) const {
    while (!is_done()) {
      if (clock::now() >= until) {
        std::vector<int> others;
        for (int r = 0; r < size; ++r)
          if (r != rank) others.push_back(r);
        throw timed_out(operation, others, options.timeout_ms);
      }
      std::this_thread::yield();
    }
  }
};

// Calls of NCCL that are one launch. None of them waits for another.
template <class Api>
class nccl_group {
 public:
  using status_type = typename Api::status_type;

  nccl_group() { note(Api::group_start(), "group start"); }
  nccl_group(nccl_group const&) = delete;
  nccl_group& operator=(nccl_group const&) = delete;
  ~nccl_group() {
    if (!ended_) (void)Api::group_end();
  }

  void note(status_type status, char const* call) noexcept {
    if (call_ != nullptr || status == Api::success || status == Api::in_progress) return;
    status_ = status;
    call_ = call;
  }
  // Launches them. @throws tessera::error device_error for the first call that NCCL refused
  template <class State>
  void end(State const& state) {
    ended_ = true;
    note(Api::group_end(), "group end");
    if (call_ != nullptr) state.check(status_, call_);
  }

 private:
  status_type status_ = Api::success;
  char const* call_ = nullptr;  // none: all are taken
  bool ended_ = false;
};

}  // namespace detail

template <device_execution Exec, class Api>
class basic_nccl_communicator;

/// What an exchange of a `basic_nccl_communicator` has under way. The caller owns it, and may use it again. Move-only. @pre the streams
/// that it was used on outlive it
template <device_execution Exec, class Api>
class basic_nccl_pending {
 public:
  basic_nccl_pending() = default;
  basic_nccl_pending(basic_nccl_pending&& other) noexcept { *this = std::move(other); }
  basic_nccl_pending& operator=(basic_nccl_pending&& other) noexcept {
    if (this == &other) return *this;
    end();
    state_ = std::exchange(other.state_, nullptr);
    is_under_way_ = std::exchange(other.is_under_way_, false);
    operation_ = other.operation_;
    send_ = std::exchange(other.send_, {});
    awaited_ = std::exchange(other.awaited_, {});
    headers_ = std::exchange(other.headers_, {});
    arrived_ = std::exchange(other.arrived_, {});
    user_ = std::exchange(other.user_, std::nullopt);
    begun_ = std::exchange(other.begun_, std::nullopt);
    travelled_ = std::exchange(other.travelled_, std::nullopt);
    failure_ = std::exchange(other.failure_, nullptr);
    boxes_ = std::exchange(other.boxes_, {});
    return *this;
  }
  /// A rank whose exchange ends here before its `finish` has left.
  ~basic_nccl_pending() { end(); }

  /// Whether `finish` is still to come.
  bool under_way() const noexcept { return is_under_way_; }

 private:
  friend class basic_nccl_communicator<Exec, Api>;
  using state = detail::nccl_state<Exec, Api>;
  using event = typename Api::event_type;

  // Memory goes back in the order of the stream of messages, behind what read it last.
  void end() noexcept {
    if (std::exchange(is_under_way_, false)) {
      try {
        state_->leave(std::string("the rank gave up ") + operation_);
      } catch (...) {  // no memory for a reason
        state_->leave("");
      }
    }
    if (!user_) return;
    try {
      begun_->record(*user_);
      begun_->wait(state_->stream);
    } catch (...) {  // a device that takes nothing more reads nothing more
    }
    user_.reset();
  }

  std::shared_ptr<state> state_;  // of the last exchange
  bool is_under_way_ = false;
  char const* operation_ = "";
  std::vector<sent_message> send_;
  std::vector<awaited_message> awaited_;
  buffer<detail::nccl_header, Exec> headers_;  // those that are sent, then those that come
  std::vector<detail::nccl_header> arrived_;
  std::optional<Exec> user_;                // on whose stream what arrives is read
  std::optional<event> begun_, travelled_;  // on the stream of the caller; on that of messages
  std::exception_ptr failure_;              // of this rank
  detail::message_boxes<Exec> boxes_;
};

}  // namespace TESSERA_ABI
}  // namespace tessera
