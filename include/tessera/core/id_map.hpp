// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include <tessera/core/buffer.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>

namespace tessera::inline TESSERA_ABI {

/// Spreads the bits of an id (the finaliser of MurmurHash3 in the constants of Stafford's mix 13): a bijection of 64-bit integers.
TESSERA_HOST_DEVICE constexpr std::uint64_t mix_bits(std::uint64_t x) noexcept {
  x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9;
  x = (x ^ x >> 27) * 0x94D049BB133111EB;
  return x ^ x >> 31;
}

/// Numbers ids in the order of their first insertion: any int64 to 0, 1, 2, … Open addressing with linear probing, at most 3/5 full;
/// grows by doubling; never forgets. Finding is safe on many threads, inserting is for one.
class id_map {
 public:
  static constexpr std::int64_t absent = -1;

  std::int64_t size() const noexcept { return count_; }
  /// The ids in the order of their numbers, (size(),).
  vector_view<std::int64_t const> ids() const noexcept { return {ids_.data(), count_}; }

  /// The id's number, or `absent`.
  std::int64_t find(std::int64_t id) const noexcept {
    if (entries_.empty()) return absent;
    for (auto i = first_entry(id);; i = (i + 1) & mask_)
      if (entries_[i].number == absent || entries_[i].id == id) return entries_[i].number;
  }

  /// Starts loading what `find` of this id will read.
  void prefetch(std::int64_t id) const noexcept {
    if (!entries_.empty()) __builtin_prefetch(&entries_[first_entry(id)]);
  }

  /// The id's number, and whether it is new. Allocates from `exec`'s memory when a new id makes it grow.
  std::pair<std::int64_t, bool> insert(host_exec const& exec, std::int64_t id) {
    if (auto const number = find(id); number != absent) return {number, false};
    reserve(exec, count_ + 1);
    auto i = first_entry(id);
    while (entries_[i].number != absent) i = (i + 1) & mask_;
    entries_[i] = {id, count_};
    ids_[count_] = id;
    return {count_++, true};
  }

  /// Makes room for `count` ids in all. @throws tessera::error invalid_argument for a count that no memory holds.
  void reserve(host_exec const& exec, std::int64_t count) {
    if (count > most_ids) throw error(errc::invalid_argument, "id_map: too many ids", {{"ids", count}, {"most", most_ids}});
    if (5 * count > 3 * entries_.size()) {
      std::int64_t entry_count = 16;
      while (5 * count > 3 * entry_count) entry_count *= 2;
      buffer<entry> entries(exec, entry_count);
      std::fill(entries.begin(), entries.end(), entry{0, absent});
      std::swap(entries_, entries);
      mask_ = entry_count - 1;
      for (std::int64_t number = 0; number < count_; ++number) {
        auto i = first_entry(ids_[number]);
        while (entries_[i].number != absent) i = (i + 1) & mask_;
        entries_[i] = {ids_[number], number};
      }
    }
    if (count > ids_.size()) {
      buffer<std::int64_t> ids(exec, std::max<std::int64_t>(count, 2 * ids_.size()));
      std::copy(ids_.begin(), ids_.begin() + count_, ids.begin());
      std::swap(ids_, ids);
    }
  }

  std::size_t bytes() const noexcept { return entries_.capacity_bytes() + ids_.capacity_bytes(); }

 private:
  struct entry {
    std::int64_t id;
    std::int64_t number;  // absent: the entry is free
  };

  static constexpr std::int64_t most_ids = std::int64_t{1} << 56;

  std::int64_t first_entry(std::int64_t id) const noexcept {
    return static_cast<std::int64_t>(mix_bits(static_cast<std::uint64_t>(id))) & mask_;
  }

  buffer<entry> entries_;     // a power of two of them, or none
  buffer<std::int64_t> ids_;  // by number; the first count_ are in use
  std::int64_t mask_ = 0;
  std::int64_t count_ = 0;
};

}  // namespace tessera::inline TESSERA_ABI
