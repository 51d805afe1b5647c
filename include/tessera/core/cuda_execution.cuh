// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// A compiler without CUDA may read the back ends, to run them by a stand-in; what needs CUDA itself is not there then.
#ifdef __CUDACC__

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <mutex>
#include <string>
#include <type_traits>

#include <cuda_runtime.h>
#include <cuda/atomic>

#include <tessera/core/call_site.hpp>
#include <tessera/core/device.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/faults.hpp>
#include <tessera/core/memory.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// @throws tessera::error out_of_memory or device_error, naming CUDA's reason, the call and its place, unless the call succeeded.
inline void check_cuda(cudaError_t status, char const* call, call_site site = call_site::here()) {
  if (status == cudaSuccess) return;
  (void)cudaGetLastError();  // told here; the next launch is not to blame
  throw error(status == cudaErrorMemoryAllocation ? errc::out_of_memory : errc::device_error, std::string(call) + ": CUDA refused",
              {{"reason", cudaGetErrorString(status)}, {"file", site.file}, {"line", site.line}});
}

/// Makes a device current for a scope.
class cuda_device_scope {
 public:
  explicit cuda_device_scope(int device) {
    check_cuda(cudaGetDevice(&before_), "cudaGetDevice");
    if (before_ != device) check_cuda(cudaSetDevice(device), "cudaSetDevice");
    changed_ = before_ != device;
  }
  cuda_device_scope(cuda_device_scope const&) = delete;
  cuda_device_scope& operator=(cuda_device_scope const&) = delete;
  ~cuda_device_scope() {
    if (changed_) (void)cudaSetDevice(before_);
  }

 private:
  int before_ = 0;
  bool changed_ = false;
};

class cuda_exec;

namespace detail {

/// What a thread of a kernel sees of its block, see <tessera/core/device.hpp>.
struct cuda_block {
  template <class T>
  using atomic = ::cuda::atomic_ref<T, ::cuda::thread_scope_device>;

  __device__ std::int64_t index() const noexcept { return blockIdx.x; }
  __device__ std::int64_t count() const noexcept { return gridDim.x; }
  __device__ int thread() const noexcept { return static_cast<int>(threadIdx.x); }

  template <class T>
  __device__ T* shared() const noexcept {
    extern __shared__ __align__(16) unsigned char bytes[];
    return reinterpret_cast<T*>(bytes);
  }

  __device__ void sync() const noexcept { __syncthreads(); }
  __device__ void sync_group(int width) const noexcept {
    auto const lanes = width == 32 ? ~0U : (1U << width) - 1;
    __syncwarp(lanes << (static_cast<int>(threadIdx.x) % 32 / width * width));
  }

  template <class T>
  __device__ T add(T* p, T value) const noexcept {
    return atomic<T>(*p).fetch_add(value, ::cuda::memory_order_relaxed);
  }
  template <class T>
  __device__ T minimum(T* p, T value) const noexcept {
    return atomic<T>(*p).fetch_min(value, ::cuda::memory_order_relaxed);
  }
  template <class T>
  __device__ T maximum(T* p, T value) const noexcept {
    return atomic<T>(*p).fetch_max(value, ::cuda::memory_order_relaxed);
  }
  template <class T>
  __device__ T exchange(T* p, T value) const noexcept {
    return atomic<T>(*p).exchange(value, ::cuda::memory_order_acq_rel);
  }
  template <class T>
  __device__ T compare_exchange(T* p, T expected, T desired) const noexcept {
    atomic<T>(*p).compare_exchange_strong(expected, desired, ::cuda::memory_order_acq_rel);
    return expected;
  }
  __device__ void prefetch(void const* p) const noexcept { asm volatile("prefetch.global.L2 [%0];" ::"l"(__cvta_generic_to_global(p))); }
  template <class T>
  __device__ T load(T* p) const noexcept {
    return atomic<T>(*p).load(::cuda::memory_order_acquire);
  }
  template <class T>
  __device__ void store(T* p, T value) const noexcept {
    atomic<T>(*p).store(value, ::cuda::memory_order_release);
  }
};

template <class Kernel>
__global__ void __launch_bounds__(Kernel::threads) run_kernel(__grid_constant__ Kernel const kernel) {
  cuda_block block;
  kernel(block);
}

// Brings a few bytes to the device inside a launch, so that the host's copy is free at once and a captured graph holds its own.
struct copy_in_kernel {
  static constexpr int threads = 256;
  static constexpr std::int64_t most_bytes = 3840;
  unsigned char* to;
  std::int64_t count;
  unsigned char bytes[most_bytes];

