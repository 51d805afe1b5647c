// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include <tessera/core/device.hpp>
#include <tessera/core/faults.hpp>
#include <tessera/core/view.hpp>
#include <tessera/tensor/gather_backward.hpp>
#include <tessera/tensor/source_lists.cuh>
#include <tessera/tensor/sum_by_target.cuh>

namespace tessera {
inline namespace TESSERA_ABI {
namespace detail {

inline constexpr fault_kind no_source{errc::out_of_range, "gather_backward: no such source", {"position", "source", "values"}};
inline constexpr fault_kind source_twice{errc::invalid_argument, "gather_backward: a source twice", {"source", "position"}};

template <class T>
struct scatter_gradient {
  std::int64_t const* sources;
  T const* gradient;
  T* out;
  std::int64_t values;
  fault_reporter missing;

  template <class Block>
  TESSERA_DEVICE void operator()(Block& block, std::int64_t i) const {
    auto const source = sources[i];
    if (source < 0 || source >= values) return missing(block, i, i, source, values);
    out[source] = gradient[i];
  }
};

struct check_next_source {
  source_pairs_view pairs;
  std::int64_t values;
  fault_reporter twice;

  template <class Block>
  TESSERA_DEVICE void operator()(Block& block, std::int64_t i) const {
    auto const *targets = pairs.targets.data(), *sources = pairs.sources.data();
    if (targets[i] == targets[i + 1] && targets[i] < values) twice(block, i, targets[i], sources[i + 1]);
  }
};

template <device_execution Exec>
struct back_end<gather_backward_tag, Exec> {
  template <class T>
  static void run(Exec const& exec, vector_view<std::int64_t const> sources, vector_view<T const> gradient, vector_view<T> out,
                  gather_backward_options options) {
    if (options.distinct_sources && !checked) {
      exec.fill(out.data(), 0, static_cast<std::size_t>(out.size()) * sizeof(T));
      return launch_for_each(exec, sources.size(),
                             scatter_gradient<T>{sources.data(), gradient.data(), out.data(), out.size(), exec.faults(no_source)});
    }
    // What is no source is named here, and summed nowhere.
    launch_for_each(exec, sources.size(), report_missing_target{sources.data(), out.size(), exec.faults(no_source)});
    source_pairs<Exec> const pairs(exec, sources, out.size());
    if (options.distinct_sources && sources.size() > 1)
      launch_for_each(exec, sources.size() - 1, check_next_source{pairs.view(), out.size(), exec.faults(source_twice)});
    sum_by_target(exec, pairs.view(), gradient, out);
  }
};

}  // namespace detail
}  // namespace TESSERA_ABI
}  // namespace tessera
