// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <tessera/core/cuda_execution.cuh>
#include <tessera/core/device.hpp>
#include <tessera/core/for_each_index.hpp>

namespace tessera {
inline namespace TESSERA_ABI {
namespace detail {

// A thread takes index after index, whatever the grain: neighbours read and write neighbours. `f` is copied to the device.
template <device_execution Exec>
struct back_end<for_each_index_tag, Exec> {
  template <class F>
  static void run(Exec const& exec, std::int64_t n, std::int64_t, F const& f) {
    launch_for_each(exec, n, f);
  }
};

}  // namespace detail
}  // namespace TESSERA_ABI
}  // namespace tessera
