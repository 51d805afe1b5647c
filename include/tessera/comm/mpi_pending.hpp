// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <tessera/comm/communicator.hpp>
#include <tessera/comm/mpi_progress_thread.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// Options of `mpi_communicator`.
struct mpi_options : communicator_options {
  /// Bytes of a message that travel as one MPI message, 1024 to 2^30. Larger messages are cut. Where pieces stay under the transport's eager
  /// limit (64 KiB for Open MPI over TCP), none waits for a handshake behind others.
  std::int64_t piece_bytes = 48 << 10;
};

namespace detail {

inline void check_mpi(int code, char const* call) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(code, text, &length);
  throw error(errc::io_error, "mpi_communicator: MPI refused", {{"call", call}, {"reason", std::string_view(text)}});
}

// In front of the bytes of each message's first piece.
struct mpi_header {
  std::int64_t bytes = 0;       // of the whole message; of a failure, of its text
  std::uint32_t failed = 0;     // 1: the text of a failure is there in place of the message
  std::uint32_t operation = 0;  // its number
};
static_assert(sizeof(mpi_header) == 16 && alignof(mpi_header) <= 16);

// A sum over ranks that MPI has under way.
struct mpi_native_sum {
  std::vector<float> values;  // of this rank, which become the sums; their memory is kept
  std::vector<MPI_Request> requests;
  std::size_t next = 0;  // those before it are done

  static constexpr std::int64_t most = 1 << 30;  // values of one call, which counts them in an int

  void resize(std::int64_t count) {
    values.resize(static_cast<std::size_t>(count));
    requests.clear();
    requests.reserve(static_cast<std::size_t>(divide_up(count, most)));
    next = 0;
  }
  void begin(MPI_Comm comm) {
    auto const count = static_cast<std::int64_t>(values.size());
    for (std::int64_t first = 0; first < count; first += most) {
      MPI_Request request = MPI_REQUEST_NULL;
      check_mpi(MPI_Iallreduce(MPI_IN_PLACE, values.data() + first, static_cast<int>(std::min(most, count - first)), MPI_FLOAT, MPI_SUM,
                               comm, &request),
                "MPI_Iallreduce");
      requests.push_back(request);
    }
  }
  // Whether all is done.
  bool advance() {
    for (int done = 0; next < requests.size(); ++next) {
      check_mpi(MPI_Test(&requests[next], &done, MPI_STATUS_IGNORE), "MPI_Test");
      if (done == 0) return false;
    }
    return true;
  }
  // Behind a failure: no call of MPI's ends such a sum, so its memory is never freed.
  void abandon() noexcept {
    if (next < requests.size()) new std::vector<float>(std::move(values));
    values.clear();
    requests.clear();
  }
};

// What all copies of a rank's communicator share.
struct mpi_state {
  mpi_state(MPI_Comm of, mpi_options const& options, std::shared_ptr<mpi_turns> shared, std::shared_ptr<mpi_state> parent)
      : options(options), turns(std::move(shared)), parent(std::move(parent)) {
    auto const lock = turn();
    check_mpi(MPI_Comm_dup(of, &comm), "MPI_Comm_dup");
    check_mpi(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
    check_mpi(MPI_Comm_rank(comm, &rank), "MPI_Comm_rank");
    check_mpi(MPI_Comm_size(comm, &size), "MPI_Comm_size");
    sent.assign(static_cast<std::size_t>(size), 0);
    awaited.assign(static_cast<std::size_t>(size), 0);
  }
  mpi_state(mpi_state const&) = delete;
  mpi_state& operator=(mpi_state const&) = delete;
  ~mpi_state() {
    bool const is_thrown = std::uncaught_exceptions() > 0;
    auto const lock = turn();
    if (is_thrown && left.empty()) leave(rank, "an exception ended the rank's communicator");
    if (!is_thrown && left.empty()) MPI_Comm_free(&comm);  // where ranks have left, messages may still be on their way
  }

  // Notes who has left and why, and tells all.
  void leave(int who, std::string_view reason) noexcept {
    auto const lock = turn();
    if (!left.empty()) return;
    try {
      left = reason.empty() ? "no reason given" : reason.substr(0, 1000);  // so few bytes that MPI takes them away at once
    } catch (...) {                                                        // no memory for a reason
      left = "left";
    }
    left_rank = who;
    for (int r = 0; r < size; ++r) {
      if (r == rank) continue;
      MPI_Request request = MPI_REQUEST_NULL;
      if (MPI_Isend(left.data(), static_cast<int>(left.size()), MPI_CHAR, r, left_tag, comm, &request) == MPI_SUCCESS)
        MPI_Request_free(&request);
    }
  }

  // Held around calls of MPI.
  std::unique_lock<std::recursive_mutex> turn() const {
    return turns == nullptr ? std::unique_lock<std::recursive_mutex>() : std::unique_lock(turns->calls);
  }

  static constexpr int first_tag = 0, left_tag = 32'767;  // the least that MPI allows as the largest tag
  // Of the pieces behind the first: messages between two ranks that are on their way at once have different ones.
  static int piece_tag(std::int64_t number) noexcept { return static_cast<int>(1 + number % (left_tag - 1)); }

  MPI_Comm comm = MPI_COMM_NULL;
  int rank = 0, size = 1;
  mpi_options options;
  std::shared_ptr<mpi_turns> turns;         // none: no progress thread
  std::vector<std::int64_t> sent, awaited;  // messages to and from each rank, so far
  mpi_native_sum native;
  std::string left;                   // why this rank has left, or whom it missed; empty: all are there
  int left_rank = -1;                 // who has left, where that is known
  std::shared_ptr<mpi_state> parent;  // none: these ranks are not split from others
};

}  // namespace detail

