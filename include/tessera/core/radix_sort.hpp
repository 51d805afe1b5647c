// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>

#include <tessera/core/buffer.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// The bits of a key that order it. For keys below 2^end_bit the passes over higher bits are skipped.
struct radix_bits {
  int begin_bit = 0;
  int end_bit = 64;  ///< clamped to the key's width
};

/// Sorts pairs by key, ascending, in place. `keys` and `values` (n,). Keys are integers, signed or not; only the bits of `range` are
/// compared, and negative keys need all bits. Workspace: n keys and n values from `exec`'s memory; on a device also what its library asks
/// for. It does not synchronise.
/// @post pairs of equal keys keep their order
/// @throws tessera::error shape_mismatch; invalid_argument unless 0 <= begin_bit <= end_bit.
template <execution Exec, class Key, class Value>
void radix_sort_pairs(Exec const& exec, vector_view<Key> keys, vector_view<Value> values, radix_bits range = {});

/// The same of whole buffers, which on a device may exchange their memory for that of the workspace, so that nothing is copied back.
template <execution Exec, class Key, class Value>
void radix_sort_pairs(Exec const& exec, buffer<Key, Exec>& keys, buffer<Value, Exec>& values, radix_bits range = {});

/// The same with workspace of the caller's: `other_keys` and `other_values` (n,). Either pair of arrays may end up sorted, and is returned;
/// what the other then holds is unspecified. On a device nothing is copied back, and it allocates what its library asks for alone.
template <execution Exec, class Key, class Value>
std::pair<vector_view<Key>, vector_view<Value>> radix_sort_pairs(Exec const& exec, vector_view<Key> keys, vector_view<Value> values,
                                                                 vector_view<Key> other_keys, vector_view<Value> other_values,
                                                                 radix_bits range = {});

namespace detail {

inline constexpr int radix_digit_bits = 8;
inline constexpr int radix_digits = 1 << radix_digit_bits;
inline constexpr std::int64_t radix_piece = 1 << 16;
using radix_histogram = std::array<std::int64_t, radix_digits>;

// The digit in which keys sort: signed keys have their sign flipped, so that negative ones come first.
template <class Key>
constexpr int radix_digit(Key key, int shift, int bits) noexcept {
  using unsigned_key = std::make_unsigned_t<Key>;
  auto u = static_cast<unsigned_key>(key);
  if constexpr (std::is_signed_v<Key>) u ^= static_cast<unsigned_key>(unsigned_key{1} << (8 * sizeof(Key) - 1));
  return static_cast<int>((u >> shift) & ((unsigned_key{1} << bits) - 1));
}

// One stable pass by one digit over one piece, from `start` of each digit on.
template <class Key, class Value>
void radix_scatter(Key const* keys, Value const* values, std::int64_t n, int shift, int bits, std::int64_t* start, Key* out_keys,
                   Value* out_values) noexcept {
  for (std::int64_t i = 0; i < n; ++i) {
    auto const to = start[radix_digit(keys[i], shift, bits)]++;
    out_keys[to] = keys[i];
    out_values[to] = values[i];
  }
}

// Sorts on the calling thread; the scratch has room for n of each. Whichever pair of arrays ends up sorted is returned. The bits are
// spread over as few passes as digits allow that cost more to move the keys by than to count.
template <class Key, class Value>
std::pair<Key*, Value*> radix_sort_serial(Key* keys, Value* values, std::int64_t n, radix_bits range, Key* scratch_keys,
                                          Value* scratch_values) noexcept {
  constexpr int widest = 11;
  std::int64_t counts[1 << widest];
  int const most_bits = n < 1024 ? radix_digit_bits : widest;
  auto const passes = (range.end_bit - range.begin_bit + most_bits - 1) / most_bits;
  for (int pass = 0, shift = range.begin_bit; pass < passes; ++pass) {
    int const bits = (range.end_bit - shift + passes - pass - 1) / (passes - pass);
    std::fill_n(counts, 1 << bits, 0);
    for (std::int64_t i = 0; i < n; ++i) ++counts[radix_digit(keys[i], shift, bits)];
    if (n > 0 && counts[radix_digit(keys[0], shift, bits)] < n) {
      std::int64_t sum = 0;
      for (int digit = 0; digit < 1 << bits; ++digit) sum += std::exchange(counts[digit], sum);
      radix_scatter(keys, values, n, shift, bits, counts, scratch_keys, scratch_values);
      std::swap(keys, scratch_keys);
      std::swap(values, scratch_values);
    }
    shift += bits;
  }
  return {keys, values};
}

// The same, ending where it began.
template <class Key, class Value>
void radix_sort_in_place(Key* keys, Value* values, std::int64_t n, radix_bits range, Key* scratch_keys, Value* scratch_values) noexcept {
  auto const [sorted_keys, sorted_values] = radix_sort_serial(keys, values, n, range, scratch_keys, scratch_values);
  if (sorted_keys == keys) return;
  std::copy_n(sorted_keys, n, keys);
  std::copy_n(sorted_values, n, values);
}

// Turns counts a piece and digit into first positions; false when all keys share the digit.
inline bool radix_starts(buffer<radix_histogram>& counts, std::int64_t n) noexcept {
  std::int64_t sum = 0;
  for (std::size_t digit = 0; digit < radix_digits; ++digit) {
    auto const before = sum;
    for (auto& piece : counts) sum += std::exchange(piece[digit], sum);
    if (sum - before == n) return false;
  }
  return true;
}

// Sorts by all threads, in place; the scratch has room for n of each.
template <class Key, class Value>
void radix_sort_pieces(host_exec const& exec, Key* const keys, Value* const values, std::int64_t n, radix_bits range, Key* scratch_keys,
                       Value* scratch_values) {
  auto const pieces = divide_up(n, radix_piece);
  if (pieces <= 1) return radix_sort_in_place(keys, values, n, range, scratch_keys, scratch_values);
  Key* from_keys = keys;
  Value* from_values = values;
  buffer<radix_histogram> counts(exec, pieces);
  for (int shift = range.begin_bit; shift < range.end_bit; shift += radix_digit_bits) {
    int const bits = range.end_bit - shift < radix_digit_bits ? range.end_bit - shift : radix_digit_bits;
    for_each_piece(exec, n, radix_piece, [&](std::int64_t first, std::int64_t last) {
      radix_histogram count{};
      for (auto i = first; i < last; ++i) ++count[static_cast<std::size_t>(radix_digit(from_keys[i], shift, bits))];
      counts[first / radix_piece] = count;
    });
    if (!radix_starts(counts, n)) continue;
    for_each_piece(exec, n, radix_piece, [&](std::int64_t first, std::int64_t last) {
      radix_scatter(from_keys + first, from_values + first, last - first, shift, bits, counts[first / radix_piece].data(), scratch_keys,
                    scratch_values);
    });
    std::swap(from_keys, scratch_keys);
    std::swap(from_values, scratch_values);
  }
  if (from_keys == keys) return;
  for_each_piece(exec, n, radix_piece, [&](std::int64_t first, std::int64_t last) {
    std::copy(from_keys + first, from_keys + last, keys + first);
    std::copy(from_values + first, from_values + last, values + first);
  });
}

/// Limits the bits to those that a key has. @throws tessera::error invalid_argument.
template <class Key>
radix_bits radix_bits_of(char const* call, radix_bits range) {
  radix_bits const bits{range.begin_bit, std::min(range.end_bit, 8 * static_cast<int>(sizeof(Key)))};
  if (bits.begin_bit < 0 || bits.begin_bit > bits.end_bit)
    throw error(errc::invalid_argument, std::string(call) + ": bits", {{"begin_bit", bits.begin_bit}, {"end_bit", bits.end_bit}});
  return bits;
}

struct radix_sort_tag {};

template <>
struct back_end<radix_sort_tag, host_exec> {
  template <class Key, class Value>
  static void run(host_exec const& exec, vector_view<Key> keys, vector_view<Value> values, radix_bits range) {
    buffer<Key> key_scratch(exec, keys.size());
    buffer<Value> value_scratch(exec, keys.size());
    run_between(exec, keys, values, key_scratch.view(), value_scratch.view(), range);
  }