  template <class Block>
  TESSERA_DEVICE void operator()(Block& block) const {
    for (std::int64_t i = block.thread(); i < count; i += threads) to[i] = bytes[i];
  }
};

}  // namespace detail

/// One GPU: its memory pool, and the faults that its kernels found. The caller owns it, as a rule one a process and device; executions
/// refer to it. Its memory is CUDA's stream-ordered pool (`cudaMallocAsync`), which keeps what is freed for the next step.
class cuda_device {
 public:
  /// @throws tessera::error device_error for a device that is not there or has no pools.
  explicit cuda_device(int ordinal) : cuda_device(ordinal, nothing_yet{}) {  // so that what is there is given back where a call throws
    cuda_device_scope const scope(ordinal);
    cudaMemPoolProps properties{};
    properties.allocType = cudaMemAllocationTypePinned;
    properties.location.type = cudaMemLocationTypeDevice;
    properties.location.id = ordinal;
    check_cuda(cudaMemPoolCreate(&pool_, &properties), "cudaMemPoolCreate");
    auto keep = std::numeric_limits<std::uint64_t>::max();
    check_cuda(cudaMemPoolSetAttribute(pool_, cudaMemPoolAttrReleaseThreshold, &keep), "cudaMemPoolSetAttribute");
    int never = 0;  // else memory that another stream will give back is taken, and this stream made to wait for that one
    check_cuda(cudaMemPoolSetAttribute(pool_, cudaMemPoolReuseAllowInternalDependencies, &never), "cudaMemPoolSetAttribute");
    check_cuda(cudaDeviceGetAttribute(&most_shared_bytes_, cudaDevAttrMaxSharedMemoryPerBlockOptin, ordinal), "cudaDeviceGetAttribute");
    check_cuda(cudaMalloc(&record_, 2 * sizeof(detail::fault_record)), "cudaMalloc");
    detail::fault_record const none;
    check_cuda(cudaMemcpy(record_, &none, sizeof none, cudaMemcpyHostToDevice), "cudaMemcpy");
    check_cuda(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize");  // streams that do not block would not wait for it
  }
  cuda_device(cuda_device const&) = delete;
  cuda_device& operator=(cuda_device const&) = delete;
  ~cuda_device() {
    if (record_ != nullptr) (void)cudaFree(record_);
    if (pool_ != nullptr) (void)cudaMemPoolDestroy(pool_);
  }

  int ordinal() const noexcept { return ordinal_; }

  /// Work in the order of a stream of this device, which the caller owns, with memory from the pool.
  cuda_exec on(cudaStream_t stream);

  // As a memory resource.
  void* allocate(cuda_exec const& exec, std::size_t bytes, std::size_t alignment);
  void deallocate(cuda_exec const& exec, void* pointer, std::size_t bytes, std::size_t alignment) noexcept;

  /// The bytes that are allocated now; `reserved_bytes` are those that the pool has from the device.
  std::size_t used_bytes() const { return attribute(cudaMemPoolAttrUsedMemCurrent); }
  std::size_t reserved_bytes() const { return attribute(cudaMemPoolAttrReservedMemCurrent); }
  /// Gives back to the device what is not allocated.
  void trim() { check_cuda(cudaMemPoolTrimTo(pool_, 0), "cudaMemPoolTrimTo"); }

  /// @private
  detail::fault_reporter faults(detail::fault_kind const& kind) noexcept { return calls_.reporter(record_, kind); }
  /// @private Throws what kernels of finished work found since the last time.
  void throw_fault(cuda_exec const& exec);
  /// @private The shared memory that a block may have.
  int most_shared_bytes() const noexcept { return most_shared_bytes_; }

 private:
  struct nothing_yet {};
  cuda_device(int ordinal, nothing_yet) noexcept : ordinal_(ordinal) {}

  std::size_t attribute(cudaMemPoolAttr which) const {
    std::uint64_t bytes = 0;
    check_cuda(cudaMemPoolGetAttribute(pool_, which, &bytes), "cudaMemPoolGetAttribute");
    return static_cast<std::size_t>(bytes);
  }

  int ordinal_;
  cudaMemPool_t pool_ = nullptr;
  detail::fault_record* record_ = nullptr;  // and one more, to take it from
  detail::fault_calls calls_;
  std::mutex mutex_;
  int most_shared_bytes_ = 0;
};

/// Runs on a stream of one GPU, with workspace from the caller's memory. Calls return once their work is enqueued; results do not depend on
/// the device's size. It is four words, cheap to copy, and made by `cuda_device::on`.
///
/// An owner frees its memory in the order of the stream on which it was allocated. Where another stream used the memory last, make the
/// first one wait for that one (`cuda_event`) before the owner is destroyed.
///
/// `synchronize()` throws faults that kernels report, of all streams of the device. Calls wait only where their contracts say so.
/// @pre the device, the stream and the memory outlive it
class cuda_exec {
 public:
  using execution_concept = device_execution_tag;

