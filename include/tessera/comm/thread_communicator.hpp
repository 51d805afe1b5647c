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
#include <mutex>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <tessera/comm/collectives.hpp>
#include <tessera/comm/communicator.hpp>
#include <tessera/comm/thread_pending.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

template <execution Exec>
class basic_thread_communicator;

/// Ranks that are threads of one process, on the host.
using thread_communicator = basic_thread_communicator<host_exec>;

/// Makes ranks of one process; rank r is for a thread of its own. @throws tessera::error invalid_argument for less than one rank, and for
/// options out of their range.
template <execution Exec = host_exec>
std::vector<basic_thread_communicator<Exec>> make_thread_ranks(int ranks, communicator_options const& options = {});

/// Ranks that are threads of one process: a model of `communicator`. The receiver copies each message once, from the sender's memory.
///
///     auto ranks = make_thread_ranks(4);
///     // thread r uses ranks[r], or: run_thread_ranks(4, [](thread_communicator& comm) { … });
///     // with streams of one device: run_thread_ranks<cuda_exec>(4, [](basic_thread_communicator<cuda_exec>& comm) { … });
///
/// On a device, `begin` waits, on the host, for the stream whose work made what is sent, and `finish` for the copies. Faults of kernels are
/// told by the execution's `synchronize()`, as ever.
///
/// A copy of a communicator is the same rank.
template <execution Exec>
class basic_thread_communicator {
 public:
  using execution_type = Exec;
  using pending_type = basic_thread_pending<Exec>;

  /// Which of the ranks this is, from 0.
  int rank() const noexcept { return rank_; }
  /// How many ranks there are.
  int size() const noexcept { return static_cast<int>(state_->ranks.size()); }

  /// Posts messages, and takes note of those that are awaited. It does not wait for other ranks.
  /// @throws tessera::error as `communicator` says. invalid_argument for a `pending` that is under way.
  void begin(Exec const& exec, exchange_messages const& messages, pending_type& pending, std::exception_ptr failure = nullptr) {
    detail::check_messages(messages, size());
    if (pending.under_way())
      throw error(errc::invalid_argument, "communicator: an exchange is under way", {{"operation", pending.operation_}});
    pending.mail_.resize(static_cast<std::size_t>(messages.send.size()));
    pending.awaited_.resize(static_cast<std::size_t>(messages.receive.size()));
    pending.boxes_.reset(messages.receive.size());
    pending.operation_ = messages.operation;
    if (failure == nullptr) try {
        wait_for_stream(exec, messages.send);
      } catch (...) {  // which all shall throw
        failure = std::current_exception();
      }
    std::unique_lock lock(state_->mutex);
    check_here(messages.operation);
    auto& own = state_->of(rank_);
    pending.rank_ = rank_;
    pending.ranks_ = state_;
    std::size_t posted = 0;
    try {
      for (; posted < pending.mail_.size(); ++posted) {
        auto const& m = messages.send[static_cast<std::int64_t>(posted)];
        state_->of(m.to).mail.push_back(&pending.mail_[posted]);
        pending.mail_[posted] = {m.bytes,
                                 failure,
                                 messages.operation,
                                 own.sent[static_cast<std::size_t>(m.to)]++,
                                 rank_,
                                 m.to,
                                 detail::thread_mail::state::posted};
      }
    } catch (...) {  // no memory: the rank is out of step
      for (auto i = posted; i < pending.mail_.size(); ++i) pending.mail_[i].at = detail::thread_mail::state::taken;
      lock.unlock();
      pending.abandon();
      throw;
    }
    for (std::size_t i = 0; i < pending.awaited_.size(); ++i) {
      auto const& m = messages.receive[static_cast<std::int64_t>(i)];
      pending.awaited_[i] = {m.from, m.bytes, own.awaited[static_cast<std::size_t>(m.from)]++, false};
    }
    pending.failure_ = std::move(failure);
    state_->changed.notify_all();
  }

  /// Waits for what `begin` has sent and awaits. @throws tessera::error as `communicator` says; what the memory throws, after which the rank
  /// has left; invalid_argument where nothing is under way.
  received_messages finish(Exec const& exec, pending_type& pending) {
    if (!pending.under_way()) throw error(errc::invalid_argument, "communicator: no exchange is under way");
    if (pending.ranks_ != state_ || pending.rank_ != rank_)
      throw error(errc::invalid_argument, "communicator: the exchange is of another communicator", {{"operation", pending.operation_}});
    try {
      wait_for_all(exec, pending);
    } catch (...) {
      pending.abandon();  // nobody reads what it sent any more
      throw;
    }
    pending.ranks_ = nullptr;
    if (pending.failure_ != nullptr) std::rethrow_exception(std::exchange(pending.failure_, nullptr));
    if (pending.boxes_.failure != nullptr) std::rethrow_exception(std::exchange(pending.boxes_.failure, nullptr));
    return pending.boxes_.views;
  }

