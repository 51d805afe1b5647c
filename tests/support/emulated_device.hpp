// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <doctest/doctest.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <numeric>
#include <random>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/core/device.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/faults.hpp>
#include <tessera/core/memory.hpp>

#include "block_threads.hpp"
#include "sanitizers.hpp"

/// A stand-in for a device, on the calling thread: the same kernels, one thread of them after the other in an order that changes from launch
/// to launch. Several threads may use one device, which then does the work of one at a time. What only a device can show stays to be shown there: its memory model, its compiler, its speed.
namespace tessera_tests {

/// What a kernel's thread sees of its block, see <tessera/core/device.hpp>.
class emulated_block {
 public:
  emulated_block(std::int64_t index, std::int64_t count, int thread, int threads, std::byte* shared, block_threads* others) noexcept
      : index_(index), count_(count), thread_(thread), threads_(threads), shared_(shared), others_(others) {}

  std::int64_t index() const noexcept { return index_; }
  std::int64_t count() const noexcept { return count_; }
  int thread() const noexcept { return thread_; }
  template <class T>
  T* shared() const noexcept {
    return reinterpret_cast<T*>(shared_);
  }

  void sync() const { wait(threads_); }
  void sync_group(int width) const {
    if (width < 1 || width > 32 || (width & (width - 1)) != 0) stop("a group is a power of two up to 32 threads");
    wait(width);
  }

  template <class T>
  T add(T* p, T value) const noexcept {
    return std::atomic_ref(*p).fetch_add(value);
  }
  template <class T>
  T minimum(T* p, T value) const noexcept {
    return std::exchange(*p, std::min(*p, value));
  }
  template <class T>
  T maximum(T* p, T value) const noexcept {
    return std::exchange(*p, std::max(*p, value));
  }
  template <class T>
  T exchange(T* p, T value) const noexcept {
    return std::atomic_ref(*p).exchange(value);
  }
  template <class T>
  T compare_exchange(T* p, T expected, T desired) const noexcept {
    std::atomic_ref(*p).compare_exchange_strong(expected, desired);
    return expected;
  }
  void prefetch(void const*) const noexcept {}
  template <class T>
  T load(T* p) const noexcept {
    return std::atomic_ref(*p).load();
  }
  template <class T>
  void store(T* p, T value) const noexcept {
    std::atomic_ref(*p).store(value);
  }

 private:
  void wait(int width) const {
    if (others_ == nullptr) stop("a kernel without shared memory has nothing to wait for");
    others_->wait(width);
  }
  [[noreturn]] static void stop(char const* why) {
    std::fprintf(stderr, "emulated device: %s\n", why);
    std::abort();
  }

  std::int64_t index_, count_;
  int thread_, threads_;
  std::byte* shared_;
  block_threads* others_;
};

class emulated_exec;

/// Memory that the host can touch only while the device works: who reads it in between crashes. New storage is filled with 0xFF; what is
/// written past a piece fails the test when the piece comes back.
class emulated_device {
 public:
  emulated_device() {
    mapped_ = mmap(nullptr, capacity + page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapped_ == MAP_FAILED) throw std::bad_alloc();
    base_ = static_cast<std::byte*>(mapped_) + (page - reinterpret_cast<std::uintptr_t>(mapped_) % page) % page;
#ifdef MADV_HUGEPAGE
    madvise(base_, capacity, MADV_HUGEPAGE);
#endif
    working const scope(*this);
    record_ = new (take(sizeof(tessera::detail::fault_record))) tessera::detail::fault_record;
  }
  emulated_device(emulated_device const&) = delete;
  emulated_device& operator=(emulated_device const&) = delete;
  ~emulated_device() {
    CHECK_MESSAGE(pieces_.size() == 1, "emulated_device: ", pieces_.size() - 1, " pieces never came back");
    munmap(mapped_, capacity + page);
  }

  emulated_exec exec();
  std::mt19937_64& random() noexcept { return random_; }
  void seed(std::uint64_t seed) { random_.seed(seed); }

  /// While one lives, the memory can be read and written, by its thread alone.
  class working {
   public:
    explicit working(emulated_device& device) : lock_(device.mutex_), device_(device) {
      if (device_.depth_++ == 0) device_.protect(PROT_READ | PROT_WRITE);
    }
    working(working const&) = delete;
    working& operator=(working const&) = delete;
    ~working() {
      if (--device_.depth_ == 0) device_.protect(PROT_NONE);
    }

