// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#ifdef __CUDACC__
#include <cub/device/device_select.cuh>
#endif

#include <tessera/core/cub_workspace.cuh>
#include <tessera/core/cuda_execution.cuh>
#include <tessera/core/select.hpp>
#include <tessera/core/view.hpp>

#ifdef __CUDACC__

namespace tessera {
inline namespace TESSERA_ABI {
namespace detail {

template <>
struct back_end<select_flagged_tag, cuda_exec> {
  template <class T, class Flag>
  static void run(cuda_exec const& exec, vector_view<T const> values, vector_view<Flag const> flags, vector_view<T> out,
                  vector_view<std::int64_t> count) {
    if (values.empty()) return exec.fill(count.data(), 0, sizeof(std::int64_t));
    check_cub_count("cub::DeviceSelect", values.size());
    with_cub_workspace(exec, "cub::DeviceSelect", [&](void* workspace, std::size_t& bytes) {
      return cub::DeviceSelect::Flagged(workspace, bytes, values.data(), flags.data(), out.data(), count.data(), values.size(),
                                        exec.stream());
    });
  }
};

}  // namespace detail
}  // namespace TESSERA_ABI
}  // namespace tessera

#endif
