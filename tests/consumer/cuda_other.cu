// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <vector>

#include <tessera/tessera.cuh>

// A second translation unit with the same headers: what is not inline would be defined twice.
std::vector<std::int64_t> offsets_of(tessera::cuda_exec const& exec, std::vector<std::int64_t> const& lengths) {
  auto const on_device = tessera::to_device(exec, lengths);
  tessera::buffer<std::int64_t, tessera::cuda_exec> offsets(exec, on_device.size() + 1);
  tessera::lengths_to_offsets(exec, on_device.view(), offsets.view());
  exec.synchronize();
  std::vector<std::int64_t> result(lengths.size() + 1);
  exec.copy_out(result.data(), offsets.data(), result.size() * sizeof(std::int64_t));
  return result;
}
