// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <exception>
#include <limits>
#include <mutex>
#include <type_traits>

#include <tessera/core/config.hpp>
#include <tessera/core/memory.hpp>
#include <tessera/core/thread_team.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

struct execution_tag {};

/// Where a primitive runs; the first argument of each primitive. A model opts in with `using execution_concept = execution_tag`.
template <class E>
concept execution = std::derived_from<typename E::execution_concept, execution_tag>;

struct device_execution_tag : execution_tag {};

/// An execution on a device. Views point to the device's memory, which the host does not read unless a contract says so. Calls return once
/// their work is enqueued. `<tessera/core/device.hpp>` says what a model offers.
template <class E>
concept device_execution = execution<E> && std::derived_from<typename E::execution_concept, device_execution_tag>;

namespace detail {

/// What a primitive does on an execution: one specialisation for each pair. `Primitive` is a tag of the primitive's name. The primary
/// template says what is missing.
template <class Primitive, class Exec>
struct back_end {
  static_assert(dependent_false<Primitive, Exec>,
                "no back end of this primitive or table for this execution; for CUDA include the .cuh that stands beside its .hpp");
};

/// The chunks of a region whose function may throw. Of the exceptions it notes that of the lowest chunk. It refers to the function by a
/// pointer, as the function's type would else be part of every region's type.
class noted_chunks {
 public:
  noted_chunks(void const* function, void (*call)(void const*, std::int64_t)) noexcept : function_(function), call_(call) {}

  void operator()(std::int64_t chunk) const noexcept {
    try {
      call_(function_, chunk);
    } catch (...) {
      std::lock_guard const lock(mutex_);
      if (chunk < failed_chunk_) {
        failed_chunk_ = chunk;
        failure_ = std::current_exception();
      }
    }
  }

  void rethrow() const {
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  void const* function_;
  void (*call_)(void const*, std::int64_t);
  mutable std::mutex mutex_{};
  mutable std::exception_ptr failure_{};
  mutable std::int64_t failed_chunk_ = std::numeric_limits<std::int64_t>::max();
};

}  // namespace detail

/// Runs on the host, on the caller's threads, with workspace from the caller's memory. Results do not depend on the number of threads. It
/// is five words, cheap to copy. @pre the team and the memory outlive it
class host_exec {
 public:
  using execution_concept = execution_tag;

  /// Runs on this team, with this memory.
  template <thread_team Team, class Memory>
  host_exec(Team& team, Memory& memory) noexcept
      : team_(&team),
        run_([](void* t, std::int64_t chunks, chunk_function f) { static_cast<Team*>(t)->run(chunks, f); }),
        size_([](void* t) { return static_cast<int>(static_cast<Team*>(t)->size()); }),
        memory_(memory) {}

  /// The number of threads: what the team says, at least 1.
  int threads() const { return std::max(size_(team_), 1); }
  /// The memory that workspace comes from.
  memory_ref<host_exec> const& memory() const noexcept { return memory_; }

  /// The same threads with other memory.
  template <class Memory>
    requires(!std::same_as<std::remove_const_t<Memory>, memory_ref<host_exec>>)
  host_exec with_memory(Memory& memory)
  const noexcept { return with_memory(memory_ref<host_exec>(memory)); }
  /// As above, for a reference to memory.
  host_exec with_memory(memory_ref<host_exec> memory) const noexcept {
    host_exec other = *this;
    other.memory_ = memory;
    return other;
  }

  /// Calls f(0) … f(chunks - 1), each once, in any order on any threads; returns when all are done. When a chunk throws, the others still
  /// run, and the exception of the lowest chunk is thrown again here.
  template <class F>
  void run(std::int64_t chunks, F const& f) const {
    auto const call = [&f](std::int64_t chunk) { f(chunk); };  // an object also where f is a function
    detail::noted_chunks noted(&call, [](void const* object, std::int64_t chunk) { (*static_cast<decltype(call)*>(object))(chunk); });
    run_(team_, chunks, chunk_function(noted));
    noted.rethrow();
  }

 private:
  void* team_;
  void (*run_)(void*, std::int64_t, chunk_function);
  int (*size_)(void*);
  memory_ref<host_exec> memory_;
};
static_assert(execution<host_exec>);
static_assert(memory_resource<system_memory, host_exec> && memory_resource<pmr_memory, host_exec> &&
              memory_resource<arena<system_memory>, host_exec>);

/// n / by, rounded up. @pre n >= 0, by >= 1
TESSERA_HOST_DEVICE constexpr std::int64_t divide_up(std::int64_t n, std::int64_t by) noexcept { return n / by + (n % by != 0); }

/// Calls f(first, last) for the pieces [0, grain), [grain, 2 grain), … of [0, n). The bounds depend on n and grain alone.
/// @pre n >= 0, grain >= 1
template <class F>
void for_each_piece(host_exec const& exec, std::int64_t n, std::int64_t grain, F const& f) {
  exec.run(divide_up(n, grain), [&](std::int64_t piece) {
    auto const first = piece * grain;
    f(first, n - first < grain ? n : first + grain);
  });
}

}  // namespace TESSERA_ABI
}  // namespace tessera
