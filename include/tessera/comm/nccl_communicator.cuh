// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/comm/nccl_protocol.hpp>

// A compiler without CUDA reads the protocol alone.
#ifdef __CUDACC__

#include <cstddef>

#include <nccl.h>

#include <tessera/core/cuda_event.cuh>
#include <tessera/core/cuda_execution.cuh>

#if NCCL_VERSION_CODE < 21900
#error "tessera: NCCL 2.19 or newer is needed"
#endif

namespace tessera {
inline namespace TESSERA_ABI {
namespace detail {

// NCCL's own calls. Its communicators do not block, so that each wait can end at a time limit.
struct nccl_calls {
  using comm_type = ncclComm_t;
  using status_type = ncclResult_t;
  using id_type = ncclUniqueId;
  static constexpr auto success = ncclSuccess, in_progress = ncclInProgress, remote_error = ncclRemoteError;

  class event_type {
   public:
    explicit event_type(cuda_exec const& exec) : event_(exec.device()) {}
    void record(cuda_exec const& exec) { event_.record(exec); }
    void wait(cuda_exec const& exec) const { event_.wait(exec); }
    bool is_done() const { return event_.is_done(); }

   private:
    cuda_event event_;
  };

  static char const* error_text(status_type status) { return ncclGetErrorString(status); }
  static status_type unique_id(id_type* id) { return ncclGetUniqueId(id); }
  static status_type init_rank(comm_type* comm, int ranks, id_type const& id, int rank, cuda_exec const& exec) {
    cuda_device_scope const scope(exec.device().ordinal());
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    return ncclCommInitRankConfig(comm, ranks, id, rank, &config);
  }
  static status_type split(comm_type comm, int color, int key, comm_type* made) {
    return ncclCommSplit(comm, color, key, made, nullptr);  // as `comm` is: one that does not block
  }
  static status_type finalize(comm_type comm) { return ncclCommFinalize(comm); }
  static status_type destroy(comm_type comm) { return ncclCommDestroy(comm); }
  static status_type abort(comm_type comm) { return ncclCommAbort(comm); }
  static status_type async_error(comm_type comm, status_type* status) { return ncclCommGetAsyncError(comm, status); }
  static status_type group_start() { return ncclGroupStart(); }
  static status_type group_end() { return ncclGroupEnd(); }
  static status_type send(void const* from, std::size_t bytes, int to, comm_type comm, cuda_exec const& exec) {
    return ncclSend(from, bytes, ncclUint8, to, comm, exec.stream());
  }
  static status_type receive(void* to, std::size_t bytes, int from, comm_type comm, cuda_exec const& exec) {
    return ncclRecv(to, bytes, ncclUint8, from, comm, exec.stream());
  }
  static status_type sum(float const* from, float* to, std::size_t count, comm_type comm, cuda_exec const& exec) {
    return ncclAllReduce(from, to, count, ncclFloat32, ncclSum, comm, exec.stream());
  }
};

}  // namespace detail

/// Ranks with a GPU each, over NCCL: see `basic_nccl_communicator`. Link target tessera::nccl.
///
///     mpi_communicator hosts(mpi.world());
///     nccl_communicator comm(host, hosts, device.on(stream_of_messages));
///
/// Where several GPUs belong to one process, NCCL_P2P_DIRECT_DISABLE=1 is in its environment: memory of a `cuda_device` is for that device
/// alone, and NCCL then reads no other's.
using nccl_communicator = basic_nccl_communicator<cuda_exec, detail::nccl_calls>;
static_assert(sums_natively<nccl_communicator>);

}  // namespace TESSERA_ABI
}  // namespace tessera

#endif
