// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#ifdef __CUDACC__

#include <cstddef>
#include <cstdint>

#include <tessera/core/buffer.hpp>
#include <tessera/core/call_site.hpp>
#include <tessera/core/cuda_execution.cuh>

namespace tessera::inline TESSERA_ABI::detail {

/// Calls one of CUB's device algorithms, `algorithm(workspace, bytes)`, with the workspace that it asks for, from the execution's memory.
template <class Algorithm>
void with_cub_workspace(cuda_exec const& exec, char const* name, Algorithm const& algorithm, call_site site = call_site::here()) {
  cuda_device_scope const scope(exec.device().ordinal());
  std::size_t bytes = 0;
  check_cuda(algorithm(nullptr, bytes), name, site);
  buffer<unsigned char, cuda_exec> workspace(exec, static_cast<std::int64_t>(bytes < 1 ? 1 : bytes));
  check_cuda(algorithm(workspace.data(), bytes), name, site);
}

}  // namespace tessera::inline TESSERA_ABI::detail

#endif
