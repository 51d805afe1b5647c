// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include <tessera/core/buffer.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/id_map.hpp>
#include <tessera/core/view.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// A hash of 128 bits by which lists of ids are compared. Among n distinct lists two have the same hash with a probability of about
/// n² / 2^129, unless somebody constructs them for that.
struct list_hash {
  std::uint64_t low = 0, high = 0;  ///< the two halves

  /// Makes the hash with all bits 0.
  constexpr list_hash() = default;
  /// Takes the halves of a hash.
  constexpr list_hash(std::uint64_t low, std::uint64_t high) noexcept : low(low), high(high) {}
  /// Computes the hash of a list of ids, in which their order counts.
  explicit list_hash(vector_view<std::int64_t const> ids) noexcept {
    // Sums over places of hashes of (id, place): no place waits for another.
    for (std::int64_t k = 0; k < ids.size(); ++k) {
      auto const id = static_cast<std::uint64_t>(ids[k]), place = static_cast<std::uint64_t>(k) + 1;
      low += mix_bits(id + place * 0x9E3779B97F4A7C15);
      high += mix_bits(id * 0xD6E8FEB86659FD93 + place * 0xA0761D6478BD642F);
    }
    auto const length = static_cast<std::uint64_t>(ids.size());
    low = mix_bits(low + length + 0x2545F4914F6CDD1D);
    high = mix_bits(high ^ ~length);
  }

  /// Returns the hash of the same list in a context, for instance in a session.
  constexpr list_hash within(std::uint64_t context) const noexcept {
    return {mix_bits(low ^ mix_bits(context)), mix_bits(high + mix_bits(~context))};
  }

  friend constexpr bool operator==(list_hash const&, list_hash const&) = default;
};

namespace detail {

// A set of hashes, well spread already. Open addressing with linear probing, at most 3/5 full; grows by doubling.
class hash_set {
 public:
  std::int64_t size() const noexcept { return size_; }
  std::size_t bytes() const noexcept { return entries_.capacity_bytes(); }

  bool contains(list_hash key) const noexcept { return !entries_.empty() && entries_[place_of(named(key))] != list_hash{}; }

  // Whether it is new.
  bool insert(host_exec const& exec, list_hash key) {
    if (5 * (size_ + 1) > 3 * entries_.size()) reserve(exec);
    key = named(key);
    auto& entry = entries_[place_of(key)];
    if (entry == key) return false;
    entry = key;
    ++size_;
    return true;
  }

 private:
  // Zero marks a free entry.
  static constexpr list_hash named(list_hash key) noexcept { return key == list_hash{} ? list_hash{1, 0} : key; }

  std::int64_t place_of(list_hash key) const noexcept {
    auto const mask = entries_.size() - 1;
    for (auto i = static_cast<std::int64_t>(key.low) & mask;; i = (i + 1) & mask)
      if (entries_[i] == key || entries_[i] == list_hash{}) return i;
  }

  void reserve(host_exec const& exec) {
    buffer<list_hash> larger(exec, std::max<std::int64_t>(16, 2 * entries_.size()));
    std::fill(larger.begin(), larger.end(), list_hash{});
    std::swap(entries_, larger);
    for (auto const& key : larger)
      if (key != list_hash{}) entries_[place_of(key)] = key;
  }

  buffer<list_hash> entries_;  // a power of two of them, or none
  std::int64_t size_ = 0;
};

}  // namespace detail

}  // namespace TESSERA_ABI
}  // namespace tessera
