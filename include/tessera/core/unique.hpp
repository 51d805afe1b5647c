// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <concepts>
#include <cstdint>
#include <type_traits>
#include <utility>

#include <tessera/core/buffer.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/key_parts.hpp>
#include <tessera/core/radix_sort.hpp>
#include <tessera/core/scan.hpp>
#include <tessera/core/select.hpp>
#include <tessera/core/view.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// The distinct keys in ascending order, and for each key which of them it is; returns how many are distinct. `keys` (n,),
/// `distinct` (>= n,) of which the first u are written, `inverse` (n,). On a device it waits for the number.
/// `range`: the bits by which keys differ and are ordered; only a checked build looks whether they are those. @post
/// distinct[inverse[i]] == keys[i]. Workspace from `exec`'s memory: n keys, n positions, and up to 8 MiB a thread or two words a key if
/// that is less. Where most keys differ in their lower bits alone, the call takes as much again. Where the range of the keys is no wider
/// than there are keys, and no wider than 2^20, the call takes at most 4 MiB. On a device: twice the keys and their positions, of 4 bytes
/// below 2^31 keys, and 9 bytes a key; past 2^20 keys, three such positions more.
/// @throws tessera::error shape_mismatch, and as `radix_sort_pairs`; in a checked build invalid_argument where the bits do not suffice.
template <execution Exec, class Key>
std::int64_t unique(Exec const& exec, vector_view<Key> keys, vector_view<std::remove_const_t<Key>> distinct,
                    vector_view<std::int64_t> inverse, radix_bits range = {});

/// The same, but writes the number of distinct keys to `count` (1,), in the execution's memory: on a device nothing waits.
template <execution Exec, class Key, std::same_as<std::int64_t> Count>
void unique(Exec const& exec, vector_view<Key> keys, vector_view<std::remove_const_t<Key>> distinct, vector_view<std::int64_t> inverse,
            vector_view<Count> count, radix_bits range = {});

namespace detail {

struct unique_tag {};

template <>
struct back_end<unique_tag, host_exec> {
  template <class Key>
  static void run(host_exec const& exec, vector_view<Key const> keys, vector_view<Key> distinct, vector_view<std::int64_t> inverse,
                  vector_view<std::int64_t> count, radix_bits range) {
    using unsigned_key = std::make_unsigned_t<Key>;
    // With the sign flipped, negative keys come first.
    constexpr auto flip = std::is_signed_v<Key> ? static_cast<unsigned_key>(unsigned_key{1} << (8 * sizeof(Key) - 1)) : unsigned_key{};
    auto const* const in = reinterpret_cast<unsigned_key const*>(keys.data());
    count[0] = 0;
    if (keys.empty()) return;
    auto const differing = differing_bits(exec, in, keys.size());
    auto* const out = reinterpret_cast<unsigned_key*>(distinct.data());
    bool const few = differing.count() <= listed_bits && (std::int64_t{1} << differing.count()) <= keys.size();
    count[0] = few ? list(exec, in, keys.size(), flip, differing, out, inverse.data())
                   : number(exec, in, keys.size(), flip, differing, out, inverse.data());
    if constexpr (checked) check(distinct.data(), inverse, range);
  }

 private:
  static constexpr int listed_bits = 20;

  // From the lowest to the highest bit in which keys differ.
  template <class Key>
  static key_bits differing_bits(host_exec const& exec, Key const* keys, std::int64_t n) {
    buffer<Key> differing(exec, divide_up(n, unique_piece));
    for_each_piece(exec, n, unique_piece, [&](std::int64_t first, std::int64_t last) {
      Key bits = 0;
      for (auto i = first; i < last; ++i) bits = static_cast<Key>(bits | (keys[i] ^ keys[0]));
      differing[first / unique_piece] = bits;
    });
    Key bits = 0;
    for (auto const some : differing) bits = static_cast<Key>(bits | some);
    if (bits == 0) return {0, 0};
    return {std::countr_zero(bits), static_cast<int>(std::bit_width(bits))};
  }

  // As `number`, by a number for each value that the keys could have.
  template <class Key>
  static std::int64_t list(host_exec const& exec, Key const* keys, std::int64_t n, Key flip, key_bits differing, Key* distinct,
                           std::int64_t* numbers) {
    buffer<std::int32_t> listed(exec, (std::int64_t{1} << differing.count()) + 1);
    auto* const number_of = listed.data();
    for_each_piece(exec, listed.size(), unique_piece,
                   [&](std::int64_t first, std::int64_t last) { std::fill(number_of + first, number_of + last, 0); });
    for_each_piece(exec, n, unique_piece, [=](std::int64_t first, std::int64_t last) {
      for (auto i = first; i < last; ++i) {
        std::atomic_ref const seen(number_of[differing.of(static_cast<Key>(keys[i] ^ flip))]);
        if (seen.load(std::memory_order_relaxed) == 0) seen.store(1, std::memory_order_relaxed);  // no line is taken from a thread in vain
      }
    });
    auto const count = exclusive_scan(exec, listed.view(), listed.view());
    auto const others =
        static_cast<Key>(keys[0] ^ flip ^ static_cast<Key>(differing.of(static_cast<Key>(keys[0] ^ flip)) << differing.low));
    for_each_piece(exec, n, unique_piece, [=](std::int64_t first, std::int64_t last) {
      for (auto i = first; i < last; ++i) numbers[i] = number_of[differing.of(static_cast<Key>(keys[i] ^ flip))];
    });
    for_each_piece(exec, listed.size() - 1, unique_piece, [=](std::int64_t first, std::int64_t last) {
      for (auto v = first; v < last; ++v)
        if (number_of[v + 1] != number_of[v])
          distinct[number_of[v]] = static_cast<Key>((others | static_cast<Key>(static_cast<Key>(v) << differing.low)) ^ flip);
    });
    return count;
  }