  /// Tells all ranks that this one has left: what they await of it throws.
  void fail(std::string_view reason) {
    std::lock_guard const lock(state_->mutex);
    leave(reason);
  }

  /// Makes a communicator of the ranks with the same color. All ranks call it. @throws tessera::error as `finish`.
  basic_thread_communicator split(Exec const& exec, std::int64_t color, std::int64_t key);

 private:
  friend std::vector<basic_thread_communicator> make_thread_ranks<Exec>(int ranks, communicator_options const& options);

  basic_thread_communicator(std::shared_ptr<detail::thread_ranks_state> state, int rank) : state_(std::move(state)), rank_(rank) {}

  // @pre the mutex is held, as for all below
  void check_here(char const* operation) const {
    if (auto const why = state_->why_left(rank_); !why.empty()) throw detail::rank_failed(operation, rank_, why);
  }
  void leave(std::string_view reason) {
    auto& left = state_->of(rank_).left;
    if (left.empty()) left = reason.empty() ? "no reason given" : reason;
    state_->changed.notify_all();
  }

  // Until all messages have come and are taken.
  void wait_for_all(Exec const& exec, pending_type& pending) {
    using state = detail::thread_mail::state;
    using clock = std::chrono::steady_clock;
    auto const deadline = clock::now() + std::chrono::milliseconds(state_->options.timeout_ms);
    std::unique_lock lock(state_->mutex);
    check_here(pending.operation_);
    for (;;) {
      bool const some_taken = take_some(exec, pending, lock);
      std::vector<int> absent;
      for (auto const& a : pending.awaited_)
        if (!a.is_taken) absent.push_back(a.from);
      for (auto const& m : pending.mail_)
        if (m.at != state::taken) absent.push_back(m.to);
      if (absent.empty()) return;
      if (some_taken) continue;
      std::sort(absent.begin(), absent.end());
      absent.erase(std::unique(absent.begin(), absent.end()), absent.end());
      for (auto const rank : absent)
        if (auto const why = state_->why_left(rank); !why.empty()) {
          auto const failure = detail::rank_failed(pending.operation_, rank, why);
          leave(failure.what());
          throw failure;
        }
      // Who leaves the ranks that these were split from wakes nobody here.
      auto const look_again = state_->parent == nullptr ? deadline : std::min(deadline, clock::now() + std::chrono::milliseconds(20));
      if (state_->changed.wait_until(lock, look_again) == std::cv_status::timeout && clock::now() >= deadline) {
        auto const failure = detail::timed_out(pending.operation_, absent, state_->options.timeout_ms);
        leave(failure.what());
        throw failure;
      }
    }
  }

  // Takes all messages that are there. Returns whether there were some.
  bool take_some(Exec const& exec, pending_type& pending, std::unique_lock<std::mutex>& lock) {
    using state = detail::thread_mail::state;
    bool taken = false;
    auto& mail = state_->of(rank_).mail;
    for (std::size_t i = 0; i < pending.awaited_.size(); ++i) {
      auto& a = pending.awaited_[i];
      if (a.is_taken) continue;
      auto const found =
          std::find_if(mail.begin(), mail.end(), [&](detail::thread_mail const* m) { return m->from == a.from && m->number == a.number; });
      if (found == mail.end()) continue;
      auto& m = **found;
      mail.erase(found);
      m.at = state::copying;
      lock.unlock();
      std::exception_ptr own_failure;
      try {
        if (m.failure != nullptr)
          pending.boxes_.note(a.from, detail::rank_failed(pending.operation_, a.from, detail::reason_of(m.failure)));
        else if (std::string_view(m.operation) != pending.operation_)
          pending.boxes_.note(a.from, detail::out_of_step(pending.operation_, a.from, m.operation));
        else if (a.bytes != awaited_message::unknown && a.bytes != m.bytes.size())
          pending.boxes_.note(a.from, detail::wrong_size(pending.operation_, a.from, a.bytes, m.bytes.size()));
        else
          copy(exec, m.bytes, pending.boxes_.room(exec, i, m.bytes.size()));
      } catch (...) {
        own_failure = std::current_exception();
      }
      lock.lock();
      m.at = state::taken;
      a.is_taken = true;
      state_->changed.notify_all();
      if (own_failure != nullptr) {
        leave(detail::reason_of(own_failure));
        std::rethrow_exception(own_failure);
      }
      taken = true;
    }
    return taken;
  }