   private:
    std::lock_guard<std::recursive_mutex> lock_;
    emulated_device& device_;
  };

  template <class Exec>
  void* allocate(Exec const&, std::size_t bytes, std::size_t) {
    working const scope(*this);
    if (allocations_until_failure_-- <= 0) throw std::bad_alloc();
    return take(bytes);
  }
  template <class Exec>
  void deallocate(Exec const&, void* pointer, std::size_t bytes, std::size_t) noexcept {
    working const scope(*this);
    give_back(static_cast<std::byte*>(pointer), bytes);
  }

  std::size_t live_pieces() const noexcept { return pieces_.size() - 1; }
  std::size_t live_bytes() const noexcept { return live_bytes_; }
  std::size_t peak_bytes() const noexcept { return peak_bytes_; }
  void reset_peak() noexcept { peak_bytes_ = live_bytes_; }
  void fail_after(std::int64_t allocations) noexcept { allocations_until_failure_ = allocations; }
  void never_fail() noexcept { allocations_until_failure_ = INT64_MAX; }

  /// How often the host waited.
  std::int64_t waits = 0;
  std::int64_t launches = 0;

  tessera::detail::fault_reporter faults(tessera::detail::fault_kind const& kind) noexcept { return calls_.reporter(record_, kind); }
  void throw_fault() {
    working const scope(*this);
    auto const found = tessera::detail::error_of(*record_);
    *record_ = {};
    if (found) throw *found;
  }

 private:
  static constexpr std::size_t capacity = std::size_t{1} << 36, alignment = 256, guard = 256;
  static constexpr std::size_t page = std::size_t{1} << 21;  // a large one: to protect many small ones takes longer than all else here
  struct piece {
    std::size_t bytes, room;
  };

  void protect(int access) { mprotect(base_, top_ == 0 ? page : (top_ + page - 1) / page * page, access); }

  std::byte* take(std::size_t bytes) {
    auto const room = (bytes + guard + alignment - 1) / alignment * alignment;
    std::byte* found = nullptr;
    for (auto hole = holes_.begin(); hole != holes_.end() && found == nullptr; ++hole)
      if (hole->second >= room) {
        found = hole->first;
        if (hole->second > room) holes_.emplace(found + room, hole->second - room);
        holes_.erase(found);
        break;
      }
    if (found == nullptr) {
      if (room > capacity - top_) throw std::bad_alloc();
      found = base_ + top_;
      top_ += room;
      protect(PROT_READ | PROT_WRITE);
    }
    std::memset(found, 0xFF, bytes);
    std::memset(found + bytes, 0xA5, room - bytes);
    pieces_.emplace(found, piece{bytes, room});
    live_bytes_ += bytes;
    peak_bytes_ = std::max(peak_bytes_, live_bytes_);
    return found;
  }
  void give_back(std::byte* pointer, std::size_t bytes) {
    auto const found = pieces_.find(pointer);
    // No CHECK_MESSAGE, whose context would end on several threads at once while they throw.
    if (found == pieces_.end()) {
      FAIL_CHECK("emulated_device: what comes back is not taken");
      return;
    }
    auto const held = found->second.bytes, room = found->second.room;
    CHECK(held == bytes);
    if (!std::all_of(pointer + held, pointer + room, [](std::byte b) { return b == std::byte{0xA5}; }))
      FAIL_CHECK("emulated_device: something was written past a piece of ", held, " bytes");
    live_bytes_ -= held;
    pieces_.erase(found);
    auto const hole = holes_.emplace(pointer, room).first;
    if (auto const next = std::next(hole); next != holes_.end() && hole->first + hole->second == next->first) {
      hole->second += next->second;
      holes_.erase(next);
    }
    if (hole != holes_.begin())
      if (auto const before = std::prev(hole); before->first + before->second == hole->first) {
        before->second += hole->second;
        holes_.erase(hole);
      }
  }

  std::recursive_mutex mutex_;  // of all below
  void* mapped_ = nullptr;
  std::byte* base_ = nullptr;
  std::size_t top_ = 0;
  int depth_ = 0;
  std::map<std::byte*, piece> pieces_;
  std::map<std::byte*, std::size_t> holes_;
  std::size_t live_bytes_ = 0, peak_bytes_ = 0;
  std::int64_t allocations_until_failure_ = INT64_MAX;
  tessera::detail::fault_record* record_ = nullptr;
  tessera::detail::fault_calls calls_;
  std::mt19937_64 random_;
};

class emulated_exec {
 public:
  using execution_concept = tessera::device_execution_tag;

