// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#ifdef __CUDACC__

#include <algorithm>
#include <concepts>
#include <cstddef>

#include <cuda_runtime.h>

#include <tessera/core/cuda_execution.cuh>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/memory.hpp>
#include <tessera/core/memory_adaptors.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// Memory of one device by `cudaMalloc`, for what lives long, and as the upstream of an `arena`. Taking and giving back wait for the whole
/// device. (A `cuda_device` itself is the pool for short-lived memory.) It serves any execution except the host's. Thread-safe.
class cuda_memory {
 public:
  static constexpr std::size_t most_alignment = 256;

  explicit cuda_memory(int ordinal) noexcept : ordinal_(ordinal) {}

  /// @throws tessera::error out_of_memory, device_error; invalid_argument for an alignment past 256.
  template <class Exec>
    requires(!std::same_as<Exec, host_exec>)
  void* allocate(Exec const&, std::size_t bytes, std::size_t alignment) {
    if (alignment > most_alignment)
      throw error(errc::invalid_argument, "cuda_memory: alignment too large", {{"alignment", alignment}, {"largest", most_alignment}});
    cuda_device_scope const scope(ordinal_);
    void* pointer = nullptr;
    check_cuda(cudaMalloc(&pointer, std::max<std::size_t>(bytes, 1)), "cudaMalloc");
    return pointer;
  }
  template <class Exec>
    requires(!std::same_as<Exec, host_exec>)
  void deallocate(Exec const&, void* pointer, std::size_t, std::size_t) noexcept {
    (void)cudaFree(pointer);  // waits for the device by itself
  }

 private:
  int ordinal_;
};

/// Pinned memory of the host (`cudaMallocHost`). Devices read and write it, too, and copies from and to it run at full speed beside other
/// work. It serves executions of the host and of devices. Giving memory back waits for the device named here, so that nothing there still
/// uses it. Thread-safe.
class pinned_memory {
 public:
  static constexpr std::size_t most_alignment = 256;

  explicit pinned_memory(int ordinal) noexcept : ordinal_(ordinal) {}

  /// @throws tessera::error out_of_memory, device_error; invalid_argument for an alignment past 256.
  template <class Exec>
  void* allocate(Exec const&, std::size_t bytes, std::size_t alignment) {
    if (alignment > most_alignment)
      throw error(errc::invalid_argument, "pinned_memory: alignment too large", {{"alignment", alignment}, {"largest", most_alignment}});
    cuda_device_scope const scope(ordinal_);
    void* pointer = nullptr;
    check_cuda(cudaMallocHost(&pointer, std::max<std::size_t>(bytes, 1)), "cudaMallocHost");
    return pointer;
  }
  template <class Exec>
  void deallocate(Exec const&, void* pointer, std::size_t, std::size_t) noexcept {
    int before = 0;
    if (cudaGetDevice(&before) == cudaSuccess && cudaSetDevice(ordinal_) == cudaSuccess) {
      (void)cudaDeviceSynchronize();
      (void)cudaSetDevice(before);
    }
    (void)cudaFreeHost(pointer);
  }

 private:
  int ordinal_;
};

static_assert(memory_resource<cuda_memory, cuda_exec> && !memory_resource<cuda_memory, host_exec>);
static_assert(memory_resource<pinned_memory, cuda_exec> && memory_resource<pinned_memory, host_exec>);
static_assert(memory_resource<arena<cuda_memory>, cuda_exec> && !memory_resource<arena<cuda_memory>, host_exec>);
static_assert(memory_resource<arena<pinned_memory>, cuda_exec> && memory_resource<arena<pinned_memory>, host_exec>);
static_assert(memory_resource<tracked_memory<cuda_device>, cuda_exec> && memory_resource<limited_memory<cuda_device>, cuda_exec>);

}  // namespace TESSERA_ABI
}  // namespace tessera

#endif
