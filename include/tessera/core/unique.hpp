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
#include <tessera/core/radix_sort.hpp>
#include <tessera/core/scan.hpp>
#include <tessera/core/select.hpp>
#include <tessera/core/view.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

namespace detail {

template <class Exec>
struct unique_impl {
  static_assert(dependent_false<Exec>, "unique: no back end for this execution; for CUDA include <tessera/core/unique.cuh>");
};

inline constexpr std::int64_t unique_piece = 1 << 16;

/// Bits [low, high) of unsigned keys; they differ in no others.
struct key_bits {
  int low, high;

  TESSERA_HOST_DEVICE constexpr int count() const noexcept { return high - low; }
  template <class Key>
  TESSERA_HOST_DEVICE constexpr Key of(Key key) const noexcept {
    if (count() == 0) return 0;
    return static_cast<Key>(static_cast<Key>(key >> low) & static_cast<Key>(Key(~Key{0}) >> (static_cast<int>(8 * sizeof(Key)) - count())));
  }
};

/// Whether these bits tell distinct key d from the one before, in their order.
template <class Key>
TESSERA_HOST_DEVICE constexpr bool told_apart(Key const* distinct, std::int64_t d, radix_bits range) noexcept {
  using unsigned_key = std::make_unsigned_t<Key>;
  key_bits const compared{range.begin_bit, range.end_bit};
  // With the sign flipped, negative keys come first.
  constexpr auto flip = std::is_signed_v<Key> ? static_cast<unsigned_key>(unsigned_key{1} << (8 * sizeof(Key) - 1)) : unsigned_key{};
  return d == 0 || compared.of(static_cast<unsigned_key>(static_cast<unsigned_key>(distinct[d - 1]) ^ flip)) <
                       compared.of(static_cast<unsigned_key>(static_cast<unsigned_key>(distinct[d]) ^ flip));
}

/// Numbers the distinct keys of one part, ascending, on one thread and in its cache.
template <class Key>
class part_numbers {
 public:
  static constexpr std::int64_t most_sorted = 1 << 16;

  /// Whether one thread is to do it.
  static constexpr bool fits(std::int64_t n, key_bits differing) noexcept { return n <= most_sorted || differing.count() <= listed_bits; }
  /// Words of workspace for n keys.
  static constexpr std::int64_t words(std::int64_t n, key_bits differing) noexcept { return differing.count() <= listed_bits ? 0 : 2 * n; }

  part_numbers(key_bits differing, std::uint64_t* workspace) noexcept : differing_(differing), workspace_(workspace) {}

  /// `keys` (n,) become the distinct ones; numbers[i] says which of them key i was. @return how many are distinct.
  std::int64_t operator()(Key* keys, std::int64_t n, std::int64_t* numbers) const noexcept {
    if (n == 0) return 0;
    if (differing_.count() <= listed_bits) return by_list(keys, n, numbers);
    auto const count = by_hash(keys, n, numbers);
    return count > 0 ? count : by_sort(keys, n, numbers, workspace_);
  }

 private:
  static constexpr int listed_bits = 12;
  static constexpr int digit_bits = 11;

  // A number for each value of the few bits.
  std::int64_t by_list(Key* keys, std::int64_t n, std::int64_t* numbers) const noexcept {
    auto const values = std::size_t{1} << differing_.count();
    std::int32_t number_of[std::size_t{1} << listed_bits];
    std::fill_n(number_of, values, -1);
    for (std::int64_t i = 0; i < n; ++i) number_of[differing_.of(keys[i])] = 0;
    std::int32_t count = 0;
    for (std::size_t v = 0; v < values; ++v)
      if (number_of[v] == 0) number_of[v] = count++;
    for (std::int64_t i = 0; i < n; ++i) numbers[i] = number_of[differing_.of(keys[i])];
    auto const others = static_cast<Key>(keys[0] ^ static_cast<Key>(differing_.of(keys[0]) << differing_.low));
    for (std::size_t v = 0; v < values; ++v)
      if (number_of[v] >= 0) keys[number_of[v]] = static_cast<Key>(others | static_cast<Key>(static_cast<Key>(v) << differing_.low));
    return count;
  }

  // Only the distinct keys are sorted; 0 where more than an eighth is.
  std::int64_t by_hash(Key* keys, std::int64_t n, std::int64_t* numbers) const noexcept {
    auto const most = n / 8;
    if (most == 0) return 0;
    auto* const distinct = reinterpret_cast<Key*>(workspace_);
    auto* const slots = reinterpret_cast<std::uint32_t*>(workspace_ + n);  // the number + 1 of the key that stands there
    auto const slot_bits = static_cast<int>(std::bit_width(static_cast<std::uint64_t>(2 * most)));
    auto const mask = (std::size_t{1} << slot_bits) - 1;
    std::fill_n(slots, mask + 1, 0U);
    std::int64_t count = 0;
    for (std::int64_t i = 0; i < n; ++i) {
      auto slot = static_cast<std::size_t>(static_cast<std::uint64_t>(differing_.of(keys[i])) * 0x9E3779B97F4A7C15U >> (64 - slot_bits));
      while (slots[slot] != 0 && distinct[slots[slot] - 1] != keys[i]) slot = (slot + 1) & mask;
      if (slots[slot] == 0) {
        if (count == most) return 0;
        distinct[count] = keys[i];
        slots[slot] = static_cast<std::uint32_t>(++count);
      }
      numbers[i] = slots[slot] - 1;
    }
    auto* const rank = reinterpret_cast<std::int64_t*>(workspace_ + most);
    by_sort(distinct, count, rank, workspace_ + 2 * most);
    for (std::int64_t i = 0; i < n; ++i) numbers[i] = rank[numbers[i]];
    std::copy_n(distinct, count, keys);
    return count;
  }