  // Whoever reads the bytes next may be another stream.
  static void copy(Exec const& exec, vector_view<std::byte const> from, std::byte* to) {
    if constexpr (device_execution<Exec>) {
      if (from.empty()) return;
      exec.copy(to, from.data(), static_cast<std::size_t>(from.size()));
      std::byte one;
      exec.copy_out(&one, to, 1);
    } else {
      for_each_piece(exec, from.size(), std::int64_t{1} << 20, [&](std::int64_t first, std::int64_t last) {
        std::memcpy(to + first, from.data() + first, static_cast<std::size_t>(last - first));
      });
    }
  }
  static void wait_for_stream([[maybe_unused]] Exec const& exec, [[maybe_unused]] vector_view<sent_message const> sent) {
    if constexpr (device_execution<Exec>) {
      auto const some = std::find_if(sent.begin(), sent.end(), [](sent_message const& m) { return !m.bytes.empty(); });
      std::byte one;
      if (some != sent.end()) exec.copy_out(&one, some->bytes.data(), 1);
    }
  }

  std::shared_ptr<detail::thread_ranks_state> state_;
  int rank_;
};
static_assert(communicator<thread_communicator>);

template <execution Exec>
std::vector<basic_thread_communicator<Exec>> make_thread_ranks(int ranks, communicator_options const& options) {
  if (ranks < 1) throw error(errc::invalid_argument, "make_thread_ranks: ranks", {{"ranks", ranks}});
  detail::check_timeout(options.timeout_ms);
  auto const state = std::make_shared<detail::thread_ranks_state>(ranks, options);
  std::vector<basic_thread_communicator<Exec>> all;
  all.reserve(static_cast<std::size_t>(ranks));
  for (int r = 0; r < ranks; ++r) all.push_back(basic_thread_communicator<Exec>(state, r));
  return all;
}

/// Starts a thread for each rank, which calls `f(communicator)`, and waits for all of them. A rank that throws has left, so the others end,
/// too. @throws what the lowest rank threw, but rather an error of its own than rank_failed.
template <execution Exec = host_exec, class F>
void run_thread_ranks(int ranks, F const& f, communicator_options const& options = {}) {
  auto communicators = make_thread_ranks<Exec>(ranks, options);
  std::vector<std::exception_ptr> failures(communicators.size());
  auto const is_own = [](std::exception_ptr const& failure) {
    try {
      std::rethrow_exception(failure);
    } catch (error const& e) {
      return e.code() != errc::rank_failed;
    } catch (...) {
      return true;
    }
  };
  {
    std::vector<std::thread> threads;
    auto const join = [&] {
      for (auto& t : threads) t.join();
    };
    for (std::size_t r = 0; r < communicators.size(); ++r) {
      try {
        threads.emplace_back([&, r] {
          try {
            f(communicators[r]);
          } catch (...) {
            failures[r] = std::current_exception();
            communicators[r].fail(detail::reason_of(failures[r]));
          }
        });
      } catch (std::system_error const& refusal) {
        for (auto s = r; s < communicators.size(); ++s) communicators[s].fail("the system refuses a thread");
        join();
        throw error(errc::out_of_memory, "run_thread_ranks: the system refuses a thread", {{"rank", r}, {"reason", refusal.what()}});
      }
    }
    join();
  }
  std::exception_ptr first;
  for (auto const& failure : failures)
    if (failure != nullptr && (first == nullptr || (is_own(failure) && !is_own(first)))) first = failure;
  if (first != nullptr) std::rethrow_exception(first);
}

template <execution Exec>
basic_thread_communicator<Exec> basic_thread_communicator<Exec>::split(Exec const& exec, std::int64_t color, std::int64_t key) {
  {
    std::lock_guard const lock(state_->mutex);
    state_->of(rank_).color = color;
    state_->of(rank_).key = key;
  }
  barrier(exec, *this, "split");
  std::vector<detail::split_members::wish> wishes;
  {
    std::lock_guard const lock(state_->mutex);
    for (auto const& r : state_->ranks) wishes.push_back({r.color, r.key});
  }
  auto const members = detail::split_members::of(wishes, rank_);
  // The first of them makes what they share. It stays with that rank until all have taken it.
  auto const leader = members.ranks[0];
  if (leader == rank_) {
    auto const made = std::make_shared<detail::thread_ranks_state>(static_cast<int>(members.ranks.size()), state_->options);
    made->parent = state_;
    made->ranks_of_parent = members.ranks;
    std::lock_guard const lock(state_->mutex);
    state_->of(rank_).made = made;
  }
  barrier(exec, *this, "split");
  std::shared_ptr<detail::thread_ranks_state> shared;
  {
    std::lock_guard const lock(state_->mutex);
    shared = state_->of(leader).made;
  }
  barrier(exec, *this, "split");
  if (leader == rank_) {
    std::lock_guard const lock(state_->mutex);
    state_->of(rank_).made = nullptr;
  }
  return {std::move(shared), members.place};
}

}  // namespace TESSERA_ABI
}  // namespace tessera
