// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <tessera/core/cuda_execution.cuh>
#include <tessera/core/device.hpp>
#include <tessera/core/faults.hpp>
#include <tessera/core/radix_sort.cuh>
#include <tessera/core/view.hpp>
#include <tessera/tensor/source_lists.hpp>

namespace tessera {
inline namespace TESSERA_ABI {
namespace detail {

struct number_sources {
  std::int64_t const* target_of;
  std::int64_t targets;
  std::int64_t* to;
  std::int64_t* sources;  // or nullptr

  TESSERA_DEVICE void operator()(std::int64_t i) const {
    to[i] = sorted_target(target_of[i], targets);
    if (sources != nullptr) sources[i] = i;
  }
};

/// Names sources whose target is none.
struct report_missing_target {
  std::int64_t const* target_of;
  std::int64_t targets;
  fault_reporter missing;

  template <class Block>
  TESSERA_DEVICE void operator()(Block& block, std::int64_t i) const {
    if (auto const target = target_of[i]; target < 0 || target >= targets) missing(block, i, i, target, targets);
  }
};

struct find_start {
  std::int64_t const* sorted;
  std::int64_t sources;
  std::int64_t* starts;

  TESSERA_DEVICE void operator()(std::int64_t target) const { starts[target] = count_below(sorted, sources, target); }
};

template <device_execution Exec>
struct back_end<source_lists_tag, Exec> {
  static constexpr bool counts(std::int64_t, std::int64_t) noexcept { return false; }

  static void number(Exec const& exec, vector_view<std::int64_t const> target_of, std::int64_t targets, std::int64_t* to,
                     std::int64_t* sources) {
    launch_for_each(exec, target_of.size(), number_sources{target_of.data(), targets, to, sources});
  }

  static void find_starts(Exec const& exec, vector_view<std::int64_t const> sorted, vector_view<std::int64_t> starts) {
    launch_for_each(exec, starts.size(), find_start{sorted.data(), sorted.size(), starts.data()});
  }
};

}  // namespace detail
}  // namespace TESSERA_ABI
}  // namespace tessera