  template <class Key, class Value>
  static void run_buffers(host_exec const& exec, buffer<Key>& keys, buffer<Value>& values, radix_bits range) {
    run(exec, keys.view(), values.view(), range);
  }

  template <class Key, class Value>
  static std::pair<vector_view<Key>, vector_view<Value>> run_between(host_exec const& exec, vector_view<Key> keys,
                                                                     vector_view<Value> values, vector_view<Key> other_keys,
                                                                     vector_view<Value> other_values, radix_bits range) {
    radix_sort_pieces(exec, keys.data(), values.data(), keys.size(), range, other_keys.data(), other_values.data());
    return {keys, values};
  }
};

template <class Key, class Value>
void check_sorted_pairs(std::int64_t keys, std::int64_t values) {
  static_assert(std::is_integral_v<Key>, "radix_sort_pairs: keys are integers");
  static_assert(std::is_trivially_copyable_v<Value>, "radix_sort_pairs: values are plain data");
  if (keys != values) throw error(errc::shape_mismatch, "radix_sort_pairs: one value a key", {{"keys", keys}, {"values", values}});
}

}  // namespace detail

template <execution Exec, class Key, class Value>
void radix_sort_pairs(Exec const& exec, vector_view<Key> keys, vector_view<Value> values, radix_bits range) {
  detail::check_sorted_pairs<Key, Value>(keys.size(), values.size());
  detail::back_end<detail::radix_sort_tag, Exec>::run(exec, keys, values, detail::radix_bits_of<Key>("radix_sort_pairs", range));
}

template <execution Exec, class Key, class Value>
void radix_sort_pairs(Exec const& exec, buffer<Key, Exec>& keys, buffer<Value, Exec>& values, radix_bits range) {
  detail::check_sorted_pairs<Key, Value>(keys.size(), values.size());
  detail::back_end<detail::radix_sort_tag, Exec>::run_buffers(exec, keys, values, detail::radix_bits_of<Key>("radix_sort_pairs", range));
}

template <execution Exec, class Key, class Value>
std::pair<vector_view<Key>, vector_view<Value>> radix_sort_pairs(Exec const& exec, vector_view<Key> keys, vector_view<Value> values,
                                                                 vector_view<Key> other_keys, vector_view<Value> other_values,
                                                                 radix_bits range) {
  detail::check_sorted_pairs<Key, Value>(keys.size(), values.size());
  if (other_keys.size() != keys.size() || other_values.size() != keys.size())
    throw error(errc::shape_mismatch, "radix_sort_pairs: workspace as large as the pairs",
                {{"keys", keys.size()}, {"other keys", other_keys.size()}, {"other values", other_values.size()}});
  return detail::back_end<detail::radix_sort_tag, Exec>::run_between(exec, keys, values, other_keys, other_values,
                                                                     detail::radix_bits_of<Key>("radix_sort_pairs", range));
}

}  // namespace TESSERA_ABI
}  // namespace tessera