  emulated_device& device() const noexcept { return *device_; }
  tessera::memory_ref<emulated_exec> const& memory() const noexcept { return memory_; }
  template <class Memory>
    requires(!std::same_as<std::remove_const_t<Memory>, tessera::memory_ref<emulated_exec>>)
  emulated_exec with_memory(Memory& memory)
  const noexcept { return with_memory(tessera::memory_ref<emulated_exec>(memory)); }
  emulated_exec with_memory(tessera::memory_ref<emulated_exec> memory) const noexcept { return emulated_exec(*device_, memory); }

  void synchronize() const {
    emulated_device::working const scope(*device_);
    ++device_->waits;
    device_->throw_fault();
  }

  template <class Kernel>
  void launch(tessera::launch_shape shape, Kernel const& kernel) const {
    static_assert(std::is_trivially_copyable_v<Kernel> && sizeof(Kernel) <= 4096, "a kernel is plain data of at most 4 KiB");
    static_assert(Kernel::threads % 32 == 0 && Kernel::threads >= 32 && Kernel::threads <= 1024);
    REQUIRE(shape.blocks >= 1);
    REQUIRE(shape.blocks <= INT32_MAX);
    REQUIRE(shape.shared_bytes >= 0);
    REQUIRE(shape.shared_bytes <= 227 * 1024);
    emulated_device::working const scope(*device_);
    ++device_->launches;
    std::vector<int> order(Kernel::threads);
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), device_->random());
    auto const turn = static_cast<std::int64_t>(device_->random()() % static_cast<std::uint64_t>(shape.blocks));
    if (threads_.size() < 1 + Kernel::threads / 32) threads_.resize(1 + Kernel::threads / 32);
    for (std::int64_t b = 0; b < shape.blocks; ++b) {
      auto const index = (b + turn) % shape.blocks;
      std::vector<std::byte> shared(static_cast<std::size_t>(shape.shared_bytes) + 16, std::byte{0xFF});
      auto* const aligned = shared.data() + (16 - reinterpret_cast<std::uintptr_t>(shared.data()) % 16) % 16;
      // Threads that share nothing within a block need no stacks of their own.
      if (shape.shared_bytes == 0) {
        for (int const t : order) {
          emulated_block block(index, shape.blocks, t, Kernel::threads, aligned, nullptr);
          kernel(block);
        }
        continue;
      }
      auto& team = threads_[Kernel::threads / 32];
      if (!team) team = std::make_unique<block_threads>(Kernel::threads);
      team->run(
          [&](int t) {
            emulated_block block(index, shape.blocks, t, Kernel::threads, aligned, team.get());
            kernel(block);
          },
          order);
    }
  }

  void copy(void* to, void const* from, std::size_t bytes) const {
    emulated_device::working const scope(*device_);
    asm volatile("" : "+r"(from));  // where there are no bytes, g++ sees null go to memmove
    if (bytes > 0) std::memmove(to, from, bytes);
  }
  void fill(void* to, unsigned char byte, std::size_t bytes) const {
    emulated_device::working const scope(*device_);
    if (bytes > 0) std::memset(to, byte, bytes);
  }
  void copy_in(void* to, void const* from, std::size_t bytes) const { copy(to, from, bytes); }
  void copy_out(void* to, void const* from, std::size_t bytes) const {
    emulated_device::working const scope(*device_);
    ++device_->waits;
    copy(to, from, bytes);
  }
  tessera::detail::fault_reporter faults(tessera::detail::fault_kind const& kind) const noexcept { return device_->faults(kind); }

 private:
  friend class emulated_device;
  emulated_exec(emulated_device& device, tessera::memory_ref<emulated_exec> memory) noexcept : device_(&device), memory_(memory) {}

  static inline thread_local std::vector<std::unique_ptr<block_threads>> threads_;

  emulated_device* device_;
  tessera::memory_ref<emulated_exec> memory_;
};
static_assert(tessera::device_execution<emulated_exec>);

inline emulated_exec emulated_device::exec() { return emulated_exec(*this, tessera::memory_ref<emulated_exec>(*this)); }

}  // namespace tessera_tests
