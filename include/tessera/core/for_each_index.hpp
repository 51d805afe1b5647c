// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

namespace detail {

template <class Exec>
struct for_each_index_impl {
  static_assert(dependent_false<Exec>,
                "for_each_index: no back end for this execution; for CUDA include <tessera/core/for_each_index.cuh>");
};

template <>
struct for_each_index_impl<host_exec> {
  template <class F>
  static void run(host_exec const& exec, std::int64_t n, std::int64_t grain, F const& f) {
    for_each_piece(exec, n, grain, [&](std::int64_t first, std::int64_t last) {
      for (auto i = first; i < last; ++i) f(i);
    });
  }
};

struct for_each_index_fn {
  template <execution Exec, class F>
  void operator()(Exec const& exec, std::int64_t n, std::int64_t grain, F const& f) const {
    if (n < 0 || grain < 1)
      throw error(errc::invalid_argument, "for_each_index: n indices by grains of 1 or more", {{"n", n}, {"grain", grain}});
    for_each_index_impl<Exec>::run(exec, n, grain, f);
  }
};

}  // namespace detail

/// Calls f(0) … f(n - 1), each once, in any order: `for_each_index(exec, n, grain, f)`, with `grain` indices a thread at a time, at least 1.
/// @throws tessera::error invalid_argument for a negative n or a grain below 1.
inline constexpr detail::for_each_index_fn for_each_index{};

}  // namespace TESSERA_ABI
}  // namespace tessera