  cuda_device& device() const noexcept { return *device_; }
  cudaStream_t stream() const noexcept { return stream_; }
  memory_ref<cuda_exec> const& memory() const noexcept { return memory_; }

  /// The same stream with other memory of the device.
  template <class Memory>
    requires(!std::same_as<std::remove_const_t<Memory>, memory_ref<cuda_exec>>)
  cuda_exec with_memory(Memory& memory)
  const noexcept { return with_memory(memory_ref<cuda_exec>(memory)); }
  cuda_exec with_memory(memory_ref<cuda_exec> memory) const noexcept { return cuda_exec(*device_, stream_, memory); }

  /// Waits for the stream. @throws tessera::error the first fault that kernels of this device found since the last time; device_error.
  void synchronize() const { device_->throw_fault(*this); }

  /// Enqueues a kernel (see <tessera/core/device.hpp>). @throws tessera::error device_error naming the call's place.
  template <class Kernel>
  void launch(launch_shape shape, Kernel const& kernel, call_site site = call_site::here()) const {
    static_assert(std::is_trivially_copyable_v<Kernel> && sizeof(Kernel) <= 4096, "a kernel is plain data of at most 4 KiB");
    static_assert(Kernel::threads % 32 == 0 && Kernel::threads >= 32 && Kernel::threads <= 1024);
    cuda_device_scope const scope(device_->ordinal());
    if (shape.shared_bytes > 48 * 1024)  // always the most, as other threads may launch the same kernel
      check_cuda(
          cudaFuncSetAttribute(detail::run_kernel<Kernel>, cudaFuncAttributeMaxDynamicSharedMemorySize, device_->most_shared_bytes()),
          "cudaFuncSetAttribute", site);
    detail::run_kernel<<<static_cast<unsigned>(shape.blocks), Kernel::threads, static_cast<std::size_t>(shape.shared_bytes), stream_>>>(
        kernel);
    check_cuda(cudaGetLastError(), "kernel launch", site);
  }

