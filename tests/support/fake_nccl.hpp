// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "emulated_device.hpp"

/// A stand-in for NCCL: ranks are threads, each with an emulated device of its own. As NCCL's, its calls are incomplete for a while, launches
/// of a stream come one after the other, and sends meet receives in order. A launch moves on while its thread asks for something.
namespace tessera_tests {

class fake_nccl {
 public:
  enum status_type { success, in_progress, remote_error, refused };
  struct id_type {
    std::int64_t number;
  };

  /// Whether ranks learn of one that aborts.
  static inline std::atomic<bool> tells_of_aborts{true};
  /// After how long the wait of a stream counts as stuck: the host goes on, as it does where a real stream waits.
  static inline std::atomic<std::int64_t> stuck_after_ms{600'000};

 private:
  struct mail {
    std::vector<std::byte> bytes;
    std::atomic<bool> is_taken{false};
  };
  using clock = std::chrono::steady_clock;
  // What ranks of a communicator share.
  struct shared_state {
    explicit shared_state(int ranks) : ranks(ranks) {}
    int const ranks;
    std::mutex mutex;  // of all below
    int joined = 0;
    bool is_aborted = false;
    std::map<std::pair<int, int>, std::deque<std::shared_ptr<mail>>> mails;  // from, to
    struct wish {
      int rank, color, key;
    };
    std::map<std::int64_t, std::vector<wish>> wishes;  // of each split
    std::map<std::pair<std::int64_t, int>, std::shared_ptr<shared_state>> parts;
  };
  struct comm_state {
    std::shared_ptr<shared_state> shared;
    int rank = 0;
    std::int64_t splits = 0, launches = 0;
    int polls = 0;  // so many more find the last call incomplete
    bool ends = false;
    struct split_call {
      std::int64_t number;
      int color;
      comm_state* made;
    };
    std::optional<split_call> split;
  };

 public:
  using comm_type = comm_state*;

 private:
  struct call {
    enum { send, receive, sum } kind;
    void const* from;
    void* to;
    std::size_t bytes;
    int peer;
    std::shared_ptr<mail> letter;  // sent
    bool is_done = false;
  };
  struct launch {
    comm_type comm;
    emulated_device* device;
    std::vector<call> calls;
    bool is_begun = false, waits_for_receivers = false;
  };
  // The one stream of the running thread's device.
  struct stream {
    std::deque<launch> launches;
    std::int64_t enqueued = 0, done = 0;
    std::vector<launch> group;  // that is being made, one launch a communicator
    int depth = 0;
  };
  static stream& own() {
    static thread_local stream of_thread;
    return of_thread;
  }

  static void enqueue(comm_type comm, emulated_exec const& exec, call const& one) {
    auto& s = own();
    auto found = std::find_if(s.group.begin(), s.group.end(), [&](launch const& l) { return l.comm == comm; });
    if (found == s.group.end()) found = s.group.insert(found, launch{comm, &exec.device(), {}});
    found->calls.push_back(one);
    if (s.depth == 0) launch_group();
  }
  static void launch_group() {
    auto& s = own();
    for (auto& l : s.group) {
      l.waits_for_receivers = ++l.comm->launches % 2 == 0;  // small messages may be on their way before anyone takes them
      l.comm->polls = static_cast<int>(l.comm->launches % 3);
      s.launches.push_back(std::move(l));
      ++s.enqueued;
    }
    s.group.clear();
  }

  static void post(launch& l, call& c, int to) {
    c.letter = std::make_shared<mail>();
    emulated_device::working const scope(*l.device);
    auto const* const first = static_cast<std::byte const*>(c.from);
    c.letter->bytes.assign(first, first + c.bytes);
    auto& shared = *l.comm->shared;
    std::lock_guard const lock(shared.mutex);
    shared.mails[{l.comm->rank, to}].push_back(c.letter);
  }
  static std::shared_ptr<mail> take(comm_type comm, int from) {
    auto& shared = *comm->shared;
    std::lock_guard const lock(shared.mutex);
    auto& letters = shared.mails[{from, comm->rank}];
    if (letters.empty()) return nullptr;
    auto letter = letters.front();
    letters.pop_front();
    return letter;
  }

  static bool advance(launch& l) {
    if (l.comm == nullptr) return true;  // aborted
    auto const ranks = l.comm->shared->ranks;
    if (!std::exchange(l.is_begun, true))
      for (auto& c : l.calls) {
        if (c.kind == call::send) post(l, c, c.peer);
        if (c.kind == call::sum)
          for (int r = 0; r < ranks; ++r) post(l, c, r);
      }
    bool all = true;
    for (auto& c : l.calls) {
      if (c.kind == call::send) c.is_done = !l.waits_for_receivers || c.letter->is_taken;
      if (c.kind == call::receive && !c.is_done) c.is_done = receive(l, c);
      if (c.kind == call::sum && !c.is_done) c.is_done = add_up(l, c);
      all = all && c.is_done;
    }
    return all;
  }
  static bool receive(launch& l, call& c) {
    for (auto const* before = l.calls.data(); before != &c; ++before)  // those of one sender come in order
      if (before->kind == call::receive && before->peer == c.peer && !before->is_done) return false;
    auto const letter = take(l.comm, c.peer);
    if (letter == nullptr) return false;
    CHECK_MESSAGE(letter->bytes.size() == c.bytes, "fake_nccl: ", letter->bytes.size(), " bytes meet a receive of ", c.bytes);
    emulated_device::working const scope(*l.device);
    std::copy_n(letter->bytes.begin(), std::min(letter->bytes.size(), c.bytes), static_cast<std::byte*>(c.to));
    letter->is_taken = true;
    return true;
  }
  static bool add_up(launch& l, call& c) {
    std::vector<std::shared_ptr<mail>> letters;
    {
      auto& shared = *l.comm->shared;
      std::lock_guard const lock(shared.mutex);
      for (int r = 0; r < shared.ranks; ++r)
        if (shared.mails[{r, l.comm->rank}].empty()) return false;
      for (int r = 0; r < shared.ranks; ++r) {
        auto& all = shared.mails[{r, l.comm->rank}];
        letters.push_back(all.front());
        all.pop_front();
      }
    }
    emulated_device::working const scope(*l.device);
    auto* const to = static_cast<float*>(c.to);
    for (std::size_t i = 0; i < c.bytes / sizeof(float); ++i) {
      float sum = 0;
      for (auto const& letter : letters) sum += reinterpret_cast<float const*>(letter->bytes.data())[i];
      to[i] = sum;
    }
    for (auto const& letter : letters) letter->is_taken = true;
    return true;
  }
  static void progress() {
    auto& s = own();
    while (!s.launches.empty() && advance(s.launches.front())) {
      s.launches.pop_front();
      ++s.done;
    }
  }

 public:
  static char const* error_text(status_type status) {
    return status == remote_error ? "remote process exited or there was a network error" : "refused";
  }
  static status_type unique_id(id_type* id) {
    static std::atomic<std::int64_t> next{0};
    *id = {++next};
    return success;
  }
  static status_type init_rank(comm_type* comm, int ranks, id_type id, int rank, emulated_exec const&) {
    static std::mutex mutex;
    static std::map<std::int64_t, std::shared_ptr<shared_state>> worlds;
    std::lock_guard const lock(mutex);
    auto& world = worlds[id.number];
    if (world == nullptr) world = std::make_shared<shared_state>(ranks);
    *comm = new comm_state;
    (*comm)->shared = world;
    (*comm)->rank = rank;
    std::lock_guard const all(world->mutex);
    if (++world->joined == ranks) worlds.erase(id.number);
    return in_progress;
  }
  static status_type split(comm_type comm, int color, int key, comm_type* made) {
    *made = new comm_state;
    comm->split = {comm->splits++, color, *made};
    std::lock_guard const lock(comm->shared->mutex);
    comm->shared->wishes[comm->split->number].push_back({comm->rank, color, key});
    return in_progress;
  }
  static status_type finalize(comm_type comm) {
    comm->ends = true;
    return in_progress;
  }
  static status_type destroy(comm_type comm) {
    for (auto const& l : own().launches) CHECK_MESSAGE(l.comm != comm, "fake_nccl: destroyed with work under way");
    delete comm;
    return success;
  }
  static status_type abort(comm_type comm) {
    if (comm->shared != nullptr) {
      std::lock_guard const lock(comm->shared->mutex);
      comm->shared->is_aborted = true;
      for (auto& [ranks, letters] : comm->shared->mails)
        if (ranks.first == comm->rank) letters.clear();  // what nobody has taken is lost
    }
    for (auto& l : own().launches)
      if (l.comm == comm) l.comm = nullptr;
    delete comm;
    return success;
  }
  static status_type async_error(comm_type comm, status_type* status) {
    progress();
    *status = success;
    if (comm->polls > 0) {
      --comm->polls;
      *status = in_progress;
      return success;
    }
    if (comm->shared == nullptr) {
      *status = in_progress;
      return success;
    }
    auto& shared = *comm->shared;
    std::lock_guard const lock(shared.mutex);
    auto const& launches = own().launches;
    bool const is_busy = std::any_of(launches.begin(), launches.end(), [&](launch const& l) { return l.comm == comm; });
    if (shared.joined < shared.ranks || (comm->ends && is_busy)) *status = in_progress;
    if (shared.is_aborted && tells_of_aborts) *status = remote_error;
    if (comm->split && *status == success) {
      auto const& call = *comm->split;
      auto const& wishes = shared.wishes[call.number];
      if (static_cast<int>(wishes.size()) < shared.ranks) {
        *status = in_progress;
        return success;
      }
      std::vector<std::pair<int, int>> members;
      for (auto const& w : wishes)
        if (w.color == call.color) members.emplace_back(w.key, w.rank);
      std::sort(members.begin(), members.end());
      auto& part = shared.parts[{call.number, call.color}];
      if (part == nullptr) part = std::make_shared<shared_state>(static_cast<int>(members.size()));
      std::lock_guard const of_part(part->mutex);
      ++part->joined;
      call.made->shared = part;
      for (std::size_t i = 0; i < members.size(); ++i)
        if (members[i].second == comm->rank) call.made->rank = static_cast<int>(i);
      comm->split.reset();
    }
    return success;
  }
  static status_type group_start() {
    ++own().depth;
    return success;
  }
  static status_type group_end() {
    if (--own().depth == 0) launch_group();
    return in_progress;
  }
  static status_type send(void const* from, std::size_t bytes, int to, comm_type comm, emulated_exec const& exec) {
    enqueue(comm, exec, {call::send, from, nullptr, bytes, to, nullptr});
    return success;
  }
  static status_type receive(void* to, std::size_t bytes, int from, comm_type comm, emulated_exec const& exec) {
    enqueue(comm, exec, {call::receive, nullptr, to, bytes, from, nullptr});
    return success;
  }
  static status_type sum(float const* from, float* to, std::size_t count, comm_type comm, emulated_exec const& exec) {
    enqueue(comm, exec, {call::sum, from, to, count * sizeof(float), 0, nullptr});
    return in_progress;
  }

  class event_type {
   public:
    explicit event_type(emulated_exec const&) {}
    void record(emulated_exec const&) { point_ = own().enqueued; }
    // The device is the calling thread: it waits in the place of the stream.
    void wait(emulated_exec const&) const {
      auto const until = clock::now() + std::chrono::milliseconds(stuck_after_ms);
      while (!is_done() && clock::now() < until) std::this_thread::yield();
    }
    bool is_done() const {
      progress();
      return own().done >= point_;
    }

   private:
    std::int64_t point_ = 0;
  };
};

}  // namespace tessera_tests
