// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <concepts>
#include <condition_variable>
#include <cstdint>
#include <limits>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// The work of one parallel region: `chunk(i)` does chunk i. It is two words and never throws.
class chunk_function {
 public:
  constexpr chunk_function() = default;
  /// Refers to f, which must outlive it.
  template <class F>
    requires(!std::same_as<F, chunk_function>)
  explicit chunk_function(F const& f) noexcept
      : object_(&f), call_([](void const* object, std::int64_t chunk) noexcept { (*static_cast<F const*>(object))(chunk); }) {}
  void operator()(std::int64_t chunk) const noexcept { call_(object_, chunk); }

 private:
  void const* object_ = nullptr;
  void (*call_)(void const*, std::int64_t) noexcept = nullptr;
};

/// Threads that the caller owns. `run(chunks, f)` calls f(0) … f(chunks - 1), each once, on any threads in any order. It returns when all
/// are done and their writes are visible. `size()` is how many may run at once; less than 1 counts as 1. OpenMP, TBB or another pool is a
/// model in five lines. The caller of a primitive calls `run`, so that several threads of a program may call it at once.
template <class T>
concept thread_team = requires(T& team, std::int64_t chunks, chunk_function f) {
  team.run(chunks, f);
  { team.size() } -> std::convertible_to<int>;
};

/// The caller's thread alone.
struct serial_team {
  static constexpr int size() noexcept { return 1; }
  static void run(std::int64_t chunks, chunk_function f) noexcept {
    for (std::int64_t i = 0; i < chunks; ++i) f(i);
  }
};
static_assert(thread_team<serial_team>);

/// A pool of `threads - 1` threads beside the caller's. They spin briefly between regions, then sleep; a region that finds them awake costs
/// about a microsecond. The caller takes chunks from the front and the others from the back. Regions over the same samples so find them in
/// the cache of the core that had them before. A nested region, or that of a second thread meanwhile, runs on its caller alone.
class thread_pool {
 public:
  /// @throws tessera::error invalid_argument unless 1 <= threads <= 4096, out_of_memory when the system refuses a thread.
  explicit thread_pool(int threads);
  thread_pool(thread_pool const&) = delete;
  thread_pool& operator=(thread_pool const&) = delete;
  ~thread_pool() { stop(); }

  int size() const noexcept { return static_cast<int>(workers_.size()) + 1; }

  void run(std::int64_t chunks, chunk_function f) noexcept {
    if (chunks <= 1 || workers_.empty() || busy_.exchange(true, std::memory_order_acquire)) return serial_team::run(chunks, f);
    function_ = f;
    for (first_ = 0; first_ < chunks; first_ += most_at_once) run_some(static_cast<std::uint32_t>(std::min(chunks - first_, most_at_once)));
    busy_.store(false, std::memory_order_release);
  }

 private:
  static constexpr int spins_before_yield = 1 << 10;
  static constexpr int spins_before_sleep = 1 << 12;
  static constexpr std::int64_t most_at_once = std::numeric_limits<std::uint32_t>::max();

  // Chunks [front, back) are left: one word, so that both ends change at once.
  struct alignas(8) open_chunks {
    std::uint32_t front = 0, back = 0;
  };

  void run_some(std::uint32_t chunks) noexcept {
    done_.store(0, std::memory_order_relaxed);
    open_.store({0, chunks});  // opens the region; what stands above is visible to whoever takes a chunk
    if (sleeping_.load() > 0) {
      { std::lock_guard const lock(mutex_); }
      wake_.notify_all();
    }
    while (take_chunk<true>()) {
    }
    for (int spins = 0; done_.load(std::memory_order_acquire) != chunks; spins += spins < spins_before_yield) pause(spins);
  }

  // A worker that is late from an earlier region takes a chunk of the present one, with the present function: the open chunks alone decide.
  template <bool FromFront>
  bool take_chunk() noexcept {
    auto open = open_.load();
    while (open.front < open.back) {
      auto const chunk = FromFront ? open.front : open.back - 1;
      if (open_.compare_exchange_weak(open, FromFront ? open_chunks{chunk + 1, open.back} : open_chunks{open.front, chunk})) {
        function_(first_ + chunk);
        done_.fetch_add(1, std::memory_order_release);
        return true;
      }
    }
    return false;
  }

  bool is_open() const noexcept {
    auto const open = open_.load();
    return open.front < open.back;
  }

  void work() noexcept;

  void stop() noexcept {
    {
      std::lock_guard const lock(mutex_);
      stopping_.store(true);
    }
    wake_.notify_all();
    for (auto& w : workers_) w.join();
  }

  static void pause(int spins) noexcept {
    if (spins >= spins_before_yield) return std::this_thread::yield();
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
  }

  chunk_function function_;
  std::int64_t first_ = 0;  // chunk of the function that is the open chunks' 0
  alignas(64) std::atomic<open_chunks> open_{};
  alignas(64) std::atomic<std::uint32_t> done_{0};
  alignas(64) std::atomic<bool> busy_{false};
  std::atomic<bool> stopping_{false};
  std::atomic<int> sleeping_{0};
  std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<std::thread> workers_;
};
static_assert(thread_team<thread_pool>);

}  // namespace TESSERA_ABI
}  // namespace tessera

#if !TESSERA_COMPILED
#include <tessera/core/thread_team.ipp>
#endif
