// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <tessera/core/cuda_execution.cuh>
#include <tessera/core/device.hpp>

// Work on numbers that belong to ranges of any length, as values do to rows: it is cut into tiles of equal size, and which range a number
// belongs to is found by search, so ranges may be as skewed as they like.
namespace tessera {
inline namespace TESSERA_ABI {
namespace detail {

template <class T>
TESSERA_HOST_DEVICE constexpr T lesser(T a, T b) noexcept {
  return b < a ? b : a;
}

/// Values moved by one access where they are aligned for that: 16 bytes, or one value of a size that does not divide them.
template <class T>
inline constexpr int packet_width = 16 % sizeof(T) == 0 ? static_cast<int>(16 / sizeof(T)) : 1;

template <class T, int Width>
struct alignas(Width * sizeof(T)) packet {
  T values[static_cast<std::size_t>(Width)];
};

/// @pre `to` is aligned for a packet where count == Width.
template <int Width, class T>
TESSERA_HOST_DEVICE void copy_packet(T const* from, T* to, std::int64_t count) noexcept {
  if constexpr (Width > 1) {
    using whole = packet<T, Width>;
    if (count == Width && reinterpret_cast<std::uintptr_t>(from) % sizeof(whole) == 0) {
      *reinterpret_cast<whole*>(to) = *reinterpret_cast<whole const*>(from);
      return;
    }
  }
  for (std::int64_t i = 0; i < count; ++i) to[i] = from[i];
}

/// Calls part(range, within, at, count) for the parts of [first, last) that lie in one range each. A part is `count` numbers from `at` on,
/// which begin `within` the range. starts[low] <= first, last <= starts[high].
template <class Start, class Part>
TESSERA_HOST_DEVICE constexpr void for_each_part(Start const* starts, std::int64_t low, std::int64_t high, std::int64_t first,
                                                 std::int64_t last, Part const& part) {
  auto range = low + range_of(starts + low, high - low, first);
  while (first < last) {
    auto const stop = lesser(last, static_cast<std::int64_t>(starts[range + 1]));
    if (stop <= first) return;  // sums that left their type, a fault
    part(range, first - static_cast<std::int64_t>(starts[range]), first, stop - first);
    first = stop;
    if (++range >= high) return;
    if (first < last && static_cast<std::int64_t>(starts[range + 1]) <= first) range += range_of(starts + range, high - range, first);
  }
}

inline constexpr int tile_threads = 256;
/// Numbers of a tile: several a thread, for the search of its ranges to be worth it.
constexpr std::int64_t tile_numbers(int width) noexcept { return std::int64_t{tile_threads} * (width == 1 ? 8 : 4 * width); }

/// Calls part(range, within, at, count) for all of the numbers [0, starts[ranges]) but those from `most` on. A part may take the block
/// before these arguments. A part is `count` <= Width neighbours at a time, Width only where `at` is a multiple of it.
template <int Width, class Start, class Part>
struct tile_kernel {
  static constexpr int threads = tile_threads;
  static constexpr std::int64_t tile = tile_numbers(Width);
  static constexpr std::int64_t shared_bytes = 2 * sizeof(std::int64_t);
  Start const* starts;
  std::int64_t ranges;
  std::int64_t most;
  Part part;

  template <class Block>
  TESSERA_DEVICE void operator()(Block& block) const {
    auto const total = lesser(static_cast<std::int64_t>(starts[ranges]), most);
    for (auto at = block.index() * tile; at < total; at += block.count() * tile) {
      auto const end = lesser(at + tile, total);
      std::int64_t low = 0, high = 0;
      search(block, at, end - 1, low, high);
      for (auto first = at + block.thread() * Width; first < end; first += threads * Width)
        for_each_part(starts, low, high + 1, first, lesser(first + Width, end),
                      [&](std::int64_t range, std::int64_t within, std::int64_t number, std::int64_t count) {
                        if constexpr (std::is_invocable_v<Part const&, Block&, std::int64_t, std::int64_t, std::int64_t, std::int64_t>)
                          part(block, range, within, number, count);
                        else
                          part(range, within, number, count);
                      });
    }
  }

 private:
  // The ranges of two numbers, each by half of the threads, which narrow the search to one of as many parts in a step.
  template <class Block>
  TESSERA_DEVICE void search(Block& block, std::int64_t first, std::int64_t last, std::int64_t& low, std::int64_t& high) const {
    constexpr int half = threads / 2;
    auto* const found = block.template shared<std::int64_t>();
    auto const which = block.thread() / half, lane = block.thread() % half;
    auto const number = which == 0 ? first : last;
    for (auto width = ranges; width > 1;) {
      width = width / half + (width % half != 0);
      auto const mine = (which == 0 ? low : high) + lane * width;
      if (mine < ranges && static_cast<std::int64_t>(starts[mine]) <= number &&
          (mine + width >= ranges || static_cast<std::int64_t>(starts[mine + width]) > number))
        found[which] = mine;
      block.sync();
      low = found[0];
      high = found[1];
      block.sync();
    }
  }
};

template <int Width, device_execution Exec, class Start, class Part>
void launch_tiles(Exec const& exec, Start const* starts, std::int64_t ranges, std::int64_t most, Part const& part) {
  using kernel = tile_kernel<Width, Start, Part>;
  if (ranges > 0 && most > 0)
    exec.launch({.blocks = blocks_for(most, kernel::tile), .shared_bytes = kernel::shared_bytes}, kernel{starts, ranges, most, part});
}

}  // namespace detail
}  // namespace TESSERA_ABI
}  // namespace tessera
