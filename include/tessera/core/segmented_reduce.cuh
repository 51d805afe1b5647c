// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <type_traits>

#include <tessera/core/cuda_execution.cuh>
#include <tessera/core/device.hpp>
#include <tessera/core/faults.hpp>
#include <tessera/core/segmented_reduce.hpp>
#include <tessera/core/view.hpp>

namespace tessera {
inline namespace TESSERA_ABI {
namespace detail {

/// How many segments a block folds side by side: as many as leave a block for each processor of a large device.
constexpr std::int64_t segments_per_block(std::int64_t segments, std::int64_t most) noexcept {
  constexpr std::int64_t enough_blocks = 1024;
  return std::clamp<std::int64_t>(segments / enough_blocks, 1, most);
}

// Folds in index order: a thread a segment. The block brings the values of its segments to shared memory, lot after lot, so that each is
// read once, by neighbours from neighbours.
template <class T, class Offset, class Result, class Op>
struct fold_segments_kernel {
  static constexpr int threads = 256;
  static constexpr std::int64_t lot = std::max<std::int64_t>(threads, 16384 / static_cast<std::int64_t>(sizeof(T)));
  T const* values;
  Offset const* offsets;
  Result* out;
  std::int64_t segments, each;  // each <= threads
  Result initial;
  Op op;

  template <class Block>
  TESSERA_DEVICE void operator()(Block& block) const {
    for (auto first = block.index() * each; first < segments; first += block.count() * each)
      fold(block, first, segments - first < each ? segments : first + each);
  }

 private:
  template <class Block>
  TESSERA_DEVICE void fold(Block& block, std::int64_t first, std::int64_t last) const {
    auto* const staged = block.template shared<T>();
    auto const end = static_cast<std::int64_t>(offsets[last]);
    auto const own = first + block.thread();
    bool const has_own = own < last;
    auto at = has_own ? static_cast<std::int64_t>(offsets[own]) : end;
    auto const own_end = has_own ? static_cast<std::int64_t>(offsets[own + 1]) : end;
    auto result = initial;
    for (auto from = static_cast<std::int64_t>(offsets[first]); from < end; from += lot) {
      auto const to = end - from < lot ? end : from + lot;
      block.sync();  // the lot before is folded
      for (auto i = from + block.thread(); i < to; i += threads) staged[i - from] = values[i];
      block.sync();
      for (; at < own_end && at < to; ++at) result = op(result, static_cast<Result>(staged[at - from]));
    }
    if (has_own) out[own] = result;
  }
};

// For operators whose order says nothing: a thread folds 64 bytes of values, whoever's they are, so that no segment is too long.
template <class T, class Offset, class Result, class Op>
struct fold_values_kernel {
  static constexpr int threads = 256;
  static constexpr std::int64_t blocks = 2048;
  static constexpr std::int64_t each = 64 / static_cast<std::int64_t>(sizeof(T));
  static constexpr bool adds = std::same_as<Op, plus>;
  T const* values;
  Offset const* offsets;
  Result* out;  // initial everywhere
  std::int64_t segments;
  Result initial;

  template <class Block>
  TESSERA_DEVICE void operator()(Block& block) const {
    auto const begin = static_cast<std::int64_t>(offsets[0]), end = static_cast<std::int64_t>(offsets[segments]);
    for_each_unit(block, (end - begin + each - 1) / each, threads, block.thread(), [&](std::int64_t unit) {
      auto const first = begin + unit * each;
      fold(block, first, end - first < each ? end : first + each);
    });
  }

 private:
  template <class Block>
  TESSERA_DEVICE void fold(Block& block, std::int64_t const first, std::int64_t const last) const {
    auto segment = range_of(offsets, segments, first);
    for (auto i = first; i < last; ++segment) {
      if (offsets[segment + 1] <= i) segment += range_of(offsets + segment, segments - segment, i);  // an empty one, maybe of many
      auto const begin = static_cast<std::int64_t>(offsets[segment]), end = static_cast<std::int64_t>(offsets[segment + 1]);
      auto const stop = end < last ? end : last;
      auto sum = adds ? Result{} : initial;
      for (; i < stop; ++i) sum = Op{}(sum, static_cast<Result>(values[i]));
      if (begin >= first && end <= last)
        out[segment] = Op{}(initial, sum);
      else if constexpr (adds)
        block.add(out + segment, sum);
      else
        block.maximum(out + segment, sum);
    }
  }
};

template <class Result>
struct fill_initial {
  Result* out;
  Result value;
  TESSERA_DEVICE void operator()(std::int64_t i) const { out[i] = value; }
};

inline constexpr fault_kind segment_offsets_decrease{
    errc::invalid_argument, "segmented_reduce: offsets are negative or decrease", {"segment", "offset", "next offset"}};

template <class Offset>
struct check_segment_offsets {
  Offset const* offsets;
  fault_reporter report;

  template <class Block>
  TESSERA_DEVICE void operator()(Block& block, std::int64_t i) const {
    if (offsets[i] < 0 || offsets[i + 1] < offsets[i]) report(block, i, i, offsets[i], offsets[i + 1]);
  }
};

template <device_execution Exec>
struct back_end<segmented_reduce_tag, Exec> {
  template <class T, class Offset, class Result, class Op>
  static void run(Exec const& exec, T const* values, vector_view<Offset const> offsets, vector_view<Result> out, Result initial, Op op) {
    if (out.empty()) return;
    if constexpr (checked) {  // before anything is read by them
      launch_for_each(exec, out.size(), check_segment_offsets<Offset>{offsets.data(), exec.faults(segment_offsets_decrease)});
      exec.synchronize();
    }
    constexpr bool in_any_order =
        std::integral<Result> && (sizeof(Result) == 4 || sizeof(Result) == 8) && (std::same_as<Op, plus> || std::same_as<Op, maximum>);
    if constexpr (in_any_order) {
      launch_for_each(exec, out.size(), fill_initial<Result>{out.data(), initial});
      using kernel = fold_values_kernel<T, Offset, Result, Op>;
      exec.launch({.blocks = kernel::blocks}, kernel{values, offsets.data(), out.data(), out.size(), initial});
    } else {
      using kernel = fold_segments_kernel<T, Offset, Result, Op>;
      auto const each = segments_per_block(out.size(), kernel::threads);
      exec.launch({.blocks = blocks_for(out.size(), each), .shared_bytes = kernel::lot * static_cast<std::int64_t>(sizeof(T))},
                  kernel{values, offsets.data(), out.data(), out.size(), each, initial, op});
    }
  }
};

}  // namespace detail
}  // namespace TESSERA_ABI
}  // namespace tessera
