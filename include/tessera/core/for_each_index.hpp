// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// Calls f(0) … f(n - 1), each once, in any order. A thread takes `grain` indices at a time.
/// @throws tessera::error invalid_argument for a negative n or a grain below 1.
template <execution Exec, class F>
void for_each_index(Exec const& exec, std::int64_t n, std::int64_t grain, F const& f);

namespace detail {

struct for_each_index_tag {};

template <>
struct back_end<for_each_index_tag, host_exec> {
  template <class F>
  static void run(host_exec const& exec, std::int64_t n, std::int64_t grain, F const& f) {
    for_each_piece(exec, n, grain, [&](std::int64_t first, std::int64_t last) {
      for (auto i = first; i < last; ++i) f(i);
    });
  }
};

}  // namespace detail

template <execution Exec, class F>
void for_each_index(Exec const& exec, std::int64_t n, std::int64_t grain, F const& f) {
  if (n < 0 || grain < 1)
    throw error(errc::invalid_argument, "for_each_index: n indices by grains of 1 or more", {{"n", n}, {"grain", grain}});
  detail::back_end<detail::for_each_index_tag, Exec>::run(exec, n, grain, f);
}

}  // namespace TESSERA_ABI
}  // namespace tessera