  // What `unique` does, of keys ^ flip and to distinct ^ flip; `distinct` may be the keys.
  template <class Key>
  static std::int64_t number(host_exec const& exec, Key const* keys, std::int64_t n, Key flip, key_bits differing, Key* distinct,
                             std::int64_t* numbers) {
    buffer<Key> grouped(exec, n);
    buffer<std::int64_t> within(exec, n);  // each grouped key's number in its part
    key_parts<Key> const parts(exec, keys, n, flip, differing);
    parts.for_each_place(exec, [to = grouped.data()](Key key, std::int64_t, std::size_t, std::int64_t place) {
      constexpr auto line = static_cast<std::int64_t>(64 / sizeof(Key));
      to[place] = key;
      if (place % line == 0) __builtin_prefetch(to + place + line, 1);
    });
    buffer<std::int64_t> first_number(exec, parts.count() + 1);
    auto const jobs = std::min<std::int64_t>(parts.count(), 8 * exec.threads());
    number_parts(exec, parts, jobs, grouped.data(), within.data(), first_number.data());
    std::int64_t total = 0;
    for (std::int64_t part = 0; part < parts.count(); ++part) total += std::exchange(first_number[part], total);
    first_number[parts.count()] = total;
    auto const* const first = first_number.data();
    auto const* const in_part = within.data();
    parts.for_each_place(exec, [=](Key, std::int64_t i, std::size_t part, std::int64_t place) {
      numbers[i] = first[part] + in_part[place];
      __builtin_prefetch(in_part + place + 8);
    });
    parts.for_each_part(exec, jobs, [&](std::int64_t, std::int64_t part) {
      auto const* const from = grouped.data() + parts.first_of(part);
      std::transform(from, from + (first[part + 1] - first[part]), distinct + first[part],
                     [&](Key key) { return static_cast<Key>(key ^ flip); });
    });
    return total;
  }

  // A part's keys become the distinct ones; counts[part] says how many. What one thread can number in its cache, the threads do side by
  // side; what is larger, they do together.
  template <class Key>
  static void number_parts(host_exec const& exec, key_parts<Key> const& parts, std::int64_t jobs, Key* grouped, std::int64_t* within,
                           std::int64_t* counts) {
    auto const differing = parts.below();
    std::int64_t words = 0;
    for (std::int64_t part = 0; part < parts.count(); ++part) {
      auto const first = parts.first_of(part), size = parts.size_of(part);
      if (part_numbers<Key>::fits(size, differing))
        words = std::max(words, part_numbers<Key>::words(size, differing));
      else
        counts[part] = number(exec, grouped + first, size, Key{}, differing, grouped + first, within + first);
    }
    // A job's parts take turns in the room of the largest, unless there is less for each to have its own.
    auto const all_words = part_numbers<Key>::words(parts.first_of(parts.count()), differing);
    bool const take_turns = jobs * words < all_words;
    buffer<std::uint64_t> workspace(exec, take_turns ? jobs * words : all_words);
    parts.for_each_part(exec, jobs, [&](std::int64_t job, std::int64_t part) {
      auto const first = parts.first_of(part), size = parts.size_of(part);
      auto* const room = workspace.data() + (take_turns ? job * words : part_numbers<Key>::words(first, differing));
      if (part_numbers<Key>::fits(size, differing))
        counts[part] = part_numbers<Key>(differing, room)(grouped + first, size, within + first);
    });
  }

  template <class Key>
  static void check(Key const* distinct, vector_view<std::int64_t> inverse, radix_bits range) {
    for (std::int64_t i = 0; i < inverse.size(); ++i)
      if (!keys_differ(distinct, inverse[i], range))
        throw error(errc::invalid_argument, "unique: keys differ in bits that are not compared",
                    {{"position", i}, {"begin_bit", range.begin_bit}, {"end_bit", range.end_bit}});
  }
};

}  // namespace detail

template <execution Exec, class Key>
std::int64_t unique(Exec const& exec, vector_view<Key> keys, vector_view<std::remove_const_t<Key>> distinct,
                    vector_view<std::int64_t> inverse, radix_bits range) {
  return detail::counted(exec, [&](vector_view<std::int64_t> count) { unique(exec, keys, distinct, inverse, count, range); });
}

template <execution Exec, class Key, std::same_as<std::int64_t> Count>
void unique(Exec const& exec, vector_view<Key> keys, vector_view<std::remove_const_t<Key>> distinct, vector_view<std::int64_t> inverse,
            vector_view<Count> count, radix_bits range) {
  static_assert(std::is_integral_v<Key>, "unique: keys are integers");
  if (distinct.size() < keys.size() || inverse.size() != keys.size())
    throw error(errc::shape_mismatch, "unique: outputs need room for every key",
                {{"keys", keys.size()}, {"distinct", distinct.size()}, {"inverse", inverse.size()}});
  detail::check_count("unique", count);
  detail::back_end<detail::unique_tag, Exec>::run(exec, vector_view<std::remove_const_t<Key> const>{keys.data(), keys.size()}, distinct,
                                                  inverse, count, detail::radix_bits_of<Key>("unique", range));
}

}  // namespace TESSERA_ABI
}  // namespace tessera
