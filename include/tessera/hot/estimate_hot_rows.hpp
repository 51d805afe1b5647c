// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <utility>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/id_map.hpp>
#include <tessera/core/philox.hpp>
#include <tessera/core/types.hpp>
#include <tessera/hot/access_profile.hpp>
#include <tessera/hot/student_t.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// How `estimate_hot_rows` reads a table's counts. The defaults are FAE's, but that more chunks are read where those are too few.
struct hot_row_sampling {
  std::int64_t chunks = 35;           ///< that are read first, at least 2; then twice as many, and so on
  std::int64_t chunk_entries = 1024;  ///< rows of a chunk
  double confidence = 0.999;          ///< with which the interval has the true number, above 0 and below 1
  double half_width = 0.1;  ///< of the interval, as a share of the estimate, at which reading ends; infinity: the first chunks suffice
  random_seed seed{0};      ///< decides which rows are read
};

/// An estimate of how many rows of a table are hot.
struct hot_row_estimate {
  double rows = 0;        ///< that are hot
  double half_width = 0;  ///< of the interval around it, in rows
  std::int64_t read = 0;  ///< counts that were read
  bool is_exact = false;  ///< whether these are all counts

  double least() const noexcept { return rows - half_width; }
  double most() const noexcept { return rows + half_width; }
};

/// Estimates how many rows of a table were read at least `cutoff` times, without reading all counts.
///
/// Rows are drawn one by one without replacement, and their counts are read in chunks. Mean and interval follow from the hot rows of each
/// chunk, by Student's t with the finite-population correction. The number of chunks doubles until the interval is narrow enough, or all counts
/// are read. FAE draws neighbouring rows, which are alike where ids were numbered by first appearance. The 35 chunks of the default suffice
/// where at least 3.6 % of the rows are hot. Source: FAE, Section 4.1.2, equations 2 to 4.
/// @throws tessera::error invalid_argument for an option that cannot be.
hot_row_estimate estimate_hot_rows(table_accesses const& accesses, std::int64_t cutoff, hot_row_sampling const& sampling = {});

namespace detail {

// A random order of [0, size), of which any place is found at once: a Feistel network over the next even number of bits, walked until it
// lands within the size.
class random_order {
 public:
  random_order(random_seed seed, std::int64_t size) noexcept
      : size_(size), half_((static_cast<int>(std::bit_width(static_cast<std::uint64_t>(std::max<std::int64_t>(size - 1, 1)))) + 1) / 2) {
    for (std::uint32_t round = 0; round < keys_.size(); ++round) {
      auto const words = philox(seed, round, 0x686f7472, 0);
      keys_[round] = std::uint64_t{words[0]} << 32 | words[1];
    }
  }

  std::int64_t operator[](std::int64_t place) const noexcept {
    do place = step(place);
    while (place >= size_);
    return place;
  }

 private:
  std::int64_t step(std::int64_t place) const noexcept {
    auto const mask = (std::uint64_t{1} << half_) - 1;
    auto left = static_cast<std::uint64_t>(place) >> half_, right = static_cast<std::uint64_t>(place) & mask;
    for (auto const key : keys_) left = std::exchange(right, left ^ (mix_bits(right ^ key) & mask));
    return static_cast<std::int64_t>(left << half_ | right);
  }

  std::array<std::uint64_t, 4> keys_;  // of each round
  std::int64_t size_;
  int half_;  // the bits
};

void check_sampling(hot_row_sampling const& sampling);

}  // namespace detail

}  // namespace TESSERA_ABI
}  // namespace tessera

#if !TESSERA_COMPILED
#include <tessera/hot/estimate_hot_rows.ipp>
#endif
