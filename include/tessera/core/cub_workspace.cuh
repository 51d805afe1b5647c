// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#ifdef __CUDACC__

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>

#include <cub/version.cuh>

#include <tessera/core/buffer.hpp>
#include <tessera/core/call_site.hpp>
#include <tessera/core/cuda_execution.cuh>
#include <tessera/core/error.hpp>

namespace tessera {
inline namespace TESSERA_ABI {
namespace detail {

/// Refuses more items than CUB counts: before CUDA 13 some of its algorithms count in 32 bits. @throws tessera::error out_of_range.
inline void check_cub_count([[maybe_unused]] char const* name, [[maybe_unused]] std::int64_t items) {
#if CUB_VERSION < 300000
  constexpr std::int64_t most = std::numeric_limits<std::int32_t>::max();
  if (items > most)
    throw error(errc::out_of_range, std::string(name) + ": more items than this toolkit's CUB counts", {{"items", items}, {"most", most}});
#endif
}

/// Calls one of CUB's device algorithms, `algorithm(workspace, bytes)`, with the workspace that it asks for, from the execution's memory.
template <class Algorithm>
void with_cub_workspace(cuda_exec const& exec, char const* name, Algorithm const& algorithm, call_site site = call_site::here()) {
  cuda_device_scope const scope(exec.device().ordinal());
  std::size_t bytes = 0;
  check_cuda(algorithm(nullptr, bytes), name, site);
  buffer<unsigned char, cuda_exec> workspace(exec, static_cast<std::int64_t>(bytes < 1 ? 1 : bytes));
  check_cuda(algorithm(workspace.data(), bytes), name, site);
}

}  // namespace detail
}  // namespace TESSERA_ABI
}  // namespace tessera

#endif
