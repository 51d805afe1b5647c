// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/for_each_index.hpp>
#include <tessera/core/view.hpp>
#include <tessera/tensor/source_lists.hpp>
#include <tessera/tensor/sum_by_target.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// Options of `gather_backward`.
struct gather_backward_options {
  bool distinct_sources = false;  ///< no source comes twice: a promise, which saves sorting them
};

/// Takes the backward of any gather of numbers, result[i] = in[sources[i]]. out[p] becomes the sum of gradient[i] over all i with
/// sources[i] == p, in the order of i. Where no source is p, out[p] is 0.
///
/// `sources` and `gradient` (values of the result,); `out` (values of the input,), overwritten. To learn the sources of an operation on
/// rows, run the operation on the numbers 0, 1, 2, … in place of its values (`with_values`). The values of the result are the sources.
/// Select, expand, slice, truncate, permute and mask have no other backward; all but those that repeat have distinct sources.
///
/// Workspace: 32 bytes a source, none where they are distinct; on a device also a value a source. @throws tessera::error shape_mismatch,
/// out_of_range naming position and source: then `out` is as it was, but on a device lacks what that source brought. In a checked build
/// invalid_argument where a source comes twice that should be distinct.
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
    if (options.distinct_sources && !checked) {
      for_each_index(exec, out.size(), gathered_piece, [=](std::int64_t i) { out[i] = T{}; });
      for_each_index(exec, sources.size(), gathered_piece, [=](std::int64_t i) { out[sources[i]] = gradient[i]; });
      return;
    }
    source_pairs const pairs(exec, sources, out.size());
    if (options.distinct_sources && sources.size() > 1) check_distinct(exec, pairs.view());
    sum_by_target(exec, pairs.view(), gradient, out);
  }

 private:
  static void check_distinct(host_exec const& exec, source_pairs_view pairs) {
    for_each_index(exec, pairs.targets.size() - 1, gathered_piece, [=](std::int64_t i) {
      if (pairs.targets[i] == pairs.targets[i + 1])
        throw error(errc::invalid_argument, "gather_backward: a source twice",
                    {{"source", pairs.targets[i]}, {"position", pairs.sources[i + 1]}});
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