  // Sorts words of some of the bits and, below them, where the key stands; of many bits the lower ones first.
  std::int64_t by_sort(Key* keys, std::int64_t n, std::int64_t* numbers, std::uint64_t* workspace) const noexcept {
    auto const place_bits = static_cast<int>(std::bit_width(static_cast<std::uint64_t>(n - 1)));
    auto const place = (std::uint64_t{1} << place_bits) - 1;
    auto *words = workspace, *other = workspace + n;
    for (std::int64_t i = 0; i < n; ++i) words[i] = static_cast<std::uint64_t>(i);
    for (int low = differing_.low; low < differing_.high; low += 64 - place_bits) {
      key_bits const some{low, std::min(low + 64 - place_bits, differing_.high)};
      for (std::int64_t i = 0; i < n; ++i)
        words[i] = static_cast<std::uint64_t>(some.of(keys[words[i] & place])) << place_bits | (words[i] & place);
      sort_words(words, other, n, {place_bits, place_bits + some.count()});
    }
    auto* const distinct = reinterpret_cast<Key*>(other);
    std::int64_t count = 0;
    for (std::int64_t i = 0; i < n; ++i) {
      auto const at = static_cast<std::int64_t>(words[i] & place);
      auto const key = keys[at];
      if (count == 0 || distinct[count - 1] != key) distinct[count++] = key;
      numbers[at] = count - 1;
    }
    std::copy_n(distinct, count, keys);
    return count;
  }

  // Stable, by these bits; `words` and `other` change places.
  static void sort_words(std::uint64_t*& words, std::uint64_t*& other, std::int64_t n, key_bits by) noexcept {
    int const most_bits = std::clamp(static_cast<int>(std::bit_width(static_cast<std::uint64_t>(n))), 4, digit_bits);
    while (by.count() > 0) {
      key_bits const digit{by.low, by.low + by.count() / static_cast<int>(divide_up(by.count(), most_bits))};
      std::uint32_t starts[std::size_t{1} << digit_bits];
      std::fill_n(starts, std::size_t{1} << digit.count(), 0U);
      for (std::int64_t i = 0; i < n; ++i) ++starts[digit.of(words[i])];
      std::uint32_t sum = 0;
      for (std::size_t d = 0; d < std::size_t{1} << digit.count(); ++d) sum += std::exchange(starts[d], sum);
      for (std::int64_t i = 0; i < n; ++i) other[starts[digit.of(words[i])]++] = words[i];
      std::swap(words, other);
      by.low = digit.high;
    }
  }

  key_bits differing_;
  std::uint64_t* workspace_;
};

/// Keys grouped by the leading ones of the bits in which they differ, into at most 1,024 parts of about 4,096 or more. Stable.
template <class Key>
class key_parts {
 public:
  /// @pre n >= 1.
  key_parts(host_exec const& exec, Key const* keys, std::int64_t n, Key flip, key_bits differing)
      : keys_(keys),
        n_(n),
        flip_(flip),
        bits_(std::min({differing.count(), most_bits, static_cast<int>(std::bit_width(static_cast<std::uint64_t>(n) >> 12))})),
        below_{differing.low, differing.high - bits_},
        starts_(exec, divide_up(n, unique_piece) * count()) {
    for_each_piece(exec, n, unique_piece, [&](std::int64_t first, std::int64_t last) {
      std::int64_t counts[std::size_t{1} << most_bits] = {};
      for_each_key_of(first, last, [&](std::int64_t, Key, std::size_t part) { ++counts[part]; });
      std::copy_n(counts, count(), starts_of(first));
    });
    std::int64_t sum = 0;
    for (std::int64_t part = 0; part < count(); ++part)
      for (auto i = part; i < starts_.size(); i += count()) sum += std::exchange(starts_[i], sum);
  }

  std::int64_t count() const noexcept { return std::int64_t{1} << bits_; }
  /// The bits in which keys of one part differ.
  key_bits below() const noexcept { return below_; }
  /// Where the part's keys begin among the grouped ones.
  std::int64_t first_of(std::int64_t part) const noexcept { return part == count() ? n_ : starts_[part]; }
  std::int64_t size_of(std::int64_t part) const noexcept { return first_of(part + 1) - first_of(part); }

