// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <memory_resource>
#include <vector>

#if defined(__linux__)
#include <sys/mman.h>
#include <unistd.h>
#endif

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// Where memory comes from. `allocate(exec, bytes, alignment)` returns storage that is ready in the order of `exec` (on a device, of a
/// stream), or throws. `deallocate(exec, pointer, bytes, alignment)` takes it back and never throws.
template <class R, class Exec>
concept memory_resource = requires(R& resource, Exec const& exec, void* pointer, std::size_t size) {
  { resource.allocate(exec, size, size) } -> std::same_as<void*>;
  resource.deallocate(exec, pointer, size, size);
};

namespace detail {
/// The largest alignment that a resource can be asked for: its `most_alignment`, or any where it has none.
template <class R>
inline constexpr std::size_t most_alignment = std::numeric_limits<std::size_t>::max() / 2 + 1;
template <class R>
  requires requires { R::most_alignment; }
inline constexpr std::size_t most_alignment<R> = R::most_alignment;
}  // namespace detail

/// A reference to any memory resource for `Exec`, two words. @pre the resource outlives it
template <class Exec>
class memory_ref {
 public:
  /// Refers to a resource.
  template <class R>
    requires(!std::same_as<std::remove_const_t<R>, memory_ref>)
  explicit memory_ref(R& resource) noexcept : resource_(&resource), calls_(calls_of<R>()) {}

  void* allocate(Exec const& exec, std::size_t bytes, std::size_t alignment) const {
    return calls_->allocate(resource_, exec, bytes, alignment);
  }
  void deallocate(Exec const& exec, void* pointer, std::size_t bytes, std::size_t alignment) const noexcept {
    calls_->deallocate(resource_, exec, pointer, bytes, alignment);
  }

 private:
  struct calls {
    void* (*allocate)(void*, Exec const&, std::size_t, std::size_t);
    void (*deallocate)(void*, Exec const&, void*, std::size_t, std::size_t) noexcept;
  };
  template <class R>
  static constexpr calls calls_for{[](void* r, Exec const& exec, std::size_t bytes, std::size_t alignment) {
                                     return static_cast<R*>(r)->allocate(exec, bytes, alignment);
                                   },
                                   [](void* r, Exec const& exec, void* pointer, std::size_t bytes, std::size_t alignment) noexcept {
                                     static_cast<R*>(r)->deallocate(exec, pointer, bytes, alignment);
                                   }};

  template <class R>
  static constexpr calls const* calls_of() noexcept {
    static_assert(memory_resource<R, Exec>,
                  "a memory resource has allocate(exec, bytes, alignment) and deallocate(exec, pointer, bytes, alignment)");
    if constexpr (memory_resource<R, Exec>)  // else that sentence alone is what the compiler says
      return &calls_for<R>;
    else
      return nullptr;
  }

  void* resource_;
  calls const* calls_;
};

/// The host's heap. From 4 MiB on, storage has pages of its own, which go back to the system at once. From a 2 MiB boundary on these are
/// huge pages, as far as they are full: a table takes no more memory than its rows. Thread-safe.
class system_memory {
 public:
  static constexpr std::size_t huge_page_bytes = std::size_t{1} << 21;

  template <class Exec>
  void* allocate(Exec const&, std::size_t bytes, std::size_t alignment) {
    void* const pointer = bytes < least_mapped ? from_heap(bytes, alignment) : map(bytes, alignment);
    if (pointer == nullptr) throw error(errc::out_of_memory, "system_memory: no memory left", {{"bytes", bytes}});
    return pointer;
  }
  template <class Exec>
  void deallocate(Exec const&, void* pointer, std::size_t bytes, std::size_t) noexcept {
#if defined(__linux__)
    if (bytes >= least_mapped) {
      ::munmap(pointer, bytes);
      return;
    }
#endif
    std::free(pointer);
  }

 private:
  static constexpr std::size_t least_mapped = 2 * huge_page_bytes;

  static void* from_heap(std::size_t bytes, std::size_t alignment) noexcept {
    if (alignment < alignof(std::max_align_t)) alignment = alignof(std::max_align_t);  // some systems refuse less than a pointer's
    std::size_t const rounded = (bytes + alignment - 1) / alignment * alignment;
    return rounded < bytes ? nullptr : std::aligned_alloc(alignment, rounded == 0 ? alignment : rounded);
  }

  static void* map(std::size_t bytes, std::size_t alignment) noexcept {
    if (alignment < huge_page_bytes) alignment = huge_page_bytes;
#if defined(__linux__)
    // More than needed, so that it holds an aligned part; the ends go back. The system rounds sizes up to pages.
    if (bytes + alignment < bytes) return nullptr;
    void* const taken = ::mmap(nullptr, bytes + alignment, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (taken == MAP_FAILED) return nullptr;
    auto* const begin = static_cast<std::byte*>(taken);
    auto const before = (alignment - reinterpret_cast<std::uintptr_t>(begin) % alignment) % alignment;
    auto const page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    auto const whole_pages = [page](std::size_t size) { return (size + page - 1) / page * page; };
    auto const end = before + whole_pages(bytes), taken_end = whole_pages(bytes + alignment);
    if (before > 0) ::munmap(begin, before);
    if (end < taken_end) ::munmap(begin + end, taken_end - end);
    ::madvise(begin + before, bytes / huge_page_bytes * huge_page_bytes, MADV_HUGEPAGE);  // a wish: a refusal costs speed only
    return begin + before;
#else
    return from_heap(bytes, alignment);
#endif
  }
};

/// Adapts a std::pmr resource, which the caller owns.
class pmr_memory {
 public:
  /// Adapts `upstream`, which must outlive it.
  explicit pmr_memory(std::pmr::memory_resource& upstream) noexcept : upstream_(&upstream) {}

