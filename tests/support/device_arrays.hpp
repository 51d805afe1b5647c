// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <type_traits>
#include <vector>

#include <tessera/core/buffer.hpp>
#include <tessera/core/device.hpp>
#include <tessera/core/view.hpp>

namespace tessera_tests {

/// Memory of a device with the host's values in it, and back again; `get` also throws what kernels found wrong before.
template <class T, class Exec>
tessera::buffer<T, Exec> put(Exec const& exec, std::vector<T> const& values) {
  return tessera::to_device(exec, values);
}
template <class T, class Exec>
std::vector<std::remove_const_t<T>> get(Exec const& exec, tessera::vector_view<T> values) {
  exec.synchronize();
  std::vector<std::remove_const_t<T>> result(static_cast<std::size_t>(values.size()));
  if (!result.empty()) exec.copy_out(result.data(), values.data(), result.size() * sizeof(T));
  return result;
}
template <class T, class Exec>
std::vector<T> get(Exec const& exec, tessera::buffer<T, Exec> const& values) {
  return get(exec, values.view());
}

}  // namespace tessera_tests