/// What an exchange of an `mpi_communicator` has under way. The caller owns it, and may use it again. Move-only.
class mpi_pending {
 public:
  mpi_pending() = default;
  mpi_pending(mpi_pending&& other) noexcept { *this = std::move(other); }
  mpi_pending& operator=(mpi_pending&& other) noexcept {
    if (this == &other) return *this;
    abandon();
    state_ = std::exchange(other.state_, nullptr);
    operation_ = other.operation_;
    outgoing_ = std::exchange(other.outgoing_, {});
    incoming_ = std::exchange(other.incoming_, {});
    first_pieces_ = std::exchange(other.first_pieces_, {});
    sends_ = std::exchange(other.sends_, {});
    receives_ = std::exchange(other.receives_, {});
    failure_ = std::exchange(other.failure_, nullptr);
    boxes_ = std::exchange(other.boxes_, {});
    return *this;
  }
  /// A rank whose exchange ends here before its `finish` has left. The destructor waits up to a second until its messages are sent.
  ~mpi_pending() { abandon(); }

  /// Whether `finish` is still to come.
  bool under_way() const noexcept { return state_ != nullptr; }

 private:
  friend class mpi_communicator;

  struct incoming {
    int from = 0;
    std::int64_t awaited = 0, number = 0;
    MPI_Request first = MPI_REQUEST_NULL;
    std::vector<MPI_Request> rest;  // pieces behind the first, of a message of known size
    bool has_header = false;
  };

  // Requests that are under way, each with the rank that it is with.
  struct request_list {
    std::vector<MPI_Request> requests;
    std::vector<int> ranks;
    std::size_t next = 0;  // those before it are done

    void clear() noexcept {
      requests.clear();
      ranks.clear();
      next = 0;
    }
    void add(MPI_Request request, int rank) {
      requests.push_back(request);
      ranks.push_back(rank);
    }
    // Whether all are done.
    bool advance() {
      for (; next < requests.size(); ++next) {
        int done = 0;
        detail::check_mpi(MPI_Test(&requests[next], &done, MPI_STATUS_IGNORE), "MPI_Test");
        if (done == 0) return false;
      }
      return true;
    }
    // Adds the ranks of those that are not done.
    void add_absent(std::vector<int>& absent) {
      for (auto r = next; r < requests.size(); ++r) {
        int done = 0;
        if (MPI_Test(&requests[r], &done, MPI_STATUS_IGNORE) == MPI_SUCCESS && done == 0) absent.push_back(ranks[r]);
      }
    }
  };

  void begin_under(std::shared_ptr<detail::mpi_state> const& state) {
    state_ = state;
    if (state_->turns != nullptr) state_->turns->add_exchange();
  }
  void end() noexcept {
    if (state_->turns != nullptr) --state_->turns->exchanges;
    state_ = nullptr;
  }
  void abandon() noexcept;

  std::shared_ptr<detail::mpi_state> state_;  // none: nothing is under way
  char const* operation_ = "";
  std::vector<std::vector<std::byte>> outgoing_;  // first pieces with their headers; never fewer than before
  std::vector<incoming> incoming_;
  std::vector<std::vector<std::byte>> first_pieces_;  // pieces that nobody awaits
  request_list sends_, receives_;                     // pieces; of what is received those behind headers
  std::exception_ptr failure_;                        // of this rank
  detail::message_boxes<host_exec> boxes_;
};

inline void mpi_pending::abandon() noexcept {
  if (state_ == nullptr) return;
  auto const kept = state_;
  auto const lock = kept->turn();
  try {
    state_->leave(state_->rank, std::string("the rank gave up ") + operation_);
  } catch (...) {  // no memory for a reason
    state_->leave(state_->rank, operation_);
  }
  std::vector<MPI_Request*> open;
  try {
    for (auto& in : incoming_) {
      open.push_back(&in.first);
      for (auto& request : in.rest) open.push_back(&request);
    }
    for (auto r = receives_.next; r < receives_.requests.size(); ++r) open.push_back(&receives_.requests[r]);
    for (auto* const request : open)
      if (*request != MPI_REQUEST_NULL) MPI_Cancel(request);
    for (auto r = sends_.next; r < sends_.requests.size(); ++r) open.push_back(&sends_.requests[r]);
    // Without waiting for a rank that hangs: a receive that has met its message is no longer cancelled.
    auto const deadline = std::chrono::steady_clock::now() + std::chrono::seconds(1);
    while (!open.empty() && std::chrono::steady_clock::now() < deadline) {
      int done = 0;
      if (*open.back() == MPI_REQUEST_NULL || (MPI_Test(open.back(), &done, MPI_STATUS_IGNORE) == MPI_SUCCESS && done != 0))
        open.pop_back();
      else
        std::this_thread::yield();
    }
    if (!open.empty()) {  // MPI may still read and write what is ours: it is never freed
      struct kept_memory {
        detail::message_boxes<host_exec> boxes;
        std::vector<std::vector<std::byte>> outgoing, first_pieces;
      };
      new kept_memory{std::move(boxes_), std::move(outgoing_), std::move(first_pieces_)};
      boxes_ = {};
      outgoing_.clear();
      first_pieces_.clear();
    }
  } catch (...) {
    std::terminate();  // memory that MPI may write cannot be kept
  }
  end();
}

}  // namespace TESSERA_ABI
}  // namespace tessera
