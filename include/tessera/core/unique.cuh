// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <utility>

#include <tessera/core/buffer.hpp>
#include <tessera/core/cuda_execution.cuh>
#include <tessera/core/device.hpp>
#include <tessera/core/faults.hpp>
#include <tessera/core/radix_sort.cuh>
#include <tessera/core/run_length_encode.cuh>
#include <tessera/core/unique.hpp>
#include <tessera/core/view.hpp>

namespace tessera {
inline namespace TESSERA_ABI {
namespace detail {

template <class Key, class Position>
struct copy_unique_keys {
  Key const* keys;
  Key* copies;
  Position* positions;

  TESSERA_DEVICE void operator()(std::int64_t i) const {
    copies[i] = keys[i];
    positions[i] = static_cast<Position>(i);
  }
};

template <class Key, class Position>
struct number_unique_keys {
  Key const* sorted;
  Position const* positions;
  std::int64_t n;
  std::int64_t const* before;  // of the sorted keys
  Key* distinct;
  std::int64_t* inverse;
  Position* numbers;  // of the sorted keys, in place of the inverse; or nullptr
  std::int64_t* count;

  TESSERA_DEVICE void operator()(std::int64_t i) const {
    auto const run = before[i], next = before[i + 1];
    if (next != run) distinct[run] = sorted[i];
    if (numbers != nullptr)
      numbers[i] = static_cast<Position>(next - 1);
    else
      inverse[positions[i]] = next - 1;
    if (i + 1 == n) *count = next;
  }
};

template <class Position>
struct write_inverse {
  Position const* positions;
  Position const* numbers;
  std::int64_t* inverse;

  TESSERA_DEVICE void operator()(std::int64_t i) const { inverse[positions[i]] = numbers[i]; }
};

inline constexpr fault_kind unique_keys_not_compared{
    errc::invalid_argument, "unique: keys differ in bits that are not compared", {"position", "begin_bit", "end_bit"}};

template <class Key>
struct check_unique_keys {
  Key const* distinct;
  std::int64_t const* inverse;
  radix_bits range;
  fault_reporter report;

  template <class Block>
  TESSERA_DEVICE void operator()(Block& block, std::int64_t i) const {
    if (!keys_differ(distinct, inverse[i], range)) report(block, i, i, range.begin_bit, range.end_bit);
  }
};

// Sorts the keys with their positions, of 4 bytes where they suffice; the count stays on the device.
template <device_execution Exec>
struct back_end<unique_tag, Exec> {
  template <class Key>
  static void run(Exec const& exec, vector_view<Key const> keys, vector_view<Key> distinct, vector_view<std::int64_t> inverse,
                  vector_view<std::int64_t> count, radix_bits range) {
    if (keys.empty()) return exec.fill(count.data(), 0, sizeof(std::int64_t));
    // What the bits leave out is to be found in a checked build, so it sorts by all of them.
    auto const sorted_by = checked ? radix_bits{0, 8 * static_cast<int>(sizeof(Key))} : range;
    if (keys.size() <= std::numeric_limits<std::int32_t>::max())
      number<std::int32_t>(exec, keys, distinct, inverse, count, sorted_by);
    else
      number<std::int64_t>(exec, keys, distinct, inverse, count, sorted_by);
    if constexpr (checked)
      launch_for_each(exec, keys.size(),
                      check_unique_keys<Key>{distinct.data(), inverse.data(), range, exec.faults(unique_keys_not_compared)});
  }

 private:
  template <class Position, class Key>
  static void number(Exec const& exec, vector_view<Key const> keys, vector_view<Key> distinct, vector_view<std::int64_t> inverse,
                     vector_view<std::int64_t> count, radix_bits bits) {
    auto const n = keys.size();
    buffer<Key, Exec> copies(exec, n);
    buffer<Position, Exec> positions(exec, n);
    launch_for_each(exec, n, copy_unique_keys<Key, Position>{keys.data(), copies.data(), positions.data()});
    radix_sort_pairs(exec, copies, positions, bits);
    buffer<std::int64_t, Exec> before(exec, n + 1);
    count_runs(exec, std::as_const(copies).view(), before.view());
    buffer<Position, Exec> numbers(exec, n > most_scattered ? n : 0);
    launch_for_each(exec, n,
                    number_unique_keys<Key, Position>{copies.data(), positions.data(), n, before.data(), distinct.data(), inverse.data(),
                                                      numbers.empty() ? nullptr : numbers.data(), count.data()});
    if (numbers.empty()) return;
    auto const top = static_cast<int>(std::bit_width(static_cast<std::uint64_t>(n - 1)));
    radix_sort_pairs(exec, positions, numbers, {top - 8, top});
    launch_for_each(exec, n, write_inverse<Position>{positions.data(), numbers.data(), inverse.data()});
  }

  // An inverse that is larger than a cache is written part by part, in the order of a pass over the highest bits of positions.
  static constexpr std::int64_t most_scattered = std::int64_t{1} << 20;
};

}  // namespace detail
}  // namespace TESSERA_ABI
}  // namespace tessera
