// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

#include <tessera/core/buffer.hpp>
#include <tessera/core/config.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>

/// What the back ends for devices are written against. A kernel is plain data with a call operator for one thread of a block. It calls no
/// vendor's functions, so that a stand-in runs the same kernel on the host.
///
/// A kernel has `static constexpr int threads`, a multiple of 32, and `template <class Block> TESSERA_DEVICE void operator()(Block& block)
/// const`. What `block` offers a thread:
/// - `index()`, `count()`: which block of how many; `thread()`: which thread of `Kernel::threads`;
/// - `shared<T>()`: the block's shared memory, aligned to 16 bytes, `launch_shape::shared_bytes` of it;
/// - `sync()`: a barrier of all threads of the block; `sync_group(width)`: of each aligned group of `width` threads, a power of two up to
///   32. All threads concerned call it. What one wrote before, to shared memory or the device's, the others see after;
/// - `add(p, value)`, `minimum(p, value)`, `maximum(p, value)`, `exchange(p, value)`, `compare_exchange(p, expected, desired)`: atomic over
///   the device. Each returns the old value. The last two acquire and release;
/// - `load(p)`, `store(p, value)`: atomic, acquiring and releasing;
/// - `prefetch(p)`: starts loading what `p` points at.
///
/// What an execution for a device offers beside `memory()` and `with_memory()`, all in the order of its stream:
/// - `launch(launch_shape, kernel)`;
/// - `copy(to, from, bytes)` within the device, `fill(to, byte, bytes)`;
/// - `copy_in(to, from, bytes)` from the host, whose memory may be reused on return;
/// - `copy_out(to, from, bytes)` to the host, which it waits for: the one way to the host, and the one wait;
/// - `faults(kind)`: a `fault_reporter` for one call; `synchronize()`: waits, then throws the first fault found since the last time.
namespace tessera {
inline namespace TESSERA_ABI {

/// The number of blocks of a launch, at least 1, and the shared memory of each.
struct launch_shape {
  std::int64_t blocks = 1;
  std::int64_t shared_bytes = 0;
};

namespace detail {

/// The most blocks of a launch: many times as many as fill any device. Kernels cover the rest by strides.
inline constexpr std::int64_t most_blocks = std::int64_t{1} << 20;

/// The blocks for n units, of which a block does `each` at a time.
constexpr std::int64_t blocks_for(std::int64_t n, std::int64_t each) noexcept {
  return std::clamp<std::int64_t>(divide_up(n, each), 1, most_blocks);
}

/// Calls f(unit) for each unit of this block, which does `each` of the n units at a time, that has number `within` among those.
template <class Block, class F>
TESSERA_DEVICE void for_each_unit(Block& block, std::int64_t n, int each, int within, F const& f) {
  for (auto unit = block.index() * each + within; unit < n; unit += block.count() * each) f(unit);
}

/// Calls f(i), or f(block, i), by one thread each.
template <class F>
struct index_kernel {
  static constexpr int threads = 256;
  std::int64_t n;
  F f;

  template <class Block>
  TESSERA_DEVICE void operator()(Block& block) const {
    for_each_unit(block, n, threads, block.thread(), [&](std::int64_t i) {
      if constexpr (std::is_invocable_v<F const&, Block&, std::int64_t>)
        f(block, i);
      else
        f(i);
    });
  }
};

/// Calls f(i), or f(block, i), for i of [0, n), each by a thread of the device, to which f is copied.
template <device_execution Exec, class F>
void launch_for_each(Exec const& exec, std::int64_t n, F const& f) {
  if (n > 0) exec.launch({.blocks = blocks_for(n, index_kernel<F>::threads)}, index_kernel<F>{n, f});
}

/// The greatest of the values that the threads of a group have; `scratch` (lanes,).
template <class Block>
TESSERA_DEVICE std::uint32_t largest_of_group(Block& block, std::uint32_t* scratch, std::uint32_t own, int lanes, int lane) {
  block.sync_group(lanes);  // what stood there is read
  scratch[lane] = own;
  block.sync_group(lanes);
  std::uint32_t largest = 0;
  for (int i = 0; i < lanes; ++i) largest = scratch[i] > largest ? scratch[i] : largest;
  return largest;
}

/// The number of i of [0, n) that `holds`, which is true for the first ones and false for all after them.
template <class Holds>
TESSERA_HOST_DEVICE constexpr std::int64_t count_first(std::int64_t n, Holds const& holds) noexcept {
  std::int64_t low = 0, high = n;
  while (low < high) {
    auto const middle = low + (high - low) / 2;
    if (holds(middle))
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

/// How many of n ascending numbers are below x.
template <class T>
TESSERA_HOST_DEVICE constexpr std::int64_t count_below(T const* numbers, std::int64_t n, T x) noexcept {
  return count_first(n, [&](std::int64_t i) { return numbers[i] < x; });
}

/// The range that i belongs to, of those that begin at starts[0] <= … <= starts[ranges]: the last one that begins at i or before.
/// @pre starts[0] <= i < starts[ranges]
template <class Start>
TESSERA_HOST_DEVICE constexpr std::int64_t range_of(Start const* starts, std::int64_t ranges, std::int64_t i) noexcept {
  return count_first(ranges, [&](std::int64_t range) { return static_cast<std::int64_t>(starts[range]) <= i; }) - 1;
}

}  // namespace detail

/// A copy, in the device's memory, of values in the host's, which may be reused on return.
template <device_execution Exec, class Host>
auto to_device(Exec const& exec, Host const& values) {
  using value = std::remove_cv_t<std::remove_pointer_t<decltype(values.data())>>;
  buffer<value, Exec> result(exec, static_cast<std::int64_t>(values.size()));
  if (!result.empty()) exec.copy_in(result.data(), values.data(), static_cast<std::size_t>(result.size()) * sizeof(value));
  return result;
}

/// One value of the device's memory; it waits for the value.
template <device_execution Exec, class T>
T read_one(Exec const& exec, T const* value) {
  std::remove_cv_t<T> result;
  exec.copy_out(&result, value, sizeof(T));
  return result;
}

}  // namespace TESSERA_ABI
}  // namespace tessera
