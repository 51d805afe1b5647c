// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <type_traits>

#include <tessera/core/buffer.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/for_each_index.hpp>
#include <tessera/core/radix_sort.hpp>
#include <tessera/core/view.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

struct gather_backward_options {
  bool distinct_sources = false;  // no source comes twice: a promise, which saves sorting them
};

/// Backward of whatever gathers numbers, result[i] = in[sources[i]]: out[p] is the sum of gradient[i] over all i with sources[i] = p, in
/// the order of i; 0 where there is none.
///
/// `sources` and `gradient` (values of the result,), `out` (values of the input,), which is overwritten. To know the sources of an
/// operation on rows, run it on the numbers 0, 1, 2, … in place of the values (`with_values`): the values of its result are the sources. Select, expand, slice, truncate, permute and mask have no other backward of their own; all but those that repeat have distinct
/// sources. @throws tessera::error shape_mismatch, out_of_range naming position and source: then `out` is as it was, on a device without
/// what that source had brought; in a checked build invalid_argument where a promised source comes twice.
template <execution Exec, class T>
void gather_backward(Exec const& exec, vector_view<std::int64_t const> sources, std::type_identity_t<vector_view<T const>> gradient,
                     vector_view<T> out, gather_backward_options options = {});

namespace detail {

struct gather_backward_tag {};

inline constexpr std::int64_t gathered_piece = 1 << 14;

template <>
struct back_end<gather_backward_tag, host_exec> {
  template <class T>
  static void run(host_exec const& exec, vector_view<std::int64_t const> sources, vector_view<T const> gradient, vector_view<T> out,
                  gather_backward_options options) {
    for_each_index(exec, sources.size(), gathered_piece, [=](std::int64_t i) {
      if (sources[i] < 0 || sources[i] >= out.size())
        throw error(errc::out_of_range, "gather_backward: no such source",
                    {{"position", i}, {"source", sources[i]}, {"values", out.size()}});
    });
    for_each_index(exec, out.size(), gathered_piece, [=](std::int64_t i) { out[i] = T{}; });
    if (options.distinct_sources && !checked)
      for_each_index(exec, sources.size(), gathered_piece, [=](std::int64_t i) { out[sources[i]] = gradient[i]; });
    else
      sum(exec, sources, gradient, out, options);
  }

 private:
  template <class T>
  static void sum(host_exec const& exec, vector_view<std::int64_t const> sources, vector_view<T const> gradient, vector_view<T> out,
                  gather_backward_options options) {
    auto const n = sources.size();
    buffer<std::int64_t> sorted(exec, n), position(exec, n);
    for_each_index(exec, n, gathered_piece, [&](std::int64_t i) {
      sorted[i] = sources[i];
      position[i] = i;
    });
    // No source is negative, so the bits above those of the largest are all the same.
    radix_sort_pairs(exec, sorted.view(), position.view(), {0, static_cast<int>(std::bit_width(static_cast<std::uint64_t>(out.size())))});
    // A piece sums the sources that begin in it.
    for_each_piece(exec, n, gathered_piece, [&](std::int64_t first, std::int64_t last) {
      auto i = first;
      while (i < last && i > 0 && sorted[i] == sorted[i - 1]) ++i;
      while (i < last) {
        auto const source = sorted[i];
        T total = gradient[position[i]];
        for (++i; i < n && sorted[i] == source; ++i) {
          if (options.distinct_sources)
            throw error(errc::invalid_argument, "gather_backward: a source twice", {{"source", source}, {"position", position[i]}});
          total += gradient[position[i]];
        }
        out[source] = total;
      }
    });
  }
};

}  // namespace detail

template <execution Exec, class T>
void gather_backward(Exec const& exec, vector_view<std::int64_t const> sources, std::type_identity_t<vector_view<T const>> gradient,
                     vector_view<T> out, gather_backward_options options) {
  static_assert(std::is_floating_point_v<T>, "gather_backward: gradients are floats or doubles");
  if (sources.size() != gradient.size())
    throw error(errc::shape_mismatch, "gather_backward: one source a gradient",
                {{"sources", sources.size()}, {"gradients", gradient.size()}});
  detail::back_end<detail::gather_backward_tag, Exec>::template run<T>(exec, sources, gradient, out, options);
}

}  // namespace TESSERA_ABI
}  // namespace tessera
