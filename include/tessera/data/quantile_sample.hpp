// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include <tessera/core/error.hpp>
#include <tessera/core/id_map.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// A uniform sample without replacement of a column's numbers, of at most a given size: the numbers whose rows hash lowest (bottom-k).
///
/// The sample depends on the rows' numbers in the data set and their values alone. @post samples of the parts of a data set merge to the
/// sample of the whole, bit for bit. A quantile q of a sample of k numbers is off by sqrt(q (1 − q) / k) of the ranks, one standard
/// deviation. Source: Cohen, Kaplan, "Summarizing data using bottom-k sketches", PODC 2007. A `std::vector` holds up to twice as many
/// entries of 16 bytes as the size.
class quantile_sample {
 public:
  /// A number of the sample, with the hash of its row.
  struct entry {
    std::uint64_t key;  ///< hash of the row; no two rows have one
    double value;

    friend auto operator<=>(entry const&, entry const&) = default;
  };

  /// Makes a sample of no numbers. @throws tessera::error invalid_argument for a size below 1 or above 2^40.
  explicit quantile_sample(std::int64_t size) : size_(size) {
    if (size < 1 || size > most_size)
      throw error(errc::invalid_argument, "quantile_sample: size", {{"size", size}, {"least", 1}, {"most", most_size}});
  }
  /// Takes the `entries()` of a sample of that size. @throws tessera::error as above, and for more entries than `size`.
  quantile_sample(std::int64_t size, std::vector<entry> entries) : quantile_sample(size) {
    if (static_cast<std::int64_t>(entries.size()) > size)
      throw error(errc::invalid_argument, "quantile_sample: more entries than the size", {{"entries", entries.size()}, {"size", size}});
    entries_ = std::move(entries);
    if (static_cast<std::int64_t>(entries_.size()) == size_) cut();
  }

  std::int64_t size() const noexcept { return size_; }

  /// Adds the number of row `row` of the data set. @pre each row comes once.
  void add(std::int64_t row, double value) {
    auto const key = mix_bits(static_cast<std::uint64_t>(row) ^ 0x7175616E74696C65);  // a bijection: no two rows have one key
    if (key < least_out_) add(entry{key, value});
  }
  /// Adds the sample of other rows. @pre the rows were not added here. @throws tessera::error invalid_argument for a sample of another
  /// size.
  void merge(quantile_sample const& other) {
    if (other.size_ != size_)
      throw error(errc::invalid_argument, "quantile_sample: a sample of another size",
                  {{"size", size_}, {"size of the other", other.size_}});
    for (auto const& e : other.entries_)
      if (e.key < least_out_) add(e);
  }

  /// Returns the sample, in ascending order of the rows' keys.
  std::vector<entry> entries() const {
    auto result = entries_;
    std::sort(result.begin(), result.end());
    if (result.size() > static_cast<std::size_t>(size_)) result.resize(static_cast<std::size_t>(size_));
    return result;
  }

  std::size_t bytes() const noexcept { return entries_.capacity() * sizeof(entry); }

 private:
  static constexpr std::int64_t most_size = std::int64_t{1} << 40;

  void add(entry const& e) {
    entries_.push_back(e);
    if (static_cast<std::int64_t>(entries_.size()) >= 2 * size_) cut();
  }

  // Keeps the lowest; those that are out stay out.
  void cut() {
    auto const last = entries_.begin() + (size_ - 1);
    std::nth_element(entries_.begin(), last, entries_.end());
    least_out_ = last->key;
    entries_.resize(static_cast<std::size_t>(size_));
  }

  std::int64_t size_;
  std::uint64_t least_out_ = std::numeric_limits<std::uint64_t>::max();  // keys from here on are not in the sample
  std::vector<entry> entries_;                                           // twice the size at most
};

}  // namespace TESSERA_ABI
}  // namespace tessera