  /// f(key, i, part, place): key i belongs to the part and stands at that place among the grouped ones. The parts are too many for the
  /// processor to see that each is gone through in order: f does well to prefetch what follows the place.
  template <class F>
  void for_each_place(host_exec const& exec, F const& f) const {
    for_each_piece(exec, n_, unique_piece, [&](std::int64_t first, std::int64_t last) {
      std::int64_t next[std::size_t{1} << most_bits];
      std::copy_n(starts_of(first), count(), next);
      for_each_key_of(first, last, [&](std::int64_t i, Key key, std::size_t part) { f(key, i, part, next[part]++); });
    });
  }

  /// f(job, part) for each part; parts of one job follow each other, jobs have about as many keys.
  template <class F>
  void for_each_part(host_exec const& exec, std::int64_t jobs, F const& f) const {
    auto const first_part = [&](std::int64_t job) {
      if (job == 0 || job == jobs) return job == 0 ? 0 : count();
      return std::lower_bound(starts_.data(), starts_.data() + count(), n_ / jobs * job) - starts_.data();
    };
    exec.run(jobs, [&](std::int64_t job) {
      for (auto part = first_part(job), last = first_part(job + 1); part < last; ++part) f(job, part);
    });
  }

 private:
  static constexpr int most_bits = 10;

  // f(i, key i, its part).
  template <class F>
  void for_each_key_of(std::int64_t first, std::int64_t last, F const& f) const {
    auto const* const keys = keys_;
    auto const flip = flip_;
    auto const mask = static_cast<Key>(count() - 1);
    int const shift = mask == 0 ? 0 : below_.high;
    for (auto i = first; i < last; ++i) {
      auto const key = static_cast<Key>(keys[i] ^ flip);
      f(i, key, static_cast<std::size_t>(static_cast<Key>(key >> shift) & mask));
    }
  }

  std::int64_t* starts_of(std::int64_t first) noexcept { return starts_.data() + first / unique_piece * count(); }
  std::int64_t const* starts_of(std::int64_t first) const noexcept { return starts_.data() + first / unique_piece * count(); }

  Key const* keys_;
  std::int64_t n_;
  Key flip_;
  int bits_;
  key_bits below_;
  buffer<std::int64_t> starts_;  // (pieces, parts)
};

template <>
struct unique_impl<host_exec> {
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
      if (!told_apart(distinct, inverse[i], range))
        throw error(errc::invalid_argument, "unique: keys differ in bits that are not compared",
                    {{"position", i}, {"begin_bit", range.begin_bit}, {"end_bit", range.end_bit}});
  }
};

struct unique_fn {
  template <execution Exec, class Key>
  std::int64_t operator()(Exec const& exec, vector_view<Key> keys, vector_view<std::remove_const_t<Key>> distinct,
                          vector_view<std::int64_t> inverse, radix_bits range = {}) const {
    return counted(exec, [&](vector_view<std::int64_t> count) { (*this)(exec, keys, distinct, inverse, count, range); });
  }
  template <execution Exec, class Key, std::same_as<std::int64_t> Count>
  void operator()(Exec const& exec, vector_view<Key> keys, vector_view<std::remove_const_t<Key>> distinct,
                  vector_view<std::int64_t> inverse, vector_view<Count> count, radix_bits range = {}) const {
    static_assert(std::is_integral_v<Key>, "unique: keys are integers");
    if (distinct.size() < keys.size() || inverse.size() != keys.size())
      throw error(errc::shape_mismatch, "unique: outputs need room for every key",
                  {{"keys", keys.size()}, {"distinct", distinct.size()}, {"inverse", inverse.size()}});
    check_count("unique", count);
    unique_impl<Exec>::run(exec, vector_view<std::remove_const_t<Key> const>{keys.data(), keys.size()}, distinct, inverse, count,
                           radix_bits_of<Key>("unique", range));
  }
};

}  // namespace detail

/// The distinct keys in ascending order, and for each key which of them it is; returns how many are distinct.
///
/// `unique(exec, keys, distinct, inverse, radix_bits)`: `keys` (n,), `distinct` (>= n,) of which the first u are written, `inverse` (n,).
/// @pre keys that differ do so in these bits, in which they are in order; only a checked build looks whether they are. @post
/// distinct[inverse[i]] == keys[i]. Workspace from `exec`'s memory: n keys and n positions, up to 8 MiB a thread or two words a key if that
/// is less, and as much again where most keys differ in their lower bits alone; at most 4 MiB for keys in a range no wider than there are
/// keys or 2^20. On a device: twice the keys and their positions, of 4 bytes below 2^31 keys, and 9 bytes a key.
///
/// `unique(exec, keys, distinct, inverse, count, radix_bits)` writes how many are distinct to `count` (1,), in the execution's memory,
/// instead of returning it: on a device nothing waits then, while the form above waits for the number.
/// @throws tessera::error shape_mismatch, and as `radix_sort_pairs`; in a checked build invalid_argument where the bits do not suffice.
inline constexpr detail::unique_fn unique{};

}  // namespace TESSERA_ABI
}  // namespace tessera
