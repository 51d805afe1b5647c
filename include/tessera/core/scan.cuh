// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>

#ifdef __CUDACC__
#include <thrust/iterator/transform_iterator.h>
#include <cub/device/device_scan.cuh>
#endif

#include <tessera/core/cub_workspace.cuh>
#include <tessera/core/cuda_execution.cuh>
#include <tessera/core/device.hpp>
#include <tessera/core/faults.hpp>
#include <tessera/core/scan.hpp>
#include <tessera/core/segmented_reduce.hpp>
#include <tessera/core/view.hpp>

namespace tessera {
inline namespace TESSERA_ABI {
namespace detail {

#ifdef __CUDACC__
template <class To>
struct converted {
  template <class From>
  TESSERA_HOST_DEVICE constexpr To operator()(From value) const noexcept {
    return static_cast<To>(value);
  }
};

// The sum of all stays on the device: who needs it scans one element more. Sums of floats may differ in their last bits from run to run.
template <>
struct back_end<exclusive_scan_tag, cuda_exec> {
  template <class T, class Sum>
  static void run(cuda_exec const& exec, vector_view<T const> in, vector_view<Sum> out, Sum initial) {
    if (in.empty()) return;
    check_cub_count("cub::DeviceScan", in.size());
    auto const converting = thrust::make_transform_iterator(in.data(), converted<Sum>{});
    with_cub_workspace(exec, "cub::DeviceScan", [&](void* workspace, std::size_t& bytes) {
      return cub::DeviceScan::ExclusiveScan(workspace, bytes, converting, out.data(), plus{}, initial, in.size(), exec.stream());
    });
  }
};
#endif

inline constexpr fault_kind negative_length{errc::invalid_argument, "lengths_to_offsets: negative length", {"row", "length"}};
inline constexpr fault_kind sum_past_offset{
    errc::out_of_range, "lengths_to_offsets: the sum does not fit into an offset", {"row", "length", "largest offset"}};

// Says what is wrong with a length, or with the sum up to it: the first sum that leaves its type is less than the one before.
template <class T, class Offset>
struct check_lengths {
  static constexpr auto most = static_cast<std::int64_t>(std::numeric_limits<Offset>::max());
  T const* lengths;
  Offset* offsets;
  std::int64_t rows;
  fault_reporter negative, too_large;

  template <class Block>
  TESSERA_DEVICE void operator()(Block& block, std::int64_t row) const {
    auto const length = static_cast<std::int64_t>(lengths[row]);
    using wide = std::make_unsigned_t<Offset>;
    auto const next = static_cast<Offset>(static_cast<wide>(offsets[row]) + static_cast<wide>(length));
    if (row + 1 == rows) offsets[rows] = next;
    if (length < 0) return negative(block, row, row, length);
    if (length > most || next < offsets[row]) too_large(block, row, row, length, most);
  }
};

// Wrong lengths are known when the execution synchronises; offsets are of no use then.
template <device_execution Exec>
struct back_end<lengths_to_offsets_tag, Exec> {
  template <class T, class Offset>
  static void run(Exec const& exec, vector_view<T const> lengths, vector_view<Offset> offsets) {
    auto const rows = lengths.size();
    if (rows == 0) return exec.fill(offsets.data(), 0, sizeof(Offset));
    back_end<exclusive_scan_tag, Exec>::run(exec, lengths, offsets.slice(0, rows), Offset{});
    // Of one call, the negative lengths come first, as a sum past them means nothing.
    check_lengths<T, Offset> check{lengths.data(), offsets.data(), rows, exec.faults(negative_length), exec.faults(sum_past_offset)};
    launch_for_each(exec, rows, check);
  }
};

}  // namespace detail
}  // namespace TESSERA_ABI
}  // namespace tessera
