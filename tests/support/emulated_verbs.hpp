// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#include <tessera/core/execution.hpp>
#include <tessera/core/memory.hpp>
#include <tessera/core/radix_sort.cuh>
#include <tessera/core/scan.hpp>
#include <tessera/core/select.hpp>
#include <tessera/core/thread_team.hpp>
#include <tessera/core/view.hpp>

#include "emulated_device.hpp"

/// The verbs that a device takes from its vendor's library, by the host's, on an emulated device's memory.
namespace tessera_tests {

template <class F>
void by_host(emulated_exec const& exec, F const& f) {
  emulated_device::working const scope(exec.device());
  tessera::serial_team team;
  tessera::system_memory memory;
  f(tessera::host_exec(team, memory));
}

}  // namespace tessera_tests

namespace tessera {
inline namespace TESSERA_ABI {
namespace detail {

template <>
struct back_end<exclusive_scan_tag, tessera_tests::emulated_exec> {
  template <class T, class Sum>
  static void run(tessera_tests::emulated_exec const& exec, vector_view<T const> in, vector_view<Sum> out, Sum initial) {
    tessera_tests::by_host(exec, [&](host_exec const& host) {
      if constexpr (std::is_integral_v<Sum>) {  // on a device, sums past their type come round
        using wrapping = std::make_unsigned_t<Sum>;
        back_end<exclusive_scan_tag, host_exec>::run(host, in, vector_view<wrapping>{reinterpret_cast<wrapping*>(out.data()), out.size()},
                                                     static_cast<wrapping>(initial));
      } else {
        back_end<exclusive_scan_tag, host_exec>::run(host, in, out, initial);
      }
    });
  }
};

// Ends in either pair of arrays, as chance has it; the other one then holds nothing of use.
template <>
struct radix_sort_between<tessera_tests::emulated_exec> {
  template <class Key, class Value>
  static std::pair<Key*, Value*> run(tessera_tests::emulated_exec const& exec, Key* keys, Value* values, Key* other_keys,
                                     Value* other_values, std::int64_t n, radix_bits bits) {
    tessera_tests::by_host(exec, [&](host_exec const& host) {
      back_end<radix_sort_tag, host_exec>::run(host, vector_view<Key>{keys, n}, vector_view<Value>{values, n}, bits);
      if (exec.device().random()() % 2 == 0) {
        std::swap(keys, other_keys);
        std::swap(values, other_values);
        std::copy_n(other_keys, n, keys);
        std::copy_n(other_values, n, values);
      }
      std::memset(static_cast<void*>(other_keys), 0xA7, static_cast<std::size_t>(n) * sizeof(Key));
      std::memset(static_cast<void*>(other_values), 0xA7, static_cast<std::size_t>(n) * sizeof(Value));
    });
    return {keys, values};
  }
};

template <>
struct back_end<select_flagged_tag, tessera_tests::emulated_exec> {
  template <class T, class Flag>
  static void run(tessera_tests::emulated_exec const& exec, vector_view<T const> values, vector_view<Flag const> flags, vector_view<T> out,
                  vector_view<std::int64_t> count) {
    tessera_tests::by_host(exec,
                           [&](host_exec const& host) { back_end<select_flagged_tag, host_exec>::run(host, values, flags, out, count); });
  }
};

}  // namespace detail
}  // namespace TESSERA_ABI
}  // namespace tessera
