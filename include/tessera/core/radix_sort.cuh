// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#ifdef __CUDACC__
#include <cub/device/device_radix_sort.cuh>
#endif

#include <tessera/core/buffer.hpp>
#include <tessera/core/cub_workspace.cuh>
#include <tessera/core/cuda_execution.cuh>
#include <tessera/core/device.hpp>
#include <tessera/core/radix_sort.hpp>
#include <tessera/core/view.hpp>

namespace tessera {
inline namespace TESSERA_ABI {
namespace detail {

/// Sorts n pairs by these bits, back and forth between two pairs of arrays; returns the pair that ends up sorted.
template <device_execution Exec>
struct radix_sort_between;

#ifdef __CUDACC__
template <>
struct radix_sort_between<cuda_exec> {
  template <class Key, class Value>
  static std::pair<Key*, Value*> run(cuda_exec const& exec, Key* keys, Value* values, Key* other_keys, Value* other_values, std::int64_t n,
                                     radix_bits bits) {
    cub::DoubleBuffer<Key> both_keys(keys, other_keys);
    cub::DoubleBuffer<Value> both_values(values, other_values);
    with_cub_workspace(exec, "cub::DeviceRadixSort", [&](void* workspace, std::size_t& bytes) {
      return cub::DeviceRadixSort::SortPairs(workspace, bytes, both_keys, both_values, n, bits.begin_bit, bits.end_bit, exec.stream());
    });
    return {both_keys.Current(), both_values.Current()};
  }
};
#endif

template <device_execution Exec>
struct back_end<radix_sort_tag, Exec> {
  template <class Key, class Value>
  static void run(Exec const& exec, vector_view<Key> keys, vector_view<Value> values, radix_bits bits) {
    auto const n = keys.size();
    if (n <= 1 || bits.begin_bit == bits.end_bit) return;
    buffer<Key, Exec> other_keys(exec, n);
    buffer<Value, Exec> other_values(exec, n);
    auto const [sorted_keys, sorted_values] = run_between(exec, keys, values, other_keys.view(), other_values.view(), bits);
    if (sorted_keys.data() == keys.data()) return;
    exec.copy(keys.data(), sorted_keys.data(), static_cast<std::size_t>(n) * sizeof(Key));
    exec.copy(values.data(), sorted_values.data(), static_cast<std::size_t>(n) * sizeof(Value));
  }

  template <class Key, class Value>
  static void run_buffers(Exec const& exec, buffer<Key, Exec>& keys, buffer<Value, Exec>& values, radix_bits bits) {
    auto const n = keys.size();
    if (n <= 1 || bits.begin_bit == bits.end_bit) return;
    buffer<Key, Exec> other_keys(exec, n);
    buffer<Value, Exec> other_values(exec, n);
    if (run_between(exec, keys.view(), values.view(), other_keys.view(), other_values.view(), bits).first.data() == keys.data()) return;
    std::swap(keys, other_keys);
    std::swap(values, other_values);
  }

  template <class Key, class Value>
  static std::pair<vector_view<Key>, vector_view<Value>> run_between(Exec const& exec, vector_view<Key> keys, vector_view<Value> values,
                                                                     vector_view<Key> other_keys, vector_view<Value> other_values,
                                                                     radix_bits bits) {
    auto const n = keys.size();
    if (n <= 1 || bits.begin_bit == bits.end_bit) return {keys, values};
    auto const [sorted_keys, sorted_values] =
        radix_sort_between<Exec>::run(exec, keys.data(), values.data(), other_keys.data(), other_values.data(), n, bits);
    return {{sorted_keys, n}, {sorted_values, n}};
  }
};

}  // namespace detail
}  // namespace TESSERA_ABI
}  // namespace tessera
