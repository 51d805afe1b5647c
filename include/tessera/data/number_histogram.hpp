// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include <tessera/core/buffer.hpp>
#include <tessera/core/execution.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// Counts numbers by sign, exponent and the 7 bits behind the exponent. The counts give approximate quantiles in one pass and bounded
/// memory.
///
/// Numbers of one count differ by less than 1/128 of their size. Integers below 256 have a count each, and so has 0. The counts depend
/// neither on the order of the numbers nor on how parts were merged. Memory: 1 KiB for each power of two and sign that came, at most 512
/// KiB. One thread at a time. Move-only.
///
/// Source of the error bound: Masson, Rim, Lee, "DDSketch: a fast and fully-mergeable quantile sketch with relative-error guarantees", VLDB
/// 2019. The intervals here are those of the numbers' own bits.
class number_histogram {
 public:
  number_histogram() noexcept { page_of_.fill(none); }

  /// How many numbers were counted.
  std::int64_t count() const noexcept { return count_; }
  /// The least number, exact. @pre count() > 0.
  float least() const noexcept { return least_; }
  /// The largest number, exact. @pre count() > 0.
  float largest() const noexcept { return largest_; }
  std::size_t bytes() const noexcept { return counts_.capacity_bytes(); }

  /// Counts a number `times` times. Allocates from `exec`'s memory, which outlives this object. @pre `number` is not NaN; times >= 0.
  void add(host_exec const& exec, float number, std::int64_t times = 1) {
    if (times == 0) return;
    auto const bits = std::bit_cast<std::uint32_t>(number + 0.0F);  // -0 becomes 0
    auto& page = page_of_[bits >> 23];
    if (page == none) open(exec, page);
    counts_.data()[page * page_size + (bits >> 16 & (page_size - 1))] += times;
    count_ += times;
    least_ = std::min(least_, number);
    largest_ = std::max(largest_, number);
  }

  /// Adds what another histogram counted. @post equal to one histogram of both streams.
  void merge(host_exec const& exec, number_histogram const& other) {
    if (other.count_ == 0) return;
    for (std::size_t p = 0; p < page_of_.size(); ++p) {
      if (other.page_of_[p] == none) continue;
      if (page_of_[p] == none) open(exec, page_of_[p]);
      auto const* const from = other.counts_.data() + other.page_of_[p] * page_size;
      auto* const into = counts_.data() + page_of_[p] * page_size;
      for (std::int64_t i = 0; i < page_size; ++i) into[i] += from[i];
    }
    count_ += other.count_;
    least_ = std::min(least_, other.least_);
    largest_ = std::max(largest_, other.largest_);
  }

  /// Returns the number of rank max(1, ⌈share · count()⌉), approximately. The result is nearer to 0 by less than 1/128 of that number, or
  /// by less than 2^-133. @pre count() > 0; 0 <= share <= 1.
  float quantile(double share) const noexcept {
    auto const rank = std::max(std::int64_t{1}, static_cast<std::int64_t>(std::ceil(share * static_cast<double>(count_))));
    std::int64_t before = 0;
    auto number = largest_;
    auto const is_here = [&](std::uint32_t bits) {
      auto const page = page_of_[bits >> 23];
      if (page == none) return false;
      before += counts_.data()[page * page_size + (bits >> 16 & (page_size - 1))];
      if (before < rank) return false;
      number = std::bit_cast<float>(bits);
      return true;
    };
    // Negative ones come first, and the largest of them by magnitude. Empty pages are passed at once.
    constexpr std::uint32_t step = 1U << 16, page_bits = 1U << 23, sign = 1U << 31;
    for (auto page = sign - page_bits;; page -= page_bits) {
      if (page_of_[(sign | page) >> 23] != none)
        for (auto in_page = page_bits; in_page > 0; in_page -= step)
          if (is_here(sign | page | (in_page - step))) return std::clamp(number, least_, largest_);
      if (page == 0) break;
    }
    for (std::uint32_t page = 0; page < sign; page += page_bits)
      if (page_of_[page >> 23] != none)
        for (std::uint32_t in_page = 0; in_page < page_bits; in_page += step)
          if (is_here(page | in_page)) return std::clamp(number, least_, largest_);
    return largest_;
  }

 private:
  static constexpr std::int64_t page_size = 128;
  static constexpr std::int16_t none = -1;

  void open(host_exec const& exec, std::int16_t& page) {
    grow(exec, counts_, (pages_ + 1) * page_size);
    std::fill_n(counts_.data() + pages_ * page_size, page_size, std::int64_t{0});
    page = static_cast<std::int16_t>(pages_++);
  }

  std::array<std::int16_t, 512> page_of_;  // by sign and exponent
  std::int64_t pages_ = 0;
  buffer<std::int64_t> counts_;  // (>= pages, page_size)
  std::int64_t count_ = 0;
  float least_ = std::numeric_limits<float>::infinity();
  float largest_ = -std::numeric_limits<float>::infinity();
};

}  // namespace TESSERA_ABI
}  // namespace tessera
