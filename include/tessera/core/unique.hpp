// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <utility>

#include <tessera/core/buffer.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/radix_sort.hpp>
#include <tessera/core/view.hpp>

namespace tessera::inline TESSERA_ABI {

namespace detail {

template <class Exec>
struct unique_impl {
  static_assert(dependent_false<Exec>, "unique: no back end for this execution; for CUDA include <tessera/core/unique.cuh>");
};

inline constexpr std::int64_t unique_piece = 1 << 14;

template <>
struct unique_impl<host_exec> {
  template <class Key>
  static std::int64_t run(host_exec const& exec, vector_view<Key const> keys, vector_view<Key> distinct, vector_view<std::int64_t> inverse,
                          radix_bits range) {
    auto const n = keys.size();
    buffer<Key> sorted(exec, n);
    buffer<std::int64_t> position(exec, n);
    for_each_piece(exec, n, unique_piece, [&](std::int64_t first, std::int64_t last) {
      for (auto i = first; i < last; ++i) {
        sorted[i] = keys[i];
        position[i] = i;
      }
    });
    radix_sort_pairs(exec, sorted.view(), position.view(), range);
    if constexpr (checked) {
      for (std::int64_t i = 1; i < n; ++i)
        if (sorted[i] < sorted[i - 1])
          throw error(errc::invalid_argument, "unique: keys differ in bits that are not compared",
                      {{"position", position[i]}, {"begin_bit", range.begin_bit}, {"end_bit", range.end_bit}});
    }
    auto const starts_run = [&](std::int64_t i) { return i == 0 || sorted[i] != sorted[i - 1]; };
    buffer<std::int64_t> runs(exec, divide_up(n, unique_piece));
    for_each_piece(exec, n, unique_piece, [&](std::int64_t first, std::int64_t last) {
      std::int64_t count = 0;
      for (auto i = first; i < last; ++i) count += starts_run(i);
      runs[first / unique_piece] = count;
    });
    std::int64_t total = 0;
    for (auto& count : runs) total += std::exchange(count, total);
    for_each_piece(exec, n, unique_piece, [&](std::int64_t first, std::int64_t last) {
      auto run = runs[first / unique_piece] - 1;
      for (auto i = first; i < last; ++i) {
        if (starts_run(i)) distinct[++run] = sorted[i];
        inverse[position[i]] = run;
      }
    });
    return total;
  }
};

struct unique_fn {
  template <execution Exec, class Key>
  std::int64_t operator()(Exec const& exec, vector_view<Key> keys, vector_view<std::remove_const_t<Key>> distinct,
                          vector_view<std::int64_t> inverse, radix_bits range = {}) const {
    if (distinct.size() < keys.size() || inverse.size() != keys.size())
      throw error(errc::shape_mismatch, "unique: outputs need room for every key",
                  {{"keys", keys.size()}, {"distinct", distinct.size()}, {"inverse", inverse.size()}});
    return unique_impl<Exec>::run(exec, vector_view<std::remove_const_t<Key> const>{keys.data(), keys.size()}, distinct, inverse, range);
  }
};

}  // namespace detail

/// The distinct keys in ascending order, and for each key which of them it is; returns how many are distinct.
///
/// `unique(exec, keys, distinct, inverse, radix_bits)`: `keys` (n,), `distinct` (>= n,) of which the first u are written, `inverse` (n,).
/// @pre keys that differ do so in these bits. @post distinct[inverse[i]] == keys[i]. Workspace: 2 (n keys + n positions) from `exec`'s
/// memory. @throws tessera::error shape_mismatch, and as `radix_sort_pairs`; in a checked build invalid_argument where the bits leave keys
/// out of order.
inline constexpr detail::unique_fn unique{};

}  // namespace tessera::inline TESSERA_ABI