  template <class Exec>
  void* allocate(Exec const&, std::size_t bytes, std::size_t alignment) {
    return upstream_->allocate(bytes, alignment);
  }
  template <class Exec>
  void deallocate(Exec const&, void* pointer, std::size_t bytes, std::size_t alignment) noexcept {
    upstream_->deallocate(pointer, bytes, alignment);
  }

 private:
  std::pmr::memory_resource* upstream_;
};

/// Workspace that a step takes and gives back, bump-allocated from blocks of an upstream resource. One thread at a time, and one stream of
/// a device, in whose order memory is reused.
///
/// An allocation can be reused once it and all later ones are back. Those that are given back as scopes end can so be reused at once. When
/// all are back and more than one block was needed, the next round gets one block of the whole size. A loop of equal steps so stops
/// calling upstream.
///
/// Allocations are aligned to at least 64 bytes, and at most to 4096 or what upstream allows. Upstream serves the same executions; the
/// constructor names none, so that any upstream fits. A checked build refuses an allocation that was not taken; where a `memory_ref` gives
/// it back, the program ends.
template <class Upstream>
class arena {
 public:
  static constexpr std::size_t most_alignment = std::min<std::size_t>(4096, detail::most_alignment<Upstream>);

  /// An arena over `upstream`, which must outlive it. It allocates nothing yet.
  explicit arena(Upstream& upstream, std::size_t first_block_bytes = std::size_t{1} << 16) noexcept
      : upstream_(&upstream), next_block_bytes_(first_block_bytes) {}
  arena(arena const&) = delete;
  arena& operator=(arena const&) = delete;
  ~arena() { release(); }

  template <class Exec>
    requires memory_resource<Upstream, Exec>
  void* allocate(Exec const&, std::size_t bytes, std::size_t alignment) {
    if (bytes == 0) bytes = 1;  // so that no two allocations start together
    if (alignment < least_alignment) alignment = least_alignment;
    if (alignment > most_alignment)
      throw error(errc::invalid_argument, "arena: alignment too large", {{"alignment", alignment}, {"largest", most_alignment}});
    if (allocations_.size() == allocations_.capacity()) allocations_.reserve(2 * allocations_.size() + 16);
    for (auto i = allocations_.empty() ? 0 : allocations_.back().block;; ++i) {
      if (i == blocks_.size()) add_block(bytes);
      auto& block = blocks_[i];
      auto const start = (block.used + alignment - 1) / alignment * alignment;
      if (start > block.bytes || bytes > block.bytes - start) continue;
      allocations_.push_back({block.data + start, i, block.used, false});
      block.used = start + bytes;
      return block.data + start;
    }
  }
  template <class Exec>
  void deallocate(Exec const&, void* pointer, std::size_t, std::size_t) noexcept(!checks_indices) {
    if constexpr (checks_indices) check_taken(pointer);
    auto last = allocations_.size() - 1;  // most often the one that comes back
    while (allocations_[last].data != pointer) --last;
    allocations_[last].is_back = true;
    for (; !allocations_.empty() && allocations_.back().is_back; allocations_.pop_back())
      blocks_[allocations_.back().block].used = allocations_.back().used_before;
    if (allocations_.empty() && blocks_.size() > 1) {
      next_block_bytes_ = reserved_bytes();
      release();
    }
  }

  /// The bytes of all blocks that upstream has handed over and not got back.
  std::size_t reserved_bytes() const noexcept {
    std::size_t sum = 0;
    for (auto const& b : blocks_) sum += b.bytes;
    return sum;
  }

 private:
  static constexpr std::size_t least_alignment = 64;
  static constexpr std::size_t page_bytes = 4096;
  struct no_exec {};
  struct block {
    std::byte* data;
    std::size_t bytes;
    std::size_t used;
  };
  struct allocation {
    std::byte* data;
    std::size_t block;
    std::size_t used_before;  // of the block
    bool is_back;
  };

  void add_block(std::size_t bytes) {
    if (bytes < next_block_bytes_) bytes = next_block_bytes_;
    // Whole pages: what fits into several blocks then fits into one of their total size, whatever the alignments.
    auto const rounded = (bytes + page_bytes - 1) / page_bytes * page_bytes;
    if (rounded >= bytes) bytes = rounded;  // else upstream refuses
    blocks_.reserve(blocks_.size() + 1);
    blocks_.push_back({static_cast<std::byte*>(upstream_->allocate(no_exec{}, bytes, most_alignment)), bytes, 0});
    next_block_bytes_ = 2 * bytes;
  }
  void check_taken(void const* pointer) const {
    for (auto const& p : allocations_)
      if (p.data == pointer && !p.is_back) return;
    throw error(errc::invalid_argument, "arena: an allocation comes back that is not taken", {{"allocations", allocations_.size()}});
  }
  void release() noexcept {
    for (auto const& b : blocks_) upstream_->deallocate(no_exec{}, b.data, b.bytes, most_alignment);
    blocks_.clear();
  }

  Upstream* upstream_;
  std::vector<block> blocks_;
  std::size_t next_block_bytes_;
  std::vector<allocation> allocations_;  // in the order of their taking; the last one is not back
};

}  // namespace TESSERA_ABI
}  // namespace tessera
