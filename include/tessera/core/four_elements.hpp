// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <tessera/core/config.hpp>

/// A thread of a device works on four columns of a row, and moves them by one access where the row's memory is aligned.
namespace tessera {
inline namespace TESSERA_ABI {
namespace detail {

template <class T>
struct alignas(4 * sizeof(T)) four_elements {
  T element[4];

  TESSERA_HOST_DEVICE constexpr T& operator[](int i) noexcept { return element[i]; }
  TESSERA_HOST_DEVICE constexpr T const& operator[](int i) const noexcept { return element[i]; }
};

/// The same pointer, known to be aligned for a pack, as sanitizers check.
template <class Pack, class T>
TESSERA_HOST_DEVICE Pack* aligned_pack(T* from) noexcept {
  return static_cast<Pack*>(__builtin_assume_aligned(from, alignof(Pack)));
}

/// `count` elements, at most 4, then zeros. `at_once`: whether all 4 are there, and aligned.
template <class T>
TESSERA_HOST_DEVICE four_elements<T> read_four(T const* from, std::int64_t count, bool at_once) noexcept {
  if (at_once) return *aligned_pack<four_elements<T> const>(from);
  four_elements<T> four{};
  for (int i = 0; i < 4; ++i)
    if (i < count) four[i] = from[i];
  return four;
}
template <class T>
TESSERA_HOST_DEVICE void write_four(T* to, four_elements<T> const& four, std::int64_t count, bool at_once) noexcept {
  if (at_once) {
    *aligned_pack<four_elements<T>>(to) = four;
    return;
  }
  for (int i = 0; i < 4; ++i)
    if (i < count) to[i] = four[i];
}

/// Whether rows of `columns` elements, `stride` apart, can be moved by four elements at once.
template <class T>
bool moves_by_four(T const* rows, std::int64_t columns, std::int64_t stride) noexcept {
  return columns % 4 == 0 && stride % 4 == 0 && reinterpret_cast<std::uintptr_t>(rows) % (4 * sizeof(T)) == 0;
}

/// How many threads share a row of so many columns: a power of two, at most 32. Each has four columns of every 4 * lanes.
constexpr int lanes_for(std::int64_t columns) noexcept {
  int lanes = 1;
  while (lanes < 32 && 4 * lanes < columns) lanes *= 2;
  return lanes;
}

}  // namespace detail
}  // namespace TESSERA_ABI
}  // namespace tessera
