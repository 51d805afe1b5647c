// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#ifdef __CUDACC__

#include <utility>

#include <cuda_runtime.h>

#include <tessera/core/call_site.hpp>
#include <tessera/core/cuda_execution.cuh>

namespace tessera {
inline namespace TESSERA_ABI {

struct cuda_event_options {
  bool timed = false;  // for elapsed_ms; without, recording and waiting cost less
};

/// A point in the order of a stream, which other streams and the host can wait for. Move-only; one thread at a time.
///
/// After `event.record(a); event.wait(b);`, work that is then enqueued on b runs after the work enqueued on a before. `a` is an execution
/// of the event's device, `b` one of any device.
class cuda_event {
 public:
  /// @throws tessera::error device_error.
  explicit cuda_event(cuda_device const& device, cuda_event_options options = {}) {
    cuda_device_scope const scope(device.ordinal());
    check_cuda(cudaEventCreateWithFlags(&event_, options.timed ? cudaEventDefault : cudaEventDisableTiming), "cudaEventCreateWithFlags");
  }
  cuda_event(cuda_event&& other) noexcept : event_(std::exchange(other.event_, nullptr)) {}
  cuda_event& operator=(cuda_event&& other) noexcept {
    std::swap(event_, other.event_);
    return *this;
  }
  ~cuda_event() {
    if (event_ != nullptr) (void)cudaEventDestroy(event_);
  }

  /// Records the present point of the stream's order in place of any earlier one. @pre `exec` is of the event's device
  void record(cuda_exec const& exec, call_site site = call_site::here()) {
    cuda_device_scope const scope(exec.device().ordinal());
    check_cuda(cudaEventRecord(event_, exec.stream()), "cudaEventRecord", site);
  }
  /// Makes work that is enqueued later wait for the recorded point; the host does not wait. Before the first `record` it does nothing.
  void wait(cuda_exec const& exec, call_site site = call_site::here()) const {
    cuda_device_scope const scope(exec.device().ordinal());
    check_cuda(cudaStreamWaitEvent(exec.stream(), event_, 0), "cudaStreamWaitEvent", site);
  }
  /// Whether the work before the recorded point is done.
  bool is_done(call_site site = call_site::here()) const {
    auto const status = cudaEventQuery(event_);
    if (status == cudaErrorNotReady)
      (void)cudaGetLastError();  // no error, but the next launch would take it for one
    else
      check_cuda(status, "cudaEventQuery", site);
    return status == cudaSuccess;
  }
  /// Waits, on the host, for the recorded point. Faults of kernels are reported by the execution's `synchronize()` instead.
  void synchronize(call_site site = call_site::here()) const { check_cuda(cudaEventSynchronize(event_), "cudaEventSynchronize", site); }
  /// The milliseconds from the other event's point to this one. @throws tessera::error device_error unless both are timed, recorded and
  /// done.
  float elapsed_ms(cuda_event const& since, call_site site = call_site::here()) const {
    float ms = 0;
    check_cuda(cudaEventElapsedTime(&ms, since.event_, event_), "cudaEventElapsedTime", site);
    return ms;
  }

  cudaEvent_t get() const noexcept { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

}  // namespace TESSERA_ABI
}  // namespace tessera

#endif
