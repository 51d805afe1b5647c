// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/memory.hpp>

/// Resources that wrap another, of the host or of a device: `limited_memory` and `tracked_memory`, which nest. They serve the executions
/// that the upstream serves, and are as thread-safe. @pre the upstream outlives them
namespace tessera {
inline namespace TESSERA_ABI {

/// Hands out at most so many bytes at a time.
template <class Upstream>
class limited_memory {
 public:
  static constexpr std::size_t most_alignment = detail::most_alignment<Upstream>;

  /// Hands out at most `limit_bytes` of `upstream`.
  limited_memory(Upstream& upstream, std::size_t limit_bytes) noexcept : upstream_(&upstream), limit_bytes_(limit_bytes) {}
  limited_memory(limited_memory const&) = delete;
  limited_memory& operator=(limited_memory const&) = delete;

  /// @throws tessera::error out_of_memory with the bytes asked for, those in use and the limit; what upstream throws.
  template <class Exec>
    requires memory_resource<Upstream, Exec>
  void* allocate(Exec const& exec, std::size_t bytes, std::size_t alignment) {
    auto used = used_bytes();
    do {
      if (bytes > limit_bytes_ - used)
        throw error(errc::out_of_memory, "limited_memory: more than the limit",
                    {{"bytes", bytes}, {"used", used}, {"limit", limit_bytes_}});
    } while (!used_bytes_.compare_exchange_weak(used, used + bytes, std::memory_order_relaxed));
    try {
      return upstream_->allocate(exec, bytes, alignment);
    } catch (...) {
      used_bytes_.fetch_sub(bytes, std::memory_order_relaxed);
      throw;
    }
  }
  template <class Exec>
    requires memory_resource<Upstream, Exec>
  void deallocate(Exec const& exec, void* pointer, std::size_t bytes, std::size_t alignment) noexcept {
    upstream_->deallocate(exec, pointer, bytes, alignment);
    used_bytes_.fetch_sub(bytes, std::memory_order_relaxed);
  }

  /// The most bytes that may be out at once.
  std::size_t limit_bytes() const noexcept { return limit_bytes_; }
  /// The bytes out now.
  std::size_t used_bytes() const noexcept { return used_bytes_.load(std::memory_order_relaxed); }

 private:
  Upstream* upstream_;
  std::size_t limit_bytes_;
  std::atomic<std::size_t> used_bytes_{0};
};

/// Counts the bytes that are handed out, as they were asked for.
template <class Upstream>
class tracked_memory {
 public:
  static constexpr std::size_t most_alignment = detail::most_alignment<Upstream>;

  /// Counts what is taken of `upstream`.
  explicit tracked_memory(Upstream& upstream) noexcept : upstream_(&upstream) {}
  tracked_memory(tracked_memory const&) = delete;
  tracked_memory& operator=(tracked_memory const&) = delete;

  template <class Exec>
    requires memory_resource<Upstream, Exec>
  void* allocate(Exec const& exec, std::size_t bytes, std::size_t alignment) {
    void* const pointer = upstream_->allocate(exec, bytes, alignment);
    allocations_.fetch_add(1, std::memory_order_relaxed);
    live_allocations_.fetch_add(1, std::memory_order_relaxed);
    total_bytes_.fetch_add(bytes, std::memory_order_relaxed);
    auto const now = current_bytes_.fetch_add(bytes, std::memory_order_relaxed) + bytes;
    auto peak = peak_bytes();
    while (peak < now && !peak_bytes_.compare_exchange_weak(peak, now, std::memory_order_relaxed)) {
    }
    return pointer;
  }
  template <class Exec>
    requires memory_resource<Upstream, Exec>
  void deallocate(Exec const& exec, void* pointer, std::size_t bytes, std::size_t alignment) noexcept {
    upstream_->deallocate(exec, pointer, bytes, alignment);
    live_allocations_.fetch_sub(1, std::memory_order_relaxed);
    current_bytes_.fetch_sub(bytes, std::memory_order_relaxed);
  }

  /// The bytes out now; `peak_bytes` is the most that ever were at once, `total_bytes` the sum of all allocations.
  std::size_t current_bytes() const noexcept { return current_bytes_.load(std::memory_order_relaxed); }
  /// The most bytes that ever were out at once.
  std::size_t peak_bytes() const noexcept { return peak_bytes_.load(std::memory_order_relaxed); }
  /// The bytes of all allocations.
  std::uint64_t total_bytes() const noexcept { return total_bytes_.load(std::memory_order_relaxed); }
  /// The allocations out now; `allocations` counts all allocations.
  std::int64_t live_allocations() const noexcept { return live_allocations_.load(std::memory_order_relaxed); }
  /// The number of all allocations.
  std::int64_t allocations() const noexcept { return allocations_.load(std::memory_order_relaxed); }

 private:
  Upstream* upstream_;
  std::atomic<std::size_t> current_bytes_{0}, peak_bytes_{0};
  std::atomic<std::uint64_t> total_bytes_{0};
  std::atomic<std::int64_t> live_allocations_{0}, allocations_{0};
};

static_assert(memory_resource<limited_memory<system_memory>, host_exec> && memory_resource<tracked_memory<system_memory>, host_exec> &&
              memory_resource<arena<tracked_memory<limited_memory<system_memory>>>, host_exec>);

}  // namespace TESSERA_ABI
}  // namespace tessera
