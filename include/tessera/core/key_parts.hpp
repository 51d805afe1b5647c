// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <type_traits>
#include <utility>

#include <tessera/core/buffer.hpp>
#include <tessera/core/config.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/radix_sort.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

namespace detail {

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
TESSERA_HOST_DEVICE constexpr bool keys_differ(Key const* distinct, std::int64_t d, radix_bits range) noexcept {
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
  /// processor to see that each is gone through in order. So f does well to prefetch what follows the place.
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

}  // namespace detail

}  // namespace TESSERA_ABI
}  // namespace tessera
