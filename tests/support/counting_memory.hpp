// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <map>
#include <mutex>
#include <new>

#include <tessera/core/execution.hpp>
#include <tessera/core/memory.hpp>

namespace tessera_tests {

inline bool is_aligned(void const* pointer, std::size_t alignment) { return reinterpret_cast<std::uintptr_t>(pointer) % alignment == 0; }

/// A memory resource that counts, and that fails the running test when a piece comes back with another size or alignment, twice, or never.
/// New storage is filled with 0xFF (float NaN, integer -1), so that reading it before writing shows. Thread-safe.
class counting_memory {
 public:
  counting_memory() = default;
  counting_memory(counting_memory const&) = delete;
  counting_memory& operator=(counting_memory const&) = delete;
  ~counting_memory() {
    CHECK_MESSAGE(live_.empty(), "counting_memory: ", live_.size(), " pieces never came back");
    CHECK_MESSAGE(wrong_frees_ == 0, "counting_memory: ", wrong_frees_, " pieces came back with another size or alignment, or twice");
  }

  template <class Exec>
  void* allocate(Exec const& exec, std::size_t bytes, std::size_t alignment) {
    std::lock_guard const lock(mutex_);
    if (allocations_ >= allocations_until_failure_) throw std::bad_alloc();
    void* const pointer = system_.allocate(exec, bytes, alignment);
    std::memset(pointer, 0xFF, bytes);
    live_.emplace(pointer, piece{bytes, alignment});
    ++allocations_;
    live_bytes_ += bytes;
    if (live_bytes_ > peak_bytes_) peak_bytes_ = live_bytes_;
    return pointer;
  }

  template <class Exec>
  void deallocate(Exec const& exec, void* pointer, std::size_t bytes, std::size_t alignment) noexcept {
    std::lock_guard const lock(mutex_);
    auto const found = live_.find(pointer);
    if (found == live_.end() || found->second.bytes != bytes || found->second.alignment != alignment) ++wrong_frees_;
    if (found == live_.end()) return;
    live_bytes_ -= found->second.bytes;
    live_.erase(found);
    system_.deallocate(exec, pointer, bytes, alignment);
  }

  /// Calls of `allocate` that succeeded, since the beginning.
  std::int64_t allocations() const noexcept { return allocations_; }
  std::int64_t live_pieces() const noexcept { return static_cast<std::int64_t>(live_.size()); }
  std::size_t live_bytes() const noexcept { return live_bytes_; }
  std::size_t peak_bytes() const noexcept { return peak_bytes_; }
  bool balanced() const noexcept { return live_.empty() && wrong_frees_ == 0; }

  /// Lets `count` more allocations through, then throws std::bad_alloc from each.
  void fail_after(std::int64_t count) noexcept { allocations_until_failure_ = allocations_ + count; }
  void never_fail() noexcept { allocations_until_failure_ = std::numeric_limits<std::int64_t>::max(); }

 private:
  struct piece {
    std::size_t bytes;
    std::size_t alignment;
  };

  tessera::system_memory system_;
  mutable std::mutex mutex_;
  std::map<void*, piece> live_;
  std::int64_t allocations_ = 0;
  std::int64_t allocations_until_failure_ = std::numeric_limits<std::int64_t>::max();
  std::int64_t wrong_frees_ = 0;
  std::size_t live_bytes_ = 0;
  std::size_t peak_bytes_ = 0;
};
static_assert(tessera::memory_resource<counting_memory, tessera::host_exec>);

}  // namespace tessera_tests
