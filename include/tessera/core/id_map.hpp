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

namespace tessera {
inline namespace TESSERA_ABI {

/// Spreads the bits of an id: a bijection of 64-bit integers. Source: the finaliser of MurmurHash3 with the constants of Stafford's mix 13.
TESSERA_HOST_DEVICE constexpr std::uint64_t mix_bits(std::uint64_t x) noexcept {
  x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9;
  x = (x ^ x >> 27) * 0x94D049BB133111EB;
  return x ^ x >> 31;
}

/// Numbers ids: any int64 gets 0, 1, 2, … in the order of insertion. An erased id leaves its number to the next new id; of several numbers,
/// the one left last goes first. The numbers of other ids stay. The map has open addressing with linear probing, is at most 3/5 full, and
/// grows by doubling. Any number of threads may find at once; one at a time may insert or erase.
class id_map {
 public:
  static constexpr std::int64_t absent = -1;

  std::int64_t size() const noexcept { return number_bound_ - free_; }
  /// All numbers are in [0, number_bound()), which is size() as long as every number left has been taken again.
  std::int64_t number_bound() const noexcept { return number_bound_; }
  /// The id of each number, (number_bound(),); unspecified for a number that no id has.
  vector_view<std::int64_t const> ids() const noexcept { return {ids_.data(), number_bound_}; }
  /// Whether an id has this number. @pre number in [0, number_bound())
  bool holds_number(std::int64_t number) const noexcept(!checks_indices) {
    if constexpr (checks_indices) detail::check_index("id_map number", number, number_bound_);
    return free_ == 0 || find(ids_[number]) == number;
  }

  /// The id's number, or `absent`.
  std::int64_t find(std::int64_t id) const noexcept {
    if (entries_.empty()) return absent;
    for (auto i = first_entry(id);; i = (i + 1) & mask_)
      if (entries_[i].number == absent || entries_[i].id == id) return entries_[i].number;
  }

  /// Prefetches what `find` of this id reads.
  [[gnu::always_inline]] void prefetch(std::int64_t id) const noexcept {
    if (!entries_.empty()) __builtin_prefetch(&entries_[first_entry(id)]);
  }

  /// The id's number, and whether it is new. It allocates from `exec`'s memory where a new id makes the map grow.
  std::pair<std::int64_t, bool> insert(host_exec const& exec, std::int64_t id) {
    if (auto const number = find(id); number != absent) return {number, false};
    reserve(exec, size() + 1);
    auto const number = free_ == 0 ? number_bound_++ : std::exchange(first_free_, ids_[first_free_]);
    if (free_ > 0) --free_;
    ids_[number] = id;
    place({id, number});
    return {number, true};
  }

  /// Removes the id; returns the number that it had, or `absent`.
  std::int64_t erase(std::int64_t id) noexcept {
    if (entries_.empty()) return absent;
    auto hole = first_entry(id);
    while (entries_[hole].number != absent && entries_[hole].id != id) hole = (hole + 1) & mask_;
    auto const number = entries_[hole].number;
    if (number == absent) return absent;
    // What stands behind moves up, unless it would come to stand before its first place.
    for (auto i = (hole + 1) & mask_; entries_[i].number != absent; i = (i + 1) & mask_)
      if (((i - first_entry(entries_[i].id)) & mask_) >= ((i - hole) & mask_)) {
        entries_[hole] = entries_[i];
        hole = i;
      }
    entries_[hole].number = absent;
    ids_[number] = std::exchange(first_free_, number);
    ++free_;
    return number;
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
      for (auto const& e : entries)
        if (e.number != absent) place(e);
    }
    grow(exec, ids_, count);
  }

  /// The bytes of a map that was made with room for `count` ids.
  static std::size_t bytes_for(std::int64_t count) noexcept {
    std::size_t entries = count == 0 ? 0 : 16;
    while (5 * static_cast<std::size_t>(count) > 3 * entries) entries *= 2;
    return entries * sizeof(entry) + static_cast<std::size_t>(count) * sizeof(std::int64_t);
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

  void place(entry e) noexcept {
    auto i = first_entry(e.id);
    while (entries_[i].number != absent) i = (i + 1) & mask_;
    entries_[i] = e;
  }

  buffer<entry> entries_;     // a power of two of them, or none
  buffer<std::int64_t> ids_;  // by number; of a number that no id has, the next such number
  std::int64_t mask_ = 0;
  std::int64_t number_bound_ = 0;
  std::int64_t free_ = 0;  // numbers below the bound that no id has
  std::int64_t first_free_ = absent;
};

}  // namespace TESSERA_ABI
}  // namespace tessera