  void copy(void* to, void const* from, std::size_t bytes, call_site site = call_site::here()) const {
    if (bytes == 0) return;
    cuda_device_scope const scope(device_->ordinal());
    check_cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream_), "cudaMemcpyAsync", site);
  }
  void fill(void* to, unsigned char byte, std::size_t bytes, call_site site = call_site::here()) const {
    if (bytes == 0) return;
    cuda_device_scope const scope(device_->ordinal());
    check_cuda(cudaMemsetAsync(to, byte, bytes, stream_), "cudaMemsetAsync", site);
  }
  /// Copies from the host, whose memory may be reused on return. Up to 64 KiB go in launches; more go by a copy that may wait for the
  /// stream.
  void copy_in(void* to, void const* from, std::size_t bytes, call_site site = call_site::here()) const {
    constexpr std::size_t most_launched = 64 * 1024, step = detail::copy_in_kernel::most_bytes;
    auto* const first = static_cast<unsigned char*>(to);
    if (bytes > most_launched) {
      cuda_device_scope const scope(device_->ordinal());
      check_cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream_), "cudaMemcpyAsync", site);
      check_cuda(cudaStreamSynchronize(stream_), "cudaStreamSynchronize", site);  // pinned memory is read later else
      return;
    }
    for (std::size_t done = 0; done < bytes; done += step) {
      detail::copy_in_kernel kernel;
      kernel.to = first + done;
      kernel.count = static_cast<std::int64_t>(std::min(step, bytes - done));
      std::memcpy(kernel.bytes, static_cast<unsigned char const*>(from) + done, static_cast<std::size_t>(kernel.count));
      launch({.blocks = 1}, kernel, site);
    }
  }
  /// Copies to the host, and waits for the copy.
  void copy_out(void* to, void const* from, std::size_t bytes, call_site site = call_site::here()) const {
    if (bytes == 0) return;
    cuda_device_scope const scope(device_->ordinal());
    check_cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream_), "cudaMemcpyAsync", site);
    check_cuda(cudaStreamSynchronize(stream_), "cudaStreamSynchronize", site);
  }

  detail::fault_reporter faults(detail::fault_kind const& kind) const noexcept { return device_->faults(kind); }

 private:
  friend class cuda_device;
  cuda_exec(cuda_device& device, cudaStream_t stream, memory_ref<cuda_exec> memory) noexcept
      : device_(&device), stream_(stream), memory_(memory) {}

  cuda_device* device_;
  cudaStream_t stream_;
  memory_ref<cuda_exec> memory_;
};
static_assert(device_execution<cuda_exec> && memory_resource<cuda_device, cuda_exec>);

inline cuda_exec cuda_device::on(cudaStream_t stream) { return cuda_exec(*this, stream, memory_ref<cuda_exec>(*this)); }

inline void* cuda_device::allocate(cuda_exec const& exec, std::size_t bytes, std::size_t alignment) {
  constexpr std::size_t cuda_alignment = 256;
  if (alignment > cuda_alignment)
    throw error(errc::invalid_argument, "cuda_device: alignment too large", {{"alignment", alignment}, {"largest", cuda_alignment}});
  cuda_device_scope const scope(ordinal_);
  void* pointer = nullptr;
  check_cuda(cudaMallocFromPoolAsync(&pointer, std::max<std::size_t>(bytes, 1), pool_, exec.stream()), "cudaMallocFromPoolAsync");
  return pointer;
}
inline void cuda_device::deallocate(cuda_exec const& exec, void* pointer, std::size_t, std::size_t) noexcept {
  int before = ordinal_;  // a null stream means the current device's
  (void)cudaGetDevice(&before);
  if (before != ordinal_) (void)cudaSetDevice(ordinal_);
  if (cudaFreeAsync(pointer, exec.stream()) != cudaSuccess) (void)cudaGetLastError();  // the next launch is not to blame
  if (before != ordinal_) (void)cudaSetDevice(before);
}
inline void cuda_device::throw_fault(cuda_exec const& exec) {
  {
    cuda_device_scope const scope(ordinal_);
    check_cuda(cudaStreamSynchronize(exec.stream()), "cudaStreamSynchronize");  // before the lock: others may have no work to wait for
  }
  std::lock_guard const lock(mutex_);
  detail::fault_record record;
  exec.copy_out(&record, record_, sizeof record);
  if (record.kind == nullptr) return;
  exec.launch({}, detail::take_fault{record_, record_ + 1});
  exec.copy_out(&record, record_ + 1, sizeof record);
  if (auto const found = detail::error_of(record)) throw *found;
}

}  // namespace TESSERA_ABI
}  // namespace tessera

#endif
