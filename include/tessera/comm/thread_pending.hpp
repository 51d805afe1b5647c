// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <tessera/comm/communicator.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

namespace detail {

// A message that its sender has made and its receiver takes. It lies in the sender's `pending`.
struct thread_mail {
  enum class state : std::uint8_t { posted, copying, taken };

  vector_view<std::byte const> bytes;
  std::exception_ptr failure;  // in place of the bytes
  char const* operation = "";
  std::int64_t number = 0;  // of the messages of this sender to this receiver
  int from = 0, to = 0;
  state at = state::posted;
};

// What the ranks of one process share. The mutex guards all of it.
struct thread_ranks_state {
  struct rank_state {
    std::deque<thread_mail*> mail;             // posted to it, not yet taken
    std::vector<std::int64_t> sent, awaited;   // to and from each rank, so far
    std::string left;                          // why the rank has left; empty: it has not
    std::int64_t color = 0, key = 0;           // in the split that is under way
    std::shared_ptr<thread_ranks_state> made;  // by this rank, for those that split with it
  };

  thread_ranks_state(int ranks, communicator_options options) : options(options), ranks(static_cast<std::size_t>(ranks)) {
    for (auto& r : this->ranks) {
      r.sent.assign(this->ranks.size(), 0);
      r.awaited.assign(this->ranks.size(), 0);
    }
  }
  rank_state& of(int rank) noexcept { return ranks[static_cast<std::size_t>(rank)]; }

  // Why a rank has left, here or where these ranks were split from; empty: it has not. @pre the mutex is held
  std::string why_left(int rank) {
    if (auto const& left = of(rank).left; !left.empty()) return left;
    if (parent == nullptr) return {};
    std::lock_guard const lock(parent->mutex);
    return parent->why_left(ranks_of_parent[static_cast<std::size_t>(rank)]);
  }

  communicator_options options;
  std::shared_ptr<thread_ranks_state> parent;  // none: these are not split from others
  std::vector<int> ranks_of_parent;
  std::mutex mutex;  // taken before that of the parent
  std::condition_variable changed;
  std::vector<rank_state> ranks;
};

}  // namespace detail

template <execution Exec>
class basic_thread_communicator;

/// What an exchange of a `basic_thread_communicator` has under way. The caller owns it, and may use it again. Move-only.
template <execution Exec>
class basic_thread_pending {
 public:
  basic_thread_pending() = default;
  basic_thread_pending(basic_thread_pending&& other) noexcept { *this = std::move(other); }
  basic_thread_pending& operator=(basic_thread_pending&& other) noexcept {
    if (this == &other) return *this;
    abandon();
    ranks_ = std::exchange(other.ranks_, nullptr);
    rank_ = other.rank_;
    operation_ = other.operation_;
    mail_ = std::exchange(other.mail_, {});
    awaited_ = std::exchange(other.awaited_, {});
    failure_ = std::exchange(other.failure_, nullptr);
    boxes_ = std::exchange(other.boxes_, {});
    return *this;
  }
  /// A rank whose exchange ends here before its `finish` has left.
  ~basic_thread_pending() { abandon(); }

  /// Whether `finish` is still to come.
  bool under_way() const noexcept { return ranks_ != nullptr; }

 private:
  friend class basic_thread_communicator<Exec>;

  struct awaited_mail {
    int from;
    std::int64_t bytes, number;
    bool is_taken;
  };

  void abandon() noexcept;

  std::shared_ptr<detail::thread_ranks_state> ranks_;  // none: nothing is under way
  int rank_ = 0;
  char const* operation_ = "";
  std::vector<detail::thread_mail> mail_;  // stays where it is while under way
  std::vector<awaited_mail> awaited_;
  std::exception_ptr failure_;  // of this rank
  detail::message_boxes<Exec> boxes_;
};

/// That of the host's ranks.
using thread_pending = basic_thread_pending<host_exec>;

template <execution Exec>
void basic_thread_pending<Exec>::abandon() noexcept {
  using state = detail::thread_mail::state;
  if (ranks_ == nullptr) return;
  std::unique_lock lock(ranks_->mutex);
  for (auto& m : mail_) {
    ranks_->changed.wait(lock, [&] { return m.at != state::copying; });
    if (m.at == state::posted) std::erase(ranks_->of(m.to).mail, &m);
  }
  auto& left = ranks_->of(rank_).left;
  if (left.empty()) left = std::string("the rank gave up ") + operation_;
  ranks_->changed.notify_all();
  lock.unlock();
  ranks_ = nullptr;
}

}  // namespace TESSERA_ABI
}  // namespace tessera
