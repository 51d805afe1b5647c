// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <type_traits>
#include <utility>

#include <tessera/core/buffer.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/id_map.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// Spreads an id or a session evenly over 64 bits, by a bijection. The high bits decide whether a sample of ids has the id.
constexpr std::uint64_t sampling_unit(std::int64_t id) noexcept { return mix_bits(static_cast<std::uint64_t>(id) ^ 0xA0761D6478BD642F); }

/// An id among those that are sampled.
struct sampled_id {
  std::uint64_t unit = 0;  ///< sampling_unit(id)

  /// The bits whose low ones place the key.
  constexpr std::uint64_t spread() const noexcept { return unit; }
  friend constexpr bool operator==(sampled_id const&, sampled_id const&) = default;
};

/// A list of ids in one of the sessions that are sampled.
struct sampled_list {
  std::uint64_t unit = 0;   ///< sampling_unit(session)
  std::uint64_t list = 0;   ///< a hash of the list
  std::int64_t length = 0;  ///< ids in the list

  /// The bits whose low ones place the key.
  constexpr std::uint64_t spread() const noexcept { return unit ^ list; }
  friend constexpr bool operator==(sampled_list const&, sampled_list const&) = default;
};

/// What `sampled_counts` counts: plain data with `unit` and `spread()`. The high bits of `unit` decide whether the sample has the key. The
/// low bits of `spread()` place the key in memory.
template <class Key>
concept sampled_key = std::is_trivially_copyable_v<Key> && std::equality_comparable<Key> && requires(Key const& key) {
  { key.unit } -> std::convertible_to<std::uint64_t>;
  { key.spread() } -> std::same_as<std::uint64_t>;
};
static_assert(sampled_key<sampled_id> && sampled_key<sampled_list>);

/// Counts how often each key of a stream came, exactly. Up to a limit, all keys are counted; beyond it, those of a random sample of keys.
///
/// A sample of rate 2^-l has every key whose unit begins with l zero bits, and all counts of these keys. Whenever more keys than the limit
/// are held, the rate halves, and the keys that are not in the sample go. What is held depends on the set of keys alone: neither on their
/// order nor on how parts of the stream were merged. Memory: below 10/3 entries times the limit, twice that while the table of keys is
/// rebuilt. One thread at a time. Move-only. Source: Flajolet, "On adaptive sampling", Computing 43 (1990); Gibbons, "Distinct sampling for
/// highly-accurate answers to distinct values queries and event reports", VLDB 2001.
template <sampled_key Key>
class sampled_counts {
 public:
  /// Makes counts of no keys. @throws tessera::error invalid_argument for limit < 1.
  explicit sampled_counts(std::int64_t limit) : limit_(limit) {
    if (limit < 1) throw error(errc::invalid_argument, "sampled_counts: limit", {{"limit", limit}, {"least", 1}});
  }

  /// The most keys that are held.
  std::int64_t limit() const noexcept { return limit_; }
  /// How many keys are held.
  std::int64_t size() const noexcept { return size_; }
  /// Whether every key that came is held.
  bool holds_all() const noexcept { return bound_ == all_units; }
  /// The share of units in the sample: 1 where all keys are held. The rate is 0 where one unit alone has more keys than the limit.
  double rate() const noexcept { return static_cast<double>(bound_) / static_cast<double>(all_units); }
  /// The number of distinct keys that came: exact where all are held, else an estimate for keys of independent units.
  double distinct() const noexcept { return size_ == 0 ? 0 : static_cast<double>(size_) / rate(); }
  /// The standard error of distinct(), as a share of it: 0 where all keys are held, else at most some 1.5 / sqrt(limit).
  double standard_error() const noexcept { return std::sqrt((1 - rate()) / static_cast<double>(std::max<std::int64_t>(size_, 1))); }
  std::size_t bytes() const noexcept { return entries_.capacity_bytes(); }

  /// Whether the sample has keys of this unit.
  constexpr bool takes(std::uint64_t unit) const noexcept { return unit >> 1 < bound_; }
  /// Starts loading the memory that `add` of this key will read.
  void prefetch(Key const& key) const noexcept {
    if (!entries_.empty()) __builtin_prefetch(entries_.data() + first_place(key));
  }

  /// Counts a key `count` times, unless the sample does not have it. Allocates from `exec`'s memory, which outlives this object. @pre count
  /// >= 1.
  void add(host_exec const& exec, Key const& key, std::int64_t count = 1) {
    if (!takes(key.unit)) return;
    if (5 * (size_ + 1) > 3 * entries_.size()) rebuild(exec, std::max<std::int64_t>(16, 2 * entries_.size()));
    auto& found = *place_of(key);
    if (found.count == 0) {
      found.key = key;
      ++size_;
    }
    found.count += count;
    while (size_ > limit_) halve(exec);
  }

  /// Adds what another object counted. @post equal to one object that counted both streams.
  /// @throws tessera::error invalid_argument for another limit.
  void merge(host_exec const& exec, sampled_counts const& other) {
    if (other.limit_ != limit_)
      throw error(errc::invalid_argument, "sampled_counts: merge of another limit", {{"limit", limit_}, {"other", other.limit_}});
    while (bound_ > other.bound_) halve(exec);
    other.for_each([&](Key const& key, std::int64_t count) { add(exec, key, count); });
  }

  /// Calls f(key, count) for all keys held, in no order that matters.
  template <class F>
  void for_each(F const& f) const {
    for (auto const& e : entries_)
      if (e.count != 0) f(e.key, e.count);
  }

 private:
  struct entry {
    Key key;
    std::int64_t count;  // 0: the entry is free
  };

  static constexpr std::uint64_t all_units = std::uint64_t{1} << 63;

  std::int64_t first_place(Key const& key) const noexcept { return static_cast<std::int64_t>(key.spread()) & (entries_.size() - 1); }

  // The key's entry, or the free one where it belongs.
  entry* place_of(Key const& key) noexcept {
    auto* const entries = entries_.data();
    auto const mask = entries_.size() - 1;
    for (auto i = first_place(key);; i = (i + 1) & mask)
      if (entries[i].count == 0 || entries[i].key == key) return entries + i;
  }

  void halve(host_exec const& exec) {
    bound_ >>= 1;
    rebuild(exec, entries_.size());
  }

  // Keeps the keys in the sample.
  void rebuild(host_exec const& exec, std::int64_t entries) {
    buffer<entry> before(exec, entries);
    std::fill(before.begin(), before.end(), entry{});
    std::swap(entries_, before);
    size_ = 0;
    for (auto const& e : before)
      if (e.count != 0 && takes(e.key.unit)) {
        *place_of(e.key) = e;
        ++size_;
      }
  }

  std::int64_t limit_;
  std::uint64_t bound_ = all_units;  // halves of the units below are in the sample
  std::int64_t size_ = 0;
  buffer<entry> entries_;  // a power of two of them, or none; at most 3/5 full
};

}  // namespace TESSERA_ABI
}  // namespace tessera
